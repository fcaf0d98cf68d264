"""``python fake_cluster.py FOLDER GPUS ARGUMENTS...``: ``tune`` with GPUS fake GPUs.

Also the preload of Dask workers that have such GPUs: they import this module, by
``DASK_DISTRIBUTED__WORKER__PRELOAD``. Each config is a line of FOLDER/measured.log when it is
begun: GPU, process, problem, config. What a GPU does then is in files of FOLDER:

- ``delay``: the seconds that each config takes;
- ``broken-GPU``: every config of that GPU fails as a lost GPU does;
- ``nvrtc``: the kernels are compiled, by one process, which takes a second longer than need be;
- ``times.log``: gets a line for each problem that is begun or has its finals: GPU, time, which;
- ``hold-GPU``: a number; the GPU is busy with its config of that number until there is ``go``.
"""

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from fake_target import tiny_family
from sized_target import SizedTarget
from waiting import wait_until

from autogemm.catalogue.gpus import find_device
from autogemm.compile import Compiler, nvrtc
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, Outcome
from autogemm.support.errors import DeviceError
from autogemm.support.interrupt import RemoteCtrlC, end_as_by_ctrl_c
from autogemm.targets import MeasureOptions, choose

FOLDER, GPUS = "FAKE_CLUSTER_FOLDER", "FAKE_CLUSTER_GPUS"


class ClusterTarget(SizedTarget):
    def __init__(self, number: int) -> None:
        folder = Path(os.environ[FOLDER])
        delay = folder / "delay"
        super().__init__(delay_s=float(delay.read_text()) if delay.exists() else 0.0)
        self._folder, self.number = folder, number
        self._holds = folder / f"hold-{number}"
        if (folder / f"absent-{number}").exists():
            raise DeviceError(f"GPU {number} does not answer")

    def compiler(self) -> Any:
        if (self._folder / "nvrtc").exists():
            cache = self._folder / f"cache-of-{self.number}"
            return Compiler(cache, threads=1, builder="fake_cluster:late_cubin")
        return super().compiler()

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        super().prepare(problem, options)
        self._note("begin")

    def finals(self, *arguments: Any) -> Finals:
        finals = super().finals(*arguments)
        self._note("end")
        return finals

    def _note(self, which: str) -> None:
        times = self._folder / "times.log"
        if times.exists():
            with times.open("a") as log:
                log.write(f"{self.number} {time.time():.6f} {which}\n")

    def measure(self, *arguments: Any) -> Outcome:
        (candidate, _) = arguments
        if (self._folder / f"broken-{self.number}").exists():
            raise DeviceError("the GPU has fallen off the bus")
        with (self._folder / "measured.log").open("a") as log:
            log.write(f"{self.number} {os.getpid()} {self.problem.m} {candidate.config}\n")
        outcome = super().measure(*arguments)
        if self._holds.exists() and len(self.measured) == int(self._holds.read_text()):
            wait_until((self._folder / "go").exists, "the test lets the GPU go on")
        return outcome


def late_cubin(source: str, name: str, options: tuple[str, ...]) -> nvrtc.Build:
    """As NVRTC, a second later."""
    time.sleep(1.0)
    return nvrtc.to_cubin(source, name, options)


def attach() -> None:
    """Have these GPUs, and no others."""
    fakes: Any = ModuleType("fake_gpus_of_a_cluster")
    fakes.attached_devices = lambda: [find_device("h100")] * int(os.environ[GPUS])
    fakes.why_no_device = lambda: "" if int(os.environ[GPUS]) else "the test attached none"
    fakes.Target = ClusterTarget
    sys.modules[fakes.__name__] = fakes
    choose.GPU_TARGETS.clear()
    choose.GPU_TARGETS["fake"] = f"{fakes.__name__}:Target"


def dask_setup(worker: object) -> None:
    """Called by Dask in each worker process. A Ctrl-C that arrives there makes FOLDER/pressed."""
    attach()
    remote: Any = RemoteCtrlC
    press = remote.press

    def noted(pressed: RemoteCtrlC) -> None:
        press(pressed)
        (Path(os.environ[FOLDER]) / "pressed").touch()

    remote.press = noted


def run() -> None:
    from autogemm.cli import main

    folder = Path(sys.argv[1])
    os.environ |= {FOLDER: str(folder), GPUS: sys.argv[2]}
    os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PRELOAD", "['fake_cluster']")
    attach()
    tiny_family(folder / "tiny")
    end_as_by_ctrl_c()
    main(["tune", "--no-certify", "--family", str(folder / "tiny"), *sys.argv[3:]])


if __name__ == "__main__":
    run()

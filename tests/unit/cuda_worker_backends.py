"""Backends without a GPU for test_cuda_worker.py: what a candidate does is in its config."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Environment, Finals, Measurement, Provenance, Status
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets.cuda.messages import (
    Measure,
    Measured,
    Prepare,
    Prepared,
    RunFinals,
    Start,
    Started,
    outcome_without_times,
)

FAKE_DEVICE = Device(
    "fake", 90, 132, 1024, 2048, 32, 255, 65536, 232448, 233472, 1024, 2**20, 2**30, 1, 1, 1, 128
)


# A candidate that is killed at work has run for so long.
KILLED_AFTER_S = 0.3


def note(line: str) -> int:
    """Append it to the file FAKE_BACKEND_LOG, if there is one; how often it stands there now."""
    if not (log := os.environ.get("FAKE_BACKEND_LOG")):
        return 0
    with Path(log).open("a") as file:
        file.write(f"{line}\n")
    return Path(log).read_text().splitlines().count(line)


def end_the_process(act: str) -> None:
    """Hang, be slow or die, as ``act`` says."""
    if act == "hang":
        note("hangs")
        time.sleep(600)
    if act == "slow":
        time.sleep(0.5)
        note("answers")
    if act == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)
    if act == "killed once" and note("is killed") == 1:
        time.sleep(KILLED_AFTER_S)
        os.kill(os.getpid(), 9)
    if act == "die":
        os.kill(os.getpid(), 9)
    if act == "exit":
        print("Segmentation fault in the driver", file=sys.stderr, flush=True)
        os._exit(3)
    if act == "grow":
        hoard = []
        while True:
            hoard.append(b"x" * 2**24)


class FakeBackend:
    """Keeps the protocol, except where a candidate's ``act`` says otherwise."""

    def __init__(self) -> None:
        self.prepared: Prepare | None = None
        self.spoiled = False

    def start(self, request: Start) -> Started:
        if request.device_index:
            raise DeviceError(f"there is no GPU {request.device_index}: 1 attached")
        return Started(FAKE_DEVICE, Environment(driver=str(os.getpid())))

    def prepare(self, request: Prepare) -> Prepared:
        if request.problem.m > 1000:
            raise UsageError("larger than the GPU")
        note(f"prepare {request.problem.label}")
        self.prepared = request
        return Prepared(100.0)

    def measure(self, request: Measure) -> Measured:
        assert self.prepared is not None
        act = str(request.candidate.config["act"])
        end_the_process(act)
        if act == "lose the GPU":
            raise DeviceError("cublasSgemm_v2 failed with cuBLAS status 14")
        if act == "raise":
            raise RuntimeError("not foreseen\nat all")
        if act == "lie":
            return "fine, thank you"  # type: ignore[return-value]
        if act == "out of turn":
            return Prepared(1.0)  # type: ignore[return-value]
        if act == "poison":
            crashed = outcome_without_times(request.candidate, Status.CRASHED, "illegal address")
            return Measured(crashed, 100.0, poisoned=True)
        if act == "spoil and fail" or self.spoiled:
            wrong = outcome_without_times(request.candidate, Status.WRONG_RESULT, "all are wrong")
            return Measured(wrong, 100.0, poisoned=True)
        self.spoiled = act == "spoil"
        outcome = outcome_without_times(request.candidate, Status.OK, "")
        measurement = Measurement((float(os.getpid()),), Provenance.MEASURED)
        return Measured(replace(outcome, measurement=measurement), 101.0)

    def finals(self, request: RunFinals) -> Finals:
        # Imported here: NumPy would double the start of every worker.
        from autogemm.model.results.finals import FinalsSamples, decide

        acts = [candidate.config["act"] for candidate in request.candidates]
        if len(acts) > 1 and "die in company" in acts:
            os.kill(os.getpid(), 9)

        def contestant(candidate: Candidate) -> FinalsSamples:
            if candidate.config["act"] == "hang":
                time.sleep(600)
            if candidate.config["act"] in {"die", "die in finals"}:
                os.kill(os.getpid(), 9)
            sha256 = candidate.source.sha256
            return FinalsSamples("one", candidate.config, sha256, (50.0,) * request.rounds)

        baseline = FinalsSamples("baseline", None, "", (100.0,) * request.rounds)
        entries, own = decide(baseline, [contestant(one) for one in request.candidates], 0)
        return Finals(entries, own, request.rounds, Provenance.MEASURED)


class SlowToFree(FakeBackend):
    """For a while after a worker died, the GPU has no room: as often as FAKE_BACKEND_FAILS says.

    The file counts the workers that were started.
    """

    def start(self, request: Start) -> Started:
        path = Path(os.environ["FAKE_BACKEND_STARTS"])
        started = int(path.read_text()) if path.exists() else 0
        path.write_text(str(started + 1))
        self.has_room = not 1 <= started <= int(os.environ["FAKE_BACKEND_FAILS"])
        return super().start(request)

    def prepare(self, request: Prepare) -> Prepared:
        if not self.has_room:
            raise UsageError("64 nn f32 needs 1.0 GiB on the GPU, 0.0 GiB are free")
        return super().prepare(request)


class GivesNoMemory(SlowToFree):
    """The same, told by the driver."""

    def prepare(self, request: Prepare) -> Prepared:
        if not self.has_room:
            raise DeviceError("the GPU is out of memory")
        return super().prepare(request)


class DeadOnStart(FakeBackend):
    def start(self, request: Start) -> Started:
        os._exit(7)


class OneOfSeveral(FakeBackend):
    """A GPU for the tiny family, each 5 % slower than the one before. It notes its workers.

    A GPU of which there is a file ``LOG.gone-NUMBER`` starts no worker.
    """

    def start(self, request: Start) -> Started:
        self.slower = 1 + request.device_index / 20
        note(f"worker {request.device_index} {os.getpid()}")
        if Path(f"{os.environ['FAKE_BACKEND_LOG']}.gone-{request.device_index}").exists():
            raise DeviceError("it has fallen off the bus")
        return Started(FAKE_DEVICE, Environment(driver="1"))

    def prepare(self, request: Prepare) -> Prepared:
        return Prepared(100.0 * self.slower)

    def measure(self, request: Measure) -> Measured:
        config = request.candidate.config
        note(f"begins {config}")
        time.sleep(0.02)
        outcome = outcome_without_times(request.candidate, Status.OK, "")
        own_us = self.slower * (50.0 + int(config["BM"]) + int(config["BN"]) / int(config["U"]))
        measurement = Measurement((own_us,), Provenance.MEASURED)
        return Measured(replace(outcome, measurement=measurement), 100.0 * self.slower)

    def finals(self, request: RunFinals) -> Finals:
        from autogemm.model.results.finals import FinalsSamples, decide

        note("finals")
        entries, own = decide(
            FinalsSamples("baseline", None, "", (100.0,) * request.rounds),
            [
                FinalsSamples("one", one.config, one.source.sha256, (50.0,) * request.rounds)
                for one in request.candidates
            ],
            0,
        )
        return Finals(entries, own, request.rounds, Provenance.MEASURED)

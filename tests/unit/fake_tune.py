"""``python fake_tune.py FOLDER HOLD ARGUMENTS...``: the command line with a fake GPU.

Run by tests that kill or interrupt it. Each measured config is a line of FOLDER/measured.log, when
it is begun. The HOLDth one (0: none) keeps the GPU busy until there is a file FOLDER/go.
"""

import sys
from pathlib import Path
from typing import Any

from fake_target import FakeTarget, tiny_family, twin_family
from waiting import wait_until

import autogemm.tuning.opening
from autogemm.cli import main
from autogemm.model.results.outcome import Outcome
from autogemm.support.interrupt import end_as_by_ctrl_c
from autogemm.targets import Chosen


class HeldTarget(FakeTarget):
    def __init__(self, folder: Path, hold: int) -> None:
        super().__init__(log=folder / "measured.log")
        self._go, self._hold = folder / "go", hold

    def measure(self, *arguments: Any) -> Outcome:
        outcome = super().measure(*arguments)
        if len(self.measured) == self._hold:
            wait_until(self._go.exists, "the test lets the GPU go on")
        return outcome


def run() -> None:
    folder = Path(sys.argv[1])
    target = HeldTarget(folder, int(sys.argv[2]))
    tiny_family(folder / "tiny")
    twin_family(folder / "twin")
    autogemm.tuning.opening.choose_target = lambda *_: Chosen(target)  # type: ignore[assignment]
    end_as_by_ctrl_c()
    main(
        ["tune", "--no-certify", "--family", str(folder / "tiny"), "--size", "1024", *sys.argv[3:]]
    )


if __name__ == "__main__":
    run()

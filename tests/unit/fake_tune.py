"""``python fake_tune.py FOLDER DELAY_S ARGUMENTS...``: the command line with a fake card.

Run by tests that kill or interrupt it. Each measured config is a line of FOLDER/measured.log.
"""

import sys
from pathlib import Path

from fake_target import FakeCompiler, FakeTarget, tiny_family, twin_family

import autogemm.compile
import autogemm.tuning
from autogemm.cli import main
from autogemm.tuning import Chosen


def run() -> None:
    folder = Path(sys.argv[1])
    target = FakeTarget(delay_s=float(sys.argv[2]), log=folder / "measured.log")
    tiny_family(folder / "tiny")
    twin_family(folder / "twin")
    autogemm.compile.Compiler = FakeCompiler  # type: ignore[assignment,misc]
    autogemm.tuning.choose_target = lambda *_: Chosen(target)  # type: ignore[assignment]
    main(
        ["tune", "--no-certify", "--family", str(folder / "tiny"), "--size", "1024", *sys.argv[3:]]
    )


if __name__ == "__main__":
    run()

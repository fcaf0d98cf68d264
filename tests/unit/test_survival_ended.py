"""A run that is killed or interrupted at any step, over and over, ends with every trial once."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autogemm.support.child_process import child_environment

HERE = Path(__file__).parent
# --fix BM=32 leaves three tiles, two unrollings, and two values of a parameter without effect.
NUM_TRIALS = 12


@pytest.mark.parametrize(
    ("name", "status", "seed"),
    [("SIGKILL", -9, 4), ("SIGINT", 130, 4)],
)
def test_ended_at_any_step_and_resumed(tmp_path: Path, name: str, status: int, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "fake_tune_ended.py"), str(tmp_path), name, str(seed)],
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(),
    )
    *ended, last = map(json.loads, done.stdout.splitlines())
    said = (tmp_path / "err.log").read_text()
    assert len(ended) >= 4, "too few interruptions to show anything"
    assert {attempt["exit"] for attempt in ended} == {status}, said
    assert last["is_finished"], said
    assert last["exit"] in (0, status), said
    assert "Traceback" not in said
    before: list[Any] = []
    num_finals = 0
    for attempt in (*ended, last):
        assert (attempt["integrity"], attempt["foreign_keys"]) == ("ok", [])
        assert attempt["trials"][: len(before)] == before, "a stored trial was lost or changed"
        before = attempt["trials"]
        # Ended between its finals and the note that it is finished, a run has them once more.
        assert len(attempt["finals"]) - num_finals in (0, 1)
        num_finals = len(attempt["finals"])
    assert {run_id for run_id, _, _ in before} == {1}
    configs = Counter(config for _, _, config in before)
    assert (len(configs), set(configs.values())) == (NUM_TRIALS, {1})
    assert len({number for _, number, _ in before}) == NUM_TRIALS
    assert set(last["finals"]) == {1}
    # The candidate on the GPU when it ended is measured again, and nothing else.
    measured = Counter((tmp_path / "measured.log").read_text().splitlines())
    assert sum(measured.values()) - len(measured) <= len(ended)

"""autogemm.tune and autogemm.best, on a recording."""

from pathlib import Path

import pytest

import autogemm
from autogemm.model.outcome import Provenance
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import NotFoundError, UsageError


def test_tune_and_best_return_values(tmp_path: Path) -> None:
    place = str(tmp_path / "mine.db")
    result = autogemm.tune((1024, 1024, 1024), gpu="recorded", trials=6, db=place)
    assert result.num_trials == 6
    assert result.finals is not None
    row = autogemm.best(1024, db=place)
    assert row.config == result.finals.winner.config
    assert (row.problem, row.provenance) == (Problem.of_size("1024"), Provenance.RECORDED)
    assert autogemm.best(Problem.of_size("1024"), gpu="h100", db=place) == row
    with pytest.raises(NotFoundError):
        autogemm.best(1024, layout="tt", db=place)


def test_recorded_times_in_place_of_a_gpu_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autogemm.targets.cuda.attached_devices", list)
    with pytest.warns(UserWarning, match="recorded, not measured here"):
        autogemm.tune(1024, trials=3, db=str(tmp_path / "mine.db"))


@pytest.mark.parametrize("size", ["1024x", (0, 4, 4), -1])
def test_a_size_that_is_none(size: str | int, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        autogemm.tune(size, layout=Layout.NT, gpu="recorded", db=str(tmp_path / "mine.db"))
    assert not (tmp_path / "mine.db").exists()

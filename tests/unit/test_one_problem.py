"""How much sooner several GPUs find a good kernel: benchmarks/one_problem.py."""

import importlib
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
one_problem: Any = importlib.import_module("one_problem")


def test_times_count_from_the_beginning_of_the_search_by_the_pace_of_each_gpu(
    tmp_path: Path,
) -> None:
    begin = datetime(2026, 11, 29, tzinfo=UTC)
    rows = [(3.0, None, 1.0), (2.0, 10.0, 1.0), (5.0, 8.0, 1.25), (4.0, 9.0, 1.0)]
    with create_engine(f"sqlite:///{tmp_path}/one.db").begin() as connection:
        connection.execute(text("CREATE TABLE run_trials (finished_at, time_us, pace)"))
        for at_s, time_us, pace in rows:
            at = (begin + timedelta(seconds=at_s)).replace(tzinfo=None).isoformat(" ")
            connection.execute(
                text("INSERT INTO run_trials VALUES (:at, :us, :pace)"),
                {"at": at, "us": time_us, "pace": pace},
            )
    # The search of 6 s ended with the trial at 5 s, so it began at -1 s.
    steps = one_problem.steps_of(tmp_path / "one.db", 6.0)
    assert steps == [(3.0, 10.0), (5.0, 9.0), (6.0, 10.0)]


def test_an_empty_search_has_no_steps(tmp_path: Path) -> None:
    with create_engine(f"sqlite:///{tmp_path}/one.db").begin() as connection:
        connection.execute(text("CREATE TABLE run_trials (finished_at, time_us, pace)"))
    assert one_problem.steps_of(tmp_path / "one.db", 6.0) == []


def test_several_gpus_are_compared_by_the_medians_of_the_times_to_a_good_kernel() -> None:
    def searched(*steps: tuple[float, float], rate: float) -> Any:
        return one_problem.Searched(list(steps), rate, 0.5)

    never = searched((1.0, 200.0), rate=20.0)
    one = [
        searched((1.0, 110.0), (8.0, 101.0), rate=20.0),
        never,
        searched((6.0, 101.9), rate=22.0),
    ]
    several = [searched((2.0, 100.0), rate=40.0)] * 3
    row = one_problem.compared({"one": one, "all": several}, 0.02)
    assert row["best_us"] == 100.0
    assert row["one"]["reached_s"] == [8.0, None, 6.0]
    assert row["times_as_fast"] == pytest.approx(8.0 / 2.0)
    assert row["times_as_many_trials"] == pytest.approx(2.0)
    table = one_problem.table([{"size": "64", "dtype": "f32"} | row])
    assert "8.0 never 6.0" in table
    # Where most searches found none, nothing can be said.
    row = one_problem.compared({"one": [never, never, one[0]], "all": several}, 0.02)
    assert row["times_as_fast"] is None
    assert "not decided" in one_problem.table([{"size": "64", "dtype": "f32"} | row])

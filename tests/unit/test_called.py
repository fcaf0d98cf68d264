"""Files of recorded GEMMs: written and read, tuned by weight, reported; no torch is needed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from autogemm.cli import main
from autogemm.cli.tune import run as tune_run
from autogemm.model.batch import Batch
from autogemm.model.called import CalledGemm, Recorded, called_text, merged, parsed_called
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem

SMALL = Problem(16, 32, 8, Layout.NT, DType.BF16, lda=24, epilogue=Epilogue("relu(acc + bias[n])"))
LARGE = Problem(1024, 1024, 1024)


def gemm(problem: Problem | None, calls: int, time_us: float, label: str = "") -> CalledGemm:
    name = label if problem is None else problem.label
    return CalledGemm(problem, name, 1, "aten.mm", calls, time_us)


RECORDED = Recorded(
    "cuda",
    "NVIDIA H100 80GB HBM3",
    1000.0,
    (gemm(LARGE, 2, 600.0), gemm(SMALL, 3, 200.0), gemm(None, 1, 50.0, "8x8x8 float64")),
)


def test_what_is_written_is_read_again() -> None:
    assert parsed_called(called_text(RECORDED), "it") == RECORDED
    assert RECORDED.weights == {LARGE: 0.75, SMALL: 0.25}
    gated = LARGE.with_epilogue(Epilogue("silu(acc[n]) * acc[n + N]"))
    shared = replace(RECORDED, gemms=(gemm(gated, 1, 600.0), gemm(SMALL, 3, 200.0)))
    assert shared.weights == {gated: 0.375, LARGE: 0.375, SMALL: 0.25}
    batched = replace(LARGE, batch=Batch(4, rows_a=0))
    alone = replace(RECORDED, gemms=(gemm(batched, 1, 2.0),))
    assert parsed_called(called_text(alone), "it").gemms[0].problem == batched


def test_processes_are_merged_the_longest_time_first() -> None:
    other = Recorded("cpu", "", 2000.0, (gemm(SMALL, 1, 900.0),))
    whole = merged([Recorded("cpu", "", 1.0, ()), RECORDED, other])
    assert [(one.problem, one.calls, one.time_us) for one in whole.gemms[:2]] == [
        (SMALL, 4, 1100.0),
        (LARGE, 2, 600.0),
    ]
    assert (whole.gpu, whole.wall_us) == (RECORDED.gpu, 2000.0)


@pytest.mark.parametrize(
    ("line", "name", "value", "words"),
    [
        (0, "version", 2, "line 1: not a recording of this version"),
        (0, "clock", "sun", "line 1: clock is cuda or cpu, got 'sun'"),
        (1, "size", "0x1x1", "line 2: M must be from 1"),
        (1, "calls", 0, "line 2: calls is a whole number from 1, got 0"),
        (1, "time_us", -1, "line 2: time_us is a time"),
        (1, "lda", True, "line 2: lda is a whole number"),
        (2, "epilogue", "sum(acc)", "line 3: epilogue, column 1"),
        (2, "layout", "xx", "line 3: 'xx' is not a valid Layout"),
        (2, "dtype", "f8", "line 3: unknown dtype 'f8'"),
        (3, "label", None, "line 4: label is a line of text"),
    ],
)
def test_a_broken_file_is_one_line(
    tmp_path: Path, line: int, name: str, value: object, words: str
) -> None:
    lines = [json.loads(one) for one in called_text(RECORDED).splitlines()]
    lines[line][name] = value
    place = tmp_path / "broken.jsonl"
    place.write_text("\n".join(map(json.dumps, lines)))
    for command in (["tune", "--problems"], ["record", "--report"]):
        result = CliRunner().invoke(main, [*command, str(place)])
        assert result.exit_code == 2
        assert f"{command[1]} {place}, {words}" in result.stderr
        assert len(result.stderr.splitlines()) <= 3


def test_tuning_takes_the_longest_first_and_shares_a_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "shapes.jsonl"
    place.write_text(called_text(replace(RECORDED, gemms=RECORDED.gemms[::-1])))
    asked: list[tune_run.TuneCommand] = []
    monkeypatch.setattr(tune_run, "run", asked.append)
    runner, tune = CliRunner(), ["tune", "--problems", str(place)]
    assert runner.invoke(main, [*tune, "--total", "100s", "--size", "64"]).exit_code == 0
    assert runner.invoke(main, tune).exit_code == 0
    assert asked[0].problems == (LARGE, SMALL, Problem(64, 64, 64))
    assert [asked[0].budget_s(one) for one in asked[0].problems] == [75.0, 25.0, 120.0]
    assert asked[1].budget_s(LARGE) == 120.0
    result = runner.invoke(main, ["tune", "--size", "64", "--total", "100s"])
    assert result.exit_code == 2 and "--total needs a recording" in result.stderr
    place.write_text(called_text(replace(RECORDED, gemms=RECORDED.gemms[2:])))
    result = runner.invoke(main, tune)
    assert result.exit_code == 2 and "no kernels for its problems" in result.stderr

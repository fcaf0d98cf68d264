"""``autogemm explain`` as a user calls it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from autogemm.cli import main

pytestmark = pytest.mark.emulated

SMALL = ("--size", "256", "--gpu", "h100")
GOOD = ("BM=64", "BN=64", "BK=8", "WM=32", "WN=32", "TM=8", "TN=4", "STAGES=2", "LANE_MAP=quads")


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "none.db"))


def explain(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def explained(*changes: str) -> dict[str, Any]:
    fix = [word for change in (*GOOD, *changes) for word in ("--fix", change)]
    result = explain(*SMALL, *fix, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_section_is_there() -> None:
    found = explained()
    assert found["compiled"]["kernels"][0]["registers"] >= 32
    assert found["residency"][0]["blocks_per_sm"] >= 1
    assert found["waves"][0]["blocks"] == 16
    assert found["accesses"]["shared_wavefronts"] > 0
    assert found["intensity"]["levels"]
    assert found["neighbours"]["neighbours"]
    assert "no database" in found["timing"]["missing"]


def test_no_padding_costs_wavefronts_of_the_stores_that_transpose() -> None:
    good, bad = explained("PAD_A=4")["accesses"], explained("PAD_A=0")["accesses"]
    assert bad["shared_wavefronts"] > good["shared_wavefronts"]
    assert bad["ideal_shared_wavefronts"] == good["ideal_shared_wavefronts"]
    worst = max(bad["lines"], key=lambda line: line["times_ideal"])
    assert (worst["memory"], worst["operation"]) == ("shared", "store")
    assert "shared[(k + i) * STRIDE_A + m]" in worst["text"]


def test_a_rung_shows_its_cause_in_numbers() -> None:
    sectors = {}
    for rung in ("naive_uncoalesced", "naive"):
        result = explain("--rung", rung, *SMALL, "--json")
        assert result.exit_code == 0, result.output
        lines = json.loads(result.stdout)["accesses"]["lines"]
        (load_of_a,) = (one for one in lines if one["text"].startswith("const float a = A["))
        sectors[rung] = load_of_a["per_request"]
    # 32 lanes read 32 rows of A, or one element of it.
    assert sectors == {"naive_uncoalesced": 32, "naive": 1}


def test_a_bulk_copy_counts_every_sector_that_it_brings() -> None:
    family = ("--family", "sgemm_emulated_wgmma", "--seed-index", "0")
    result = explain(*family, "--gpu", "h100", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["accesses"]
    copies = [line for line in found["lines"] if "copy_bulk(" in line["text"]]
    assert {line["per_request"] for line in copies} == {16384 / 32}
    # Tensor cores read shared memory themselves here: what threads ask of it says nothing.
    assert (found["fma_clocks"], found["shared_share"]) == (None, None)


def test_the_tables_name_the_limiter_and_the_neighbours() -> None:
    fix = [word for change in GOOD for word in ("--fix", change)]
    shown = explain(*SMALL, *fix).output
    for expected in ("blocks per SM", "limiter", "waves", "STAGES 2 -> 3", "main loop", "FLOP per"):
        assert expected in shown


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        ((), 2, "no database"),
        (("17", "--fix", "BM=64"), 2, "leave out --fix"),
        (("--fix", "BM=63"), 2, "BM has no value 63"),
        (("--fix", "BM=16", "--gpu", "h100"), 2, "it breaks"),
        (("--fix", "BM=64", "--gpu", "nosuch"), 2, "nosuch"),
        (("--seed-index", "99", "--gpu", "h100"), 2, "there is no seed 99"),
    ],
)
def test_bad_requests_are_one_line(words: tuple[str, ...], exit_code: int, message: str) -> None:
    result = explain(*words)
    assert (result.exit_code, message in result.output) == (exit_code, True), result.output
    assert "Traceback" not in result.output

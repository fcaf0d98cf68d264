"""docs/ladder.md shows what was measured and published, and explains the columns of the CSV."""

import json
import re
from pathlib import Path

import pytest

from autogemm.bench.kernels import kernels_of
from autogemm.catalogue.ladder import published_percent
from autogemm.cli.bench.run import COLUMNS
from autogemm.model.results.columns import ERRORS, RATIO, SPEED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ladder.md").read_text()
ROWS = json.loads((ROOT / "benchmarks" / "results" / "ladder_h100.json").read_text())
SIZES = ("1024", "2048", "4096")
TABLE = {
    cells[0].strip("`"): cells[1:]
    for line in PAGE.splitlines()
    if (cells := [cell.strip() for cell in line.strip("|").split("|")]) and len(cells) == 7
}


def measured(kernel: str, size: str, column: str) -> float:
    row = next(row for row in ROWS if (row["kernel"], row["size"]) == (kernel, size))
    return float(row[column])


def test_every_rung_and_library_has_its_row() -> None:
    assert {*kernels_of("ladder")} <= TABLE.keys()


@pytest.mark.parametrize("kernel", sorted(TABLE.keys() - {"kernel", "---"}))
def test_a_row_says_what_was_measured(kernel: str) -> None:
    _, *percents, gflops, published = TABLE[kernel]
    found = [measured(kernel, size, "percent_of_cublas") for size in SIZES]
    assert percents == [f"{percent:.1f}" for percent in found]
    assert gflops == f"{measured(kernel, '4096', 'gflops'):.0f}"
    known = published_percent(kernel)
    assert published == ("" if known is None else str(known))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kernel']}-{row['size']}")
def test_figures_follow_from_the_times(row: dict[str, float]) -> None:
    side = int(row["size"])
    element = {"f32": 4, "tf32": 4, "bf16": 2, "f16": 2}[str(row["dtype"])]
    assert row["gflops"] == pytest.approx(2 * side**3 / row["time_us"] / 1e3)
    assert row["bandwidth_gb_s"] == pytest.approx(3 * side**2 * element / row["time_us"] / 1e3)
    assert row["flop_per_byte"] == pytest.approx(2 * side / 3 / element)
    naive_us = measured("naive", str(side), "time_us")
    assert row["speedup_over_naive"] == pytest.approx(naive_us / row["time_us"])
    # Paired ratios, of which this is the ratio of medians.
    by_medians = 100 * measured("cublas_f32", str(side), "time_us") / row["time_us"]
    assert row["percent_of_cublas"] == pytest.approx(by_medians, rel=0.02)


def test_the_columns_of_the_csv_are_explained() -> None:
    explained = set(re.findall(r"`(_?\w+)`", PAGE))
    figures = {*SPEED, *RATIO, *ERRORS, "speedup_over_naive", "bandwidth_gb_s"}
    figures |= {"flop_per_byte", "percent_of_roof"}
    assert figures <= explained
    assert figures <= set(COLUMNS)

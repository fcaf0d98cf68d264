"""docs/ladder.md shows what was measured and published, and explains the columns of the CSV."""

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from autogemm.catalogue.ladder import published_percent, rungs
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


def test_every_rung_and_library_that_was_timed_has_its_row() -> None:
    assert {row["kernel"] for row in ROWS} <= TABLE.keys()
    assert {rung.name for rung in rungs()} <= TABLE.keys()


def page_script() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("ladder_pages")
    finally:
        sys.path.pop(0)


def test_the_wide_ladder_is_what_its_script_writes() -> None:
    script = page_script()
    assert script.page(PAGE) == PAGE
    with pytest.raises(script.figures.FigureError, match="no block"):
        script.page(PAGE.replace(script.FIRST, ""))


def test_tables_of_the_wide_ladder() -> None:
    """A row for each kernel in the ladder's order, a column for each size, dashes for gaps."""
    script = page_script()

    def row(kernel: str, size: str, ratio: float, tflops: float, status: str = "ok") -> Any:
        timed = {"ratio": ratio, "tflops": tflops} if status == "ok" else {}
        about = {"gpu": "NVIDIA H200", "measured_at": "2026-11-24T13:00:00"}
        return {"kernel": kernel, "size": size, "status": status, **timed, **about}

    ladder = [
        row("cutlass_f32", "128", 0.9, 1.0),
        row("naive_16", "4096x256x1024", 0.125, 5.0),
        row("naive", "128", 0.25, 2.0),
        row("torch_bf16", "8192", 15.0, 700.04),
        row("torch_bf16", "128", 0.0, 0.0, "rejected"),
    ]
    clock = {"measured_sm_clock_mhz": 2000}
    ceilings = [dict.fromkeys(script.LEVELS, 500.0) | clock | {"l1_latency_cycles": 39.6}]
    said = script.block(ladder, ceilings)
    lines = said.splitlines()
    at = lines.index("| `naive` | 25.0 | - | - | - | - | - | - | - |")
    assert lines[at + 1] == "| `naive_16` | - | - | - | - | - | - | - | 12.5 |"
    assert lines[at + 2].startswith("| `cutlass_f32` | 90.0 | -")
    assert "| `torch_bf16` | - | - | - | - | - | - | 700.0 | - |" in lines
    assert "| L1 | 40 | 20 |" in lines
    assert "| device memory | 500 | 250 |" in lines
    assert "Measured 2026-11-24 on an NVIDIA H200" in said
    assert script.block(None, None) == script.MISSING


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

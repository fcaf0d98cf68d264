"""Tables for people: aligned, never folded in pipes, folded where a terminal is too narrow."""

import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from autogemm.cli import main, rows
from autogemm.cli.bench import run as bench
from autogemm.cli.db.run import changes, check, pareto, results, why
from autogemm.cli.insight.run import pictures
from autogemm.cli.kernels.run import gpus, lines, verify
from autogemm.cli.prose import folded
from autogemm.cli.table import cell, print_table, remember_wide
from autogemm.cli.tune import many
from autogemm.model.hardware.device import short_gpu_name
from autogemm.support.amounts import counted, short_count

ROWS: list[dict[str, Any]] = [
    {"name": "short", "time_us": 1.5, "reason": "one\ntwo"},
    {"name": "x" * 150, "time_us": 12345.6, "reason": "y" * 100},
    {"name": "行列", "time_us": None, "reason": ""},
]
COLUMNS = ("name", "time_us", "reason")


def printed(capsys: pytest.CaptureFixture[str], title: str | None = None) -> list[str]:
    print_table(ROWS, COLUMNS, title)
    return click.unstyle(capsys.readouterr().out).splitlines()


def test_a_table_in_a_pipe_has_a_line_a_row_however_wide(
    capsys: pytest.CaptureFixture[str],
) -> None:
    header, first, second, wide, east = printed(capsys)
    assert header == f"{'name':150}  time_us  reason"
    assert first == f"{'short':150}      1.5  one"
    assert second == " " * 161 + "two"
    assert wide == f"{'x' * 150}   12,346  {'y' * 100}"
    # Two letters that take two columns each.
    assert east == f"行列{' ' * 146}        -  -"


def test_a_title_stands_above(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, title="[bold]trials")[0] == "[bold]trials"


def on_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    rows = [
        {"kernel": "BM=128 " * 20, "time_us": 2543.0, "measured_at": "2026-11-21 13:24"},
        {"kernel": "cuBLAS", "time_us": 49.95, "measured_at": "2026-11-21 13:25"},
    ]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(rows, ("kernel", "time_us", "measured_at"))
    return click.unstyle(capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_that_is_too_narrow_folds_between_words(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = on_terminal(columns, capsys, monkeypatch)
    assert all(len(line) <= columns for line in lines)
    assert "\n".join(lines).count("BM=128") == 20
    assert any(line.split()[:2] == ["cuBLAS", "49.95"] for line in lines)


def test_a_terminal_that_is_broad_enough_folds_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(on_terminal(180, capsys, monkeypatch)) == 3


# The longest that each column has in practice.
LONGEST: dict[str, Any] = {
    **{"gpu": "RTX 3060 Ti", "problem": "4096x256x1024 nt bf16-f32", "size": "4096x256x1024"},
    **{"provenance": "recorded", "time_us": 12345.6, "first_time_us": 1e5, "second_time_us": 1e5},
    **{"ratio": 1.234, "ratio_low": 1.1, "ratio_high": 1.3, "speed_up": 1.2, "verdict": "FAST"},
    **{"kernel_id": 123456, "run_id": 12345, "trial_id": 1234567, "state": "interrupted"},
    **{
        "against_baseline": "slower",
        "status": "compile_timeout",
        "reason": "a reason of some words " * 4,
        "place": 8,
    },
    **{"config": "BM=64 BN=128 BK=16 FMA_ORDER=snake STREAM_BLOCKS=264 " * 2, "on_front": True},
    **{"driver": "580.159.04", "changed": "driver, compiler, template", "note": "tuned again"},
    **{"num_runs": 12345, "num_problems": 1234, "num_trials": 1234567, "hours": 123.4},
    **{"energy_mj": 123.4, "edp_mj_us": 123456.7, "family": "sgemm_emulated_wgmma"},
    **{"kernel": "sgemm_emulated_wgmma", "dtype": "bf16-f32", "tflops": 1234.5, "cases": 4321},
    **{"percent_of_cublas": 104.2, "interval": "104.1..104.4", "percent_of_roof": 98.7},
    **{"bound_by": "arithmetic", "sources": 123, "lines": 12345, "reached": 12345},
    **{"short_name": "a100-80gb", "name": "NVIDIA GeForce RTX 3060 Ti", "arch": "sm_100"},
    **{"num_sms": 180, "memory_gib": 180, "bandwidth_gb_s": 8184.0},
    "peak_f32_tflops": 91.61,
    **{"file": "sgemm_simt_h200_4096x256x1024_nn.json.gz", "num_configs": 1234},
    **{"parameter": "STREAM_BLOCKS", "before": "separate", "after": "shared"},
    **{"#": 8, "time us": 12345.6, "TFLOP/s": 1234.5, "x cuBLAS": "1.234", "layout": "nt"},
    **{"problems": 123, "passed": 123, "failed": 0, "error_over_bound": 0.0123},
}
SHORT_TABLES = {
    "best": rows.BEST_SHORT,
    "runs": rows.RUN_SHORT,
    "trials": rows.TRIAL_SHORT,
    "trials of a kernel": rows.KERNEL_TRIAL_SHORT,
    "finals": rows.ENTRY_SHORT,
    "history": changes.HISTORY_SHORT,
    "compare": changes.COMPARED_SHORT,
    "check": check.SHORT,
    "why": why.SHORT,
    "pareto": pareto.SHORT,
    "stats": results.STATS_SHORT,
    "bench": bench.SHORT,
    "gpus": gpus.SHORT,
    "recordings": gpus.RECORDING_SHORT,
    "roofline": pictures.SHORT,
    "lines": lines.SHORT,
    "verify": verify.SHORT,
    "tune": ("#", "TFLOP/s", "config", "time us", "x cuBLAS", "interval"),
    "many": many.SHORT,
}


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", SHORT_TABLES)
def test_every_short_table_fits_as_a_table(
    name: str,
    width: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = SHORT_TABLES[name]
    assert len(columns) <= 6
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    print_table([LONGEST, LONGEST], columns)
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert all(len(line) <= width for line in lines)
    # A head above the rows, and not a line for each cell.
    assert lines[0].split()[0] in (columns[0], columns[0].split("_")[0])
    assert len(lines[0].split()) >= 3
    words = {word for line in lines for word in line.split()}
    cells = (cell(column, LONGEST[column]) for column in columns)
    assert {word for one in cells for word in one.split()} <= words, "no word is broken"


def test_a_column_without_values_is_left_out_and_others_wait_for_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    rows = [{"kernel_id": 12345, "ratio": 1.1, "tied": False, "energy_mj": None, "num": 12345}]
    columns = ("kernel_id", "ratio", "energy_mj", "tied", "num")

    def shown(**how: Any) -> list[str]:
        print_table(rows, columns, **how)
        return click.unstyle(capsys.readouterr().out).splitlines()

    assert [line.split() for line in shown()] == [
        ["kernel_id", "ratio", "tied", "num"],
        ["12345", "1.100", "False", "12,345"],
    ]
    assert shown(short=("kernel_id",))[1:] == ["    12345", "3 more columns: --wide"]
    assert "energy_mj" in shown(keep_empty=True)[0]
    with click.Context(click.Command("x")) as context:
        remember_wide(context, click.Option(["--wide"]), True)
        assert shown(short=("kernel_id",)) == shown()


@pytest.mark.parametrize(
    ("ratio", "low", "high", "colour"),
    [
        (1.1, 1.05, 1.2, "green"),
        (1.1, 0.99, 1.2, None),
        (0.9, 0.8, 0.95, "red"),
        (0.9, None, None, "red"),
        (1.1, None, None, "green"),
        (None, None, None, None),
    ],
)
def test_a_ratio_is_coloured_where_its_interval_leaves_out_1(
    ratio: float | None, low: float | None, high: float | None, colour: str | None
) -> None:
    command = click.Command(
        "x",
        callback=lambda: print_table(
            [{"ratio": ratio, "ratio_low": low, "ratio_high": high, "kernel": "x"}],
            ("ratio", "kernel"),
            keep_empty=True,
        ),
    )
    out = CliRunner().invoke(command, color=True).output
    codes = {"green": "\x1b[32m", "red": "\x1b[31m"}
    assert [name for name, code in codes.items() if code in out] == ([colour] if colour else [])


def test_prose_is_folded_between_words() -> None:
    text = "next: autogemm export best.cu\n  a path /that/is/longer/than/the/line stays whole"
    assert folded(text, 20).split("\n") == [
        "next: autogemm",
        "  export best.cu",
        "  a path",
        "    /that/is/longer/than/the/line",
        "    stays whole",
    ]
    assert folded(text, None) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (3456, "3,456"), (5_412_345, "5.4 M"), (19_074_908, "19 M"), (1.9e15, "1.9e15")],
)
def test_big_counts_are_short(count: float, text: str) -> None:
    assert short_count(count) == text


def test_one_of_a_kind_is_singular() -> None:
    said = [counted(number, "trial") for number in (0, 1, 2, 5000)]
    assert said == ["0 trials", "1 trial", "2 trials", "5,000 trials"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti"),
        ("Tesla T4", "T4"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA 80GB", "NVIDIA 80GB"),
    ],
)
def test_short_names_of_gpus_are_parts_of_their_names(name: str, short: str) -> None:
    assert short_gpu_name(name) == short
    assert short in name


def test_where_no_folding_helps_each_row_has_lines_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    columns = [f"measurement{i}" for i in range(5)]
    print_table([dict.fromkeys(columns, 1.5), dict.fromkeys(columns, "two words")], columns)
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert lines[:2] == ["measurement0  1.5", "measurement1  1.5"]
    assert lines[5:7] == ["", "measurement0  two words"]


def test_titles_and_values_beside_their_names_are_folded_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    words = "several words that are longer than the rest of the line"
    columns = ["name", *(f"measurement{i}" for i in range(5))]
    print_table([{"name": words, **dict.fromkeys(columns[1:], 1.5)}], columns, title=words)
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert lines[:2] == ["several words that are longer than the", "  rest of the line"]
    assert lines[2:5] == [
        "name          several words that are",
        "              longer than the rest of",
        "              the line",
    ]
    assert max(map(len, lines)) <= 40


def test_asking_a_database_imports_no_numpy() -> None:
    """A tenth of a second, of half a one that such a command takes."""
    code = "import sys, autogemm.cli.db.run.results\nsys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_no_control_code(monkeypatch: pytest.MonkeyPatch, no_color: str) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    result = CliRunner().invoke(main, ["gpus", "h100"], color=True)
    assert ("\x1b" in result.stdout) == (not no_color)

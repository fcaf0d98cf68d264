"""README.md: short, true, and its commands and Python are such as exist."""

import re
import sys
from pathlib import Path

import pytest

import autogemm

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import figures
import showcase

ROOT = figures.ROOT
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def first_screen(text: str) -> str:
    """The text down to the commands of the quick start, the chart's words included."""
    before, heading, after = text.partition("\n## Quick start\n\n")
    above = before + heading + after.partition("\n\n")[0]
    assert "make tune" in above
    drawn = re.sub(r"<picture>.*?</picture>", showcase.alt_text(), above, flags=re.DOTALL)
    return figures.seen(drawn)


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150
    shown = first_screen(README)
    assert len(re.findall(r"\b[A-Za-z][\w'-]*", shown)) <= 120
    # BF16 and H200 are names.
    assert len(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", shown)) <= 10


def test_chart_table_and_session_are_what_the_results_say() -> None:
    stale = [path.name for path, text in showcase.files().items() if path.read_text() != text]
    assert not stale, f"run: python benchmarks/showcase.py --update ({stale})"


def test_a_changed_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = figures.rows_of("suite_bf16_h200.json")
    faster = [row | {"ratio": 1.5} for row in rows]
    monkeypatch.setattr(
        figures,
        "rows_of",
        lambda name, known=figures.rows_of: faster if "suite_bf16_h2" in name else known(name),
    )
    assert "[1.50](benchmarks/results/suite_bf16_h200.txt)" in showcase.table()
    assert showcase.chart(showcase.LIGHT) != (ROOT / "docs/img/overview_light.svg").read_text()


def test_a_missing_block_is_seen() -> None:
    with pytest.raises(figures.FigureError, match="generated: results"):
        showcase.with_blocks(README.replace("<!-- end of results -->", ""))


def test_python_without_a_gpu_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = (one for one in BLOCKS if "recorded" in one)
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "readme.db"))
    exec(compile(block, "README.md", "exec"), {})
    assert re.search(r"BM=\d+ .* [\d.]+ us$", capsys.readouterr().out.strip())


def test_python_for_a_gpu_calls_what_is_there() -> None:
    called = {name for block in BLOCKS for name in re.findall(r"autogemm\.(\w+)\(", block)}
    assert called == {"gemm", "tune"}
    assert called < set(autogemm.__all__)

"""The figures that documents quote are those of the committed results; planted errors are found."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import figures

from autogemm.codegen import render
from autogemm.model.problem import Problem
from autogemm.space import load_family

SUITE = "planted_h200.json"
OLD = "planted_old_h200.json"
MEAN = f"<!-- figure: 1.41 = {SUITE} geometric_mean -->"


def test_what_the_documents_quote_is_true() -> None:
    faults = [
        str(fault)
        for path in figures.pages()
        for fault in figures.faults_of(path.relative_to(figures.ROOT).as_posix(), path.read_text())
    ]
    assert not faults, "\n".join(faults)


def test_the_headlines_are_marked() -> None:
    readme = (figures.ROOT / "README.md").read_text()
    assert len(figures.MARKER.findall(readme)) >= 11


def row(shape: str, ratio: float, **more: Any) -> dict[str, Any]:
    """A row whose text is the one of today."""
    family = load_family("sgemm_simt")
    problem = Problem.of_size(shape)
    source = render(family, family.seeds[0], problem)
    timed = {"time_us": 10.0, "baseline_us": 10.0 * ratio, "ratio": ratio}
    what = {"shape": shape, "layout": "nn", "dtype": "f32", "family": family.name}
    return (
        what | timed | {"config": family.seeds[0].as_dict(), "kernel_sha256": source.sha256} | more
    )


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, rows in (
        (SUITE, [row("1024", 2.0), row("2048", 1.0, sustained_mj=4.0, sustained_baseline_mj=14.0)]),
        (OLD, [row("1024", 1.5, kernel_sha256="0" * 64)]),
    ):
        (tmp_path / name).write_text(json.dumps({"rows": rows}))
    (tmp_path / "planted.txt").write_text("185 passed in 7.5s\nratio 3.7754 [3.7, 3.8]\nPASSED\n")
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    for cached in (figures.content_of, figures.is_of_today, figures.numbers_in):
        cached.cache_clear()
    return tmp_path


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    "line",
    [
        f"It is 1.41 times as fast. {MEAN}",
        f"| f32 | [1.4](x.txt) <!-- figure: 1.4 = {SUITE} geometric_mean --> |",
        f"At 2048 no more than 1.00. <!-- figure: 1.00 = {SUITE} 2048 ratio -->",
        f"3.5 times fewer <!-- figure: 3.5 = {SUITE} 2048 sustained_baseline_mj / sustained_mj -->",
        f"2 shapes, none below 1.0 <!-- figure: 2 = {SUITE} count -->"
        f"<!-- figure: 1.0 = {SUITE} lowest -->",
        "Markers look like `<!-- figure: 7 = a.json count -->` in a page.",
        "185 tests <!-- figure: 185 = planted.txt /^(\\d+) passed/ -->",
        "1 of 1 <!-- figure: 1 = planted.txt count /PASSED/ -->",
        f"An earlier version of the templates: 1.5 <!-- figure: 1.5 = {OLD} 1024 ratio, older -->",
        "It was 3.78 ([log](../benchmarks/results/planted.txt)).",
        "0.04 % ([log](../benchmarks/results/planted.txt)). <!-- computed: 0.04 -->",
    ],
)
def test_true_figures_pass(line: str) -> None:
    assert not [str(fault) for fault in figures.faults_of("docs/any.md", f"# A\n\n{line}\n")]


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"It is 1.42 times as fast. {MEAN.replace('1.41', '1.42')}", "1.42 is 1.41"),
        (f"It is 1.42 times as fast. {MEAN}", "does not say 1.41"),
        (f"It is 11.41 times as fast. {MEAN}", "does not say 1.41"),
        ("186 <!-- figure: 186 = planted.txt /^(\\d+) passed/ -->", "186 is 185"),
        ("1 <!-- figure: 1 = none.json count -->", "no results 'none.json'"),
        (f"1 <!-- figure: 1 = {SUITE} 77 ratio -->", "no row of '77'"),
        (f"1 <!-- figure: 1 = {SUITE} 1024 energy -->", "no number 'energy'"),
        (f"1 <!-- figure: 1 = {SUITE} all of it -->", "nothing that can be looked up"),
        ("1 <!-- figure: 1 = planted.txt /no (such)/ -->", "nothing like"),
        (f"1.5 <!-- figure: 1.5 = {OLD} 1024 ratio -->", "other kernels than are emitted today"),
        (f"1.5 <!-- figure: 1.5 = {OLD} 1024 ratio, older -->", "does not say 'earlier version"),
        (f"1.41 {MEAN.replace(' -->', ', older -->')}", "take ', older' away"),
        ("It was 3.79 ([log](../benchmarks/results/planted.txt)).", "3.79 is not in the files"),
        ("Now 1.4 times as fast.", "1.4 has no marker"),
    ],
)
def test_planted_errors_are_found(line: str, what: str) -> None:
    faults = [str(fault) for fault in figures.faults_of("docs/results.md", f"# A\n\n{line}\n")]
    assert any(what in fault for fault in faults), faults
    assert all(fault.startswith("docs/results.md:3: ") for fault in faults)


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    ("cells", "wrong"),
    [
        ("| 1024 | 2.00 | 10.0 |", ""),
        ("| 1024 | 2.01 | 10.0 |", "2.01 is in no row of 1024"),
        ("| 2048 | 2.00 | 10.0 |", "2.00 is in no row of 2048"),
        ("| geometric mean | 1.41 | |", ""),
        ("| geometric mean | 1.42 | |", "1.42 is in no row of geometric mean"),
    ],
)
def test_tables_are_compared_by_shape(cells: str, wrong: str) -> None:
    text = f"# A\n\n<!-- table: {SUITE} -->\n\n| | ratio | us |\n|---|---|---|\n{cells}\n\nend\n"
    faults = [str(fault) for fault in figures.faults_of("docs/any.md", text)]
    assert [wrong in fault for fault in faults] == ([True] if wrong else [])


@pytest.mark.usefixtures("results")
def test_pages_are_written_anew_from_the_results() -> None:
    text = f"It is 1.52 times 11.52. {MEAN.replace('1.41', '1.52')}\n"
    assert figures.updated(text) == f"It is 1.41 times 11.52. {MEAN}\n"
    assert figures.updated(figures.updated(text)) == figures.updated(text)

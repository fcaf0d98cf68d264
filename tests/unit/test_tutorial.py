"""The tutorial says what the templates emit and what was measured, not what they once did."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from autogemm.catalogue.ladder import find_rung, rungs
from autogemm.catalogue.palette import THEMES
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.space import load_family

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorial"
TEXT = (FOLDER / "README.md").read_text()
RESULTS = ROOT / "benchmarks" / "results" / "ladder_h100.json"
STEPS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", TEXT, re.DOTALL | re.MULTILINE))
RUNGS = [rung.name for rung in rungs()]


def emitted(name: str) -> str:
    """The rung for 4096, every blank line and indentation gone."""
    rung = find_rung(name)
    family = load_family(rung.family)
    values = family.seeds[0].as_dict() | dict(rung.values)
    config = Config.of(family.name, {one.name: values[one.name] for one in family.parameters})
    source = render(family, config, Problem.of_size("4096")).text
    return " ".join(source.split())


def percents() -> dict[tuple[str, str], float]:
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())
    return {
        (row["kernel"], row["size"]): row["percent_of_cublas"]
        for row in rows
        if row["percent_of_cublas"] is not None
    }


def test_every_rung_is_a_step_in_the_ladders_order() -> None:
    assert [name for name in STEPS if name in RUNGS] == RUNGS
    assert list(STEPS)[-1] == "winner"


@pytest.mark.parametrize("name", RUNGS)
def test_telling_lines_are_what_the_template_emits(name: str) -> None:
    (code,) = re.findall(r"```cuda\n(.*?)```", STEPS[name], re.DOTALL)
    source = emitted(name)
    for line in code.strip().splitlines():
        # Braces that only close what a line opened stand somewhere else in the source.
        assert " ".join(line.split()) in source, line


@pytest.mark.skipif(not RESULTS.parent.is_dir(), reason="results are in a checkout only")
def test_figures_are_those_that_were_measured() -> None:
    measured = percents()
    (head, *_), *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if line.startswith("|")
    ]
    assert head == "percent of cuBLAS SGEMM"
    sizes = re.findall(r"\| (\d+) ", TEXT.partition("percent of cuBLAS SGEMM")[2].split("\n")[0])
    assert sizes == ["1024", "2048", "4096"]
    shown = {
        (row[0], size): float(text)
        for row in rows[1:]
        for size, text in zip(sizes, row[1:], strict=False)
    }
    assert shown.keys() >= {(name, size) for name in RUNGS for size in sizes}
    for place, percent in shown.items():
        assert percent == pytest.approx(measured[place], rel=0.006), place
    for name, step in STEPS.items():
        (line,) = re.findall(r"^\*\*H100:\*\* (.*)$", step, re.MULTILINE)
        stated = re.findall(r"([\d.]+) % at (\d+)", line.partition(";")[0])
        assert [size for _, size in stated] == sizes, name
        for text, size in stated:
            assert float(text) == pytest.approx(measured[name, size], rel=0.006), (name, size)


def test_published_figures_are_those_of_the_ladder() -> None:
    for name in RUNGS:
        percent = find_rung(name).published_percent
        if percent is not None:
            assert f"{percent:g} % of its GPU's cuBLAS" in STEPS[name], name


@pytest.mark.skipif(not RESULTS.parent.is_dir(), reason="results are in a checkout only")
def test_pictures_and_pages_are_there() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert len(pictures) == 2 * TEXT.count("<picture>") == 2 * TEXT.count('<img alt="') > 20
    targets += pictures
    assert len(targets) > 10
    for target in targets:
        assert (FOLDER / target).is_file(), target


def test_pictures_are_what_their_script_draws() -> None:
    script = runpy.run_path(str(FOLDER / "draw.py"))
    names = [sketch.name for sketch in script["SKETCHES"]]
    assert set(names) < set(RUNGS)
    for sketch in script["SKETCHES"]:
        for theme, palette in THEMES.items():
            kept = (script["FOLDER"] / f"{sketch.name}_{theme}.svg").read_text()
            assert kept == script["svg"](sketch, palette), (sketch.name, theme)

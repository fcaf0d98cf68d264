"""`autogemm new-family` and docs/own-family.md: the pair and its changes render and verify."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autogemm.catalogue.gpus import find_device
from autogemm.cli import main
from autogemm.codegen import render
from autogemm.emulator import Emulator, Mode
from autogemm.model.config import Config
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, load_family
from autogemm.verify.cases import cases_of, on_cpu, run_cases

PAGE = (Path(__file__).parents[2] / "docs" / "own-family.md").read_text()
BLOCKS = re.findall(r"^```(?:yaml|jinja)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# Small tiles, so that one problem has several blocks, several k tiles and ragged edges.
SMALL = {"BM": 16, "BN": 16, "BK": 8, "TM": 2}
PROBLEM = Problem(19, 21, 17)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["new-family", *words])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result = invoke("mine", "--in", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert f"autogemm verify --family {tmp_path}/mine" in result.output
    return tmp_path / "mine"


def findings(emulator: Emulator, family: Family, **values: int) -> list[str]:
    """The emulator's verdict on one small config on its first edge cases."""
    config = Config.of(family.name, SMALL | values)
    planned = cases_of(family, config, find_device("h100")).cases
    # One layout is one source to compile.
    cases = tuple(case for case in planned if case.problem.layout is Layout.NN)[:3]
    results = run_cases(on_cpu(family, emulator, Mode.CHECK), cases, threads=2)
    return [result.message for result in results if not result.ok]


def test_the_page_shows_the_pair_that_is_written(folder: Path) -> None:
    assert BLOCKS[:2] == [
        (folder / "mine.yaml").read_text(),
        (folder / "mine.cu.jinja").read_text(),
    ]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["mine"]


@pytest.mark.parametrize("layout", list(Layout))
def test_the_pair_renders(folder: Path, layout: Layout) -> None:
    family = load_family(folder)
    source = render(family, family.seeds[0], Problem(1000, 1000, 1000, layout=layout))
    assert family.name == "mine"
    assert "gemm_kernel" in source.text
    assert max(map(len, source.text.splitlines())) <= 100


@pytest.mark.emulated
def test_the_pair_and_the_steps_of_the_page_verify(folder: Path, emulator: Emulator) -> None:
    assert findings(emulator, load_family(folder)) == []

    # Step 4: a parameter more.
    space, template = folder / "mine.yaml", folder / "mine.cu.jinja"
    below = re.search(r"^  TM: .*\n", space.read_text(), re.MULTILINE)
    assert below
    space.write_text(space.read_text().replace(below[0], below[0] + BLOCKS[2]))
    declared = "    __shared__ float tile_a[BK][BM];\n"
    assert declared in template.read_text()
    template.write_text(template.read_text().replace(declared, BLOCKS[3]))
    padded = load_family(folder)
    assert "[BM + 1]" in render(padded, Config.of("mine", SMALL | {"PAD": 1}), PROBLEM).text
    assert findings(emulator, padded, PAD=1) == []

    # Step 5: a barrier that is missing.
    before, barrier, after = template.read_text().rpartition("        __syncthreads();\n")
    assert barrier
    template.write_text(before + after)
    assert "race" in " ".join(findings(emulator, load_family(folder)))


@pytest.mark.parametrize("name", ["1st", "a-b", "../up", "no", "null", "x" * 61, ""])
def test_a_name_that_no_family_may_have_is_one_line(tmp_path: Path, name: str) -> None:
    result = invoke(name, "--in", str(tmp_path))
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "the name of a family" in result.output
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(folder: Path) -> None:
    (folder / "mine.yaml").write_text("my work\n")
    result = invoke("mine", "--in", str(folder.parent))
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "exists already" in result.output
    assert (folder / "mine.yaml").read_text() == "my work\n"


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    result = invoke("mine", "--in", str(tmp_path / "none"))
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "make it first" in result.output

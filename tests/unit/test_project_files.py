"""Files for forges, citation and packaging agree with pyproject.toml and the Makefile."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_the_citation_is_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    (author,) = citation["authors"]
    assert f"Copyright (c) 2026 {author['name']}" in (ROOT / "LICENSE").read_text()


def test_the_conda_recipe_has_the_same_requirements() -> None:
    recipe = (ROOT / "contrib/conda/meta.yaml").read_text()
    text = re.sub(r"\{\{.*?\}\}", "x", re.sub(r"\{%.*?%\}", "", recipe))
    stated = {one.replace(" ", "") for one in yaml.safe_load(text)["requirements"]["run"]}
    assert f'version = "{PROJECT["version"]}"' in recipe
    # NVRTC has another name in conda.
    needed = {
        one.replace("nvidia-cuda-nvrtc-cu12", "cuda-nvrtc") for one in PROJECT["dependencies"]
    }
    assert stated == needed | {f"python{PROJECT['requires-python']}"}


def test_the_workflow_calls_what_is_there() -> None:
    rules = re.findall(r"^([\w ]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = set(" ".join(rules).split())
    markers = {
        line.partition(":")[0] for line in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]
    }
    workflow = read(".github/workflows/test.yml")
    commands = [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    made = {line.removeprefix("make ") for line in commands if line.startswith("make ")}
    assert made == {"test", "thorough", "docs"}
    assert made <= targets
    marked = set(
        re.findall(r"\b(?!and|not)\w+\b", " ".join(re.findall(r'-m "([^"]+)"', str(commands))))
    )
    assert marked == {"gpu", "alone"} & markers
    # A fork's code never runs on the project's GPU.
    assert "github.event_name == 'push'" in workflow["jobs"]["gpu"]["if"]


def test_extras_that_files_install_are_there() -> None:
    for path in ("Dockerfile", ".github/workflows/test.yml", "README.md", "docs/install.md"):
        for listed in re.findall(r"(?:\.|/src)\[([\w,]+)\]", (ROOT / path).read_text()):
            assert set(listed.split(",")) <= EXTRAS.keys(), path
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(table))) == EXTRAS.keys() - {"mutate"}


def test_issue_templates_have_what_a_forge_requires() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= form.keys(), path.name
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids)), path.name
        assert all(field["attributes"]["label"] for field in form["body"]), path.name

"""docs/families.md: it names everything that a search space may say, and its example works."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.codegen.rendering import CONTEXT_NAMES
from autogemm.model.config import Config
from autogemm.model.problem import Layout, Problem
from autogemm.space import (
    PROBLEM_NAMES,
    Family,
    broken_constraints,
    build_space,
    load_family,
    schema,
)
from autogemm.space.expressions.nodes import FUNCTIONS
from autogemm.space.expressions.parsing import KEYWORDS
from autogemm.space.family import DEVICE_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "families.md").read_text()
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
FORMS = [
    form
    for name, form in vars(schema).items()
    if re.fullmatch(r"[A-Z]\w*Form", name) and form is not schema.ConstraintForm
]
# Words in tables and sentences that are set as code, each alone.
NAMED = set(re.findall(r"`([^`\s]+)`", PROSE))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_key_has_a_row(form: type[BaseModel]) -> None:
    keys = set(form.model_fields)
    tables = re.findall(r"(?:^\|.*\n)+", PROSE, re.MULTILINE)
    rows = [set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) for table in tables]
    assert any(keys <= one for one in rows), f"no table has all of {sorted(keys)}"


def test_every_kind_of_mapping_is_checked() -> None:
    assert len(FORMS) == 8
    assert set(schema.ConstraintForm.model_fields) == {"require", "because"}
    assert "`{require: EXPRESSION, because: REASON}`" in PROSE


@pytest.mark.parametrize("name", [*PROBLEM_NAMES, *DEVICE_NAMES, *FUNCTIONS])
def test_every_name_of_an_expression_is_there(name: str) -> None:
    assert name in NAMED


def test_every_word_of_an_expression_is_there() -> None:
    said = PROSE.partition("## Expressions")[2].partition("## ")[0]
    assert {word for word in KEYWORDS if re.search(rf"\b{word}\b", said)} == KEYWORDS


@pytest.mark.parametrize("name", sorted(CONTEXT_NAMES))
def test_every_name_of_a_template_is_there(name: str) -> None:
    assert name in PROSE.partition("## Names in a template")[2]
    assert name in NAMED


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """The page's example, each block under the name in the line before it."""
    blocks = re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in blocks] == [
        "walking.yaml", "walking.cu.jinja", "seeds/walking.yaml",
    ]  # fmt: skip
    for name, text in blocks:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return load_family(tmp_path)


@pytest.mark.parametrize("layout", list(Layout))
def test_the_example_is_a_family(family: Family, layout: Layout) -> None:
    device, problem = find_device("h100"), Problem(256, 256, 256, layout=layout)
    space = build_space(family, problem, device)
    assert len(space) == 12
    assert family.seeds == (
        Config.of("walking", {"THREADS": 128, "BLOCKS": 132, "UNROLL": 4}),
        Config.of("walking", {"THREADS": 256, "BLOCKS": 132, "UNROLL": 1}),
    )
    for seed in family.seeds:
        assert broken_constraints(family, seed, problem, device) == []
        assert "gemm_kernel" in render(family, seed, problem).text
    old = {"WIDTH": 128, "BLOCKS": 132, "PAD": 0}
    assert family.completed(Config.of("walking", old))["THREADS"] == 128

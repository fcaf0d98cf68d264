"""Rules of the templates (CONTRIBUTING.md): parts read what they are given, C stands as text."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, meta, nodes

from autogemm.support.resources import data_folder
from autogemm.support.templating import environment

TEMPLATES = data_folder("templates")
# Templates of the families, and those between which gemm_wgmma chooses.
CHOSEN = sorted(TEMPLATES.glob("gemm_wgmma/*.cu.jinja"))
KERNELS = [*sorted(TEMPLATES.glob("*.cu.jinja")), *CHOSEN]
PARTS = sorted((TEMPLATES / "parts").rglob("*.jinja"))
ROLES = {"ptx", "load", "mma", "pipeline", "schedule", "epilogue"}
# No text of a {% set %} may hold these: it would be C that is put together piece by piece.
C_PUNCTUATION = re.compile(r"[;(){}\[\]*&<>=+,]|->|//")
# More choices than these in one file, and a reader can no longer hold them.
MOST_BRANCHES = 30
BRANCH = re.compile(r"\{% (?:if|elif)\b")


def by_place(path: Path) -> str:
    return path.relative_to(TEMPLATES).as_posix()


def parsed(text: str) -> nodes.Template:
    jinja: Environment = environment()
    return jinja.parse(text)


def free_names(text: str) -> set[str]:
    """Names that a template reads and that nothing in it declares, in macros or outside."""
    return meta.find_undeclared_variables(parsed(text))


def unread_parameters(text: str) -> list[str]:
    """Parameters that their macro never reads, as `macro: parameter`."""
    return [
        f"{macro.name}: {argument.name}"
        for macro in parsed(text).find_all(nodes.Macro)
        for argument in macro.args
        if argument.name not in set(_names_read(macro.body))
    ]


def _names_read(body: list[nodes.Node]) -> Iterator[str]:
    for node in body:
        for name in [node] if isinstance(node, nodes.Name) else node.find_all(nodes.Name):
            if name.ctx == "load":
                yield name.name


def given_all_names(text: str) -> list[str]:
    """Imports and includes by which a part would read names that nobody gave to it."""
    template = parsed(text)
    imports: list[nodes.Import | nodes.FromImport]
    imports = [*template.find_all(nodes.Import), *template.find_all(nodes.FromImport)]
    faults = [f"import with context, line {node.lineno}" for node in imports if node.with_context]
    for node in template.find_all(nodes.Include):
        name = node.template.value if isinstance(node.template, nodes.Const) else "?"
        if TEMPLATES / name not in CHOSEN and free_names((TEMPLATES / name).read_text()):
            faults.append(f"include of {name}, which reads variables")
    return faults


def c_in_sets(text: str) -> list[str]:
    """Texts in `{% set %}` that are pieces of C."""
    template = parsed(text)
    faults = [f"{block.lineno}: a block" for block in template.find_all(nodes.AssignBlock)]
    for assignment in template.find_all(nodes.Assign):
        for constant in assignment.node.find_all(nodes.Const):
            if isinstance(constant.value, str) and C_PUNCTUATION.search(constant.value):
                faults.append(f"{assignment.lineno}: {constant.value}")
        value = assignment.node
        if isinstance(value, nodes.Const) and C_PUNCTUATION.search(str(value.value)):
            faults.append(f"{assignment.lineno}: {value.value}")
        if isinstance(value, nodes.Concat):
            faults.append(f"{assignment.lineno}: put together")
    return faults


def test_parts_lie_in_folders_by_role() -> None:
    places = {path.relative_to(TEMPLATES / "parts").as_posix() for path in PARTS}
    loose = {place for place in places if "/" not in place}
    assert loose == {"head.cu.jinja"}
    assert {place.split("/")[0] for place in places - loose} == ROLES


@pytest.mark.parametrize("path", PARTS, ids=by_place)
def test_a_part_reads_nothing_that_it_was_not_given(path: Path) -> None:
    text = path.read_text()
    assert free_names(text) == set()
    assert unread_parameters(text) == []


@pytest.mark.parametrize("path", [*KERNELS, *PARTS], ids=by_place)
def test_no_part_is_given_all_names(path: Path) -> None:
    assert given_all_names(path.read_text()) == []


@pytest.mark.parametrize("path", [*KERNELS, *PARTS], ids=by_place)
def test_no_c_is_put_together_in_sets(path: Path) -> None:
    assert c_in_sets(path.read_text()) == []


@pytest.mark.parametrize("path", [*KERNELS, *PARTS], ids=by_place)
def test_a_reader_can_hold_the_branches(path: Path) -> None:
    assert len(BRANCH.findall(path.read_text())) <= MOST_BRANCHES


@pytest.mark.parametrize("path", [*KERNELS, *PARTS], ids=by_place)
def test_only_the_epilogue_knows_alpha_and_beta(path: Path) -> None:
    if path.parent.name != "epilogue":
        assert scaled_outside_of_epilogues(path.read_text()) == []


def scaled_outside_of_epilogues(text: str) -> list[str]:
    """Lines of C that read alpha or beta; parameter lists of kernels may name them."""
    code = (
        line.partition("//")[0] for line in re.sub(r"\{#.*?#\}", "", text, flags=re.S).split("\n")
    )
    rest = (re.sub(r"\bfloat (alpha|beta),", "", line) for line in code)
    return [line.strip() for line in rest if re.search(r"\b(alpha|beta)\b", line)]


def test_a_store_that_scales_by_itself_is_seen() -> None:
    assert scaled_outside_of_epilogues("    *c = alpha * accum;") == ["*c = alpha * accum;"]
    assert scaled_outside_of_epilogues("{# alpha #}\n int ldb, float beta, float* C // beta") == []


def test_every_part_is_used() -> None:
    texts = [path.read_text() for path in [*KERNELS, *PARTS]]
    unused = [
        by_place(path)
        for path in PARTS
        if not any(f'"{by_place(path)}"' in text for text in texts) and path.stem not in HANDOVER
    ]
    assert unused == []


# Called by the hand-written kernels of tests/handover alone.
HANDOVER = {"gpu_flag.cu"}


@pytest.mark.parametrize(
    ("text", "free", "unread"),
    [
        ("{% macro part(a) %}{{ a }}{{ b }}{% endmacro %}", {"b"}, []),
        ("{% macro part(a, b) %}{{ a }}{% endmacro %}", set(), ["part: b"]),
        ("{% macro part(a) %}{% if config.BM %}{{ a }}{% endif %}{% endmacro %}", {"config"}, []),
        (
            "{% macro one(a) %}{{ a }}{% endmacro %}{% macro two() %}{{ a }}{% endmacro %}",
            {"a"},
            [],
        ),
        ("{{ derived.vec_c }}", {"derived"}, []),
        ("{% set t = 1 %}{% macro part(a) %}{{ t + a }}{{ caller() }}{% endmacro %}", set(), []),
    ],
)
def test_names_from_elsewhere_and_idle_parameters_are_seen(
    text: str, free: set[str], unread: list[str]
) -> None:
    assert free_names(text) == free
    assert unread_parameters(text) == unread


@pytest.mark.parametrize(
    "text",
    [
        '{% from "parts/head.cu.jinja" import head with context %}',
        '{% import "parts/head.cu.jinja" as head with context %}',
        '{% include "tiled.cu.jinja" %}',
    ],
)
def test_a_part_that_is_given_all_names_is_seen(text: str) -> None:
    assert len(given_all_names(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{% set sync = "__syncthreads()" %}',
        '{% set sync = "__syncwarp()" if lone else "BM" %}',
        '{% set source = op ~ " + k" %}',
        "{% set source = op ~ op %}",
        '{% set bounds = [", int m_left"] %}',
        "{% set body %}x{% endset %}",
    ],
)
def test_c_in_a_set_is_seen(text: str) -> None:
    assert c_in_sets(text) != []


def test_names_and_conditions_may_be_set() -> None:
    text = '{% set depth, x = "DEPTH" if sliced else "BK", derived["lanes_" ~ op] > 1 %}'
    assert c_in_sets(text) == []

"""A template's hash covers the template and what it includes or imports, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2.meta import find_referenced_templates
from space_families import write_family

from autogemm.codegen import render
from autogemm.model.problem import Problem
from autogemm.space import list_families, load_family
from autogemm.support.errors import FamilyError
from autogemm.support.resources import data_folder
from autogemm.support.templating import _referenced, environment, texts_of

# One part by each way, the first of which has a part itself.
TEMPLATE = """\
{% from "parts/ptx/copy.cu.jinja" import copy %}
{% import "parts/walk.cu.jinja" as walk %}
{% include "parts/text.cu.jinja" %}
{{ copy() }}
"""
PARTS = {
    "parts/ptx/copy.cu.jinja": '{% from "parts/ptx/inner.cu.jinja" import inner %}\n'
    "{% macro copy() %}{{ inner() }}{% endmacro %}\n",
    "parts/ptx/inner.cu.jinja": "{% macro inner() %}// inner{% endmacro %}\n",
    "parts/walk.cu.jinja": "{% macro walk() %}{% endmacro %}\n",
    "parts/text.cu.jinja": "// text\n",
    "parts/unrelated.cu.jinja": "// nobody includes it\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_family(tmp_path / "mine")
    (folder / "mine.cu.jinja").write_text(TEMPLATE)
    for name, text in PARTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def edited(folder: Path, name: str) -> Iterator[str]:
    """The hash before and after a part has one line more."""
    yield load_family(folder).template_sha256
    (folder / name).write_text((folder / name).read_text() + "// more\n")
    yield load_family(folder).template_sha256


@pytest.mark.parametrize("name", ["mine.cu.jinja", *list(PARTS)[:-1]])
def test_an_edit_of_what_is_included_changes_it(folder: Path, name: str) -> None:
    before, after = edited(folder, name)
    assert before != after


def test_an_edit_of_another_part_does_not(folder: Path) -> None:
    before, after = edited(folder, "parts/unrelated.cu.jinja")
    assert before == after


def test_a_shipped_part_counts_and_ones_own_goes_before_it(folder: Path) -> None:
    shipped = sorted((data_folder("templates") / "parts").rglob("*.jinja"))[0]
    name = str(shipped.relative_to(data_folder("templates")))
    (folder / "mine.cu.jinja").write_text(f'{{% include "{name}" %}}\n')
    before = load_family(folder)
    assert before.template_path is not None
    assert texts_of(before.template_path)[name] == shipped.read_text()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("// another\n")
    assert load_family(folder).template_sha256 != before.template_sha256


def test_what_is_said_in_comments_is_not_included(folder: Path) -> None:
    text = '{# {% include "parts/unrelated.cu.jinja" %} #}// none\n'
    (folder / "mine.cu.jinja").write_text(text)
    assert set(texts_of(folder / "mine.cu.jinja")) == {"mine.cu.jinja"}


@pytest.mark.parametrize(
    "text",
    [
        '{%- include "parts/walk.cu.jinja" %}',
        '{# it\'s #}{%\n  from\n"parts/walk.cu.jinja" import walk\n%}',
        '{{ "{# no comment" }}{% import "parts/walk.cu.jinja" as one %}',
        '{% if 1 %}{% include "parts/walk.cu.jinja" %}{% endif %}',
    ],
)
def test_parts_are_found_however_they_are_named(folder: Path, text: str) -> None:
    (folder / "mine.cu.jinja").write_text(text)
    assert "parts/walk.cu.jinja" in texts_of(folder / "mine.cu.jinja")


def test_raw_text_names_no_part(folder: Path) -> None:
    text = '{% raw %}{% include "parts/walk.cu.jinja" %}{% endraw %}'
    (folder / "mine.cu.jinja").write_text(text)
    assert set(texts_of(folder / "mine.cu.jinja")) == {"mine.cu.jinja"}


def test_every_part_that_ships_is_found_as_by_the_whole_text() -> None:
    for path in data_folder("templates").rglob("*.jinja"):
        text = path.read_text()
        whole = find_referenced_templates(environment().parse(text))
        assert _referenced(text) == tuple(whole), path


def test_tags_without_an_end_take_no_longer() -> None:
    assert _referenced("{#" * 200_000) == _referenced("{% include " * 100_000) == ()


def test_parts_that_include_each_other_are_read_once(folder: Path) -> None:
    (folder / "parts" / "text.cu.jinja").write_text('{% include "parts/walk.cu.jinja" %}\n')
    (folder / "parts" / "walk.cu.jinja").write_text('{% include "parts/text.cu.jinja" %}\n')
    assert len(texts_of(folder / "mine.cu.jinja")) == len(PARTS)


@pytest.mark.parametrize(
    "tag",
    [
        '{% include "parts/" ~ config.BM %}',
        "{% include config.ORDER %}",
        '{% import ("parts/a" if M else "parts/b") as part %}',
        "{% from config.ORDER import part %}",
    ],
)
def test_a_computed_name_is_an_error(folder: Path, tag: str) -> None:
    (folder / "parts" / "walk.cu.jinja").write_text(tag)
    with pytest.raises(FamilyError, match="name is computed; write the name out") as caught:
        load_family(folder)
    assert "template parts/walk.cu.jinja of" in str(caught.value)


def test_what_cannot_be_rendered_is_said_when_it_is(folder: Path) -> None:
    for text in ('{% include "parts/none.cu.jinja" %}', "{% if %}", "{% include %}"):
        (folder / "mine.cu.jinja").write_text(text)
        family = load_family(folder)
        with pytest.raises(FamilyError, match=r"template .*mine\.cu\.jinja"):
            render(family, family.seeds[0], Problem(64, 64, 64))


def test_a_family_that_includes_a_part_of_former_versions_is_told_what_to_do(folder: Path) -> None:
    (folder / "mine.cu.jinja").write_text('{% include "parts/slab.cu.jinja" %}')
    family = load_family(folder)
    with pytest.raises(FamilyError, match=r"parts/slab\.cu\.jinja.* parts/ROLE/.*: import one"):
        render(family, family.seeds[0], Problem(64, 64, 64))


def test_a_template_that_is_no_text(folder: Path) -> None:
    (folder / "parts" / "text.cu.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(FamilyError, match=r"template parts/text\.cu\.jinja of .*: no text"):
        load_family(folder)


def test_a_part_for_tensor_cores_leaves_recordings_on_cuda_cores_alone() -> None:
    texts = {}
    for name in list_families():
        template = load_family(name).template_path
        assert template is not None
        texts[name] = set(texts_of(template))
        assert all((data_folder("templates") / one).is_file() for one in texts[name])
    tensor_maps = {one for one in texts["gemm_wgmma"] if "tensor_map" in one}
    assert tensor_maps
    assert not tensor_maps & texts["sgemm_simt"]
    assert texts["gemm_wgmma"] & texts["sgemm_simt"], "there are shared ones, which count for both"

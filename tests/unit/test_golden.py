"""Texts that the templates emit, reviewed as files."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from golden_cases import GOLDEN_CASES, GOLDEN_FOLDER, GoldenCase
from jinja2 import BaseLoader, Environment, meta

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.codegen.rendering import CONTEXT_NAMES, template_context
from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.support.resources import data_folder
from autogemm.support.templating import environment

# Templates of families, and those between which a family chooses.
KERNEL_TEMPLATES = sorted(
    path
    for pattern in ("*.cu.jinja", "gemm_wgmma/*.cu.jinja")
    for path in data_folder("templates").glob(pattern)
)


def by_name(case: GoldenCase) -> str:
    return case.name


def emitted(case: GoldenCase) -> str:
    return _source_of(case.path).text


@cache
def _source_of(path: Path) -> KernelSource:
    """Rendered once for all tests of a process: a config is no key."""
    case = next(one for one in GOLDEN_CASES if one.path == path)
    return render(load_family(case.family), case.config, case.problem)


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=by_name)
def test_emitted_source_matches_golden(case: GoldenCase, update_golden: bool) -> None:
    source = emitted(case)
    if update_golden:
        case.path.write_text(source)
    assert source == case.path.read_text(), (
        f"review the diff, then rerun with --update-golden: {case.path}"
    )


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=by_name)
def test_golden_configs_are_legal(case: GoldenCase) -> None:
    family = load_family(case.family)
    assert broken_constraints(family, case.config, case.problem, find_device(case.gpu)) == []


def test_no_golden_file_is_left_over() -> None:
    assert set(GOLDEN_FOLDER.glob("*.cu")) == {case.path for case in GOLDEN_CASES}


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=by_name)
def test_a_head_names_family_and_config(case: GoldenCase) -> None:
    source = _source_of(case.path)
    head = source.text.removesuffix(source.code)
    assert head.endswith("\n\n")
    assert {line[:3] for line in head.rstrip().splitlines()} == {"// "}
    words = head.replace("\n// ", " ").split()
    assert words[:4] == ["//", "autogemm,", "family", f"{case.family}:"]
    family = load_family(case.family)
    config = family.completed(case.config)
    shown = dict(word.split("=") for word in words[4:])
    assert shown.items() <= {name: str(value) for name, value in config}.items()
    assert {"BM", "BN"} & set(shown) or case.family == "naive"
    # Values that the head leaves out shape neither the text nor its launch, unless another than
    # the default, which is named.
    for parameter in family.parameters:
        if parameter.name not in shown:
            others = {value for value in parameter.values if isinstance(value, int | str)}
            for other in others - {config[parameter.name]}:
                changed = Config.of(case.family, config.as_dict() | {parameter.name: other})
                emitted = render(family, changed, case.problem).text
                if f"{parameter.name}={other}" in emitted.split():
                    assert config[parameter.name] == parameter.default
                    continue
                assert emitted == source.text
                plans = [launch_plan(family, one, case.problem) for one in (changed, config)]
                assert plans[0] == plans[1]


def test_the_emulator_replaces_one_section_of_a_kernel_and_one_of_its_epilogue() -> None:
    section = re.compile(r"#ifndef AUTOGEMM_EMULATOR\n.*?#endif  // AUTOGEMM_EMULATOR\n", re.S)
    for case in GOLDEN_CASES:
        text = emitted(case)
        sections = section.findall(text)
        of_epilogue = [one for one in sections if " fast_exp2(" in one]
        others = [one for one in sections if " fast_exp2(" not in one]
        assert all(re.search(r"\basm\b", one) for one in sections), case
        assert not re.search(r"\basm\b|AUTOGEMM_EMULATOR", section.sub("", text)), case
        has_functions = {"gelu_tanh", "sigmoid", "silu"} & case.problem.epilogue.functions
        assert len(of_epilogue) == bool(has_functions) and len(others) <= 1, case


def test_emitted_source_is_a_fixed_point_of_clang_format() -> None:
    formatter = Path(sys.executable).parent / "clang-format"
    if not formatter.exists():
        pytest.skip("clang-format is not installed in this environment")
    paths = [str(case.path) for case in GOLDEN_CASES]
    subprocess.run([formatter, "--dry-run", "--Werror", *paths], check=True)


def test_emitted_source_has_no_trace_of_jinja_and_at_most_100_columns() -> None:
    for case in GOLDEN_CASES:
        for number, line in enumerate(emitted(case).splitlines(), 1):
            place = f"{case.path.name}:{number}"
            assert not re.search(r"\{%|\{\{|\}\}|%\}|None|Undefined", line), place
            assert len(line) <= 100, place
            assert line == line.rstrip(), place


class MarkingLoader(BaseLoader):
    """Puts a mark into each arm of each ``{% if %}``, so that a render tells which arms it took."""

    def __init__(self) -> None:
        self.arms: set[str] = set()

    def get_source(self, environment: Environment, template: str) -> tuple[str, None, None]:
        lines = (data_folder("templates") / template).read_text().splitlines(keepends=True)
        marked: list[str] = []
        open_ifs: list[bool] = []  # whether the innermost if has met its else
        for number, line in enumerate(lines, 1):
            here = f"{template}:{number}"
            tag = re.match(r"\s*\{% (if|elif|else|endif)\b.*%\}\n$", line)
            word = tag.group(1) if tag else ""
            if word == "endif" and not open_ifs.pop():
                # An if without an else: not taking it is an arm too.
                marked.append("{% else %}\n" + self._mark(f"{here} (not taken)"))
            marked.append(line)
            if word == "if":
                open_ifs.append(False)
            if word == "else":
                open_ifs[-1] = True
            if word in ("if", "elif", "else"):
                marked.append(self._mark(f"{here} {line.strip()}"))
        return "".join(marked), None, None

    def _mark(self, arm: str) -> str:
        self.arms.add(arm)
        return "{{ mark(" + repr(arm) + ") }}"


def test_goldens_take_every_branch_of_the_templates() -> None:
    loader = MarkingLoader()
    overlay = environment().overlay(loader=loader, cache_size=100)
    taken: set[str] = set()

    def mark(arm: str) -> str:
        taken.add(arm)
        return ""

    # A global, so that macros which are imported without context see it too.
    overlay.globals = {**overlay.globals, "mark": mark}
    for case in GOLDEN_CASES:
        family = load_family(case.family)
        context = template_context(family, case.config, case.problem)
        overlay.get_template(family.template_path.name).render(context)
    never = sorted(loader.arms - taken)
    assert loader.arms
    assert not never, f"no golden case takes: {never}"


@pytest.mark.parametrize("path", KERNEL_TEMPLATES, ids=lambda path: path.name)
def test_templates_read_only_what_the_renderer_gives(path: Path) -> None:
    read = meta.find_undeclared_variables(environment().parse(path.read_text()))
    assert read <= CONTEXT_NAMES


def test_no_template_holds_a_brace_pair_that_jinja_would_eat() -> None:
    # `float acc[2] = {{0}};` renders `= 0;` without an error.
    for path in data_folder("templates").rglob("*.jinja"):
        assert not re.search(r"\{\{\s*\d+\s*[,}]", path.read_text()), path


def test_kernels_that_are_launched_differently_are_two() -> None:
    family = load_family("gemm_wgmma")
    case = next(one for one in GOLDEN_CASES if one.family == family.name)
    values = family.completed(case.config).as_dict()
    one, other = (
        render(family, Config.of(family.name, values | {"BLOCKS": blocks}), case.problem)
        for blocks in (66, 132)
    )
    assert one.sha256 != other.sha256

"""Tensor maps in a family's YAML: what they become, what is legal, what is refused."""

from pathlib import Path

import pytest
from space_families import SMALL, write_family

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType, Element
from autogemm.model.groups import Groups
from autogemm.model.kernel import TensorMap
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, build_space, launch_plan, load_family
from autogemm.support.errors import EmptySpaceError, FamilyError

MAPS = """tensor_maps:
  - {name: map_a, matrix: A, box: [8, BM], swizzle: 16 * columns}
  - {name: map_c, matrix: C, box: [32, WM], when: ORDER == 'rows'}
  - {name: map_part, matrix: workspace, element: bf16, extent: [K, M], ld: K_padded, box: [64, 64],
     swizzle: 128, offset_bytes: 256, when: STAGES == 3}
"""
WITH_MAPS = SMALL.replace("derive:\n", "derive:\n  columns: 2\n  K_padded: ceil_div(K, 8) * 8\n")
WITH_MAPS = WITH_MAPS.replace("launch:\n", MAPS + "launch:\n")
H100 = find_device("h100")
SQUARE = Problem(64, 64, 64)


def config_of(**changes: int | str) -> Config:
    return Config.of("mine", {"BM": 64, "WM": 32, "STAGES": 3, "ORDER": "rows"} | changes)


@pytest.mark.parametrize("layout", Layout)
def test_maps_of_a_plan(tmp_path: Path, layout: Layout) -> None:
    family = load_family(write_family(tmp_path / "mine", WITH_MAPS))
    problem = Problem(100, 200, 300, layout, lda=400, ldc=204)
    plan = launch_plan(family, config_of(), problem)
    stored = (100, 300) if layout.trans_a else (300, 100)
    assert plan.tensor_maps == (
        TensorMap("map_a", "A", Element.F32, stored, 400, (8, 64), 32),
        TensorMap("map_c", "C", Element.F32, (200, 100), 204, (32, 32)),
        TensorMap("map_part", "workspace", Element.BF16, (300, 100), 304, (64, 64), 128, 256),
    )
    fewer = launch_plan(family, config_of(STAGES=1, ORDER="snake"), problem)
    assert [one.name for one in fewer.tensor_maps] == ["map_a"]


def test_a_map_has_the_element_type_of_its_matrix(tmp_path: Path) -> None:
    text = WITH_MAPS.replace("a: f32, b: f32, c: f32", "a: f16, b: f16, c: f32")
    family = load_family(write_family(tmp_path / "mine", text))
    problem = Problem(64, 64, 64, dtype=DType.F16_F32)
    elements = [one.element for one in launch_plan(family, config_of(), problem).tensor_maps]
    assert elements == [Element.F16, Element.F32, Element.BF16]


def test_maps_of_one_name_where_at_most_one_is_there(tmp_path: Path) -> None:
    """A kernel's argument, and two things that it may be a map of."""
    line = "{name: map_c, matrix: workspace, element: ab, extent: [N, M], ld: 64, box: [32, 32]"
    text = WITH_MAPS.replace(
        "  - {name: map_part", f"  - {line}, when: WHEN}}\n  - {{name: map_part"
    )
    exclusive = write_family(tmp_path / "mine", text.replace("WHEN}", "ORDER != 'rows'}"))
    family = load_family(exclusive)
    of_c, of_workspace = (
        launch_plan(family, config_of(ORDER=order), SQUARE).tensor_maps[1]
        for order in ("rows", "snake")
    )
    assert (of_c.name, of_c.matrix) == ("map_c", "C")
    assert (of_workspace.name, of_workspace.matrix) == ("map_c", "workspace")
    assert of_workspace.element is Element.F32

    at_once = load_family(write_family(tmp_path / "mine", text.replace("WHEN}", "STAGES == 3}")))
    with pytest.raises(FamilyError, match="two are named map_c for"):
        launch_plan(at_once, config_of(), SQUARE)


@pytest.mark.parametrize(
    ("old", "new", "problem", "because"),
    [
        ("", "", Problem(64, 64, 66), "map_a: TMA moves rows that begin at multiples of 16 bytes"),
        ("", "", Problem(64, 64, 64, ldc=66), "map_c: TMA moves rows that begin at multiples"),
        ("", "", Problem(64, 66, 64, ldc=68), "map_c: TMA writes chunks of 16 bytes as a whole"),
        ("[8, BM]", "[8, 5 * BM]", SQUARE, "map_a: a box of TMA has 1 to 256"),
        ("[32, WM]", "[6, WM]", SQUARE, "map_c: a row of a box is a multiple"),
        ("16 * columns", "48", SQUARE, "map_a: a swizzle is of 32, 64 or 128 bytes"),
        ("16 * columns", "64", SQUARE, "map_a: a swizzle is of 32, 64 or 128 bytes"),
        ("offset_bytes: 256", "offset_bytes: 8", SQUARE, "map_part: what TMA reads"),
        ("matrix: C,", "matrix: C, element: f16,", SQUARE, "map_c: C is read as"),
    ],
)
def test_what_tma_cannot_do_is_illegal(
    tmp_path: Path, old: str, new: str, problem: Problem, because: str
) -> None:
    text = WITH_MAPS.replace(old, new, 1) if old else WITH_MAPS
    family = load_family(write_family(tmp_path / "mine", text))
    (broken,) = broken_constraints(family, config_of(), problem, H100)
    assert because in broken


def test_rules_of_a_map_that_is_left_out_do_not_count(tmp_path: Path) -> None:
    family = load_family(write_family(tmp_path / "mine", WITH_MAPS))
    odd_columns_of_c = Problem(64, 66, 64)
    assert not broken_constraints(family, config_of(ORDER="snake"), odd_columns_of_c, H100)
    space = build_space(family, odd_columns_of_c, H100)
    assert {space.config(i)["ORDER"] for i in range(len(space))} == {"snake"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("matrix: A", "matrix: D", r"tensor_maps\.1\.matrix: Input should be 'A', 'B', 'C', 'in"),
        ("matrix: C,", "matrix: C, element: ab,", "unknown element type 'ab'"),
        ("name: map_c", "name: map_a", r"tensor_maps\.2\.name: the name 'map_a' is taken"),
        ("name: map_c", "name: BM", r"tensor_maps\.2\.name: the name 'BM' is taken"),
        ("name: map_c", "name: workspace", "the name 'workspace' is reserved"),
        ("box: [8, BM]", "box: [8]", r"tensor_maps\.1\.box: List should have at least 2 items"),
        ("box: [8, BM]", "box: [8, BQ]", r"tensor_maps\.1\.box: 'BQ': unknown name 'BQ'"),
        ("box: [8, BM]", "box: [8, ORDER]", r"tensor_maps\.1\.box: 'ORDER': must be a number"),
        ("16 * columns", "lda", "a swizzle belongs to the config: it cannot read lda"),
        (", swizzle: 16", ", swizle: 16", r"no such field; did you mean 'swizzle'"),
        ("matrix: C,", "matrix: C, ld: 8,", r"tensor_maps\.2: ld: C has its own, leave it out"),
        ("matrix: C,", "matrix: C, offset_bytes: 16,", "offset_bytes: C has its own"),
        ("element: bf16, ", "", r"tensor_maps\.3: a tensor map of the workspace needs element"),
        ("element: bf16", "element: bf8", "unknown element type 'bf8'; known: f32, tf32"),
        ("when: STAGES", "when: M", r"tensor_maps\.3\.when: 'M == 3': unknown name 'M'"),
    ],
)
def test_bad_maps_get_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in WITH_MAPS
    folder = write_family(tmp_path / "mine", WITH_MAPS.replace(old, new, 1))
    with pytest.raises(FamilyError, match=message) as caught:
        load_family(folder)
    assert "\n" not in str(caught.value)


HOPPER = SMALL.replace('">=70"', "90a")


def test_a_family_for_90a_is_for_no_other_architecture(tmp_path: Path) -> None:
    family = load_family(write_family(tmp_path / "mine", HOPPER))
    problem = Problem(64, 64, 64)
    assert not broken_constraints(family, config_of(), problem, H100)
    for name in ("a100", "b200", "t4"):
        with pytest.raises(EmptySpaceError, match=r"device.arch == 90: .*\(sm_90a\)"):
            build_space(family, problem, find_device(name))


def test_its_template_says_so_too(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "mine", HOPPER)
    with pytest.raises(FamilyError, match=r"a family for 90a includes parts/ptx/sm_90a\.cu\.jinja"):
        render(load_family(folder), config_of(), Problem(64, 64, 64))
    template = folder / "mine.cu.jinja"
    template.write_text('{% include "parts/ptx/sm_90a.cu.jinja" %}\n')
    source = render(load_family(folder), config_of(), Problem(64, 64, 64))
    assert source.arch_suffix == "a"


@pytest.mark.parametrize(("layout", "divided"), [(Layout.NT, "ac"), (Layout.TN, "ab")])
def test_rows_of_groups_end_with_them(layout: Layout, divided: str) -> None:
    family = load_family("gemm_wgmma")
    grouped = Problem(512, 512, 512, layout, DType.BF16, groups=Groups.parse("4 uniform"))
    single = Problem(512, 512, 512, layout, DType.BF16)
    plan, plain = (launch_plan(family, family.seeds[0], one) for one in (grouped, single))
    assert [one.name for one in plan.tensor_maps if one.divided] == [f"map_{m}" for m in divided]
    assert not any(one.divided for one in plain.tensor_maps)
    # A text that was stored by an earlier version has maps of three dimensions.
    text = render(family, family.seeds[0], grouped).text
    assert (plan.takes(text), plain.takes(text)) == (True, False)
    assert not plan.takes(text.replace("GroupMap", "MatrixMap"))
    assert plain.takes(render(family, family.seeds[0], single).text)

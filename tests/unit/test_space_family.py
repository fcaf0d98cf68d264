"""Families from YAML: what is read, what follows from one config, and what bad files get."""

import os
import pickle
from pathlib import Path

import pytest
from space_families import SMALL, write_family

from autogemm.catalogue.gpus import find_device
from autogemm.model.config import Config
from autogemm.model.kernel import Launch
from autogemm.model.problem import Problem
from autogemm.space import (
    Family,
    broken_constraints,
    derive_values,
    launch_plan,
    list_families,
    load_family,
    parse_fix,
)
from autogemm.support.errors import FamilyError, NotFoundError, UsageError

H100 = find_device("h100")
PROBLEM = Problem.of_size("100x200x300")


def config(BM: int, WM: int, STAGES: int, ORDER: str, family: str = "mine") -> Config:
    return Config.of(family, {"BM": BM, "WM": WM, "STAGES": STAGES, "ORDER": ORDER})


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return load_family(write_family(tmp_path / "mine"))


def test_reads_the_file(family: Family, tmp_path: Path) -> None:
    assert family.name == "mine"
    assert [parameter.name for parameter in family.parameters] == ["BM", "WM", "STAGES", "ORDER"]
    assert family.parameters[3].values == ("rows", "snake")
    assert family.parameters[0].doc == "rows of C per block"
    assert [c.require.text for c in family.constraints][:2] == ["device.arch >= 70", "BM % WM == 0"]
    assert family.seeds[1] == config(16, 64, 1, "rows")
    assert family.template_path == tmp_path / "mine" / "mine.cu.jinja"
    order = list(family.derive)
    assert order.index("warps") < order.index("threads")


def test_folder_and_file_and_shipped_name_load_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_family(tmp_path / "mine")
    assert load_family(folder) == load_family(folder / "mine.yaml") == load_family(str(folder))
    assert "sgemm_simt" in list_families()
    shipped = load_family("sgemm_simt")
    assert shipped.yaml_path.name == "sgemm_simt.yaml"
    assert shipped.template_path.is_file()
    assert load_family(shipped.yaml_path) == shipped
    monkeypatch.chdir(shipped.yaml_path.parent)
    assert load_family("sgemm_simt.yaml") == shipped
    monkeypatch.chdir(folder)
    assert load_family(".") == load_family("mine.yaml") == load_family(folder)


@pytest.mark.parametrize("name", list_families())
def test_no_seed_is_there_twice(name: str) -> None:
    family = load_family(name)
    completed = [family.completed(seed) for seed in family.seeds]
    assert len(set(completed)) == len(completed)


def test_hashes_change_with_file_and_template(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "mine")
    before = load_family(folder)
    assert load_family(folder) == before
    (folder / "mine.cu.jinja").write_text("// another\n")
    template = load_family(folder)
    assert template.template_sha256 != before.template_sha256
    assert template.yaml_sha256 == before.yaml_sha256
    (folder / "mine.yaml").write_text(SMALL + "\n")
    assert load_family(folder).yaml_sha256 != before.yaml_sha256


def test_derived_values_are_python_values(family: Family) -> None:
    values = derive_values(family, config(128, 32, 2, "rows"), PROBLEM)
    assert values == {
        "warps": 4, "threads": 128, "smem_bytes": 32768, "blocks": 1, "wide": 1,
    }  # fmt: skip
    assert {type(value) for value in values.values()} == {int}


def test_broken_constraints_names_all(family: Family) -> None:
    assert broken_constraints(family, config(128, 32, 2, "snake"), PROBLEM, H100) == []
    assert broken_constraints(family, config(16, 64, 1, "snake"), PROBLEM, H100) == [
        "BM % WM == 0: a block tile is a whole number of warp tiles",
        "ORDER == 'rows' or warps > 1: one warp has nothing to turn round",
    ]


def test_a_rule_that_divides_by_zero_counts_as_broken_beside_another(tmp_path: Path) -> None:
    text = SMALL.replace(
        "launch:", "  - {require: 256 % threads == 0, because: whole passes}\nlaunch:"
    )
    family = load_family(write_family(tmp_path / "mine", text))
    broken = broken_constraints(family, config(16, 64, 1, "rows"), PROBLEM, H100)
    assert broken == ["BM % WM == 0: a block tile is a whole number of warp tiles"]
    alone = load_family(write_family(tmp_path / "alone", text.replace("BM % WM == 0,", "BM > 0,")))
    with pytest.raises(FamilyError, match=r"256 % threads == 0.*division by zero"):
        broken_constraints(alone, config(16, 64, 1, "rows"), PROBLEM, H100)


def test_launch_plan(family: Family) -> None:
    plan = launch_plan(family, config(64, 32, 3, "rows"), PROBLEM)
    assert plan.launches == (Launch("gemm_kernel", (2 * 4, 1, 1), (64, 1, 1), 24576),)
    assert plan.workspace_bytes == 4 * 100 * 200
    assert launch_plan(family, config(64, 32, 2, "rows"), PROBLEM).workspace_bytes == 0


def test_launch_of_several_kernels_and_dimensions(tmp_path: Path) -> None:
    text = SMALL.replace(
        "grid: blocks * ceil_div(N, BM)", 'grid: ["ceil_div(N, BM)", blocks]'
    ).replace(
        "workspace_bytes:",
        "  - {kernel: reduce, threads: [8, 4, 2], grid: [1, 2, 3]}\nworkspace_bytes:",
    )
    family = load_family(write_family(tmp_path / "mine", text))
    plan = launch_plan(family, config(64, 32, 3, "rows"), PROBLEM)
    assert plan.launches[0].grid == (4, 2, 1)
    assert plan.launches[1] == Launch("reduce", (1, 2, 3), (8, 4, 2), 0)


def test_a_launch_may_be_of_some_configs_only(tmp_path: Path) -> None:
    text = SMALL.replace(
        "launch:\n", "launch:\n  - {kernel: before, when: STAGES == 3, threads: 64, grid: M}\n"
    )
    some = load_family(write_family(tmp_path, text))
    with_it = launch_plan(some, config(128, 64, 3, "snake"), Problem(256, 128, 64))
    assert [launch.kernel for launch in with_it.launches] == ["before", "gemm_kernel"]
    assert with_it.main.kernel == "gemm_kernel"
    without = launch_plan(some, config(128, 64, 2, "snake"), Problem(256, 128, 64))
    assert [launch.kernel for launch in without.launches] == ["gemm_kernel"]
    write_family(tmp_path, text.replace("when: STAGES == 3", "when: M > 3"))
    with pytest.raises(FamilyError, match=r"launch\.1\.when: 'M > 3': unknown name 'M'"):
        load_family(tmp_path)


@pytest.mark.parametrize(
    ("m", "few_blocks", "grid"),
    [(7 * 64, True, 6), (6 * 64, True, 3), (64, True, 3), (7 * 64, False, 7)],
)
def test_few_blocks_are_two_clusters_or_one(
    tmp_path: Path, m: int, few_blocks: bool, grid: int
) -> None:
    """More than two clusters are cut down to two, up to two to one."""
    text = SMALL.replace("grid: blocks *", "fewest: 3\n    grid: blocks *")
    family = load_family(write_family(tmp_path / "mine", text))
    problem = Problem(m, 64, 64)
    plan = launch_plan(family, config(64, 32, 2, "rows"), problem, few_blocks=few_blocks)
    assert plan.launches[0].grid == (grid, 1, 1)


@pytest.mark.parametrize(
    ("text", "c"),
    [
        ("4 * M if STAGES == 3 and WM == 32 else 0", "4 * M"),
        ("4 * M if STAGES == 1 or WM == 16 else 0", "0"),
        ("STAGES == 3 and WM == 32", "1"),
        ("STAGES == 1 or WM == 16", "0"),
        ("STAGES == 1 or WM == 32", "1"),
        ("STAGES == 3 and M > 7 and WM == 32", "M > 7"),
    ],
)
def test_what_a_config_decides_is_not_left_to_c(tmp_path: Path, text: str, c: str) -> None:
    written = SMALL.replace("workspace_bytes: 4 * M * N if STAGES == 3 else 0", "")
    family = load_family(write_family(tmp_path / "mine", f"{written}\nworkspace_bytes: {text}\n"))
    assert family.workspace_bytes.to_c(config(64, 32, 3, "rows").as_dict()) == c


@pytest.mark.parametrize("box", ["[4]", "[4, 8, 2]"])
def test_the_box_of_a_tensor_map_has_two_extents(tmp_path: Path, box: str) -> None:
    maps = f"tensor_maps:\n  - {{name: map_a, matrix: A, box: {box}}}\n"
    text = SMALL.replace("seeds:", f"{maps}seeds:")
    with pytest.raises(FamilyError, match=r"tensor_maps\.1\.box"):
        load_family(write_family(tmp_path / "mine", text))


def test_launch_expressions_are_ready_for_c(family: Family) -> None:
    (rule,) = family.launch
    values = config(64, 32, 3, "rows").as_dict()
    assert rule.grid[0].to_c(values) == "ceil_div(M, 64) * ceil_div(N, 64)"
    assert rule.threads[0].to_c(values) == "64"
    assert family.workspace_bytes.to_c(values) == "4 * M * N"


def test_launch_out_of_range_is_an_error(tmp_path: Path) -> None:
    family = load_family(
        write_family(tmp_path / "mine", SMALL.replace("threads: threads\n", "threads: BM - 64\n"))
    )
    with pytest.raises(
        FamilyError, match=r"launch.1.threads: 'BM - 64': must be at least 1, is -48"
    ):
        launch_plan(family, config(16, 16, 1, "rows"), PROBLEM)


@pytest.mark.parametrize(
    "bad",
    [
        Config.of("mine", {"BM": 16}),
        config(16, 16, 1, "rows", family="other"),
        Config.of("mine", {**config(16, 16, 1, "rows").as_dict(), "MORE": 1}),
    ],
)
def test_a_config_of_another_family_is_refused(family: Family, bad: Config) -> None:
    for function in (derive_values, launch_plan):
        with pytest.raises(UsageError, match="is not a config of 'mine'"):
            function(family, bad, PROBLEM)


def test_a_family_can_be_sent_to_a_worker(family: Family) -> None:
    assert pickle.loads(pickle.dumps(family)) == family


def test_parse_fix_is_in_the_order_of_the_family(family: Family) -> None:
    fix = parse_fix(family, ["ORDER=snake", "BM=128, 16"])
    assert fix == {"BM": (16, 128), "ORDER": ("snake",)}
    assert list(fix) == ["BM", "ORDER"]
    assert parse_fix(family, []) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BN=128", "no parameter 'BN'; did you mean 'BM'"),
        ("BM=17", "BM has no value 17; its values: 16 32 64 128"),
        ("BM=rows", "BM has no value 'rows'"),
        ("ORDER=1", "ORDER has no value 1; its values: rows snake"),
        ("BM=16,", "BM has no value ''"),
        ("BM=", "NAME=VALUE"),
        ("BM", "NAME=VALUE"),
        ("", "NAME=VALUE"),
        ("BM=" + "9" * 5000, "BM has no value"),
    ],
)
def test_parse_fix_refuses(family: Family, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_fix(family, [text])


def test_parse_fix_refuses_one_parameter_twice(family: Family) -> None:
    with pytest.raises(UsageError, match="BM is given twice"):
        parse_fix(family, ["BM=16", "BM=32"])


SUMMARY = "summary: tiles that divide one another"
BOMB = "a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\nsummary: x"
BM_VALUES = "[16, 32, 64, 128]"
MORE = "  BM: {"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("BM % WM == 0", "BM % WQ == 0", r"\.1: 'BM % WQ == 0': unknown name 'WQ'; did you mean"),
        ("BM % WM == 0", "BM % WM = 0", "'=' at position 9 is not allowed; compare with =="),
        ("BM % WM == 0", "open('/etc/passwd')", "'open' at position 1 is no function"),
        ("BM % WM == 0", "ORDER", "must be a number, is a text"),
        ("BM % WM == 0", "BM + ORDER", "takes numbers, not a text"),
        ("BM % WM == 0", "device.arhc > 8", "name 'device.arhc'; did you mean 'device.arch'"),
        ("BM // WM", "threads // 32", "derive: a cycle: threads needs warps needs threads"),
        ("BM // WM", "warps + 1", "derive: a cycle: warps needs warps"),
        ("launch:", "expected: {time: 2 * BM}\nlaunch:", "expected: it has no expected_time"),
        ("launch:", "expected: {expected_time: BN}\nlaunch:", "unknown name 'BN'; did you mean"),
        (
            "launch:",
            "expected: {BM: 1, expected_time: BM}\nlaunch:",
            "'BM' is taken by a parameter",
        ),
        ("launch:", "expected: {expected_time: t, t: expected_time}\nlaunch:", "expected: a cycle"),
        ("grid: blocks *", "grid: expected_time * blocks *", "unknown name 'expected_time'"),
        ("BM // WM", "BM // device.num_sms", "device.num_sms is for constraints and"),
        ("4 * STAGES * BM * 32", "BM BM", "derive.smem_bytes: 'BM BM': expected an operator"),
        ("4 * STAGES * BM * 32", "ORDER", "constraints.2: .* takes numbers, not a text"),
        (MORE, f"  BM: {{values: [1], doc: x}}\n{MORE}", "'BM' is there twice"),
        ("  warps: BM", "  warps: 1\n  warps: BM", "'warps' is there twice"),
        ("  warps: BM", "  WM: 1\n  warps: BM", "derive.WM: the name 'WM' is taken"),
        (MORE, f"  lda: {{values: [1], doc: x}}\n{MORE}", "parameters.lda: the name 'lda' is res"),
        (MORE, f"  min: {{values: [1], doc: x}}\n{MORE}", "the name 'min' is reserved"),
        (MORE, f"  B-M: {{values: [1], doc: x}}\n{MORE}", "parameters.B-M: String should match"),
        (BM_VALUES, "[]", "parameters.BM.values: List should have at least 1 item"),
        (BM_VALUES, "[16, 16]", "parameters.BM: the value 16 is there twice"),
        (BM_VALUES, "[16, rows]", "parameters.BM: values are all integers or all texts"),
        (BM_VALUES, "[16, 1.5]", "BM.values.2: write an integer or a string, got 1.5"),
        (BM_VALUES, "[16, null]", "write an integer or a string, got None"),
        (BM_VALUES, "[4294967296]", "a value must fit 32 bits, got 4294967296"),
        (BM_VALUES, "['a b']", "one word of letters, digits"),
        (BM_VALUES, "16", "parameters.BM.values: Input should be a valid list, got 16"),
        ("[rows, snake]", "[off, on]", "reads on, off, yes, no as booleans"),
        ("doc: rows of C per block", "doc: rows, of C", "there is no such field.*quote the text"),
        (", doc: rows of C per block", "", "parameters.BM.doc: this field must be there"),
        ("because: a block has", "becuase: a", r"constraints\.2\.becuase.*did you mean 'because'"),
        ("BM: 128, ", "", "seeds.1.BM: a seed names every parameter, this one is missing"),
        ("BM: 128, ", "BM: 127, ", "seeds.1.BM: 127 is not one of its values: 16 32 64 128"),
        (
            "64], doc",
            "64], default: 8, doc",
            "parameters.WM.default: 8 is not one of its values: 16",
        ),
        ("BM: 128, ", "BM: 128, BN: 1, ", "seeds.1: no parameter is named 'BN'; did you mean"),
        ("ORDER: snake}", "ORDER: 'on'}", "seeds.1.ORDER: 'on' is not one of its values: rows"),
        ("kernel: gemm_kernel", "kernel: gemm kernel", "launch.1.kernel: String should match"),
        ("threads: threads", "threads: []", "launch.1.threads: .* at least 1 item"),
        ("threads: threads", "threads: [1, 1, 1, 1]", "launch.1.threads: .* at most 3 items"),
        ("threads: threads", "threads: ORDER", "launch.1.threads: 'ORDER': must be a number"),
        ("threads: threads", "threads: device.arch", "device.arch is for constraints and"),
        ('">=70"', "sm_90", "architectures: write comparisons like '>=80'"),
        ("accumulate: f32", "accumulate: f99", "dtypes.accumulate: unknown element type 'f99'"),
        (", accumulate: f32", "", "dtypes: name the types of a b c accumulate"),
        ("family: mine", "family: other", "must be named after its family, got 'other'"),
        ("summary:", "sumary:", "sumary: there is no such field; did you mean 'summary'"),
        (SUMMARY, BOMB, r"the alias \*a is not allowed"),
        (SUMMARY, "summary: !!python/object/apply:os.system [ls]", "could not determine a constr"),
        (SUMMARY, "summary: " + "[" * 3000, "nested too deep"),
        (SUMMARY, "summary: {", "line 5, column 1: expected"),
        (SUMMARY, "summary: \x07", "not YAML: .*special characters"),
        (SUMMARY, "summary: " + "x" * 300_000, "may have 262144 bytes"),
        (SUMMARY, "summary: 2001-99-99", "not YAML: month must be"),
        (SMALL, "", "this file is a mapping with the fields family summary"),
        (SMALL, "- 1", "this file is a mapping"),
    ],
)
def test_bad_yaml_gets_one_line_that_names_the_file(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in SMALL
    folder = write_family(tmp_path / "mine", SMALL.replace(old, new, 1))
    with pytest.raises(FamilyError, match=message) as caught:
        load_family(folder)
    assert str(caught.value).startswith(f"{folder / 'mine.yaml'}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_derived_values_that_double_at_each_step_are_refused_in_a_launch(tmp_path: Path) -> None:
    steps = "".join(f"  d{i}: d{i - 1} + d{i - 1}\n" for i in range(1, 60))
    text = SMALL.replace("derive:\n", f"derive:\n  d0: BM\n{steps}")
    load_family(write_family(tmp_path / "mine", text))
    text = text.replace("threads: threads\n", "threads: d59\n")
    with pytest.raises(FamilyError, match=r"launch\.1\.threads: 'd59': an expression may have"):
        load_family(write_family(tmp_path / "mine", text))


def test_a_seed_may_lack_a_parameter_with_a_default(tmp_path: Path) -> None:
    text = SMALL.replace("[1, 2, 3], doc", "[1, 2, 3], default: 2, doc")
    text = text.replace("STAGES: 2, ", "").replace("{STAGES: 1, ", "{STAGES: 3, ")
    seeds = load_family(write_family(tmp_path, text)).seeds
    assert [seed["STAGES"] for seed in seeds] == [2, 3]


def test_missing_files(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "mine")
    (folder / "mine.cu.jinja").unlink()
    with pytest.raises(FamilyError, match=r"its template mine\.cu\.jinja is missing"):
        load_family(folder)
    write_family(folder, name="second")
    with pytest.raises(NotFoundError, match=r"holds one \.yaml, this has 2"):
        load_family(folder)
    for name in ("sgemm_sim", "no/such/folder", "x\0y", "y" * 5000):
        with pytest.raises(NotFoundError):
            load_family(name)
    with pytest.raises(NotFoundError, match="did you mean 'sgemm_simt'"):
        load_family("sgemm_sim")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "mine")
    (folder / "mine.yaml").chmod(0)
    with pytest.raises(FamilyError, match="cannot be read"):
        load_family(folder)

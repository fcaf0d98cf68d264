"""T1 search spaces: foreign ones are read as far as they can be said, ours keep the published
schema and mean the same to Kernel Tuner.
"""

import ast
import gzip
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from t1_samples import t1_content, write_t1

from autogemm.catalogue.gpus import find_device
from autogemm.cli import main
from autogemm.formats import is_t1, read_t1, t1_text, yaml_text
from autogemm.formats.t1_values import values_of
from autogemm.model.config import Value
from autogemm.model.problem import Layout, Problem
from autogemm.space import Space, build_space, load_family, parse_expression, parse_fix
from autogemm.space.expressions.printing import python_text
from autogemm.support.errors import ExchangeError, FamilyError

H100 = find_device("h100")
PROBLEM = Problem(1024, 768, 512)


def built(path: Path) -> Space:
    return build_space(read_t1(path).family, PROBLEM, H100)


def legal_by_python() -> set[tuple[Value, ...]]:
    """The space, said once more in Python."""
    names = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "USE", "MODE", "SCALE")
    values = ((16, 32, 64), (16, 32), (8, 16, 24, 32), (8, 16), (8, 16), (8, 16), (1, 0))
    found = set()
    for row in itertools.product(*values, ("fast", "safe"), ("0.5", "1.5")):
        at = dict(zip(names, row, strict=True))
        keeps = (
            at["MWG"] % at["MDIMC"] == 0
            and at["NWG"] % at["NDIMC"] == 0
            and at["KWG"] % (at["MDIMC"] * at["NDIMC"] / at["MDIMA"]) == 0
            and not (at["MWG"] == 64 and at["NDIMC"] == 16)
            and (at["USE"] or at["KWG"] >= 16)
        )
        if keeps:
            found.add(row)
    return found


def test_a_foreign_space_is_the_space_that_it_says(tmp_path: Path) -> None:
    space = built(write_t1(tmp_path / "t1.json"))
    rows = {tuple(value for _, value in space.config(index)) for index in range(len(space))}
    assert rows == legal_by_python()
    assert 0 < len(rows) < space.raw_count


def test_what_cannot_be_said_is_listed(tmp_path: Path) -> None:
    lines = read_t1(write_t1(tmp_path / "t1.json")).left_out
    assert lines[:5] == (
        "parameter 'SCALE': its values are kept as words, nothing computes with them",
        "condition 'MWG / KWG > 1': it divides with / where a remainder is left",
        "condition 'SCALE * 2 > 1': * takes numbers, not a text; texts know == != and in",
        "condition 'MWG * max_things < 1000': it reads 'max_things', which is not an imported "
        "parameter",
        "condition \"__import__('os').system('true') == 0\": '.' at position 17 is not "
        "allowed; numbers are whole; only device has a dot, as in device.arch",
    )
    fields = [line.split(":")[0] for line in lines[5:]]
    assert fields == [
        *("General", "Search", "Budget", "KernelSpecification.Language"),
        *("KernelSpecification.KernelFile", "KernelSpecification.GlobalSize"),
        *("KernelSpecification.LocalSize", "KernelSpecification.Misc"),
    ]
    assert "Misc: has no counterpart here" in lines[-1]


def test_the_default_is_the_seed(tmp_path: Path) -> None:
    space = built(write_t1(tmp_path / "t1.json"))
    (seed,) = space.seeds
    assert space.config(seed)["MWG"] == 32


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("[1, 2, 4]", (1, 2, 4)),
        (" ( 1,2 ,4 ) ", (1, 2, 4)),
        ("16", (16,)),
        ("[-3, +3]", (-3, 3)),
        ("range(4)", (0, 1, 2, 3)),
        ("list(range(32, 1, -10))", (32, 22, 12, 2)),
        ("[1, 2, 2, 1]", (1, 2)),
        ("[1.0, 2e0]", (1, 2)),
        ("[0.5, 2]", ("0.5", "2")),
        ("['a', \"b\"]", ("a", "b")),
        ("[True, False]", (1, 0)),
        ([4, 8], (4, 8)),
        ([True, 2.0], (1, 2)),
    ],
)
def test_values(written: str | list[Any], values: tuple[Value, ...]) -> None:
    assert values_of(written) == values


@pytest.mark.parametrize(
    "written",
    [
        *("", "[]", "[1, 2", "[2**i for i in range(5)]", "[1; 2]", "[[1], [2]]", "range(1, 9, 0)"),
        *("range(0, 10**9)", "range(0, 1000000)", "[99999999999]", "['two words']", "[1 2]"),
        *("open('x')", "[1e999]", "[1," * 30, "'" * 5, [None], [[1]], [{}], "['']"),
    ],
)
def test_values_that_are_none(written: str | list[Any]) -> None:
    with pytest.raises(ValueError, match=r"value|range|fit"):
        values_of(written)


def test_nothing_is_run(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    evil = f"__import__('pathlib').Path({str(trap)!r}).touch()"
    content = t1_content()
    for parameter in content["ConfigurationSpace"]["TuningParameters"][1:]:
        parameter["Values"] = evil
    for condition in content["ConfigurationSpace"]["Conditions"]:
        condition["Expression"] = evil
    path = tmp_path / "t1.json"
    path.write_text(json.dumps(content))
    assert len(read_t1(path).left_out) > 10
    assert not trap.exists()


def space_of(name: str, fix: list[str], problem: Problem = PROBLEM) -> Space:
    family = load_family(name)
    return build_space(family, problem, H100, parse_fix(family, fix))


NARROW = ["BM=64,128", "BN=64,128", "BK=8,16", "TM=4,8", "TN=8", "SPLIT_K=1,2", "MIN_BLOCKS=1,2"]
NARROW += ["STREAM_BLOCKS=0,132", "SLICE_K=1,2", "STAGES=2,3,4", "VEC_STORE=4", "PAD_B=0"]
NARROW += ["GROUP_M=1", "WM=32,64", "WN=32,64", "HANDOVER=5"]


@pytest.fixture(scope="module")
def own() -> Space:
    return space_of("sgemm_simt", NARROW, Problem(1020, 768, 512, layout=Layout.TN))


def test_our_spaces_keep_the_published_schema(own: Space) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="comes with Kernel Tuner")
    file_utils = pytest.importorskip("kernel_tuner.file_utils", reason="needs Kernel Tuner")
    _, schema = file_utils.input_file_schema()
    for space in (own, space_of("tiled", [])):
        text, left_out = t1_text(space)
        jsonschema.validate(json.loads(text), schema)
        assert any("put in place" in line for line in left_out)


def test_our_spaces_come_back_config_by_config(own: Space, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(t1_text(own)[0])
    again = read_t1(path)
    assert [line for line in again.left_out if line.startswith(("condition", "parameter"))] == []
    # On whatever GPU and problem: they are in place.
    other = build_space(again.family, PROBLEM, find_device("t4"))
    assert len(own) == len(other) > 50
    mine = {own.config(index).values for index in range(len(own))}
    assert {other.config(index).values for index in range(len(other))} == mine


def test_our_spaces_mean_the_same_to_kernel_tuner(own: Space) -> None:
    searchspace = pytest.importorskip("kernel_tuner.searchspace", reason="needs Kernel Tuner")
    space = json.loads(t1_text(own)[0])["ConfigurationSpace"]
    values = {one["Name"]: ast.literal_eval(one["Values"]) for one in space["TuningParameters"]}
    rules = [one["Expression"] for one in space["Conditions"]]
    theirs = searchspace.Searchspace(values, rules, max_threads=1024)
    mine = {tuple(v for _, v in own.config(index)) for index in range(len(own))}
    assert set(theirs.list) == mine


@pytest.mark.parametrize("name", ["sgemm_simt", "sgemm_skinny", "register_blocked"])
def test_each_condition_can_be_asked_alone(name: str) -> None:
    """Others apply them in any order: none divides by zero, whatever the values."""
    problem = Problem(16 if name == "sgemm_skinny" else 4096, 4096, 4096)
    fix = ["STREAM_BLOCKS=0,132", "SPLIT_K=1,2", "PAD_B=0", "HANDOVER=5", "VEC_STORE=4"]
    built = space_of(name, fix if name == "sgemm_simt" else [], problem)
    space = json.loads(t1_text(built)[0])["ConfigurationSpace"]
    values = {one["Name"]: ast.literal_eval(one["Values"]) for one in space["TuningParameters"]}
    draw = random.Random(1)
    configs = [{n: draw.choice(v) for n, v in values.items()} for _ in range(300)]
    for condition in space["Conditions"]:
        code = compile(condition["Expression"], "condition", "eval")
        for config in configs:
            assert eval(code, {"min": min, "max": max}, dict(config)) in (True, False, 0, 1)


@pytest.mark.parametrize(
    "text",
    [
        *("(A and B) + 1", "(A and B) == 1", "ceil_div(A, B) * 2", "-(A - B) - -A", "not A == B"),
        *("A if A and not B == 5 else B", "max(A and B, A or B, 0)", "A - (B - 1) - (A - 1)"),
        *("A < B <= 5", "A * (B // 2) % 3", "-A % 3 - (B if A < B else 1)", "A in (1, 3)"),
        *("(A or B) - (A and 0)", "min(A, 2 if B else 1) == 2", "not (A and B) or A == 3"),
    ],
)
def test_python_and_here_agree(text: str) -> None:
    """`and` gives 0 or 1 here, and one of its operands in Python."""
    written = python_text(parse_expression(text).root, {})
    for a, b in itertools.product((1, 3, 4), (2, 5)):
        expected = parse_expression(text).evaluate({"A": a, "B": b})
        assert eval(written, {"min": min, "max": max}, {"A": a, "B": b}) == expected, written
        assert parse_expression(written).evaluate({"A": a, "B": b}) == expected, written


def test_a_yaml_to_be_completed(tmp_path: Path) -> None:
    foreign = read_t1(write_t1(tmp_path / "t1.json"))
    folder = tmp_path / "mine"
    folder.mkdir()
    text = yaml_text(foreign)
    assert "# Left out: condition 'MWG / KWG > 1'" in text
    path = folder / "Xgemm.yaml"
    path.write_text(text)
    (folder / "Xgemm.cu.jinja").write_text("")
    with pytest.raises(FamilyError, match="launch: this field must be there"):
        load_family(folder)
    launch = [{"kernel": "Xgemm", "threads": "MDIMC * NDIMC", "grid": 1}]
    path.write_text(text + yaml.safe_dump({"launch": launch}))
    space = build_space(load_family(folder), PROBLEM, H100)
    assert len(space) == len(built(tmp_path / "t1.json"))


BROKEN: dict[str, tuple[Any, str]] = {
    "no object": ([1], "valid dictionary"),
    "no space": ({"ConfigurationSpace": {}}, "TuningParameters"),
    "an unknown type": ({"ConfigurationSpace": {"TuningParameters": [{"Name": "A"}]}}, "Type"),
    "no parameter": (
        {
            "ConfigurationSpace": {
                "TuningParameters": [{"Name": "M", "Type": "int", "Values": "[1]"}]
            }
        },
        "no usable parameter: parameter 'M': the name means something else",
    ),
    "too many": (
        {
            "ConfigurationSpace": {
                "TuningParameters": [{"Name": "A", "Type": "int", "Values": "[1]"}] * 65
            }
        },
        "at most 64",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_line(tmp_path: Path, name: str) -> None:
    content, said = BROKEN[name]
    path = tmp_path / "t1.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ExchangeError) as caught:
        read_t1(path)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_limits(tmp_path: Path) -> None:
    path = tmp_path / "t1.json.gz"
    path.write_bytes(gzip.compress(b'{"ConfigurationSpace": "' + b" " * 2**21 + b'"}'))
    with pytest.raises(ExchangeError, match="unpacks to more than 1 MB"):
        read_t1(path)
    path.write_text('{"ConfigurationSpace": ' + "[" * 40 + "]" * 40 + "}")
    with pytest.raises(ExchangeError, match="nested deeper than 32"):
        read_t1(path)
    assert is_t1(path)
    assert not is_t1(tmp_path)
    assert not is_t1(tmp_path / "none")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_on_the_command_line(tmp_path: Path) -> None:
    path = write_t1(tmp_path / "t1.json")
    shown = invoke("space", path, "--gpu", "h100")
    assert shown.exit_code == 0, shown.output
    assert f"{len(legal_by_python())} legal" in shown.stdout
    assert "parts that were left out:\n  parameter 'SCALE'" in shown.stderr
    rows = json.loads(invoke("space", path, "--gpu", "h100", "--json").stdout)
    assert sum(row["kind"] == "left_out" for row in rows) == 13
    target = tmp_path / "Xgemm.yaml"
    for _ in range(2):
        assert invoke("space", path, "--format", "yaml", "-o", target).exit_code == 0
    assert target.read_text().startswith("# From a T1 file.")
    out = tmp_path / "out.json"
    for _ in range(2):
        done = invoke("space", "tiled", "--gpu", "h100", "--format", "t1", "-o", out)
        assert done.exit_code == 0
        assert "sizes and limits are put in place" in done.stderr
    assert is_t1(out)
    wrong = invoke("space", "tiled", "--format", "yaml")
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (2, 1)
    os.truncate(path, 100)
    assert invoke("space", path).exit_code in (1, 2)

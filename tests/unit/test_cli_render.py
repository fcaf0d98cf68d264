"""``autogemm render``: which config it takes, and every reason why it takes none."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from export_samples import split_family

from autogemm.catalogue.ladder import find_rung
from autogemm.cli import main
from autogemm.codegen import render as render_source
from autogemm.model.config import Config
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family


def render(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["render", "--gpu", "h100", *arguments])


def expect_refusal(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr


def test_prints_the_first_seed() -> None:
    family = load_family("sgemm_simt")
    result = render()
    assert result.exit_code == 0, result.output
    assert result.stdout == render_source(family, family.seeds[0], Problem(4096, 4096, 4096)).text


def test_fix_changes_a_seed_and_the_problem_decides_the_edges() -> None:
    family = load_family("sgemm_simt")
    arguments = ["--seed-index", "3", "--fix", "PAD_A=0", "--size", "1000", "--layout", "tn"]
    result = render(*arguments)
    assert result.exit_code == 0, result.output
    config = Config.of(family.name, family.seeds[3].as_dict() | {"PAD_A": 0})
    problem = Problem(1000, 1000, 1000, layout=Layout.TN)
    assert result.stdout == render_source(family, config, problem).text


def test_config_as_json_replaces_the_seed() -> None:
    family = load_family("sgemm_simt")
    values = dict(reversed(list(family.seeds[1])))
    result = render("--config", json.dumps(values))
    assert result.exit_code == 0, result.output
    problem = Problem(4096, 4096, 4096)
    assert result.stdout == render_source(family, family.seeds[1], problem).text


def test_a_rung_of_the_ladder_is_a_config_that_fix_changes() -> None:
    family = load_family("tiled")
    config = find_rung("privatized").config(family.seeds[0])
    result = render("--rung", "privatized")
    assert result.exit_code == 0, result.output
    problem = Problem(4096, 4096, 4096)
    assert result.stdout == render_source(family, config, problem).text
    changed = render("--rung", "privatized", "--fix", "UNROLL=4", "--family", "tiled")
    values = config.as_dict() | {"UNROLL": 4}
    assert changed.stdout == render_source(family, Config.of("tiled", values), problem).text


def test_a_family_of_ones_own(tmp_path: Path) -> None:
    split_family(tmp_path / "split")
    result = render("--family", str(tmp_path / "split"), "--size", "15", "--fix", "BM=32")
    assert result.exit_code == 0, result.output
    assert "\n\n// BM = 32, guard 1, vector 1\n" in result.stdout


def test_all_broken_constraints_are_named_at_once() -> None:
    result = render("--fix", "WM=128", "--fix", "BM=64", "--fix", "MIN_BLOCKS=4")
    expect_refusal(
        result,
        "BM % WM == 0: a block tile is a whole number of warp tiles",
        "lanes of a warp cover its tile once",
        "promised blocks per SM share its shared memory",
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fix", "BM=128,256"], ["--fix BM one value"]),
        (["--fix", "BM=100"], ["100"]),
        (["--fix", "BX=1"], ["BX"]),
        (["--seed-index", "99"], ["there is no seed 99"]),
        (["--config", "{"], ["not JSON"]),
        (["--config", "[" * 100_000], ["not JSON"]),
        (["--config", "[1]"], ["JSON object"]),
        (["--config", '{"BM": true, "X": 1}'], ["unknown X", "BM cannot be True", "BN is missing"]),
        (["--size", "0"], ["0"]),
        (["--size", "4096x"], ["4096x"]),
        (["--gpu", "voodoo"], ["voodoo"]),
        (["--family", "nonsense"], ["nonsense"]),
        (["--rung", "nonsense"], ["no rung 'nonsense'; the ladder has naive_uncoalesced, "]),
        (["--rung", "tiled", "--family", "naive"], ["tiled is a rung of the family tiled"]),
        (["--rung", "tiled", "--seed-index", "0"], ["exclude each other"]),
    ],
)
def test_bad_requests(arguments: list[str], words: list[str]) -> None:
    expect_refusal(render(*arguments), *words)


def test_writes_a_file_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    assert render("-o", str(path)).exit_code == 0
    assert path.read_text() == render().stdout
    expect_refusal(
        render("-o", str(path), "--seed-index", "1"), "kernel.cu exists: give another", "--force"
    )
    assert render("-o", str(path), "--seed-index", "1", "--force").exit_code == 0
    assert path.read_text() == render("--seed-index", "1").stdout
    expect_refusal(render("-o", str(tmp_path)), "folder")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--family", "sgemm_simt"],
        ["--family", "gemm_mma", "--dtype", "bf16", "--gpu", "rtx4090"],
        ["--family", "gemm_mma", "--dtype", "f16", "--gpu", "t4"],
        ["--family", "gemm_wgmma", "--dtype", "bf16"],
    ],
)
def test_a_seed_that_was_not_asked_for_fits_the_problem(arguments: list[str]) -> None:
    """A tile of a gated epilogue has twice the accumulators: the first seed has no room."""
    text = ["--epilogue", "silu(acc[n]) * acc[n + N]"]
    result = render(*arguments, *text)
    assert result.exit_code == 0, result.output
    assert "float accum, float second" in result.stdout
    expect_refusal(render(*arguments, *text, "--seed-index", "0"), "not legal")
    alternating = ["--epilogue", "silu(acc[2 * n]) * acc[2 * n + 1]", "--layout", "nn"]
    expect_refusal(render(*arguments, *alternating), "gate != 'interleaved' or trans_b")

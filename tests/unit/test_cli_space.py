"""``autogemm space``, and the options that commands share."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_gpus import attach
from space_families import SEEDS, SMALL, write_family

from autogemm.catalogue.gpus import find_device
from autogemm.cli import main
from autogemm.cli.options import ProblemOptions
from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return write_family(tmp_path / "mine")


def space(*args: object) -> Result:
    return CliRunner().invoke(main, ["space", *map(str, args)])


def test_prints_parameters_constraints_and_counts(mine: Path) -> None:
    result = space(mine, "--gpu", "h100", "--size", "100")
    assert result.exit_code == 0, result.output
    assert "rows of C per warp" in result.output
    assert "a block tile is a whole number of warp tiles" in result.output
    assert "45 legal of 72 configs" in result.output
    assert "for 100 nn f32 on NVIDIA H100" in result.output
    row = next(line for line in result.output.splitlines() if line.startswith("BM % WM"))
    assert row.split()[-1] == "18"


def test_shipped_family_is_the_default() -> None:
    result = space("--gpu", "h100", "--fix", "BM=128", "--fix", "BN=128", "--fix", "STAGES=2,3")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("sgemm_simt: ")
    assert " 0 legal" not in result.output


def test_fix_narrows(mine: Path) -> None:
    result = space(mine, "--gpu", "h100", "--fix", "BM=128,64", "--fix", "ORDER=rows")
    assert "18 legal of 18 configs" in result.output


def test_json_and_csv_hold_the_same_rows(mine: Path) -> None:
    rows = json.loads(space(mine, "--gpu", "h100", "--json").stdout)
    assert rows[0] == {
        "kind": "parameter",
        "name": "BM",
        "values": "16 32 64 128",
        "doc": "rows of C per block",
        "configs": None,
    }
    counts = {row["name"]: row["configs"] for row in rows if row["kind"] == "count"}
    removed = sum(row["configs"] for row in rows if row["kind"] == "constraint")
    assert counts == {"raw": 72, "legal": 72 - removed}
    from_csv = list(csv.DictReader(io.StringIO(space(mine, "--gpu", "h100", "--csv").stdout)))
    assert [row["name"] for row in from_csv] == [row["name"] for row in rows]


def test_names_from_a_file_are_not_markup(tmp_path: Path) -> None:
    text = SMALL.replace("rows of C per block", "'[red]rows[/red] [/nothing]'")
    result = space(write_family(tmp_path / "mine", text), "--gpu", "h100")
    assert result.exit_code == 0, result.output
    assert "[red]rows[/red] [/nothing]" in result.output


def test_auto_without_a_gpu_says_what_it_assumes(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(monkeypatch)
    result = space(mine, "--json")
    assert result.exit_code == 0
    assert result.stderr.count("\n") == 1
    assert "no GPU is attached: using the limits of NVIDIA H100" in result.stderr
    json.loads(result.stdout)


def test_auto_takes_the_attached_gpu(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attach(monkeypatch, find_device("t4"))
    result = space(mine)
    assert result.stderr == ""
    assert "on Tesla T4" in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--size", "0"], "M must be from 1 to"),
        (["--size", "-5"], "a size is one positive integer (4096) or MxNxK"),
        (["--size", "4096x"], "a size is one positive integer"),
        (["--size", "4096x4096"], "a size is one positive integer"),
        (["--layout", "xx"], "is not one of"),
        (["--lda", "7"], "lda must be at least the 4096 columns stored"),
        (["--ldc", "-1"], "ldc must be at least"),
        (["--alpha", "inf"], "--alpha must be a finite number"),
        (["--gpu", "h1000"], "h1000"),
        (["--fix", "BQ=1"], "no parameter 'BQ'; did you mean 'BM'"),
        (["--fix", "BM=1"], "BM has no value 1"),
        (["--fix", "BM"], "NAME=VALUE"),
        (["--json", "--csv"], "choose one"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(
    mine: Path, args: list[str], message: str
) -> None:
    options = args if "--gpu" in args else ["--gpu", "h100", *args]
    result = space(mine, *options)
    assert result.exit_code == 2
    error = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert message in error[0]
    assert result.stdout == ""


def test_unknown_family_is_exit_code_2() -> None:
    result = space("sgemm_smit", "--gpu", "h100")
    assert result.exit_code == 2
    assert "did you mean 'sgemm_simt'" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("BM % WM == 0", "BM % WMM == 0", "unknown name 'WMM'; did you mean 'WM'"),
        ("BM % WM == 0", "BM % WM == 3", "no config of mine is legal"),
        ("BM % WM == 0", "BM % (WM - 16) == 0", "division by zero"),
        ("BM // WM", "threads", "a cycle"),
        ("summary:", "summary: [", "line"),
    ],
)
def test_broken_families_are_one_line_and_exit_code_1(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    result = space(write_family(tmp_path / "mine", SMALL.replace(old, new)), "--gpu", "h100")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr


def test_problem_from_options() -> None:
    options = ProblemOptions(
        *(Layout.TN, "bf16", 10, 0, 8, 2.0, 0.5, "alpha * acc + beta * c[m, n]", "3", ""),
        "5x6x7",
    )
    layout, dtype = Layout.TN, DType.BF16
    assert options.value == Problem(
        *(5, 6, 7, layout, dtype),
        *(10, 6, 8, 2.0, 0.5),
        Epilogue.parse("alpha * acc + beta * c[m, n]"),
        Batch(3),
    )
    with pytest.raises(UsageError, match="--beta must be a finite number"):
        _ = ProblemOptions(Layout.NN, "f32", 0, 0, 0, 1.0, float("nan"), "", "1", "", "5").value


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom autogemm.cli import main\n"
        "try: main(['space', '-h'])\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'yaml', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "Examples:" in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_seeds_are_listed_by_number_with_where_they_were_good(mine: Path) -> None:
    text = SMALL[: SMALL.index("seeds:")]
    (mine / "mine.yaml").write_text(text)
    (mine / "seeds").mkdir()
    (mine / "seeds" / "mine.yaml").write_text(SEEDS)
    rows = json.loads(space(mine, "--size", "512", "--gpu", "h100", "--json").stdout)
    seeds = [row for row in rows if row["kind"] == "seed"]
    assert [row["name"] for row in seeds] == ["0", "1", "2"]
    assert seeds[0]["values"] == "BM=128 WM=64 STAGES=2 ORDER=snake"
    assert seeds[0]["doc"] == seeds[1]["doc"] == "H100; 512, 1024; few of them"
    assert seeds[2]["doc"] in ("", None)

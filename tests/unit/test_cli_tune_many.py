"""autogemm tune for several problems: what is asked for, what is printed, what is refused."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autogemm.cli import main
from autogemm.cli.tune.command import MAX_PROBLEMS, ProblemsOptions
from autogemm.model.batch import Batch
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError


def asked(
    sizes: tuple[str, ...] = (), preset: str | None = None, file: str | None = None
) -> tuple[Problem, ...]:
    return ProblemsOptions(
        Layout.NT, "f32", 0, 0, 0, 1.0, 0.0, "", "1", "", sizes, preset, file
    ).values


def run(place: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        main,
        ["tune", "--gpu", "recorded", "--trials", "4", "--db", str(place / "m.db"), *arguments],
    )


def test_problems_from_everywhere_each_once(tmp_path: Path) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text("# mine\n\n512   # twice\n 64x32x16 tn\n512 nt\n")
    assert asked() == (Problem.of_size("4096", Layout.NT),)
    assert asked(("512", "64x32x16"), file=str(file)) == (
        Problem.of_size("512", Layout.NT),
        Problem.of_size("64x32x16", Layout.NT),
        Problem.of_size("64x32x16", Layout.TN),
    )
    squares = asked(preset="squares")
    assert isinstance(squares, tuple)
    assert len(squares) == 10


def test_a_line_may_have_a_batch_or_groups(tmp_path: Path) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text(
        "512 batch=64 rows_b=0\n4096x1536x2048 nt groups=128 zipf=1.1 seed=3  # experts\n"
        "64x32x16 tn groups=4,0,12\n512\n"
    )
    shared = Problem.of_size("512", Layout.NT)
    assert asked(file=str(file)) == (
        replace(shared, batch=Batch.parse("64 rows_b=0")),
        replace(
            Problem.of_size("4096x1536x2048", Layout.NT),
            groups=Groups.parse("128 zipf=1.1 seed=3"),
        ),
        replace(Problem.of_size("64x32x16", Layout.TN), groups=Groups.parse("4,0,12")),
        shared,
    )
    # Labels without layout and type can be read again.
    for problem in asked(file=str(file)):
        file.write_text(problem.products_label.replace(" ", f" {problem.layout} ", 1))
        assert asked(file=str(file))[0] == problem
    file.write_text("256 nn batch=8\n256 nn batch=9\n1024 nn\n")
    result = run(tmp_path, "--problems", str(file), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["problems"]
    assert [(one["size"], one["batch"], one["groups"]) for one in found] == [
        ("256", "8", ""),
        ("256", "9", ""),
        ("1024", "", ""),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("512 512", "line 1: a size, perhaps a layout, and perhaps a batch or groups"),
        ("512 nn f32", "line 1: a size, perhaps a layout"),
        ("512 nt x groups=8", "line 1: a size, perhaps a layout"),
        ("groups=8", "line 1: a size, perhaps a layout"),
        ("512 nt groups=", "line 1: groups= needs a value, as in groups=8"),
        ("512 nt groups=8 evenly", "line 1: "),
        ("512 nt batch=0", "line 1: "),
        ("512 tt groups=8", "line 1: groups are rows of A"),
        ("0", "line 1: M must be from 1"),
        ("4096y12", "line 1: a size is one positive integer"),
        ("x" * 100_000, "line 1: a size, perhaps a layout"),
        ("[bold]512[/bold]", "line 1: a size is"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text(line)
    with pytest.raises(UsageError, match=words) as caught:
        asked(file=str(file))
    assert len(str(caught.value)) < 600


def test_files_that_are_no_lists_of_problems(tmp_path: Path) -> None:
    file = tmp_path / "sizes.txt"
    for content in (b"\xff\xfe\x00", b"512\n" * (MAX_PROBLEMS + 1)):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=r"more than|cannot be read"):
            asked(file=str(file))
    for place in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(UsageError, match="cannot be read"):
            asked(file=str(place))
    (tmp_path / "empty.txt").write_text("# nothing yet\n\n")
    with pytest.raises(UsageError, match="contains no problem"):
        asked(file=str(tmp_path / "empty.txt"))
    with pytest.raises(UsageError, match=r"no preset 'transformers'.*; there are transformer"):
        asked(preset="transformers")


def test_a_line_for_each_and_one_table(tmp_path: Path) -> None:
    result = run(tmp_path, "--size", "1024", "--size", "77", "--size", "4096x256x1024")
    assert result.exit_code == 0, result.output
    told = [line for line in result.stderr.splitlines() if line.startswith("tuning ")]
    assert [line.split(":")[0] for line in told] == [
        "tuning 1/3 1024 nn f32",
        "tuning 2/3 77 nn f32",
        "tuning 3/3 4096x256x1024 nn f32",
    ]
    assert "2 problems on NVIDIA H200 (recorded)" in result.stdout
    assert "geometric mean: " in result.stdout
    assert "77 nn f32: no recording holds" in result.stdout
    again = run(tmp_path, "--size", "1024", "--size", "4096x256x1024", "--json")
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert [one["known"] for one in found["problems"]] == [True, True]
    assert found["provenance"] == "recorded"
    # And as CSV: a row for each problem, the same figures.
    as_csv = run(tmp_path, "--size", "1024", "--size", "4096x256x1024", "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(as_csv)))
    assert rows[0].keys() == {*found["problems"][0].keys(), "gpu", "provenance"}
    for row, one in zip(rows, found["problems"], strict=True):
        assert (row["size"], float(row["ratio"])) == (one["size"], one["ratio"])
        assert json.loads(row["config"]) == one["config"]
    # As in the JSON of one problem: a script reads both.
    single = json.loads(run(tmp_path, "--size", "1024", "--json").stdout)
    assert {"time_us", "tflops", "ratio"} <= single["finals"]["entries"][0].keys()
    first = found["problems"][0]
    assert first["ratio"] == pytest.approx(first["baseline_us"] / first["time_us"], rel=1e-3)
    assert first["tflops"] == pytest.approx(2 * 1024**3 / first["time_us"] * 1e-6)
    assert found["problems"][0]["config"]["BM"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--size", "1024", "--cross"], "--cross is for many problems"),
        (["--size", "1024", "--size", "4096", "--cross"], "use a GPU"),
        (["--size", "77", "--size", "78"], "no problem has a result"),
        (["--preset", "none"], "no preset 'none'"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = run(tmp_path, *arguments)
    assert result.exit_code in (1, 2)
    assert words in result.stderr
    assert "Traceback" not in result.output

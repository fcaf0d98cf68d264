"""``autogemm db export`` and ``db import`` on the command line."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from exchange_samples import content_of, filled_store, rows_of

from autogemm.cli import main
from autogemm.cli.db import writing
from autogemm.exchange import Format
from autogemm.exchange.formats import IMPORTED

# Some file that is none of ours.
CONFTEST = str(Path(__file__).parents[1] / "conftest.py")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    filled_store(tmp_path).close()
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    return tmp_path / "a.db"


def db(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["db", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_help_names_all_formats() -> None:
    assert tuple(writing.FORMATS) == tuple(Format)
    assert set(writing.IMPORTED) == set(IMPORTED)
    for command in ("export", "import"):
        assert "Examples:" in db(command, "-h").stdout


def test_the_name_says_the_format(database: Path, tmp_path: Path) -> None:
    for name, form in (("a.csv", "csv"), ("a.jsonl", "jsonl"), ("a.json", "json"), ("a", "json")):
        assert db("export", "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_text() == db("export", "--format", form).stdout
    assert db("export", "--json", "-o", tmp_path / "b.csv").exit_code == 0
    assert json.loads((tmp_path / "b.csv").read_text())


def test_out_and_in_again(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl.gz"
    for _ in range(2):
        done = db("export", "--format", "jsonl", "-o", file)
        said = f"{file}: jsonl, {file.stat().st_size:,} bytes\n"
        assert (done.exit_code, done.output) == (0, said)
    assert gzip.decompress(file.read_bytes()).decode() == db("export", "-f", "jsonl").stdout
    other = tmp_path / "new" / "b.db"
    told = db("import", file, "--db", other, "--dry-run")
    assert told.stdout.startswith(f"{file} (jsonl): would add 18 of 18 records\n")
    assert not other.parent.exists()
    done = db("import", file, "--db", other)
    assert done.stdout.replace("added", "would add") == told.stdout
    assert content_of(other) == content_of(database)
    again = db("import", file, "--db", other)
    assert "added 0 of 18 records" in again.stdout
    told = db("import", file, "--db", other, "--json")
    assert {"what": "benchmarks", "new": 0, "known": 1} in json.loads(told.stdout)
    assert [line.split() for line in again.stdout.splitlines()[1:3]] == [
        ["what", "new", "known"],
        ["runs", "0", "3"],
    ]


def test_a_dry_run_on_a_database_that_is_there(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "part.csv"
    assert db("export", "--csv", "--run", 1, "-o", file).exit_code == 0
    before = rows_of(database)
    assert "would add 0 of 4 records" in db("import", file, "--dry-run").stdout
    assert rows_of(database) == before


@pytest.mark.parametrize("form", ["t4", "kernel-tuner"])
def test_one_space_a_file(database: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / "space.json"
    refused = db("export", "--format", form, "-o", file)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "narrow with --gpu --size --layout --family or --run" in refused.stderr
    assert not file.exists()
    for _ in range(2):
        assert db("export", "--format", form, "--run", 3, "-o", file).exit_code == 0
    done = db("import", file)
    assert f"space.json ({form}): added 3 of 3 records" in done.stdout
    assert "the kernel itself is not in it" in done.stderr
    (row,) = json.loads(
        db("list", "--json", "--provenance", "recorded", "--size", "512x256x64").stdout
    )
    assert (row["sampler"], row["time_us"], row["num_trials"]) == ("imported", 50.0, 2)


def test_wisdom_says_what_it_leaves_out(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "k.wisdom"
    for _ in range(2):
        assert db("export", "--format", "wisdom", "-o", file).exit_code == 0
    assert len(file.read_text().splitlines()) == 3
    refused = db("import", file)
    assert refused.exit_code == 2
    assert "too little to be read back" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "--csv", "--format", "t4"], "a file has one format, not t4 and csv"),
        (["export", "--csv", "--json"], "not json and csv"),
        (["export", "--format", "wisdom", "--status", "ok"], "leave out --status"),
        (["export", "--format", "xml"], "'xml' is not one of"),
        (["import", "none.jsonl"], "no such file: none.jsonl"),
        (["import", "."], "is not a file"),
        (["import", "/dev/zero"], "is not a file"),
        (["import", CONFTEST], "none of the known formats"),
        (["import", CONFTEST, "--format", "csv"], "the first line names the columns"),
        (["import", CONFTEST, "--format", "jsonl"], "line 1"),
        (["import", CONFTEST, "--format", "t4"], "broken T4 file"),
    ],
)
def test_wrong_requests(database: Path, arguments: list[str], said: str) -> None:
    before = rows_of(database)
    result = db(*arguments)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert rows_of(database) == before


def test_an_export_that_fails_leaves_the_old_file(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "all.jsonl"
    assert db("export", "--format", "jsonl", "-o", file).exit_code == 0
    before = file.read_bytes()
    folder = sorted(tmp_path.iterdir())
    monkeypatch.setattr("autogemm.exchange.jsonl.lines.value_of", _fails)
    result = db("export", "--format", "jsonl", "-o", file)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert file.read_bytes() == before
    assert [path for path in sorted(tmp_path.iterdir()) if ".db" not in path.name] == [
        path for path in folder if ".db" not in path.name
    ]


def _fails(line: str) -> object:
    raise ValueError("no line for this")

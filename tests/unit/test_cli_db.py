"""The db commands."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from store_samples import SPEC, failed, fill, new_store, ok, source

from autogemm.cli import main
from autogemm.cli.output import Form, print_each, rows_text
from autogemm.cli.rows import TRIAL, for_csv, for_json, open_database, trial_row
from autogemm.model.results.outcome import Status, Verification

LISTINGS = (["best"], ["list"], ["list", "--trials"], ["export"])


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with new_store(tmp_path) as store:
        fill(store)
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    return tmp_path / "a.db"


def db(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["db", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def rows_of(*arguments: str) -> list[dict[str, object]]:
    result = db(*arguments, "--json")
    assert result.exit_code == 0, result.output

    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    rows = json.loads(result.stdout, parse_constant=no_constant)
    assert isinstance(rows, list)
    return rows


def test_best_shows_where_each_time_comes_from(database: Path) -> None:
    lines = db("best").stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:3] == ["gpu", "problem", "provenance"]
    assert [line.count("measured") for line in lines[1:]] == [1, 0, 1]
    assert "recorded" in lines[2]


def test_best_as_json_has_everything_in_full(database: Path) -> None:
    first = rows_of("best", "--gpu", "H100", "--provenance", "measured")[0]
    assert (first["time_us"], first["ratio"], first["provenance"]) == (
        2655.0,
        1.01,
        "measured",
    )
    assert first["config"] == {"BM": 128, "BK": 16, "FMA_ORDER": "snake"}
    assert (first["m"], first["lda"], first["kernel_id"], first["run_id"]) == (4096, 4096, 2, 1)


@pytest.mark.parametrize("command", LISTINGS)
def test_every_row_of_a_listing_names_its_provenance(database: Path, command: list[str]) -> None:
    rows = rows_of(*command)
    assert {row["provenance"] for row in rows} == {"measured", "recorded"}
    assert [row["provenance"] for row in rows if row["run_id"] == 2] == ["recorded"]
    if command != ["export"]:
        assert "recorded" in db(*command).stdout


@pytest.mark.parametrize("command", LISTINGS)
def test_csv_and_json_say_the_same(database: Path, command: list[str]) -> None:
    from_json = rows_of(*command)
    from_csv = list(csv.DictReader(io.StringIO(db(*command, "--csv").stdout)))
    assert [list(row) for row in from_csv] == [list(row) for row in from_json]
    for in_csv, in_json in zip(from_csv, from_json, strict=True):
        assert json.loads(in_csv["config"]) == in_json["config"] if "config" in in_json else True
        assert in_csv["time_us"] == ("" if in_json["time_us"] is None else str(in_json["time_us"]))


@pytest.mark.parametrize("command", LISTINGS)
def test_nothing_found_is_said_and_stays_readable(database: Path, command: list[str]) -> None:
    for form in ("", "--json", "--csv"):
        result = db(*command, "--layout", "tt", *filter(None, [form]))
        assert result.exit_code == 0
        assert "match" in result.stderr
        if form == "--csv":
            assert len(result.stdout.splitlines()) == 1
            assert "time_us" in result.stdout
        elif form == "--json" or command == ["export"]:
            assert json.loads(result.stdout) == []
        else:
            assert result.stdout == ""


@pytest.mark.parametrize("command", [*LISTINGS, ["show", "1"]])
def test_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    path = tmp_path / "none" / "a.db"
    monkeypatch.setenv("AUTOGEMM_DB", str(path))
    result = db(*command)
    assert result.exit_code == 2
    assert f"no database at {path}: run autogemm tune or" in " ".join(result.stderr.split())
    assert not path.parent.exists()


def test_a_broken_database_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_text("no database, whatever its name says, " * 20)
    result = db("best", "--db", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "is not a database" in result.stderr


def test_list_says_when_it_is_cut(database: Path) -> None:
    cut = db("list", "--limit", "2")
    assert len(cut.stdout.splitlines()) == 3
    assert "only the newest 2 runs" in cut.stderr
    assert db("list", "--limit", "3").stderr == ""
    assert [row["run_id"] for row in rows_of("list")] == [3, 2, 1]
    assert len(rows_of("list", "--trials", "--limit", "4")) == 4


@pytest.mark.parametrize("form", [Form.JSON, Form.CSV])
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 100])
def test_trials_are_printed_as_they_are_read(
    database: Path, monkeypatch: pytest.MonkeyPatch, form: Form, limit: int
) -> None:
    monkeypatch.setattr("autogemm.store.queries.runs._ROWS_AT_ONCE", 2)
    with open_database(None) as store:
        rows = list(map(trial_row, store.trial_rows()))
    shape = for_csv if form is Form.CSV else for_json
    status = ("--status", "too_slow") if limit == 0 else ("--limit", str(limit))
    listed = db("list", "--trials", f"--{form.name.lower()}", *status)
    assert listed.stdout == rows_text([shape(row) for row in rows[:limit]], TRIAL, form)
    assert ("only the newest" in listed.stderr) == (0 < limit < len(rows))
    assert ("no trials match" in listed.stderr) == (limit == 0)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"a": 'quoted " \n é', "b": None, "c": 1e-6, "d": float("inf"), "e": True},
        {"a": [1.5, 2], "b": {"BM": 64, "names": ["x", {}], "none": []}, "c": [[1], {"d": 2}]},
    ],
)
def test_json_is_indented_as_by_the_standard_library(row: dict[str, object]) -> None:
    columns = (*row, "missing")
    wanted = [{**row, "missing": None}] * 2
    assert rows_text([row, row], columns, Form.JSON) == json.dumps(wanted, indent=2) + "\n"


def test_a_row_is_printed_before_the_next_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []

    def rows() -> Iterator[dict[str, object]]:
        for number in range(3):
            printed.append(capsys.readouterr().out)
            yield {"a": number, "b": "two\nlines"}

    assert print_each(rows(), ("a", "b"), Form.JSON) == 3
    whole = "".join(printed) + capsys.readouterr().out
    assert all(f'"a": {number}' in printed[number + 1] for number in range(2))
    assert json.loads(whole) == [{"a": number, "b": "two\nlines"} for number in range(3)]


def test_list_trials_by_status(database: Path) -> None:
    (crashed,) = rows_of("list", "--trials", "--status", "crashed")
    assert (crashed["reason"], crashed["run_id"], crashed["time_us"]) == (
        "illegal address",
        1,
        None,
    )
    assert db("list", "--status", "ok").exit_code == 2
    assert db("list", "--trials", "--status", "fine").exit_code == 2


def test_filters_reach_the_store(database: Path) -> None:
    assert [row["run_id"] for row in rows_of("list", "--gpu", "tesla")] == [3]
    assert [row["run_id"] for row in rows_of("list", "--size", "512x256x64")] == [3]
    assert [row["run_id"] for row in rows_of("list", "--provenance", "recorded")] == [2]
    assert {row["run_id"] for row in rows_of("export", "--run", "1")} == {1}
    assert rows_of("best", "--family", "other") == []
    assert db("best", "--size", "4096x").exit_code == 2
    assert db("best", "--run", str(10**20)).exit_code == 2


def test_show_kernel(database: Path) -> None:
    (kernel,) = rows_of("show", "1")
    assert kernel["kernel_sha256"] == source(64).sha256
    assert (kernel["ratio"], kernel["registers"]) == (0.96, 125)
    assert [trial["run_id"] for trial in kernel["trials"]] == [3, 2, 1]  # type: ignore[attr-defined]
    assert rows_of("show", source(64).sha256[:12]) == rows_of("show", "kernel:1") == [kernel]
    text = db("show", "1").stdout
    assert "BM=64 BK=16 FMA_ORDER=snake" in text
    assert "recorded" in text


def test_show_run(database: Path) -> None:
    (run,) = rows_of("show", "run:1")
    assert (run["num_trials"], run["num_ok"], run["state"]) == (3, 2, "finished")
    assert run["fix"] == {"BM": [128, 256], "FMA_ORDER": ["snake"]}
    assert [entry["name"] for entry in run["finals"]] == ["BM=128", "BM=64", "cuBLAS"]  # type: ignore[attr-defined]
    text = db("show", "run:1").stdout
    # Values that the configs have in common stand below them; cuBLAS has a name, and no config.
    finals = text[text.index("\nfinals\n") :].splitlines()[2:]
    assert [line.split()[:2] for line in finals[1:4]] == [
        ["1", "BM=128"],
        ["2", "BM=64"],
        ["0", "cuBLAS"],
    ]
    assert finals[4] == "all of them: BK=16 FMA_ORDER=snake"
    assert "BM=128,256" in text
    (header, row) = csv.reader(io.StringIO(db("show", "run:3", "--csv").stdout))
    assert dict(zip(header, row, strict=True))["state"] == "interrupted"


def test_show_trial(database: Path) -> None:
    (trial,) = rows_of("show", "trial:1")
    assert trial["samples_us"] == [2800.1, 2800.0, 2799.9]
    assert (trial["power_w"], trial["driver"]) == (691.25, "580.1")
    assert "2800" in db("show", "trial:1").stdout


@pytest.mark.parametrize(
    "identifier",
    ["99", "run:99", "trial:99", "run:x", "run:", "run:-1", "walk:1", "zz", "", "run:1" + "0" * 30],
)
def test_an_id_that_is_none(database: Path, identifier: str) -> None:
    result = db("show", identifier)
    assert (result.exit_code, result.stdout) == (2, "")


def test_names_are_not_markup(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        run = store.begin_run(SPEC)
        store.record_trial(run, 0, failed(64, reason="[red]A[0][/]\n\x1b[31m"), source(64))
    shown = db("list", "--trials", "--db", str(tmp_path / "a.db")).stdout
    assert "[red]A[0][/]" in shown
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2
    assert "\x1b" not in db("show", "trial:1", "--db", str(tmp_path / "a.db")).stdout


def test_problems_that_differ_in_beta_look_different(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for beta in (0.0, 1.0):
            run = store.begin_run(replace(SPEC, problem=replace(SPEC.problem, beta=beta)))
            store.record_trial(run, 0, ok(64, 1.0), source(64))
    first, second = db("best", "--db", str(tmp_path / "a.db")).stdout.splitlines()[1:]
    assert "beta=1" not in first
    assert "4096 nn f32 beta=1" in second


def test_infinite_errors_are_valid_json(tmp_path: Path) -> None:
    infinite = Verification(float("inf"), float("inf"), float("nan"))
    with new_store(tmp_path) as store:
        run = store.begin_run(SPEC)
        wrong = replace(failed(64, Status.WRONG_RESULT), verification=infinite)
        store.record_trial(run, 0, wrong, source(64))
        store.record_trial(run, 1, ok(128, 1.0), source(128))
    rows = rows_of("export", "--db", str(tmp_path / "a.db"))
    assert [row["max_abs_error"] for row in rows] == [None, 1.5e-4]


def test_export_to_a_file(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "trials"
    for form in ("--csv", "--json"):
        for _ in range(2):
            result = db("export", form, "-o", str(target), "--run", "1")
            assert (result.exit_code, result.stderr) == (0, "")
        assert target.read_text() == db("export", form, "--run", "1").stdout
        target.unlink()
    trials = [(row["run_id"], row["number"]) for row in rows_of("export")]
    assert trials == [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1)]


def test_export_replaces_only_what_is_its_own(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "thesis.txt"
    target.write_text("years of work")
    result = db("export", "-o", str(target))
    assert result.exit_code == 2
    assert target.read_text() == "years of work"
    assert db("export", "-o", str(target), "--force").exit_code == 0
    assert len(json.loads(target.read_text())) == 6


def test_export_that_cannot_be_written_leaves_nothing(database: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for arguments in (
        ["-o", str(tmp_path)],
        ["-o", str(tmp_path / "none" / "x.json")],
        ["-o", str(tmp_path / "x"), "--json", "--csv"],
    ):
        assert db("export", *arguments).exit_code == 2
    assert sorted(tmp_path.iterdir()) == before


def test_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert db("path", "--db", str(tmp_path / "a.db")).stdout == f"{tmp_path / 'a.db'}\n"
    assert list(tmp_path.iterdir()) == []
    shown = db("path", "--db", "postgresql://me:secret@host/name").stdout
    assert shown == "postgresql+psycopg://me:***@host/name\n"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("AUTOGEMM_DB", raising=False)
    assert db("path").stdout.endswith("autogemm.db\n")


def test_help_starts_without_the_database_library() -> None:
    code = (
        "import sys\nfrom autogemm.cli import main\n"
        "try:\n    main(['db', 'best', '-h'])\n"
        "finally:\n    print(sorted({'sqlalchemy', 'alembic', 'numpy', 'optuna'} & {*sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.stdout.splitlines()[-1] == "[]"

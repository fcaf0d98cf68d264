"""Results as JSON Lines and CSV: what is written comes back, nothing lost and nothing doubled."""

import csv
import gzip
import json
import math
from collections.abc import Callable
from dataclasses import fields as fields_of
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from exchange_samples import content_of, filled_store, rows_of, written
from store_samples import CERTIFICATE, SPEC, T4, entry, failed, finals, new_store, ok, source

from autogemm.exchange import Format, import_results, recognised, write_results
from autogemm.formats import lines
from autogemm.model.hardware.device import Ceilings
from autogemm.model.kernel import KernelSource, Resources
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.benchmark import BenchEntry, BenchSpec
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import (
    Environment,
    Finals,
    FinalsEntry,
    Measurement,
    Outcome,
    Provenance,
    Status,
    Telemetry,
    Verification,
)
from autogemm.model.results.stored import Profile
from autogemm.store import BestQuery, RunCopy, RunSpec, RunState, Store, TrialCopy
from autogemm.store.tables import bench_models, models
from autogemm.store.transfer import incoming
from autogemm.support.errors import AutogemmError, ExchangeError, StoreError, UsageError

LINES = (Format.JSONL, Format.CSV)


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_database_comes_back_as_it_was(tmp_path: Path) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        file = written(store, Format.JSONL, tmp_path / "all.jsonl")
    with new_store(folder(tmp_path / "to")) as store:
        taken = import_results(store, file).taken
    assert taken.new == {
        **{"runs": 3, "kernels": 4, "trials": 6, "finals": 1, "certificates": 1},
        **{"benchmarks": 1, "profiles": 1, "ceilings": 1},
    }
    assert content_of(tmp_path / "to" / "a.db") == content_of(tmp_path / "from" / "a.db")


@pytest.mark.parametrize("wanted", LINES)
def test_the_same_file_again_adds_nothing(tmp_path: Path, wanted: Format) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        file = written(store, wanted, tmp_path / "file")
        assert import_results(store, file).taken.num_new == 0
    with new_store(folder(tmp_path / "to")) as store:
        first = import_results(store, file).taken
        before = rows_of(tmp_path / "to" / "a.db")
        again = import_results(store, file).taken
        assert (again.num_new, again.known) == (0, first.new)
    assert rows_of(tmp_path / "to" / "a.db") == before


def test_a_table_holds_everything_of_a_trial_but_its_source(tmp_path: Path) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        table = written(store, Format.CSV, tmp_path / "all.csv")
        whole = written(store, Format.JSONL, tmp_path / "all.jsonl")
        expected = [replace(o, kernel_sha256="") for run in (1, 2, 3) for o in store.trials(run)]
        specs = {run.spec for run in store.runs()}
    with new_store(folder(tmp_path / "to")) as store:
        import_results(store, table)
        assert [outcome for run in (1, 2, 3) for outcome in store.trials(run)] == expected
        assert {run.spec for run in store.runs()} == specs
        # Values that a table lacks are added by the file that has them, to the same trials.
        taken = import_results(store, whole).taken
        benches = {"benchmarks": 1, "profiles": 1, "ceilings": 1}
        assert taken.new == {"kernels": 4, "finals": 1, "certificates": 1} | benches
    assert content_of(tmp_path / "to" / "a.db") == content_of(tmp_path / "from" / "a.db")


def test_a_table_is_plain_csv(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        file = written(store, Format.CSV, tmp_path / "all.csv")
        rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [row["time_us"] for row in rows] == ["2800.0", "2700.0", "", "2500.0", "55.0", "50.0"]
    assert [row["provenance"] for row in rows].count("recorded") == 1
    assert {json.loads(row["config"])["BK"] for row in rows} == {16}


@pytest.mark.parametrize("wanted", LINES)
def test_errors_without_a_bound_and_odd_texts(tmp_path: Path, wanted: Format) -> None:
    unbounded = Verification(math.inf, math.inf, math.nan)
    reason = 'a "quoted", [red]line[/]\nand \x1b[31m another; é\r\n=1+1'
    outcomes = (
        replace(failed(64, Status.WRONG_RESULT), verification=unbounded, reason=reason),
        replace(ok(128, 1e6 / 7), compile_seconds=1e-9),
        replace(ok(256, 1 / 3), resources=()),
    )
    with new_store(folder(tmp_path / "from")) as store:
        odd = replace(SPEC, command="tune \udcff, '\0'", fix=(), problem=ODD, max_error="1e-6")
        run = store.begin_run(odd)
        for number, outcome in enumerate(outcomes):
            store.record_trial(run, 2 * number, outcome, source(outcome.config["BM"]))  # type: ignore[arg-type]
        file = written(store, wanted, tmp_path / "file")
        expected = store.trials(1)
    with new_store(folder(tmp_path / "to")) as store:
        import_results(store, file)
        found = store.trials(1)
        assert (store.run(1).spec.problem, store.run(1).spec.max_error) == (ODD, "1e-6")
    if wanted is Format.CSV:
        expected = [replace(outcome, kernel_sha256="") for outcome in expected]
    assert found == expected


ODD = Problem(7, 5, 3, layout=Layout.TN, lda=11, ldb=13, ldc=17, alpha=1 / 3, beta=-2.5e-7)


@pytest.mark.parametrize("wanted", LINES)
def test_a_selection_only(tmp_path: Path, wanted: Format) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        file = written(store, wanted, tmp_path / "file", gpu="tesla")
    with new_store(folder(tmp_path / "to")) as store:
        import_results(store, file)
        assert [(run.spec.device.name, run.num_trials) for run in store.runs()] == [(T4.name, 2)]
        # The rest of the database later: nothing is doubled.
        with filled_store(folder(tmp_path / "more")) as other:
            rest = written(other, wanted, tmp_path / "rest", gpu="h100")
        import_results(store, rest)
        assert sorted(run.num_trials for run in store.runs()) == [1, 2, 3]


def test_a_run_that_went_on_is_brought_up_to_date(tmp_path: Path) -> None:
    with new_store(folder(tmp_path / "from")) as theirs, new_store(folder(tmp_path / "to")) as ours:
        run = theirs.begin_run(SPEC)
        theirs.record_trial(run, 0, ok(64, 3.0), source(64))
        import_results(ours, written(theirs, Format.JSONL, tmp_path / "early"))
        assert (ours.run(1).state, ours.run(1).num_trials) == (RunState.INTERRUPTED, 1)
        theirs.record_trial(run, 1, ok(128, 2.0), source(128))
        # The name of a contestant is its whole config.
        winner = replace(entry(128, 2.0, ratio=1.1), name="PARAMETER=128 " * 64)
        theirs.record_finals(run, finals(winner), {})
        theirs.record_certificate(run, source(128).sha256, CERTIFICATE)
        theirs.finish_run(run, RunState.FINISHED)
        late = written(theirs, Format.JSONL, tmp_path / "late")
        taken = import_results(ours, late).taken
        assert (taken.new["trials"], taken.known["trials"]) == (1, 1)
        assert (ours.run(1).state, ours.run(1).num_trials) == (RunState.FINISHED, 2)
        # An older file takes nothing back.
        import_results(ours, tmp_path / "early")
        assert ours.run(1).state is RunState.FINISHED
    assert content_of(tmp_path / "to" / "a.db") == content_of(tmp_path / "from" / "a.db")


def test_two_runs_of_the_same_request_stay_two(tmp_path: Path) -> None:
    with new_store(folder(tmp_path / "from")) as store:
        for _ in range(2):
            run = store.begin_run(SPEC)
            store.record_trial(run, 0, ok(64, 3.0), source(64))
        file = written(store, Format.JSONL, tmp_path / "file")
    with new_store(folder(tmp_path / "to")) as store:
        import_results(store, file)
        assert len(store.runs()) == 2


def test_facts_of_a_device_that_is_known_are_left_alone(tmp_path: Path) -> None:
    with new_store(folder(tmp_path / "from")) as store:
        older = replace(SPEC.device, memory_clock_mhz=1)
        store.begin_run(replace(SPEC, device=older))
        file = written(store, Format.JSONL, tmp_path / "file")
    with filled_store(folder(tmp_path / "to")) as store:
        import_results(store, file)
        assert {run.spec.device for run in store.runs(BestQuery(gpu="h100"))} == {SPEC.device}


def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path: Path) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        file = written(store, Format.JSONL, tmp_path / "file")
    with new_store(folder(tmp_path / "to")) as store:
        before = rows_of(tmp_path / "to" / "a.db")
        told = import_results(store, file, dry_run=True).taken
        assert rows_of(tmp_path / "to" / "a.db") == before
        assert import_results(store, file).taken == told


def test_a_selection_holds_the_benchmarks_and_profiles_that_match(tmp_path: Path) -> None:
    with filled_store(folder(tmp_path / "from")) as store:

        def kinds(status: Status | None = None, **query: Any) -> list[str]:
            pieces = write_results(store, BestQuery(**query), status, Format.JSONL).pieces
            found = [str(json.loads(line)["record"]) for line in pieces]
            return [kind for kind in found if kind in ("bench", "profile", "ceilings")]

        assert kinds() == kinds(gpu="h100") == ["bench", "profile", "ceilings"]
        assert kinds(gpu="tesla") == kinds(provenance=Provenance.RECORDED) == []
        # A benchmark is whole, ceilings are of no problem, and nothing of it is a run's.
        assert kinds(size="512x256x64") == ["bench"]
        assert kinds(size="1024", family="sgemm_simt") == ["bench", "profile"]
        assert kinds(size="7") == kinds(run_id=1) == kinds(Status.OK) == []


def test_a_profile_needs_its_kernel(tmp_path: Path) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        text = written(store, Format.JSONL, tmp_path / "all").read_text()
    head, *_ = (line for line in text.splitlines() if '"record":"file"' in line)
    profile, *_ = (line for line in text.splitlines() if '"record":"profile"' in line)
    (tmp_path / "alone").write_text(f'{head}\n{profile}\n{{"record":"end","records":1}}\n')
    with new_store(folder(tmp_path / "to")) as store:
        with pytest.raises(AutogemmError, match="is profiled before it comes"):
            import_results(store, tmp_path / "alone")
        assert store.profiles() == []


def test_packed_files(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        file = written(store, Format.JSONL, tmp_path / "file")
        packed = tmp_path / "file.gz"
        packed.write_bytes(gzip.compress(file.read_bytes()))
        assert recognised(packed) is Format.JSONL
        assert import_results(store, packed).taken.num_new == 0


# Fields that lie in other tables, or in columns of another name.
ELSEWHERE = {"problem", "device", "environment", "kernel_sha256", "measurement", "resources"}
ELSEWHERE |= {"verification", "telemetry", "entries", "baseline", "sustained", "text", "sha256"}
# How often finals compared results, and what was thrown out of them, is kept nowhere.
ELSEWHERE |= {"num_checks", "disqualified"}


@pytest.mark.parametrize(
    ("value", "model"),
    [
        (RunSpec, models.RunRecord),
        (KernelSource, models.KernelRecord),
        (Outcome, models.TrialRecord),
        (Verification, models.TrialRecord),
        (Measurement, models.MeasurementRecord),
        (Telemetry, models.MeasurementRecord),
        (Resources, models.ResourcesRecord),
        (Environment, models.EnvironmentRecord),
        (Finals, models.FinalsRecord),
        (Telemetry, models.FinalsRecord),
        (FinalsEntry, models.FinalsEntryRecord),
        (Verification, models.FinalsEntryRecord),
        (Certificate, models.CertificateRecord),
        (BenchSpec, bench_models.BenchRecord),
        (BenchEntry, bench_models.BenchEntryRecord),
        (Verification, bench_models.BenchEntryRecord),
        (Telemetry, bench_models.BenchEntryRecord),
        (Profile, bench_models.ProfileRecord),
        (Ceilings, bench_models.CeilingsRecord),
    ],
)
def test_a_column_is_named_as_the_field(value: Any, model: type[models.Base]) -> None:
    names = {field.name for field in fields_of(value)} - ELSEWHERE
    if value is Profile:
        names -= {"config"}
    assert names <= set(model.__table__.columns.keys())


def _records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _without_last_line(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "cut": (_cut, "line"),
    "no last line": (_without_last_line, "it was cut short"),
    "a line gone": (lambda t: t.replace(t.splitlines(keepends=True)[5], ""), "holds 17 records"),
    "no run": (lambda t: t.replace(t.splitlines(keepends=True)[1], ""), "run 1 is named before"),
    "a line twice": (lambda t: t.replace('{"record":"end"', '{"record":"ende"'), "record"),
    "another version": (lambda t: t.replace('"schema_version":2', '"schema_version":3'), "line 1"),
    "an unknown field": (lambda t: t.replace('"number":0', '"number":0,"x":1'), "x: Unexpected"),
    "a wrong status": (
        lambda t: t.replace('"status":"ok"', '"status":"fine"'),
        "trial.outcome.status",
    ),
    "a size that is none": (lambda t: t.replace('"m":4096', '"m":4096.5'), "line 2"),
    "a negative time": (lambda t: t.replace("2800.1", "-2800.1"), "samples_us"),
    "an endless time": (lambda t: t.replace("2800.1", "1e999"), "samples_us"),
    "another source": (lambda t: t.replace("constexpr", "constexqr"), "the source is not the one"),
    "no device": (lambda t: t.replace('"arch":90,', ""), "device.arch: Field required"),
    "a date without zone": (lambda t: t.replace('Z","finished', '","finished'), "offset from UTC"),
    "a huge number": (lambda t: t.replace('"number":0', '"number":99999999999'), "number"),
    "no text": (lambda t: t.replace("illegal", "\\ud800"), "line"),
    "a zero": (lambda t: t.replace("illegal", "\\u0000"), "reason"),
    "something behind": (lambda t: t + "{}\n", "follows the last record"),
    "another config": (lambda t: t.replace('"BK":16', '"BK":8'), "another config"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_line_and_changes_nothing(tmp_path: Path, name: str) -> None:
    change, said = BROKEN[name]
    with filled_store(tmp_path) as store:
        good = written(store, Format.JSONL, tmp_path / "good").read_text()
        before = rows_of(tmp_path / "a.db")
        file = tmp_path / "bad.jsonl"
        broken = change(good)
        assert broken != good
        file.write_text(broken)
        with pytest.raises(AutogemmError) as caught:
            import_results(store, file)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert rows_of(tmp_path / "a.db") == before


TABLES: dict[str, tuple[Callable[[str], str], str]] = {
    "cells missing": (lambda t: t + "1,2\n", "2 cells, the header has"),
    "a column missing": (lambda t: t.replace("sampler", "sampled", 1), "'sampler' is not among"),
    "a column twice": (lambda t: t.replace("tflops", "driver", 1), "names a column twice"),
    "another run": (lambda t: t.replace("surrogate", "random", 1), "another one than in earlier"),
    "no JSON": (lambda t: t.replace('{""BM"": 64', '{""BM"": 64 64', 1), "line 2"),
    "an open quote": (lambda t: t + '"', "line"),
    "a word for a number": (lambda t: t.replace(",2700.0,", ",fast,").replace("[2700.1", "[x"), ""),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_broken_table_is_one_line_and_changes_nothing(tmp_path: Path, name: str) -> None:
    change, said = TABLES[name]
    with filled_store(folder(tmp_path / "from")) as store:
        good = written(store, Format.CSV, tmp_path / "good").read_text()
    file = tmp_path / "bad.csv"
    file.write_text(change(good))
    assert file.read_text() != good
    with new_store(folder(tmp_path / "to")) as store:
        before = rows_of(tmp_path / "to" / "a.db")
        with pytest.raises(ExchangeError) as caught:
            import_results(store, file)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert rows_of(tmp_path / "to" / "a.db") == before


def test_columns_may_stand_in_any_order_beside_others(tmp_path: Path) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        rows = list(
            csv.DictReader(written(store, Format.CSV, tmp_path / "good").read_text().splitlines())
        )
    file = tmp_path / "other.csv"
    with file.open("w", encoding="utf-8-sig") as stream:
        writer = csv.DictWriter(stream, ["note", *reversed(rows[0])])
        writer.writeheader()
        writer.writerows(row | {"note": "mine"} for row in rows)
    with new_store(folder(tmp_path / "to")) as store:
        assert import_results(store, file, Format.CSV).taken.new["trials"] == 6


@pytest.mark.parametrize("wanted", LINES)
def test_a_file_that_unpacks_to_too_much(
    tmp_path: Path, wanted: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_store(tmp_path) as store:
        file = written(store, wanted, tmp_path / "file")
        monkeypatch.setattr(lines, "MAX_UNPACKED_BYTES", 1000)
        with pytest.raises(ExchangeError, match="unpacks to more than 0 MB: refused"):
            import_results(store, file)
        monkeypatch.undo()
        monkeypatch.setattr(lines, "MAX_LINE_CHARS", 100)
        file.write_text(file.read_text().replace("\n", " "))
        with pytest.raises(ExchangeError, match="a line has more than"):
            import_results(store, file)


def test_nesting_without_end(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        file = written(store, Format.JSONL, tmp_path / "file")
        first, *rest = file.read_text().splitlines()
        file.write_text("\n".join([first, "[" * 10**6, *rest]))
        with pytest.raises(ExchangeError, match="line 2"):
            import_results(store, file)


def test_what_a_line_cannot_hold_is_said(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        store.begin_run(replace(SPEC, sampler="two\nlines"))
        with pytest.raises(ExchangeError, match=r"a run cannot be written: run\.spec\.sampler"):
            list(write_results(store, BestQuery(), None, Format.JSONL).pieces)


def test_a_trial_with_another_config_is_no_copy(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        run, *_ = [copy for copy in store.copies() if isinstance(copy, RunCopy)]
        (trial, *_) = [copy for copy in store.copies() if isinstance(copy, TrialCopy)]
        other = replace(trial, outcome=ok(256, 1.0))
        with pytest.raises(StoreError, match="another config"):
            store.import_copies(lambda: [run, other])
        later = replace(run, started_at=run.started_at + timedelta(microseconds=1))  # type: ignore[operator]
        assert store.import_copies(lambda: [later, other]).new == {"runs": 1, "trials": 1}


def test_what_a_file_holds_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_store(folder(tmp_path / "from")) as store:
        copies = list(store.copies())
    (trial, *_) = [copy for copy in copies if isinstance(copy, TrialCopy)]
    again = [copy for copy in copies if not isinstance(copy, RunCopy)]
    other = replace(trial, outcome=ok(256, 1.0))
    for batch in (1, 1000):
        monkeypatch.setattr(incoming, "_BATCH", batch)
        with new_store(folder(tmp_path / f"to {batch}")) as store:
            taken = store.import_copies(lambda: [*copies, *again])
            assert taken.new == {"runs": 3, **taken.known}
            assert sum(taken.known.values()) == len(again)
            with pytest.raises(StoreError, match="another config"):
                store.import_copies(lambda: [*copies, other])
        assert content_of(tmp_path / f"to {batch}" / "a.db") == content_of(
            tmp_path / "from" / "a.db"
        )


def test_other_programs_times_stay_recorded(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        file = written(store, Format.JSONL, tmp_path / "file", provenance=Provenance.RECORDED)
        assert {r["spec"]["provenance"] for r in _records(file) if r["record"] == "run"} == {
            "recorded"
        }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "none of the known formats"),
        ("time,config\n1,2\n", "none of the known formats"),
        ('{"ConfigurationSpace": {}}', "autogemm space shows it"),
        ('{"format": "autogemm-recording"}', "tune on it with --gpu recorded:FILE"),
        ('{"version": "1.0", "tunable_parameters": []}', "too little to be read back"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        recognised(file)


def test_a_file_that_says_its_problems_takes_no_size(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        file = written(store, Format.JSONL, tmp_path / "file")
        with pytest.raises(UsageError, match="leave --size out"):
            import_results(store, file, size="4096")


def test_a_store_may_ask_for_the_copies_again(tmp_path: Path) -> None:
    asked = []

    def copies() -> list[RunCopy]:
        asked.append(1)
        return [RunCopy(1, SPEC, RunState.FINISHED)]

    with new_store(tmp_path) as store:
        assert store.import_copies(copies).new == {"runs": 1}
        assert store.import_copies(copies).known == {"runs": 1}
    assert len(asked) == 2


def test_stores_are_alike(tmp_path: Path) -> None:
    """Copies from one store go straight into another."""
    with (
        filled_store(folder(tmp_path / "from")) as store,
        new_store(folder(tmp_path / "to")) as other,
    ):
        assert isinstance(other, Store)
        other.import_copies(store.copies)
    assert content_of(tmp_path / "to" / "a.db") == content_of(tmp_path / "from" / "a.db")

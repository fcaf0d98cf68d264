"""T4 files and Kernel Tuner caches: what is written keeps the published schema and is simulated by
Kernel Tuner itself; what others wrote is tuned on and taken into a database.
"""

import gzip
import json
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from exchange_samples import filled_store, rows_of, written
from kernel_tuner_caches import content as cache_content
from kernel_tuner_caches import write_cache
from store_samples import SPEC, failed, new_store, ok, source

from autogemm.cli import main
from autogemm.exchange import Format, import_results, recognised, write_results
from autogemm.formats import ListedRecording, listed_format, open_json, t4
from autogemm.formats.kernel_tuner import read_kernel_tuner_cache
from autogemm.formats.t4 import read_t4
from autogemm.model.config import Config
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Provenance, Status
from autogemm.store import BestQuery, Store
from autogemm.support.errors import NotFoundError, RecordingError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.recorded import ListedTarget, open_recorded_space

PROBLEM = Problem(512, 384, 256, layout=Layout.TN, beta=0.5)
ENDS = {
    32: Status.OK,
    64: Status.OK,
    96: Status.REJECTED,
    128: Status.COMPILE_FAILED,
    160: Status.LAUNCH_FAILED,
    192: Status.TIMED_OUT,
    224: Status.WRONG_RESULT,
    256: Status.TOO_SLOW,
    288: Status.CRASHED,
    320: Status.COMPILE_TIMEOUT,
    352: Status.INACCURATE,
}


def test_no_end_is_forgotten() -> None:
    assert set(ENDS.values()) == set(Status)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run with every kind of end."""
    store = new_store(tmp_path)
    run = store.begin_run(replace(SPEC, problem=PROBLEM))
    for number, (bm, status) in enumerate(ENDS.items()):
        outcome = ok(bm, 100.0 + bm) if status is Status.OK else failed(bm, status, "for a reason")
        store.record_trial(run, number, outcome, source(bm))
    return store


def schema(name: str) -> dict[str, Any]:
    """As Kernel Tuner ships it."""
    file_utils = pytest.importorskip("kernel_tuner.file_utils", reason="needs Kernel Tuner")
    version, found = file_utils.output_file_schema(name)
    assert version == t4.T4_VERSION
    assert isinstance(found, dict)
    return found


def test_t4_keeps_the_published_schema(store: Store, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="comes with Kernel Tuner")
    file = json.loads(written(store, Format.T4, tmp_path / "t4.json").read_text())
    jsonschema.validate(file, schema("results"))
    jsonschema.validate(file, schema("metadata"))
    assert [one["invalidity"] for one in file["results"]] == [
        *("correct", "correct", "constraints", "compile", "runtime"),
        *("timeout", "correctness", "timeout", "runtime", "timeout", "correctness"),
    ]
    first, *_ = file["results"]
    assert first["configuration"] == {"BM": 32, "BK": 16, "FMA_ORDER": "snake"}
    assert first["measurements"] == [{"name": "time", "value": 0.132, "unit": "ms"}]
    assert first["times"]["runtimes"] == pytest.approx([0.1321, 0.132, 0.1319])
    assert file["metadata"]["timeunit"] == "milliseconds"
    # The schema refuses something at all.
    del file["results"][0]["times"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(file, schema("results"))


@pytest.mark.parametrize(
    ("wanted", "read"), [(Format.T4, read_t4), (Format.KERNEL_TUNER, read_kernel_tuner_cache)]
)
def test_what_is_written_is_read_back(
    store: Store, tmp_path: Path, wanted: Format, read: Callable[[Path], ListedRecording]
) -> None:
    listed = read(written(store, wanted, tmp_path / "file.json"))
    assert (listed.device_name, listed.kernel_name) == (SPEC.device.name, "sgemm_simt")
    assert listed.problem == PROBLEM
    assert listed.parameters["BM"] == tuple(ENDS)
    assert [entry.time_us for entry in listed.entries[:3]] == pytest.approx([132.0, 164.0, None])
    assert listed.entries[0].spent_s == pytest.approx(1 / 3 + 0.25)
    kept = {
        Status.TOO_SLOW: Status.TIMED_OUT,
        Status.COMPILE_TIMEOUT: Status.TIMED_OUT,
        Status.CRASHED: Status.LAUNCH_FAILED,
        Status.INACCURATE: Status.WRONG_RESULT,
    }
    if wanted is Format.KERNEL_TUNER:
        known = (Status.OK, Status.REJECTED, Status.COMPILE_FAILED)
        kept = {status: Status.LAUNCH_FAILED for status in Status if status not in known}
    assert [e.status for e in listed.entries] == [kept.get(s, s) for s in ENDS.values()]
    assert listed_format(tmp_path / "file.json") == wanted


def test_t4_keeps_reasons(store: Store, tmp_path: Path) -> None:
    listed = read_t4(written(store, Format.T4, tmp_path / "file.json"))
    assert listed.entries[4].reason == "launch_failed: for a reason"
    assert listed.entries[0].reason == ""


def test_kernel_tuner_simulates_what_is_written(store: Store, tmp_path: Path) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
    path = written(store, Format.KERNEL_TUNER, tmp_path / "cache.json")
    before = path.read_bytes()
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        results, env = kernel_tuner.tune_cache(
            str(path), strategy="brute_force", quiet=True, verbose=False
        )
    assert path.read_bytes() == before
    assert env["device_name"] == SPEC.device.name
    # It reads an error for a config that failed, and leaves it out of its results.
    assert {one["BM"]: one["time"] for one in results} == pytest.approx({32: 0.132, 64: 0.164})
    assert env["simulated_time"] == pytest.approx(2 * (1 / 3 + 0.25) * 1e3)


def test_a_selection_of_several_kernels_is_refused(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        for wanted in (Format.T4, Format.KERNEL_TUNER):
            with pytest.raises(UsageError, match=r"one problem, 2 match .*sgemm_simt for 4096 nn"):
                write_results(store, BestQuery(), None, wanted)
            with pytest.raises(NotFoundError, match="no trials match"):
                write_results(store, BestQuery(gpu="none"), None, wanted)
        file = written(store, Format.T4, tmp_path / "file", gpu="h100")
    # Two runs hold BM=64: the newer counts.
    assert [entry.time_us for entry in read_t4(file).entries] == pytest.approx([2700, None, 2500])


@pytest.mark.parametrize("wanted", [Format.T4, Format.KERNEL_TUNER, Format.WISDOM])
def test_two_versions_of_a_family_are_two_kernels(tmp_path: Path, wanted: Format) -> None:
    """A parameter came later: no row of one fits the other."""
    with new_store(tmp_path) as store:
        for number, more in enumerate(({}, {"LATER": 1})):
            old = ok(64, 9.0)
            config = Config.of("sgemm_simt", {**old.config.as_dict(), **more})
            # Another size, because a wisdom file is of many.
            sizes = {"m": 4096 * (1 + number)} if wanted is Format.WISDOM else {}
            run = store.begin_run(
                replace(SPEC, seed=number, problem=replace(SPEC.problem, **sizes))
            )
            store.record_trial(run, 0, replace(old, config=config, kernel_sha256=""), None)
        with pytest.raises(UsageError, match=r"2 match .*3 parameters.*4 parameters"):
            write_results(store, BestQuery(), None, wanted)
        assert list(write_results(store, BestQuery(run_id=2), None, wanted).pieces)


def as_kernel_tuner(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """As Kernel Tuner 1.5 writes T4."""
    names = {"compile_time": "compilation", "verification_time": "validation"}
    names |= {"benchmark_time": "benchmark"}
    results = []
    for row in rows:
        failed_so = isinstance(row["time"], str)
        measured = [{"name": "time", "value": row["time"], "unit": "ms"}]
        measured.append({"name": "GFLOP/s", "value": 1.0, "unit": ""})
        results.append(
            {
                "configuration": {n: v for n, v in row.items() if n.isupper() and n != "GFLOP/s"},
                "times": {new: row.get(old, 0) for old, new in names.items()} | {"runtimes": []},
                "invalidity": "runtime" if failed_so else "correct",
                "correctness": 1,
                "measurements": measured,
                "objectives": ["time"],
            }
        )
    metadata = {"timeunit": "milliseconds"}
    return {"results": results, "schema_version": "1.0.0", "metadata": metadata}


def test_t4_of_kernel_tuner_is_the_same_space_as_its_cache(tmp_path: Path) -> None:
    rows = list(cache_content()["cache"].values())
    path = tmp_path / "Xgemm.json"
    path.write_text(json.dumps(as_kernel_tuner(rows)))
    theirs = read_t4(path)
    cache = read_kernel_tuner_cache(write_cache(tmp_path / "cache.json"))
    assert [entry.values for entry in theirs.entries] == [entry.values for entry in cache.entries]
    assert [entry.time_us for entry in theirs.entries] == [e.time_us for e in cache.entries]
    assert theirs.kernel_name == "Xgemm"
    assert theirs.notes == ("does not say which GPU it is of",)
    assert open_recorded_space(path).best_us == 1000.0


def as_ktt() -> dict[str, Any]:
    """As KTT writes T4: numbers as texts, microseconds, much beside."""
    results = [
        {
            "compilation_data": {"registers": 12, "global_size": {"x": 1}},
            "configuration": {"block": str(block), "mode": "fast"},
            "correctness": 1,
            "invalidity": "correct" if time_us else "correctness",
            "measurements": [
                {"name": "time", "unit": "", "value": time_us},
                {"name": "dram", "type": "Double", "unit": "", "value": 26.7},
            ],
            "objectives": ["time"],
            "times": {"compilation_time": 2e5, "validation": 1e5, "runtimes": [time_us]},
            "timestamp": "2026-03-05 09:04:43 UTC",
        }
        for block, time_us in ((32, 90.5), (64, 62.25), (128, 0.0))
    ]
    metadata = {"device": "RTX 500", "timeunit": "microseconds", "autotuner": "KTT"}
    return {"metadata": metadata, "results": results}


def test_t4_of_ktt(tmp_path: Path) -> None:
    path = tmp_path / "out.t4.json.gz"
    file = as_ktt()
    # A value beside a number counts more than that of the whole file.
    file["results"][1]["measurements"][0] |= {"unit": "ms", "value": 0.06225}
    path.write_bytes(gzip.compress(json.dumps(file, indent=2).encode()))
    listed = read_t4(path)
    assert (listed.device_name, listed.written_by) == ("RTX 500", "KTT")
    assert listed.parameters == {"block": (32, 64, 128), "mode": ("fast",)}
    assert [entry.time_us for entry in listed.entries] == pytest.approx([90.5, 62.25, None])
    assert listed.entries[0].spent_s == pytest.approx(0.3 + 90.5e-6)
    assert listed.entries[2].status is Status.WRONG_RESULT


def test_what_a_t4_file_leaves_open_is_said(tmp_path: Path) -> None:
    file = as_ktt()
    del file["metadata"]
    file["results"].append(file["results"][0] | {"measurements": [{"name": "time", "value": 1}]})
    path = tmp_path / "out.json"
    path.write_text(json.dumps(file))
    listed = read_t4(path)
    assert listed.notes == (
        "does not say which GPU it is of",
        "does not say the unit of its times: taken to be milliseconds",
        "holds 1 configs a second time: the first counts",
    )
    assert listed.entries[0].time_us == 90500.0
    target = ListedTarget(path)
    assert "does not say the unit" in " ".join(target.caveats(target.family))


def _result(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda file: file["results"][1].update(changes)


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no results": (lambda f: f["results"].clear(), "no result in it"),
    "an unknown end": (_result(invalidity="fine"), "invalidity"),
    "no configuration": (_result(configuration={}), "configuration"),
    "other parameters": (_result(configuration={"block": "1"}), "different parameters"),
    "a list as value": (_result(configuration={"block": [1], "mode": "x"}), "a number or a text"),
    "no time": (_result(measurements=[]), "no measurement called time"),
    "a word as time": (_result(measurements=[{"name": "time", "value": "fast"}]), "the time of"),
    "an endless time": (_result(measurements=[{"name": "time", "value": 1e16}]), "1e+16"),
    "no unit": (lambda f: f["metadata"].update(timeunit="fortnights"), "not a unit of time"),
    "version 2": (lambda f: f.update(schema_version="2.0.0"), "schema_version"),
    "a name with a line break": (lambda f: f["metadata"].update(device="a\nb"), "device"),
    "too many parameters": (_result(configuration=dict.fromkeys(map(str, range(70)), 1)), "config"),
    "a broken problem": (lambda f: f["metadata"].update(problem={"m": 1}), "problem"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_t4_file_is_one_line(tmp_path: Path, name: str) -> None:
    change, said = BROKEN[name]
    file = as_ktt()
    change(file)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(file))
    with pytest.raises(RecordingError, match="broken T4 file") as caught:
        read_t4(path)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_limits_of_a_t4_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t4.json"
    file = as_ktt()
    file["metadata"]["deep"] = json.loads("[" * 40 + "]" * 40)
    path.write_text(json.dumps(file))
    with pytest.raises(RecordingError, match="nested deeper than 32"):
        read_t4(path)
    path.write_text('{"metadata": ' + "[" * 10**6)
    with pytest.raises(RecordingError):
        read_t4(path)
    path.write_text(json.dumps(as_ktt()))
    monkeypatch.setattr(open_json, "MAX_VALUE_CHARS", 100)
    with pytest.raises(RecordingError, match="a value of more than 100"):
        read_t4(path)
    monkeypatch.setattr(t4, "MAX_RESULTS_BYTES", 100)
    with pytest.raises(RecordingError, match="unpacks to more than 0 MB"):
        read_t4(path)


def test_pieces_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t4.json"
    # A number that stands alone has no end of its own.
    path.write_text(json.dumps(as_ktt() | {"number": 1234567, "last": 7654321}, indent=1))
    whole = read_t4(path)
    cache = write_cache(tmp_path / "cache.json")
    cached = read_kernel_tuner_cache(cache)
    for size in (1, 7, 64):
        monkeypatch.setattr("autogemm.support.files.CHUNK_BYTES", size)
        assert read_t4(path) == whole
        assert read_kernel_tuner_cache(cache) == cached


def test_a_database_takes_it_once_as_recorded(store: Store, tmp_path: Path) -> None:
    for wanted in (Format.T4, Format.KERNEL_TUNER):
        file = written(store, wanted, tmp_path / f"{wanted}.json")
        assert recognised(file) is wanted
        done = import_results(store, file)
        assert done.taken.new == {"runs": 1, "trials": len(ENDS)}
        assert import_results(store, file).taken.num_new == 0
        assert any("cannot be exported" in note for note in done.notes)
        newest = store.runs(limit=1)[0]
        assert (newest.spec.problem, newest.spec.provenance) == (PROBLEM, Provenance.RECORDED)
        assert newest.time_us == pytest.approx(132.0)
        assert {row.kernel_id for row in store.trial_rows(BestQuery(run_id=newest.run_id))} == {
            None
        }
    assert len(store.runs()) == 3


def test_sizes_that_a_file_does_not_say(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "gpu.json")
    with new_store(tmp_path) as store:
        before = rows_of(tmp_path / "a.db")
        with pytest.raises(UsageError, match="does not state M, N and K: give --size"):
            import_results(store, cache)
        with pytest.raises(UsageError, match="was recorded for M=4096 N=4096, not 512"):
            import_results(store, cache, size="512")
        assert rows_of(tmp_path / "a.db") == before
        done = import_results(store, cache, size="4096x4096x64")
        assert store.runs()[0].spec.problem == Problem(4096, 4096, 64)
        assert "does not say K, layout and element type: taken to be as asked" in done.notes[1]


def test_wisdom(tmp_path: Path) -> None:
    with filled_store(tmp_path) as store:
        lines = written(store, Format.WISDOM, tmp_path / "w").read_text().splitlines()
        header, *records = map(json.loads, lines)
        assert header == {
            "version": "1.0",
            "objective": "time",
            "tunable_parameters": ["BM", "BK", "FMA_ORDER"],
            "key": "sgemm_simt_nn_f32",
        }
        # Measured before recorded, one line for each GPU and problem, milliseconds.
        assert [(r["config"], r["problem_size"], r["time"]) for r in records] == [
            ([128, 16, "snake"], [4096, 4096, 4096], 2.655),
            ([64, 16, "snake"], [512, 256, 64], 0.05),
        ]
        assert records[0]["environment"]["device_name"] == "NVIDIA H100 80GB HBM3"
        assert records[0]["environment"]["provenance"] == "measured"
        run = store.begin_run(replace(SPEC, problem=PROBLEM))
        store.record_trial(run, 0, ok(64, 9.0), source(64))
        notes = write_results(store, BestQuery(), None, Format.WISDOM).notes
        assert notes[0].startswith("left out: 1 results")
        run = store.begin_run(replace(SPEC, problem=replace(PROBLEM, beta=0.0)))
        store.record_trial(run, 0, ok(64, 9.0), source(64))
        with pytest.raises(UsageError, match=r"one kernel, 2 match .*sgemm_simt_tn_f32"):
            write_results(store, BestQuery(), None, Format.WISDOM)
        with pytest.raises(UsageError, match="leave out --status"):
            write_results(store, BestQuery(), Status.OK, Format.WISDOM)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_tuning_on_a_t4_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "cache"))
    file = written(store, Format.T4, tmp_path / "file.json")
    few = ("--gpu", f"recorded:{file}", "--sampler", "random", "--db", tmp_path / "tune.db")
    refused = invoke("tune", *few)
    assert refused.exit_code == 2
    assert "was recorded for 512x384x256 tn f32 beta=0.5, not 512x384x256 nn" in refused.stderr
    result = invoke("tune", *few, "--layout", "tn", "--beta", 0.5)
    assert result.exit_code == 0, result.output
    assert "best (recorded): BM=32 BK=16 FMA_ORDER=snake" in result.stdout
    assert "was recorded by autogemm" in result.stderr


def test_one_problem_only_for_a_file_that_names_it(store: Store, tmp_path: Path) -> None:
    target = ListedTarget(written(store, Format.T4, tmp_path / "file.json"))
    target.prepare(PROBLEM, MeasureOptions())
    with pytest.raises(UsageError, match="was recorded for 512x384x256 tn f32 beta"):
        target.prepare(Problem(512, 384, 256), MeasureOptions())

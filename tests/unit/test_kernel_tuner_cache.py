"""Kernel Tuner's cache files: what is read, what is refused and how, what is written."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_target import tiny_family, tiny_recording
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tuner_caches import BEST, VALUES, cache_text, content, write_cache

from autogemm.formats import ListedRecording, kernel_tuner, listed_of, write_kernel_tuner_cache
from autogemm.formats.kernel_tuner import is_kernel_tuner_cache, read_kernel_tuner_cache
from autogemm.model.results.outcome import Status
from autogemm.support.errors import RecordingError

NUM_CONFIGS = len(content()["cache"])
SOME_ROWS = dict(list(content()["cache"].items())[:5])


def read(path: Path, text: str) -> ListedRecording:
    path.write_text(text)
    return read_kernel_tuner_cache(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.json"


def test_configs_times_and_costs(path: Path) -> None:
    cache = read_kernel_tuner_cache(write_cache(path))
    assert (cache.device_name, cache.kernel_name) == ("Foreign GPU", "Xgemm")
    assert cache.problem_size == (4096, 4096)
    assert cache.parameters == {name: tuple(values) for name, values in VALUES.items()}
    assert len(cache.entries) == NUM_CONFIGS
    assert cache.is_closed
    worked = [entry for entry in cache.entries if entry.status is Status.OK]
    best = min(worked, key=lambda entry: entry.time_us or 0.0)
    assert dict(zip(cache.parameters, best.values, strict=True)).items() >= BEST.items()
    assert best.time_us == 1000.0
    assert best.spent_s == pytest.approx(0.150)


def test_failures_keep_their_reason(path: Path) -> None:
    rows = content()["cache"]
    keys = list(rows)
    rows[keys[0]]["time"] = "CompilationFailedConfig"
    rows[keys[1]]["time"] = "InvalidConfig"
    rows[keys[2]] |= {"time": 5.0, "__error__": "RuntimeFailedConfig"}
    rows[keys[3]]["time"] = 1e20
    rows[keys[4]]["time"] = "out of\x1b[31m patience"
    del rows[keys[5]]["time"]
    cache = read(path, cache_text(cache=rows))
    first = cache.entries[:6]
    assert [entry.status for entry in first] == [
        Status.COMPILE_FAILED,
        Status.REJECTED,
        *[Status.LAUNCH_FAILED] * 4,
    ]
    assert all(entry.time_us is None for entry in first)
    assert first[0].reason == "recorded as CompilationFailedConfig"
    assert first[4].reason == "recorded as out of?[31m patience"
    large = [entry for entry in cache.entries if entry.values[:2] != (16, 16)]
    assert {entry.status for entry in large} == {Status.OK}


def test_a_file_left_open_is_read_as_far_as_it_goes(path: Path) -> None:
    whole = read_kernel_tuner_cache(write_cache(path))
    left_open = read(path, cache_text(is_closed=False))
    assert left_open.entries == whole.entries
    assert not left_open.is_closed
    being_written = cache_text(is_closed=False).rstrip(",")[:-20]
    cut = read(path, being_written)
    assert cut.entries == whole.entries[:-1]
    assert not cut.is_closed


def test_any_cut_within_the_last_line_loses_that_line_only(path: Path) -> None:
    text = cache_text(is_closed=False, cache=SOME_ROWS)
    start = text.rindex("\n")
    for end in range(start + 1, len(text) - 2):
        assert len(read(path, text[:end]).entries) == len(SOME_ROWS) - 1, text[start:end]


def test_a_broken_line_in_the_middle_is_no_open_end(path: Path) -> None:
    text = cache_text()
    middle = text.index("\n", len(text) // 2)
    with pytest.raises(RecordingError, match="broken Kernel Tuner cache"):
        read(path, text[:middle] + "\n???" + text[middle:])


def test_packed_or_not(tmp_path: Path, path: Path) -> None:
    packed = tmp_path / "cache.json.gz"
    packed.write_bytes(gzip.compress(cache_text().encode()))
    assert read_kernel_tuner_cache(packed) == read_kernel_tuner_cache(write_cache(path))
    assert is_kernel_tuner_cache(packed)
    assert is_kernel_tuner_cache(path)


def test_numbers_and_texts_as_values(path: Path) -> None:
    rows = {
        "a": {"X": 1.0, "F": 0.5, "W": "on", "B": True, "time": 1},
        "b": {"X": -2, "F": 10, "W": "off", "B": False, "time": 2.0},
        "c": {"X": 30, "F": 2, "W": 7, "B": False, "time": 2.0},
    }
    changes = {"tune_params_keys": ["X", "F", "W", "B"], "problem_size": "callable", "cache": rows}
    cache = read(path, cache_text(**changes))
    assert cache.parameters == {
        "X": (-2, 1, 30),
        "F": ("0.5", "2", "10"),
        "W": ("on", "off", "7"),
        "B": (0, 1),
    }
    assert cache.problem_size == ()
    assert cache.entries[0].values == (1, "0.5", "on", 1)


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e999", "9" * 50, "-1e300"])
def test_numbers_that_count_nothing(path: Path, number: str) -> None:
    whole = json.dumps(content(problem_size=[1234567])).replace("1234567", number)
    assert read(path, whole).problem_size == ()
    row = {"X": 1234567, "time": 7654321}
    text = cache_text(tune_params_keys=["X"], cache={"a": row})
    cache = read(path, text.replace("1234567", number).replace("7654321", number))
    assert isinstance(cache.entries[0].values[0], str)
    assert cache.entries[0].status is Status.LAUNCH_FAILED


def _without(field: str) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        del whole[field]

    return change


def _row(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda whole: next(iter(whole["cache"].values())).update(changes)


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no device": (_without("device_name"), "device_name: Field required"),
    "no keys": (_without("tune_params_keys"), "tune_params_keys: Field required"),
    "no cache": (_without("cache"), "no config in it"),
    "empty": (lambda w: w.update(cache={}), "no config in it"),
    "escapes": (lambda w: w.update(device_name="x\x1b[2J"), "must be one printable line"),
    "long name": (lambda w: w.update(kernel_name="x" * 999), "at most 200 characters"),
    "no name": (lambda w: w.update(tune_params_keys=["M WG"]), "tune_params_keys.0: String should"),
    "twice": (lambda w: w.update(tune_params_keys=["MWG", "MWG"]), "is there twice"),
    "other schema": (lambda w: w.update(schema_version="2.0.0"), "schema_version: String should"),
    "no object": (lambda w: w["cache"].update(x=[1]), "the entry 'x' is not an object"),
    "lacking": (lambda w: w["cache"].update(x={"MWG": 1}), "an entry has no parameter 'NWG'"),
    "list value": (_row(MWG=[1, 2]), "MWG: a value is a number or a text, got [1, 2]"),
    "null value": (_row(MWG=None), "MWG: a value is a number or a text, got None"),
    "huge value": (_row(MWG=10**400), "MWG: a text value is one word"),
    "two lines": (_row(MWG="a\nb"), "MWG: a text value is one word"),
    "same config": (
        lambda w: w["cache"].update(x=next(iter(w["cache"].values()))),
        "the config MWG=16 NWG=16 KWG=32",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_gives_one_line(path: Path, case: str) -> None:
    change, message = BROKEN[case]
    whole = content()
    change(whole)
    path.write_text(json.dumps(whole))
    with pytest.raises(RecordingError) as caught:
        read_kernel_tuner_cache(path)
    said = str(caught.value)
    assert said.startswith(f"broken Kernel Tuner cache {path}: ")
    assert message in said
    assert said.isprintable()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a"', "[" * 100_000, '{"a": 1' + "0" * 5000])
def test_what_is_no_cache_at_all(path: Path, text: str) -> None:
    with pytest.raises(RecordingError, match="broken Kernel Tuner cache"):
        read(path, text)


def test_a_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(cache_text().encode()))
    monkeypatch.setattr(kernel_tuner, "MAX_RESULTS_BYTES", 1000)
    with pytest.raises(RecordingError, match="unpacks to more than 0 MB: refused"):
        read_kernel_tuner_cache(path)


def test_half_a_packed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.json.gz"
    packed = gzip.compress(cache_text().encode())
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(RecordingError, match="cannot read the Kernel Tuner cache"):
        read_kernel_tuner_cache(path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = ("device_name", "kernel_name", "problem_size", "tune_params_keys", "cache")


@settings(max_examples=150)
@given(field=st.sampled_from([*FIELDS, "MWG", "time", "__error__", "compile_time"]), value=ANYTHING)
def test_no_value_anywhere_escapes_as_another_error(tmp_path: Path, field: str, value: Any) -> None:
    path = tmp_path / "fuzzed.json"
    whole = content(cache=json.loads(json.dumps(SOME_ROWS)))
    changed = whole if field in FIELDS else next(iter(whole["cache"].values()))
    changed[field] = value
    path.write_text(json.dumps(whole))
    try:
        assert read_kernel_tuner_cache(path).entries
    except RecordingError as error:
        assert "\n" not in str(error)


@settings(max_examples=150)
@given(start=st.integers(0, 2000), length=st.integers(0, 40), put=st.binary(max_size=12))
def test_no_damage_escapes_as_another_error(
    tmp_path: Path, start: int, length: int, put: bytes
) -> None:
    path = tmp_path / "damaged.json"
    data = cache_text(cache=SOME_ROWS).encode()
    path.write_bytes(data[:start] + put + data[start + length :])
    try:
        assert read_kernel_tuner_cache(path).entries
    except RecordingError as error:
        assert "\n" not in str(error)


def test_what_is_written_reads_the_same(tmp_path: Path, path: Path) -> None:
    cache = read_kernel_tuner_cache(write_cache(path))
    for name in ("again.json", "again.json.gz"):
        write_kernel_tuner_cache(cache, tmp_path / name)
        again = read_kernel_tuner_cache(tmp_path / name)
        assert again.parameters == cache.parameters
        for one, other in zip(again.entries, cache.entries, strict=True):
            assert (one.values, one.status) == (other.values, other.status)
            assert one.time_us == pytest.approx(other.time_us)
            assert one.spent_s == pytest.approx(other.spent_s)


def test_an_own_recording_as_a_cache(tmp_path: Path) -> None:
    recording = tiny_recording(tiny_family(tmp_path / "tiny"))
    cache = listed_of(recording)
    assert len(cache.entries) == len(recording)
    assert cache.problem_size == (1024, 1024, 1024)
    for row, entry in enumerate(cache.entries):
        assert dict(zip(cache.parameters, entry.values, strict=True)) == recording.values(row)
        assert (entry.status, entry.time_us) == (recording.status[row], recording.time_us[row])
    write_kernel_tuner_cache(cache, tmp_path / "own.json")
    again = read_kernel_tuner_cache(tmp_path / "own.json")
    assert [entry.values for entry in again.entries] == [entry.values for entry in cache.entries]


def test_kernel_tuner_reads_what_is_written(tmp_path: Path, path: Path) -> None:
    util = pytest.importorskip("kernel_tuner.util", reason="Kernel Tuner is not installed")
    cache = read_kernel_tuner_cache(write_cache(path))
    write_kernel_tuner_cache(cache, tmp_path / "again.json")
    theirs = util.read_cache(str(tmp_path / "again.json"), open_cache=False)
    assert theirs["tune_params_keys"] == list(cache.parameters)
    failed = [row for row in theirs["cache"].values() if "__error__" in row]
    assert len(failed) == sum(entry.time_us is None for entry in cache.entries)
    for key, row in theirs["cache"].items():
        assert key == ",".join(str(row[name]) for name in cache.parameters)

"""Thousands of broken files: an error in one line each, never a traceback, a hang or a changed
database.

`pytest tests/unit/test_exchange_fuzz.py -n0 -s --fuzz 5000 --timeout 0` feeds each reader 5000 and
prints what became of them; without the option a few dozen.
"""

import gzip
import json
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from bench_samples import fill_bench
from broken_files import broken
from exchange_samples import filled_store, written
from fake_target import tiny_family, tiny_recording
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tuner_caches import cache_text, content
from store_samples import SPEC, failed, fill, new_store, ok, source
from t1_samples import t1_content

from autogemm.catalogue.gpus import find_device
from autogemm.exchange import Format, import_results, write_results
from autogemm.formats import read_recording, read_t1, t1_text, write_recording
from autogemm.model.problem import Problem
from autogemm.space import build_space
from autogemm.store import BestQuery, Store, open_store
from autogemm.support.errors import AutogemmError
from autogemm.targets.recorded import description

# Processor time for a file of some kilobytes: a reader that needs more is taken for one that hangs.
MAX_SECONDS = 5.0
MAX_MESSAGE = 1500
QUICK_COUNT = 12

H100 = find_device("h100")


@dataclass
class Fed:
    """The fates of the files of one reader."""

    ends: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0

    def __str__(self) -> str:
        return f"{dict(sorted(self.ends.items()))}, slowest {self.slowest_s:.2f} s"


class Database:
    """A database that must stay as it is; one that took something is put back."""

    def __init__(self, folder: Path) -> None:
        filled_store(folder).close()
        shutil.copy(folder / "a.db", folder / "good.db")
        self.store = open_store(str(folder / "a.db"))
        self._good = sqlite3.connect(folder / "good.db")
        self._watch = sqlite3.connect(folder / "a.db")
        self._version = self._data_version()

    def _data_version(self) -> object:
        """Another one as soon as anybody else has committed something."""
        return self._watch.execute("PRAGMA data_version").fetchone()

    def check_unchanged(self) -> None:
        assert self._data_version() == self._version, "the database was changed"

    def check_readable(self) -> None:
        """An imported file can be listed, compared and written out again; then it is forgotten."""
        if self._data_version() == self._version:
            return
        self.store.best()
        self.store.runs()
        self.store.benches()
        self.store.profiles()
        for wanted in (Format.JSONL, Format.CSV, Format.JSON):
            list(write_results(self.store, BestQuery(), None, wanted).pieces)
        self._good.backup(self._watch)
        self._version = self._data_version()

    def close(self) -> None:
        for database in (self._good, self._watch, self.store):
            database.close()


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    # Reading all families anew for each file would take most of the time.
    known = tuple(description._known())
    monkeypatch.setattr(description, "_known", lambda: known)
    found = Database(tmp_path)
    yield found
    found.close()


def result_file(folder: Path, wanted: Format) -> bytes:
    """Return a file with results of runs that are not in the database."""
    (folder / "other").mkdir()
    make = new_store if wanted in (Format.JSONL, Format.CSV) else small_store
    with make(folder / "other") as store:
        if make is new_store:
            fill(store)
            fill_bench(store)
        return written(store, wanted, folder / "file").read_bytes()


def small_store(folder: Path) -> Store:
    """One kernel on one GPU for one problem."""
    store = new_store(folder)
    run = store.begin_run(replace(SPEC, problem=Problem(64, 32, 16)))
    store.record_trial(run, 0, ok(32, 50.0), source(32))
    store.record_trial(run, 1, failed(64), source(64))
    return store


def recording_file(folder: Path) -> bytes:
    path = folder / "recording.json.gz"
    write_recording(tiny_recording(tiny_family(folder / "tiny")), path)
    # Broken inside: what is broken outside is not unpacked at all.
    return gzip.decompress(path.read_bytes())


def own_t1(folder: Path) -> bytes:
    path = folder / "t1.json"
    path.write_text(json.dumps(t1_content()))
    return t1_text(build_space(read_t1(path).family, Problem(64, 64, 64), H100))[0].encode()


def cache_file(folder: Path) -> bytes:
    rows = dict(list(content()["cache"].items())[:6])
    return cache_text(is_closed=False, cache=rows).encode()


Reader = Callable[[Path, Database], None]


def importing(wanted: Format, size: str | None = None) -> Reader:
    def read(path: Path, database: Database) -> None:
        # Every other file has to be recognised first.
        known = wanted if path.stat().st_size % 2 else None
        import_results(database.store, path, known, size=size)

    return read


def reading_space(path: Path, database: Database) -> None:
    build_space(read_t1(path).family, Problem(64, 64, 64), H100)


def reading_recording(path: Path, database: Database) -> None:
    if not path.read_bytes().startswith(b"\x1f\x8b"):
        path.write_bytes(gzip.compress(path.read_bytes(), 1))
    read_recording(path)


READERS: dict[str, tuple[Callable[[Path], bytes], Reader]] = {
    "jsonl": (lambda f: result_file(f, Format.JSONL), importing(Format.JSONL)),
    "csv": (lambda f: result_file(f, Format.CSV), importing(Format.CSV)),
    "t4": (lambda f: result_file(f, Format.T4), importing(Format.T4)),
    "own cache": (lambda f: result_file(f, Format.KERNEL_TUNER), importing(Format.KERNEL_TUNER)),
    "kernel-tuner": (cache_file, importing(Format.KERNEL_TUNER, "4096")),
    "t1": (lambda _: json.dumps(t1_content(), indent=1).encode(), reading_space),
    "own t1": (own_t1, reading_space),
    "recording": (recording_file, reading_recording),
}


def feed(path: Path, reader: Reader, database: Database, fed: Fed) -> bool:
    """Whether the file was taken whole, or else refused in one line."""
    start = time.process_time()
    try:
        reader(path, database)
    except AutogemmError as error:
        is_taken = False
        message = str(error)
        assert message.isprintable(), message
        assert 0 < len(message) <= MAX_MESSAGE, message
    else:
        is_taken = True
    seconds = time.process_time() - start
    fed.ends["taken" if is_taken else "refused"] += 1
    fed.slowest_s = max(fed.slowest_s, seconds)
    assert seconds < MAX_SECONDS
    if is_taken:
        database.check_readable()
    database.check_unchanged()
    return is_taken


@pytest.mark.parametrize("name", READERS)
def test_broken_files(
    name: str, tmp_path: Path, database: Database, pytestconfig: pytest.Config
) -> None:
    make, reader = READERS[name]
    good = make(tmp_path)
    path = tmp_path / "broken"
    path.write_bytes(good)
    assert feed(path, reader, database, Fed()), "the file is good before it is broken"
    fed = Fed()
    count = pytestconfig.getoption("--fuzz") or QUICK_COUNT
    for seed in range(count):
        path.write_bytes(broken(good, seed))
        try:
            feed(path, reader, database, fed)
        except BaseException:
            print(f"{name}: seed {seed}: {path.read_bytes()[:2000]!r}")
            raise
    assert fed.ends["refused"] > count // 4
    print(f"\n{name}: {count} broken files: {fed}")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=20,
)
MARKS = [
    *(
        '{"record":"file","format":"autogemm-results"',
        '{"results":[{"configuration":1,"invalidity"',
    ),
    *('{"device_name":"x","tune_params_keys":', '{"ConfigurationSpace":', "run_id,number,status"),
    '{"cache": {',
]


@given(
    data=st.binary(max_size=300)
    | ANY_JSON.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.sampled_from(MARKS), st.text(max_size=200)).map(
        lambda parts: "".join(parts).encode()
    )
)
@settings(max_examples=25)
def test_anything_at_all(data: bytes, database: Database, tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(data)
    for _, reader in READERS.values():
        feed(path, reader, database, Fed())

"""Recording files: what is written comes back, and what is broken is refused in one line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_target import PROBLEM, tiny_family, tiny_recording

from autogemm.formats import read_recording, write_recording
from autogemm.formats import recording as recording_format
from autogemm.support.errors import RecordingError


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "one.json.gz"
    write_recording(tiny_recording(tiny_family(tmp_path / "tiny")), path)
    return path


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The file again, after its JSON has been changed."""
    facts = json.loads(gzip.decompress(path.read_bytes()))
    change(facts)
    path.write_bytes(gzip.compress(json.dumps(facts).encode()))
    return path


def test_what_is_written_is_read_back(tmp_path: Path, written: Path) -> None:
    recording = tiny_recording(tiny_family(tmp_path / "tiny"))
    assert read_recording(written) == recording
    assert read_recording(written).problem == PROBLEM


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path, written: Path) -> None:
    again = tmp_path / "again.json.gz"
    write_recording(read_recording(written), again)
    assert again.read_bytes() == written.read_bytes()


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, written: Path) -> None:
    recording = read_recording(written)
    with pytest.raises(RecordingError, match="cannot write the recording"):
        write_recording(recording, tmp_path / "no such folder" / "x.json.gz")
    # A folder in the way: the temporary file must not stay.
    folder = tmp_path / "out.json.gz"
    folder.mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RecordingError, match="cannot write the recording"):
        write_recording(recording, folder)
    assert sorted(tmp_path.iterdir()) == before


def drop_last(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda facts: facts[name].pop()


def put(name: str, row: int, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda facts: facts[name].__setitem__(row, value)


def duplicate_first_config(facts: dict[str, Any]) -> None:
    for column in facts["parameters"].values():
        column[1] = column[0]


BROKEN: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("schema version", lambda f: f.update(schema_version=2), "schema_version"),
    ("no recording", lambda f: f.update(format="something"), "format"),
    ("missing column", lambda f: f.pop("time_us"), "time_us: Field required"),
    ("unknown column", lambda f: f.update(extra=[]), "extra: Extra inputs"),
    ("short column", drop_last("registers"), "column registers has 31 rows, status has 32"),
    ("short parameter", lambda f: f["parameters"]["BM"].pop(), "parameters.BM has 31 rows"),
    ("negative time", put("time_us", 3, -1.0), "greater than 0"),
    ("zero time", put("time_us", 3, 0.0), "greater than 0"),
    ("NaN time", put("time_us", 3, float("nan")), "time_us.3"),
    ("infinite time", put("time_us", 3, float("inf")), "time_us.3"),
    ("ok without time", put("time_us", 3, None), "row 3: status ok with time None"),
    ("failure with time", put("status", 3, "crashed"), "row 3: status crashed with time"),
    ("unknown status", put("status", 3, "splendid"), "status.3"),
    ("fractional parameter", lambda f: f["parameters"]["BM"].__setitem__(0, 1.5), "parameters.BM"),
    ("config twice", duplicate_first_config, "is recorded twice"),
    ("no problem", lambda f: f["problem"].update(m=0), "not a problem: M must be from 1"),
    ("odd layout", lambda f: f["problem"].update(layout="xy"), "problem"),
    ("problem of text", lambda f: f["problem"].update(m="big"), "problem"),
    ("no device facts", lambda f: f["source"]["device"].pop("num_sms"), "num_sms"),
    ("empty baseline", lambda f: f["baseline"].update(samples_us=[], after_configs=[]), "samples"),
    ("bad hash of a kernel", lambda f: f.update(kernel_sha256=["x"] * 32), "kernel_sha256.0"),
    ("few hashes", lambda f: f.update(kernel_sha256=["0" * 16]), "kernel_sha256 has 1 rows"),
    ("bad hash", lambda f: f.update(template_sha256="abc"), "template_sha256"),
    ("a list", lambda f: f.clear(), "Field required"),
]


@pytest.mark.parametrize(("change", "message"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_recording_is_refused_in_one_line(
    written: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    with pytest.raises(RecordingError) as caught:
        read_recording(edited(written, change))
    text = str(caught.value)
    assert message in text
    assert written.name in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"not gzip at all",
        lambda data: data[:50] + bytes(20) + data[70:],
        lambda data: gzip.compress(b'{"format": '),
        lambda data: gzip.compress(b"\xff\xfe\x00"),
        lambda data: gzip.compress(b"[1, 2]"),
    ],
    ids=["truncated", "empty", "no gzip", "damaged", "half JSON", "no UTF-8", "a list"],
)
def test_a_damaged_file_is_refused(written: Path, spoil: Callable[[bytes], bytes]) -> None:
    written.write_bytes(spoil(written.read_bytes()))
    with pytest.raises(RecordingError, match=r"one\.json\.gz"):
        read_recording(written)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json.gz", tmp_path):
        with pytest.raises(RecordingError, match="cannot read the recording"):
            read_recording(path)


def test_a_bomb_is_not_unpacked(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_format, "MAX_UNPACKED_BYTES", 2**20)
    written.write_bytes(gzip.compress(bytes(2**21)))
    with pytest.raises(RecordingError, match="unpacks to more than 1 MB"):
        read_recording(written)

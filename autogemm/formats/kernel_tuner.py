"""Kernel Tuner's cache files: read, validated; and written.

A cache file is JSON: what was tuned, and under ``cache`` one object per config with its parameters
and its time in milliseconds, or the name of an error. Kernel Tuner appends to it while it runs and
closes the brackets at the end; one that was left open is read as far as it goes. Files without a
``schema_version`` and those of 1.x are understood. Facts that the format cannot express are stored
under ``autogemm``, which Kernel Tuner ignores.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from autogemm.formats.entries import Entry, Line, ListedRecording, is_whole, ranked_configs
from autogemm.formats.lines import MAX_RESULTS_BYTES, ForeignForm, named_faults
from autogemm.formats.open_json import parse_open_json
from autogemm.formats.recording import ProblemField
from autogemm.model.config import Value
from autogemm.model.results.outcome import Status
from autogemm.space import Identifier
from autogemm.support.cells import one_line
from autogemm.support.errors import RecordingError
from autogemm.support.files import beginning, decoded, unpacked, write_chunks_atomically
from autogemm.support.limits import MAX_TIME_US

_STATUS = {
    "InvalidConfig": Status.REJECTED,
    "CompilationFailedConfig": Status.COMPILE_FAILED,
    "RuntimeFailedConfig": Status.LAUNCH_FAILED,
}
_ERROR = {status: name for name, status in _STATUS.items()}
# Milliseconds that Kernel Tuner spent on a config, by the names it gives them.
_SPENT = ("compile_time", "verification_time", "benchmark_time")
# Single samples are not needed, and are most of a file.
_NOT_KEPT = "times"
_MAX_LIST = 8

_Row = dict[str, Any]


class _Own(ForeignForm):
    """The part of a header that this project adds."""

    problem: ProblemField | None = None


class _Header(ForeignForm):
    """The fields beside the configs that are needed; others are not looked at."""

    device_name: Line
    kernel_name: Line
    problem_size: Any = None
    tune_params_keys: Annotated[list[Identifier], Field(min_length=1, max_length=64)]
    schema_version: Annotated[str, Field(pattern=r"^1(\.|$)")] = "1"
    autogemm: _Own = _Own()


def is_kernel_tuner_cache(path: Path) -> bool:
    """Whether the file looks like one, from its beginning; False for one that cannot be read."""
    head = beginning(path)
    return b'"tune_params_keys"' in head and b'"autogemm-recording"' not in head


def read_kernel_tuner_cache(path: Path) -> ListedRecording:
    """Read and validate one file, gzip'd or not. Raises RecordingError with the first fault."""
    digest = hashlib.sha256()
    with named_faults("Kernel Tuner cache", path, RecordingError):
        text = decoded(unpacked(path, MAX_RESULTS_BYTES, digest))
        found, rows, is_closed = parse_open_json(text, _kept)
        header = _header(found)
        values, entries = _entries(header.tune_params_keys, rows)
    return ListedRecording(
        device_name=header.device_name,
        kernel_name=header.kernel_name,
        problem_size=_sizes(header.problem_size),
        parameters=values,
        entries=entries,
        is_closed=is_closed,
        sha256=digest.hexdigest(),
        problem=header.autogemm.problem,
    )


def kernel_tuner_pieces(listed: ListedRecording) -> Iterator[str]:
    """The file, an entry a line, as Kernel Tuner writes it; times in milliseconds."""
    keys = list(listed.parameters)
    header: dict[str, Any] = {
        "device_name": listed.device_name,
        "kernel_name": listed.kernel_name,
        "problem_size": list(listed.problem_size),
        "tune_params_keys": keys,
        "tune_params": {name: list(values) for name, values in listed.parameters.items()},
        "objective": "time",
    }
    if listed.problem is not None:
        header["autogemm"] = _Own(problem=listed.problem).model_dump()
    yield json.dumps(header)[:-1] + ', "cache": {'
    for position, entry in enumerate(listed.entries):
        key = json.dumps(",".join(map(str, entry.values)))
        comma = "," if position else ""
        yield f"{comma}\n{key}: {json.dumps(_as_dict(keys, entry))}"
    # Kernel Tuner takes a file that ends in anything else for one that was left open.
    yield "}\n}"


def write_kernel_tuner_cache(listed: ListedRecording, path: Path) -> None:
    """Write the file, whole or not at all; gzip'd if its name ends in .gz. Raises RecordingError.

    Kernel Tuner reads what is not gzip'd.
    """
    try:
        write_chunks_atomically(path, (piece.encode() for piece in kernel_tuner_pieces(listed)))
    except OSError as error:
        raise RecordingError(f"cannot write the cache {path}: {error}") from error


def _as_dict(keys: Sequence[str], entry: Entry) -> _Row:
    row: _Row = dict(zip(keys, entry.values, strict=True))
    row["time"] = (
        entry.time_us / 1e3
        if entry.time_us is not None
        else _ERROR.get(entry.status, "RuntimeFailedConfig")
    )
    if entry.samples_us:
        row[_NOT_KEPT] = [sample / 1e3 for sample in entry.samples_us]
    if entry.spent_s is not None:
        compile_s = entry.compile_s or 0.0
        spent_s = (compile_s, 0.0, entry.spent_s - compile_s)
        row |= {name: 1e3 * seconds for name, seconds in zip(_SPENT, spent_s, strict=True)}
    return row


def _kept(row: _Row) -> _Row:
    """Without samples, and without other long lists, which nobody reads."""
    row.pop(_NOT_KEPT, None)
    return {name: [] if _is_long(value) else value for name, value in row.items()}


def _is_long(value: object) -> bool:
    return isinstance(value, list | dict) and (
        len(value) > _MAX_LIST or any(isinstance(one, list | dict) for one in value)
    )


def _header(found: dict[str, Any]) -> _Header:
    header = _Header.model_validate(found)
    if len(set(header.tune_params_keys)) < len(header.tune_params_keys):
        raise ValueError("tune_params_keys: a parameter is there twice")
    return header


def _sizes(found: object) -> tuple[int, ...]:
    """The problem size in numbers; nothing for what is a program's name or an expression."""
    sizes: list[Any] = found if isinstance(found, list) else [found]
    return tuple(int(size) for size in sizes) if all(map(is_whole, sizes)) else ()


def _entries(
    names: Sequence[str], rows: Sequence[_Row]
) -> tuple[dict[str, tuple[Value, ...]], tuple[Entry, ...]]:
    """The values of each parameter in their rank, and the entries."""
    if not rows:
        raise ValueError("no config in it")
    missing = next((name for row in rows for name in names if name not in row), None)
    if missing is not None:
        raise ValueError(f"an entry has no parameter {missing!r}")
    parameters, configs = ranked_configs({name: [row[name] for row in rows] for name in names})
    config, times = Counter(configs).most_common(1)[0]
    if times > 1:
        shown = " ".join(f"{name}={value}" for name, value in zip(names, config, strict=True))
        raise ValueError(f"the config {shown} is there twice")
    return parameters, tuple(map(_entry, rows, configs))


def _entry(row: _Row, values: tuple[Value, ...]) -> Entry:
    time_ms, error = row.get("time"), row.get("__error__")
    spent = [ms for name in _SPENT if (ms := _milliseconds(row.get(name))) is not None]
    spent_s = sum(spent) / 1e3 if len(spent) == len(_SPENT) else None
    known_ms = _milliseconds(time_ms)
    if error is None and known_ms:
        return Entry(values, Status.OK, "", known_ms * 1e3, spent_s)
    said = one_line(error if error is not None else time_ms)
    status = _STATUS.get(said, Status.LAUNCH_FAILED)
    return Entry(values, status, f"recorded as {said or 'nothing'}", None, spent_s)


def _milliseconds(value: object) -> float | None:
    """A time; None for what is none, and for what stands for a failure."""
    # Early versions wrote 1e20 for a config that failed.
    is_time = isinstance(value, int | float) and 0 <= value < MAX_TIME_US / 1e3
    return float(value) if is_time else None  # type: ignore[arg-type]

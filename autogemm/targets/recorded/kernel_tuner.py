"""Kernel Tuner's cache files: read, validated, as columns; and written.

A cache file is JSON: what was tuned, and under ``cache`` one object per config with its parameters
and its time in milliseconds, or the name of an error. Kernel Tuner appends to it while it runs and
closes the brackets at the end; one that was left open is read as far as it goes. Files without a
``schema_version`` and those of 1.x are understood.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from autogemm.config import Value
from autogemm.errors import RecordingError
from autogemm.files import write_atomically
from autogemm.outcome import Status
from autogemm.space.schema import MAX_VALUES, Identifier
from autogemm.targets.recorded.format import Recording
from autogemm.targets.recorded.open_json import Row, parse_open_json

# 250,000 configs with 32 samples each are 350 MB; a file that unpacks to more is refused.
MAX_UNPACKED_BYTES = 512 * 2**20
MAX_TEXT = 200
# Early versions wrote this number of milliseconds for a config that failed.
FAILED_MS = 1e20
MAX_INTEGER = 2**62

_STATUS = {
    "InvalidConfig": Status.REJECTED,
    "CompilationFailedConfig": Status.COMPILE_FAILED,
    "RuntimeFailedConfig": Status.LAUNCH_FAILED,
}
_ERROR = {status: name for name, status in _STATUS.items()}
# Milliseconds that Kernel Tuner spent on a config, by the names it gives them.
_SPENT = ("compile_time", "verification_time", "benchmark_time")


@dataclass(frozen=True, slots=True)
class Entry:
    """One config of a cache. ``time_us`` is None unless the status is ok.

    ``spent_s`` is what compiling, verifying and timing took, in seconds; None if it is not said.
    """

    values: tuple[Value, ...]
    status: Status
    reason: str
    time_us: float | None
    spent_s: float | None


@dataclass(frozen=True, slots=True)
class KernelTunerCache:
    """A whole file. ``values`` of an entry are in the order of ``parameters``.

    ``parameters`` has the values that occur, in the order of their rank. ``problem_size`` is empty
    where the file does not say it in numbers; ``is_closed`` is False for a file left open.
    """

    device_name: str
    kernel_name: str
    problem_size: tuple[int, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    entries: tuple[Entry, ...]
    is_closed: bool
    sha256: str

    def columns(self) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter, one for each entry."""
        columns = zip(*(entry.values for entry in self.entries), strict=True)
        return dict(zip(self.parameters, columns, strict=True))


def _printable(value: str) -> str:
    """Names are shown in tables and on terminals."""
    if not value.isprintable():
        raise ValueError("must be one printable line")
    return value


Line = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TEXT), AfterValidator(_printable)
]


class _Header(BaseModel):
    """What stands beside the configs; fields that are not needed are not looked at."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    device_name: Line
    kernel_name: Line
    problem_size: Any = None
    tune_params_keys: Annotated[list[Identifier], Field(min_length=1, max_length=64)]
    schema_version: Annotated[str, Field(pattern=r"^1(\.|$)")] = "1"


def is_kernel_tuner_cache(path: Path) -> bool:
    """Whether the file looks like one, from its beginning; False for one that cannot be read."""
    try:
        with _opened(path) as stream:
            head = stream.read(2**16)
    except (OSError, EOFError, zlib.error):
        return False
    return b'"tune_params_keys"' in head and b'"autogemm-recording"' not in head


def read_kernel_tuner_cache(path: Path) -> KernelTunerCache:
    """Read and validate one file, gzip'd or not. Raises RecordingError with the first fault."""
    data = _unpacked(path)
    try:
        header, rows, is_closed = parse_open_json(data.decode("utf-8"))
        names = _header(header)
        values, entries = _entries(names.tune_params_keys, rows)
    except (ValueError, RecursionError) as error:
        raise RecordingError(
            f"broken Kernel Tuner cache {path}: {' '.join(str(error).split())[:MAX_TEXT]}"
        ) from error
    return KernelTunerCache(
        device_name=names.device_name,
        kernel_name=names.kernel_name,
        problem_size=_sizes(names.problem_size),
        parameters=values,
        entries=entries,
        is_closed=is_closed,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def cache_of(recording: Recording) -> KernelTunerCache:
    """One of the project's own recordings as Kernel Tuner would have kept it.

    A recording does not keep what compiling took: ``spent_s`` is the timed launches alone.
    """
    columns = zip(*recording.parameters.values(), strict=True)
    entries = tuple(
        Entry(
            values=values,
            status=status,
            reason="" if status is Status.OK else f"recorded as {status}",
            time_us=time_us,
            spent_s=time_us * (samples or 1) * 1e-6 if time_us is not None else 0.0,
        )
        for values, status, time_us, samples in zip(
            columns, recording.status, recording.time_us, recording.num_samples, strict=True
        )
    )
    problem = recording.problem
    content = recording.model_dump_json().encode()
    return KernelTunerCache(
        device_name=recording.source.device.name,
        kernel_name=recording.family,
        problem_size=(problem.m, problem.n, problem.k),
        parameters={name: _ranked(name, column) for name, column in recording.parameters.items()},
        entries=entries,
        is_closed=recording.complete,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def write_kernel_tuner_cache(cache: KernelTunerCache, path: Path) -> None:
    """Write the file, whole or not at all; gzip'd if its name ends in .gz. Raises RecordingError.

    Kernel Tuner reads what is not gzip'd. Times are written in milliseconds, as it does.
    """
    keys = list(cache.parameters)
    content = {
        "device_name": cache.device_name,
        "kernel_name": cache.kernel_name,
        "problem_size": list(cache.problem_size),
        "tune_params_keys": keys,
        "tune_params": {name: list(values) for name, values in cache.parameters.items()},
        "objective": "time",
        "cache": {
            ",".join(map(str, entry.values)): _as_dict(keys, entry) for entry in cache.entries
        },
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    try:
        write_atomically(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    except OSError as error:
        raise RecordingError(f"cannot write the cache {path}: {error}") from error


def _as_dict(keys: Sequence[str], entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(keys, entry.values, strict=True))
    row["time"] = (
        entry.time_us / 1e3
        if entry.time_us is not None
        else _ERROR.get(entry.status, "RuntimeFailedConfig")
    )
    if entry.spent_s is not None:
        row |= {
            "compile_time": 0.0,
            "verification_time": 0.0,
            "benchmark_time": entry.spent_s * 1e3,
        }
    return row


def _opened(path: Path) -> Any:
    with path.open("rb") as stream:
        is_packed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_packed else path.open("rb")


def _unpacked(path: Path) -> bytes:
    try:
        with _opened(path) as stream:
            # One byte more than allowed tells a bomb from a file that just fits.
            data: bytes = stream.read(MAX_UNPACKED_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RecordingError(f"cannot read the recording {path}: {error}") from error
    if len(data) > MAX_UNPACKED_BYTES:
        raise RecordingError(
            f"the recording {path} unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MB: refused"
        )
    return data


def _header(found: dict[str, Any]) -> _Header:
    try:
        header = _Header.model_validate(found)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise ValueError(f"{place}: {fault['msg']}") from None
    if len(set(header.tune_params_keys)) < len(header.tune_params_keys):
        raise ValueError("tune_params_keys: a parameter is there twice")
    return header


def _sizes(found: object) -> tuple[int, ...]:
    """The problem size in numbers; nothing for what is a program's name or an expression."""
    sizes: list[Any] = found if isinstance(found, list) else [found]
    return tuple(int(size) for size in sizes) if all(map(_is_whole, sizes)) else ()


def _entries(
    names: Sequence[str], rows: Sequence[Row]
) -> tuple[dict[str, tuple[Value, ...]], tuple[Entry, ...]]:
    """The values of each parameter in their rank, and the entries."""
    if not rows:
        raise ValueError("no config in it")
    columns = {name: _column(name, [_given(row, name) for row in rows]) for name in names}
    configs = list(zip(*columns.values(), strict=True))
    if len(set(configs)) < len(configs):
        twice = next(config for config in configs if configs.count(config) > 1)
        shown = " ".join(f"{n}={v}" for n, v in zip(names, twice, strict=True))
        raise ValueError(f"the config {shown} is there twice")
    entries = tuple(_entry(row, config) for row, config in zip(rows, configs, strict=True))
    values = {name: _ranked(name, column) for name, column in columns.items()}
    return values, entries


def _given(row: Row, name: str) -> Any:
    if name not in row:
        raise ValueError(f"an entry has no parameter {name!r}")
    return row[name]


def _column(name: str, given: list[Any]) -> list[Value]:
    """Integers if all are whole numbers, else texts. Raises ValueError for lists and the like."""
    for value in given:
        if not isinstance(value, int | float | str):
            raise ValueError(f"{name}: a value is a number or a text, got {value!r:.60}")
    if all(_is_whole(value) for value in given):
        return [int(value) for value in given]
    texts = [str(value) for value in given]
    for text in texts:
        if not (text.isprintable() and 0 < len(text) <= MAX_TEXT):
            raise ValueError(f"{name}: a text value is one printable line, got {text!r:.60}")
    return list(texts)


def _is_whole(value: object) -> bool:
    # First the range: NaN is in none, and a huge integer becomes no float.
    is_number = isinstance(value, int | float) and -MAX_INTEGER < value < MAX_INTEGER
    return is_number and value == int(value)  # type: ignore[call-overload]


def _ranked(name: str, column: Sequence[Value]) -> tuple[Value, ...]:
    """The values that occur: numbers by size, texts that are numbers too, other texts as found."""
    values = dict.fromkeys(column)
    if len(values) > MAX_VALUES:
        raise ValueError(f"{name}: more than {MAX_VALUES} values")
    try:
        return tuple(sorted(values, key=float))
    except ValueError:
        return tuple(values)


def _entry(row: Row, values: tuple[Value, ...]) -> Entry:
    time_ms, error = row.get("time"), row.get("__error__")
    spent = [ms for name in _SPENT if (ms := _milliseconds(row.get(name))) is not None]
    spent_s = sum(spent) / 1e3 if len(spent) == len(_SPENT) else None
    known_ms = _milliseconds(time_ms)
    if error is None and known_ms:
        return Entry(values, Status.OK, "", known_ms * 1e3, spent_s)
    said = str(error if error is not None else time_ms)
    said = "".join(c if c.isprintable() else "?" for c in said)[:MAX_TEXT]
    status = _STATUS.get(said, Status.LAUNCH_FAILED)
    return Entry(values, status, f"recorded as {said or 'nothing'}", None, spent_s)


def _milliseconds(value: object) -> float | None:
    """A time; None for what is none, and for what stands for a failure."""
    is_time = isinstance(value, int | float) and 0 <= value < FAILED_MS
    return float(value) if is_time else None  # type: ignore[arg-type]

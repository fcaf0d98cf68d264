"""T4 1.0.0, the results format of the auto-tuning community: read, validated; and written.

A T4 file is one JSON object; under ``results`` stands one object per config with what was measured
of it, and under ``invalidity`` how it ended. The format names neither GPU, kernel nor problem, and
leaves the unit of times open: ``metadata`` is where programs say such things (KTT its device and
unit, Kernel Tuner its unit, this project all of it).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import Field

from autogemm.formats.entries import Entry, Line, ListedRecording, ranked_configs
from autogemm.formats.lines import MAX_RESULTS_BYTES, ForeignForm, named_faults
from autogemm.formats.open_json import parse_results_json
from autogemm.formats.recording import ProblemField
from autogemm.model.config import Value
from autogemm.model.results.outcome import Status
from autogemm.space import Identifier
from autogemm.support.cells import one_line
from autogemm.support.errors import RecordingError
from autogemm.support.files import beginning, decoded, unpacked
from autogemm.support.limits import MAX_TIME_US
from autogemm.support.version import __version__

T4_VERSION = "1.0.0"

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_MILLISECONDS = "milliseconds"
_IN_US = {
    **dict.fromkeys(("nanoseconds", "ns"), 1e-3),
    **dict.fromkeys(("microseconds", "us"), 1.0),
    **dict.fromkeys((_MILLISECONDS, "ms"), 1e3),
    **dict.fromkeys(("seconds", "s"), 1e6),
}

_STATUS = {
    "correct": Status.OK,
    "constraints": Status.REJECTED,
    "compile": Status.COMPILE_FAILED,
    "runtime": Status.LAUNCH_FAILED,
    "timeout": Status.TIMED_OUT,
    "correctness": Status.WRONG_RESULT,
}
# The other way round; what T4 has no word for becomes the nearest that it has.
_INVALIDITY = {status: word for word, status in _STATUS.items()} | {
    Status.COMPILE_TIMEOUT: "timeout",
    Status.CRASHED: "runtime",
    Status.TOO_SLOW: "timeout",
    Status.INACCURATE: "correctness",
}
# Names of Kernel Tuner and KTT for the parts of the time that a config cost.
_COMPILING = ("compilation_time", "compilation")
_VALIDATING = "validation"
_TIMING = "benchmark"
_RUNS = "runtimes"
# Why a config failed, in words: of this project's files.
_REASON = "reason"


class _Metadata(ForeignForm):
    """Facts that known programs give beside the results."""

    device: Line | None = None
    kernel: Line | None = None
    problem: ProblemField | None = None
    autotuner: Line | None = None
    timeunit: Line | None = None


class _Header(ForeignForm):
    schema_version: Annotated[str, Field(pattern=r"^1\.\d+\.\d+$")] = T4_VERSION
    metadata: _Metadata = _Metadata()


class _Measured(ForeignForm):
    name: str
    value: Any = None
    unit: str = ""


class _Result(ForeignForm):
    """One config. Its cost is not always a number in existing files."""

    configuration: Annotated[dict[Identifier, Any], Field(min_length=1, max_length=64)]
    invalidity: Literal["timeout", "compile", "runtime", "correctness", "constraints", "correct"]
    correctness: float
    times: dict[str, Any]
    measurements: list[_Measured] = Field([], max_length=1000)
    objectives: list[str] = Field([], max_length=100)

    @property
    def time(self) -> _Measured | None:
        """The measurement called time, or else what was the objective."""
        return self.measured("time", *self.objectives[:1])

    def measured(self, *names: str) -> _Measured | None:
        """The first of these that there is."""
        found = {one.name: one for one in self.measurements}
        return next((found[name] for name in names if name in found), None)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The part of a result that is kept: a file may hold dozens of measurements of each."""

    configuration: dict[str, Any]
    status: Status
    reason: str
    time: _Measured | None
    spent: tuple[float, ...]
    """Compiling, validating and timing, in the file's unit; empty if it does not say all three."""


def is_t4(path: Path) -> bool:
    """Whether the file looks like one, from its beginning; False for one that cannot be read."""
    head = beginning(path)
    return b'"results"' in head and b'"configuration"' in head and b'"invalidity"' in head


def read_t4(path: Path) -> ListedRecording:
    """Read and validate one file, gzip'd or not. Raises RecordingError with the first fault.

    If a config occurs twice, the first one counts.
    """
    digest = hashlib.sha256()
    with named_faults("T4 file", path, RecordingError):
        text = decoded(unpacked(path, MAX_RESULTS_BYTES, digest))
        found, results = parse_results_json(text, _kept)
        metadata = _Header.model_validate(found).metadata
        unit = _unit(metadata.timeunit or _MILLISECONDS)
        parameters, configs = _configs(results)
        entries: dict[tuple[Value, ...], Entry] = {}
        for values, result in zip(configs, results, strict=True):
            if values not in entries:
                entries[values] = _entry(values, result, unit)
    problem = metadata.problem
    return ListedRecording(
        device_name=metadata.device or "unknown GPU",
        kernel_name=metadata.kernel or re.sub(r"\W+", "_", path.name.partition(".")[0]) or "kernel",
        problem_size=(problem.m, problem.n, problem.k) if problem is not None else (),
        parameters=parameters,
        entries=tuple(entries.values()),
        is_closed=True,
        sha256=digest.hexdigest(),
        problem=problem,
        written_by=metadata.autotuner or "another tuner",
        notes=tuple(_notes(metadata, results, len(results) - len(entries))),
    )


def t4_pieces(listed: ListedRecording) -> Iterator[str]:
    """The file, a result a line; times in milliseconds, as Kernel Tuner writes them."""
    metadata = _Metadata(
        device=listed.device_name,
        kernel=listed.kernel_name,
        problem=listed.problem,
        autotuner="autogemm",
        timeunit=_MILLISECONDS,
    ).model_dump()
    metadata |= {"autotuner_version": __version__, "compute_api": "CUDA"}
    header = {"schema_version": T4_VERSION, "metadata": metadata}
    yield json.dumps(header)[:-1] + ', "results": ['
    for position, entry in enumerate(listed.entries):
        comma = "," if position else ""
        yield f"{comma}\n{json.dumps(_as_dict(list(listed.parameters), entry))}"
    yield "\n]}\n"


def _as_dict(names: Sequence[str], entry: Entry) -> dict[str, Any]:
    compile_s = entry.compile_s or 0.0
    measured: list[dict[str, Any]] = []
    if entry.time_us is not None:
        measured.append({"name": "time", "value": entry.time_us / 1e3, "unit": "ms"})
    if entry.reason:
        measured.append({"name": _REASON, "value": entry.reason, "unit": ""})
    times: dict[str, Any] = {_RUNS: [sample / 1e3 for sample in entry.samples_us]}
    if entry.spent_s is not None:
        times |= {_COMPILING[0]: 1e3 * compile_s, _TIMING: 1e3 * (entry.spent_s - compile_s)}
        times[_VALIDATING] = 0.0
    return {
        "configuration": dict(zip(names, entry.values, strict=True)),
        "times": times,
        "invalidity": _INVALIDITY[entry.status],
        "correctness": 0 if _INVALIDITY[entry.status] == "correctness" else 1,
        "measurements": measured,
        "objectives": ["time"],
    }


def _kept(found: dict[str, Any]) -> _Kept:
    result = _Result.model_validate(found)
    times = result.times
    compiling = next((times[name] for name in _COMPILING if name in times), None)
    runs = times.get(_RUNS)
    timing = times.get(_TIMING, sum(runs) if _are_times(runs) else None)
    reason = result.measured(_REASON)
    spent = (compiling, times.get(_VALIDATING), timing)
    return _Kept(
        configuration=result.configuration,
        status=_STATUS[result.invalidity],
        reason=one_line(reason.value) if reason is not None else "",
        time=result.time,
        spent=tuple(spent) if _are_times(spent) else (),
    )


def _are_times(found: Any) -> TypeGuard[Sequence[float]]:
    is_list = isinstance(found, list | tuple)
    return is_list and all(isinstance(one, int | float) and 0 <= one < MAX_TIME_US for one in found)


def _configs(
    results: Sequence[_Kept],
) -> tuple[dict[str, tuple[Value, ...]], list[tuple[Value, ...]]]:
    """The values of each parameter in their rank, and the configs."""
    if not results:
        raise ValueError("no result in it")
    names = results[0].configuration.keys()
    if any(result.configuration.keys() != names for result in results):
        raise ValueError("two results have different parameters")
    return ranked_configs(
        {name: _numbers([one.configuration[name] for one in results]) for name in names}
    )


def _numbers(given: list[Any]) -> list[Any]:
    """KTT writes numbers as texts: where all are whole numbers, they are taken for such."""
    if all(isinstance(value, str) and _WHOLE.fullmatch(value) for value in given):
        return [int(value) for value in given]
    return given


def _entry(values: tuple[Value, ...], result: _Kept, unit: float) -> Entry:
    spent_s = sum(result.spent) * unit * 1e-6 if result.spent else None
    if result.status is not Status.OK:
        reason = result.reason or f"recorded as {result.status}"
        return Entry(values, result.status, reason, None, spent_s)
    time = result.time
    if time is None:
        raise ValueError("a correct result has no measurement called time, nor of its objective")
    if not _are_times([time.value]) or not time.value:
        raise ValueError(f"the time of a correct result is {one_line(repr(time.value))}")
    time_us = time.value * (_unit(time.unit) if time.unit else unit)
    if time_us >= MAX_TIME_US:
        raise ValueError(f"the time of a correct result is {time_us:g} us")
    return Entry(values, Status.OK, "", time_us, spent_s)


def _unit(word: str) -> float:
    """Microseconds in one of it."""
    if word.lower() not in _IN_US:
        raise ValueError(f"{one_line(word)!r} is not a unit of time: {' '.join(_IN_US)}")
    return _IN_US[word.lower()]


def _notes(metadata: _Metadata, results: Sequence[_Kept], num_repeated: int) -> Iterator[str]:
    if metadata.device is None:
        yield "does not say which GPU it is of"
    if metadata.timeunit is None and not all(one.time.unit for one in results if one.time):
        yield "does not say the unit of its times: taken to be milliseconds"
    if num_repeated:
        yield f"holds {num_repeated} configs a second time: the first counts"

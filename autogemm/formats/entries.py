"""A list of configs with their times, as others measured it: what every such file comes down to."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import MinLen

from autogemm.formats.recording import Recording
from autogemm.model.config import Value
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Status
from autogemm.space import MAX_VALUES
from autogemm.support import limits

MAX_INTEGER = 2**62


@dataclass(frozen=True, slots=True)
class Entry:
    """One config of a list. ``time_us`` is None unless the status is ok.

    ``spent_s`` is what compiling, verifying and timing took, in seconds, and ``compile_s`` the part
    of compiling; None if it is not said. ``samples_us`` are kept for writing only.
    """

    values: tuple[Value, ...]
    status: Status
    reason: str
    time_us: float | None
    spent_s: float | None = None
    compile_s: float | None = None
    samples_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedRecording:
    """A whole file. ``values`` of an entry are in the order of ``parameters``.

    ``parameters`` has the values that occur, in the order of their rank. ``problem_size`` is empty
    where the file does not say it in numbers, ``problem`` None where it does not say all of it;
    ``is_closed`` is False for a file left open. ``written_by`` is the program that wrote it.
    """

    device_name: str
    kernel_name: str
    problem_size: tuple[int, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    entries: tuple[Entry, ...]
    is_closed: bool
    sha256: str
    problem: Problem | None = None
    written_by: str = "Kernel Tuner"
    notes: tuple[str, ...] = ()

    def columns(self) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter, one for each entry."""
        columns = zip(*(entry.values for entry in self.entries), strict=True)
        return dict(zip(self.parameters, columns, strict=True))


# Names are shown in tables and on terminals.
Line = Annotated[limits.Line, MinLen(1)]


def listed_of(recording: Recording) -> ListedRecording:
    """One of the project's own recordings as a list.

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
    return ListedRecording(
        device_name=recording.source.device.name,
        kernel_name=recording.family,
        problem_size=(problem.m, problem.n, problem.k),
        parameters={name: ranked(name, column) for name, column in recording.parameters.items()},
        entries=entries,
        is_closed=recording.complete,
        sha256=hashlib.sha256(recording.model_dump_json().encode()).hexdigest(),
        problem=problem,
        written_by="autogemm",
    )


def ranked_configs(
    given: Mapping[str, Sequence[Any]],
) -> tuple[dict[str, tuple[Value, ...]], list[tuple[Value, ...]]]:
    """The values of each parameter in their rank, and the configs, from columns as a file has them.

    Raises ValueError for what is no value, and for too many.
    """
    columns = {name: _column(name, values) for name, values in given.items()}
    parameters = {name: ranked(name, values) for name, values in columns.items()}
    return parameters, list(zip(*columns.values(), strict=True))


def _column(name: str, given: Sequence[Any]) -> list[Value]:
    """Integers if all are whole numbers, else texts. Raises ValueError for lists and the like."""
    for value in given:
        if not isinstance(value, int | float | str):
            raise ValueError(f"{name}: a value is a number or a text, got {value!r:.60}")
    if all(is_whole(value) for value in given):
        return [int(value) for value in given]
    texts = [str(value) for value in given]
    for text in texts:
        if not limits.WORD.fullmatch(text):
            raise ValueError(f"{name}: {limits.WORD_RULE}, got {text!r:.60}")
    return list(texts)


def is_whole(value: object) -> bool:
    """Whether the value is a whole number that fits 62 bits."""
    # First the range: NaN is in none, and a huge integer becomes no float.
    is_number = isinstance(value, int | float) and -MAX_INTEGER < value < MAX_INTEGER
    return is_number and value == int(value)  # type: ignore[call-overload]


def ranked(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    """The values that occur: numbers by size, texts that are numbers too, other texts as found.

    Raises ValueError for too many.
    """
    distinct = dict.fromkeys(values)
    if len(distinct) > MAX_VALUES:
        raise ValueError(f"{name}: more than {MAX_VALUES} values")
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)

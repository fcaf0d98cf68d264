"""GEMMs that a program was seen to call, and the file that holds them: JSON, one a line.

The first line says what was recorded: ``{"format": "autogemm-shapes", ...}``. It is read when the
command line is parsed, so nothing heavy is imported here.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError

FORMAT = "autogemm-shapes"
MAX_LINES = 10_000
MAX_BYTES = 16 * 2**20
_STRIDES = ("lda", "ldb", "ldc")
# From 1 up in a program; far more than any has.
_MOST = 2**63


@dataclass(frozen=True, slots=True)
class CalledGemm:
    """One kind of product: how often it was called, and the time of all calls in microseconds.

    ``problem`` is None where there are no kernels for it: ``label`` says what it was. ``batch`` is
    the number of such problems in a call: 1 where they are products of one launch, which are the
    problem's own batch. ``ops`` names the operators of the program.
    """

    problem: Problem | None
    label: str
    batch: int
    ops: str
    calls: int
    time_us: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """The products that a program called, the longest time first.

    ``clock`` is ``cuda`` (events on the GPU ``gpu``) or ``cpu`` (wall time of the call, on a
    machine that is no GPU: weights only). ``wall_us`` is the time of the whole program.
    """

    clock: str
    gpu: str
    wall_us: float
    gemms: tuple[CalledGemm, ...]

    @property
    def time_us(self) -> float:
        """The time of all products, in microseconds."""
        return sum(one.time_us for one in self.gemms)

    @property
    def weights(self) -> dict[Problem, float]:
        """The share of each problem in the time of all that have kernels, the largest first.

        The time of a gated problem is shared with the product of one half: two launches of it and
        an operator of the program's may be faster.
        """
        times: dict[Problem, float] = {}
        for one in self.gemms:
            if one.problem is None:
                continue
            problems = [one.problem]
            if one.problem.epilogue.num_columns > 1:
                problems.append(one.problem.with_epilogue(PLAIN))
            for problem in problems:
                times[problem] = times.get(problem, 0.0) + one.time_us / len(problems)
        total = sum(times.values())
        shares = {
            one: time_us / total if total else 1 / len(times) for one, time_us in times.items()
        }
        return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def called_text(recorded: Recorded) -> str:
    """The file's text."""
    head = {
        "format": FORMAT,
        "version": 1,
        "clock": recorded.clock,
        "gpu": recorded.gpu,
        "wall_us": round(recorded.wall_us, 3),
    }
    return "".join(f"{json.dumps(line)}\n" for line in (head, *map(_line, recorded.gemms)))


def _line(one: CalledGemm) -> dict[str, Any]:
    problem = one.problem
    shown: dict[str, Any] = {"label": one.label}
    if problem is not None:
        shown = {
            "size": problem.size_label,
            "layout": str(problem.layout),
            "dtype": str(problem.dtype),
            **{name: getattr(problem, name) for name in _STRIDES},
            "alpha": problem.alpha,
            "beta": problem.beta,
            "epilogue": str(problem.epilogue),
            "products": str(problem.batch),
        }
    return {
        **shown,
        "batch": one.batch,
        "ops": one.ops,
        "calls": one.calls,
        "time_us": round(one.time_us, 3),
    }


def is_called_text(text: str) -> bool:
    """Whether a text is such a file, by how it begins."""
    return text.lstrip().startswith(f'{{"format": "{FORMAT}"')


def parsed_called(text: str, place: str) -> Recorded:
    """The recording in a file's text. Raises UsageError, which names the place and the line."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not 1 <= len(lines) <= MAX_LINES:
        raise UsageError(f"{place}: a recording has 1 to {MAX_LINES} lines, got {len(lines)}")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise TypeError("a line is one JSON object")
            if number == 1:
                head = _head(fields)
            else:
                found.append(_gemm(fields))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UsageError(f"{place}, line {number}: {why}") from error
        except UsageError as error:
            raise UsageError(f"{place}, line {number}: {error}") from error
    return replace(head, gemms=tuple(found))


def _head(fields: Mapping[str, Any]) -> Recorded:
    if fields["format"] != FORMAT or fields["version"] != 1:
        raise ValueError(f"not a recording of this version: {FORMAT} 1")
    if fields["clock"] not in ("cuda", "cpu"):
        raise ValueError(f"clock is cuda or cpu, got {fields['clock']!r}")
    return Recorded(fields["clock"], _text(fields, "gpu"), _time(fields, "wall_us"), ())


def _gemm(fields: Mapping[str, Any]) -> CalledGemm:
    problem = None
    if "size" in fields:
        problem = Problem(
            *Problem.parse_size(_text(fields, "size")),
            Layout(fields["layout"]),
            DType.parse(_text(fields, "dtype")),
            lda=_count(fields, "lda"),
            ldb=_count(fields, "ldb"),
            ldc=_count(fields, "ldc"),
            alpha=_number(fields, "alpha"),
            beta=_number(fields, "beta"),
            epilogue=Epilogue.parse(_text(fields, "epilogue")),
            batch=Batch.parse(_text(fields, "products")),
        )
    label = problem.label if problem is not None else _text(fields, "label")
    batch, calls = _count(fields, "batch"), _count(fields, "calls")
    return CalledGemm(problem, label, batch, _text(fields, "ops"), calls, _time(fields, "time_us"))


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or len(value) > 1000 or not value.isprintable():
        raise ValueError(f"{name} is a line of text")
    return value


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is a finite number, got {value!r}")
    return float(value)


def _time(fields: Mapping[str, Any], name: str) -> float:
    value = _number(fields, name)
    if not 0 <= value < _MOST:
        raise ValueError(f"{name} is a time, got {value:g}")
    return value


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _MOST:
        raise ValueError(f"{name} is a whole number from 1, got {value!r}")
    return value


def merged(recordings: Iterable[Recorded]) -> Recorded:
    """Several recordings, of the processes of one program, as one; the longest time first.

    Raises UsageError where there is none.
    """
    whole = list(recordings)
    if not whole:
        raise UsageError("there is no recording to merge")
    # A process that only started others has seen nothing.
    first = next((one for one in whole if one.gemms), whole[0])
    found: dict[tuple[object, ...], CalledGemm] = {}
    for one in (gemm for recorded in whole for gemm in recorded.gemms):
        key = (one.problem, one.label, one.batch, one.ops)
        known = found.get(key)
        calls, time_us = (known.calls, known.time_us) if known else (0, 0.0)
        found[key] = replace(one, calls=calls + one.calls, time_us=time_us + one.time_us)
    gemms = tuple(sorted(found.values(), key=lambda one: (-one.time_us, one.label)))
    return replace(first, wall_us=max(one.wall_us for one in whole), gemms=gemms)

"""Trials as text by columns: a million rows in seconds.

A column is checked as a whole. One that fails is no verdict: then the trials are looked at as
values, one by one, which names the fault or finds none.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Annotated, Any, get_type_hints

from annotated_types import MaxLen, MinLen
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_json

from autogemm.model.config import Config
from autogemm.model.kernel import Resources
from autogemm.model.results.columns import ERRORS, TELEMETRY
from autogemm.model.results.outcome import (
    CacheState,
    Measurement,
    Outcome,
    Provenance,
    Status,
    Telemetry,
    Verification,
)
from autogemm.store import TrialColumns, TrialCopy, Used
from autogemm.support.limits import MAX_SAMPLES, TimeUs

Column = Sequence[Any]

_STRICT = ConfigDict(strict=True)
_WORDS: Mapping[str, frozenset[str | None]] = {
    name: frozenset({None, *(word.value for word in kind)})
    for name, kind in (
        ("status", Status),
        ("measured_l2", CacheState),
        ("measured_provenance", Provenance),
    )
}
_TEXTS = ("reason", "kernel_sha256", "method")
_WHOLE = ("number", "gpu_number", "launches_per_sample", "throttled_samples")
_REAL = ("compile_seconds", "measure_seconds", "pace", "energy_mj", *ERRORS, *TELEMETRY)
_NUMBERS = ("run_id", *_WHOLE, *_REAL, "finished_at")
_SAMPLES: TypeAdapter[Any] = TypeAdapter(
    list[Annotated[list[TimeUs], MinLen(1), MaxLen(MAX_SAMPLES)] | None], config=_STRICT
)
_CONFIG: TypeAdapter[Config | None] = TypeAdapter(Config | None, config=_STRICT)
_RESOURCES: TypeAdapter[tuple[Resources, ...]] = TypeAdapter(
    Annotated[tuple[Resources, ...], MaxLen(64)], config=_STRICT
)


def is_plain(part: TrialColumns) -> bool:
    """Whether every cell is one that a file may hold, and means what it says by itself."""
    cells = part.cells
    if not all(words.issuperset(cells[name]) for name, words in _WORDS.items()):
        return False
    # A trial that was not compared has no errors at all.
    if not part.constant.issuperset(ERRORS):
        missing = [[value is None for value in cells[name]] for name in ERRORS]
        if any(one != missing[0] for one in missing):
            return False
    if part.decoded is not None and not _are_samples(part.decoded):
        return False
    try:
        for name, adapter in _adapters().items():
            adapter.validate_python(_checked(part, name))
        list(map(config_as_json, cells["family"], cells["config"]))
        for used in set(part.resources):
            resources_as_json(used)
    except (ValueError, TypeError):
        return False
    return True


def _are_samples(decoded: Sequence[list[float] | None]) -> bool:
    try:
        _SAMPLES.validate_python(decoded)
    except ValueError:
        return False
    return int not in set(map(type, chain.from_iterable(filter(None, decoded))))


def _checked(part: TrialColumns, name: str) -> list[Any]:
    """The cells of a column that are not right for certain if the others are.

    Raises TypeError where cells have no order.
    """
    column = part.cells[name]
    if name in part.constant:
        return [column[0]]
    if name == "finished_at":
        # Any moment between two valid ones is valid; only moments of one kind can be compared.
        return [min(column), max(column)]
    if name == "kernel_sha256" and all(map(_is_sha256, column)):
        return []
    return list(set(column) if name in _TEXTS else column)


@lru_cache(maxsize=100_000)
def _is_sha256(text: str) -> bool:
    """Whether it is so for certain: False is no verdict."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    """The check of each column, from the limits that the field of that name declares."""
    values: tuple[Any, ...] = (TrialCopy, Outcome, Verification, Measurement, Telemetry)
    hints: dict[str, Any] = {
        name: hint
        for value in values
        for name, hint in get_type_hints(value, include_extras=True).items()
    }
    return {name: _adapter(hints[name]) for name in (*_TEXTS, *_NUMBERS)}


def _adapter(hint: Any) -> TypeAdapter[Any]:
    """The check of a list of values of the type ``hint``, or None."""
    column: Any = list.__class_getitem__(hint | None)
    return TypeAdapter(column, config=_STRICT)


@lru_cache(maxsize=4096)
def config_as_json(family: str, text: str) -> tuple[str, str]:
    """The values of a config, and it as a part of a line. Raises ValueError if it is none."""
    config = Config.of(family, json.loads(text))
    line = _CONFIG.dump_json(config)
    _CONFIG.validate_json(line)
    return json.dumps(config.as_dict()), line.decode()


@lru_cache(maxsize=4096)
def resources_as_json(used: tuple[Used, ...]) -> str:
    """Resources as a part of a line. Raises ValueError if they are none."""
    line = _RESOURCES.dump_json(tuple(Resources(*one) for one in used))
    _RESOURCES.validate_json(line)
    return line.decode()


_LINE = (
    '{"record":"trial","run_id":%s,"number":%s,"outcome":{"config":%s,"status":"%s","reason":%s,'
    '"kernel_sha256":"%s","resources":%s,"verification":%s,"measurement":%s,"compile_seconds":%s,'
    '"measure_seconds":%s,"gpu_number":%s,"pace":%s},"finished_at":%s}\n'
)
_VERIFICATION = "{%s}" % ",".join(f'"{name}":%s' for name in ERRORS)  # noqa: UP031
_TELEMETRY = ",".join(f'"{name}":%s' for name in TELEMETRY)
_MEASUREMENT = (
    '{"samples_us":[%s],"provenance":"%s","method":%s,"launches_per_sample":%s,"l2":"%s",'
    f'"telemetry":{{{_TELEMETRY}}},"energy_mj":%s,"throttled_samples":%s}}'
)


def line_texts(part: TrialColumns) -> Iterator[str]:
    """The lines of a plain part."""
    cells = part.cells
    numbers = {name: _as_json(cells[name]) for name in _NUMBERS}
    texts = {name: _texts_as_json(cells[name]) for name in ("reason", "method")}
    return map(
        _LINE.__mod__,
        zip(
            *(numbers["run_id"], numbers["number"]),
            [line for _, line in map(config_as_json, cells["family"], cells["config"])],
            *(cells["status"], texts["reason"], cells["kernel_sha256"]),
            [resources_as_json(one) for one in part.resources],
            *(_verifications(part, numbers), _measurements(part, numbers, texts["method"])),
            *(numbers["compile_seconds"], numbers["measure_seconds"], numbers["gpu_number"]),
            *(numbers["pace"], numbers["finished_at"]),
            strict=True,
        ),
    )


def _as_json(column: Column) -> list[str]:
    """Each cell as JSON; none of them holds a comma."""
    return to_json(column, inf_nan_mode="strings").decode()[1:-1].split(",")


def _texts_as_json(column: Column) -> list[str]:
    known = {text: to_json(text).decode() for text in set(column)}
    return [known[text] for text in column]


def _verifications(part: TrialColumns, numbers: Mapping[str, list[str]]) -> Iterator[str]:
    rows = zip(*(numbers[name] for name in ERRORS), strict=True)
    for error, row in zip(part.cells[ERRORS[-1]], rows, strict=True):
        yield "null" if error is None else _VERIFICATION % row


def _measurements(
    part: TrialColumns, numbers: Mapping[str, list[str]], methods: list[str]
) -> Iterator[str]:
    known = [samples for samples in part.samples if samples is not None]
    lists = iter(to_json(known).decode()[2:-2].split("],["))
    cells = part.cells
    rows = zip(
        *(cells["measured_provenance"], methods, numbers["launches_per_sample"]),
        *(cells["measured_l2"], *(numbers[name] for name in TELEMETRY)),
        *(numbers["energy_mj"], numbers["throttled_samples"]),
        strict=True,
    )
    for samples, row in zip(part.samples, rows, strict=True):
        yield "null" if samples is None else _MEASUREMENT % (next(lists), *row)

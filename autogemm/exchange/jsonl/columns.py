"""Trials as text by columns: a million rows in seconds.

A column is checked as a whole. One that fails is no verdict: then the trials are looked at as
values, one by one, which names the fault or finds none.
"""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, lru_cache
from itertools import chain, groupby, repeat
from typing import Annotated, Any, get_type_hints

from annotated_types import MaxLen, MinLen
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_json

from autogemm.model.config import Config
from autogemm.model.kernel import Resources
from autogemm.model.results.columns import ERRORS, RESOURCES, TELEMETRY, names_of
from autogemm.model.results.outcome import (
    CacheState,
    Measurement,
    Outcome,
    Provenance,
    Status,
    Telemetry,
    Verification,
)
from autogemm.store import TrialColumns, TrialCopy
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
_PLACES = tuple(names_of(Resources).index(name) for name in RESOURCES)


def is_plain(part: TrialColumns) -> bool:
    """Whether every cell is one that a file may hold, and means what it says by itself."""
    cells = part.cells
    if not all(words.issuperset(cells[name]) for name, words in _WORDS.items()):
        return False
    # A trial that was not compared has no errors at all.
    missing = [[value is None for value in cells[name]] for name in ERRORS]
    if any(one != missing[0] for one in missing):
        return False
    if part.decoded is not None and not _are_samples(part.decoded):
        return False
    try:
        for name, adapter in _adapters().items():
            adapter.validate_python(_checked(name, cells[name]))
        for config in set(zip(cells["family"], cells["config"], strict=True)):
            _config(*config)
        for used in set(part.resources):
            _used(used)
    except (ValueError, TypeError):
        return False
    return True


def _are_samples(decoded: Sequence[list[float] | None]) -> bool:
    try:
        _SAMPLES.validate_python(decoded)
    except ValueError:
        return False
    return int not in set(map(type, chain.from_iterable(filter(None, decoded))))


def _checked(name: str, column: Column) -> list[Any]:
    """The cells of a column that are not right for certain if the others are.

    Raises TypeError where cells have no order.
    """
    if is_constant(column):
        return [column[0]]
    if name == "finished_at":
        # Any moment between two valid ones is valid; only moments of one kind can be compared.
        return [min(column), max(column)]
    if name == "kernel_sha256" and _are_sha256(column):
        return []
    return list(set(column) if name in _TEXTS else column)


def _are_sha256(column: Column) -> bool:
    """Whether each is 64 hexadecimal digits, all of them looked at in one go."""
    is_text = set(map(type, column)) == {str} and set(map(len, column)) == {64}
    return is_text and re.fullmatch("[0-9a-f]*", "".join(column)) is not None


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
def _config(family: str, text: str) -> tuple[str, str]:
    """A config as a cell of CSV, and as a part of a line. Raises ValueError if it is none."""
    config = Config.of(family, json.loads(text))
    line = _CONFIG.dump_json(config)
    _CONFIG.validate_json(line)
    return _csv([json.dumps(config.as_dict())]), line.decode()


@lru_cache(maxsize=4096)
def _used(used: tuple[tuple[Any, ...], ...]) -> tuple[str, str, tuple[str, ...]]:
    """Resources likewise, and those of the first kernel as cells of CSV."""
    resources = tuple(Resources(*one) for one in used)
    line = _RESOURCES.dump_json(resources)
    _RESOURCES.validate_json(line)
    first = tuple(str(used[0][place]) if used else "" for place in _PLACES)
    return _csv([json.dumps([asdict(one) for one in resources])]), line.decode(), first


def is_constant(column: Column) -> bool:
    """Whether all cells are the same, which most columns of one run are. NaN is never the same."""
    first = column[0]
    return column.count(first) == len(column) and set(map(type, column)) == {type(first)}


def csv_text(part: TrialColumns, run: Mapping[str, Any], order: Sequence[str]) -> str:
    """Rows of a plain part; ``run`` has the cells of its run, ``order`` the names of all columns.

    ``run`` holds ``flops``, too. Adjacent columns that belong to the run are written once.
    """
    columns = _csv_columns(part, run["flops"] * 1e-6)
    pieces: list[Iterable[str]] = []
    for varies, names in groupby(order, lambda name: not isinstance(columns.get(name, ""), str)):
        if varies:
            pieces += (columns[name] for name in names)
        else:
            same = (
                columns[name] if name in columns else _csv([run[name], ""])[:-1] for name in names
            )
            pieces.append(repeat(",".join(map(str, same))))
    return "\n".join(map(",".join, zip(*pieces, strict=False))) + "\n"


def _csv_columns(part: TrialColumns, teraflops: float) -> dict[str, Iterable[str]]:
    """The columns of a trial as they are written, quoted where need be; run_id is the run's.

    A column whose cells are all the same is one text.
    """
    cells = part.cells
    tflops = [teraflops / time_us if time_us else None for time_us in cells["time_us"]]
    written: dict[str, Iterable[str]] = {
        "tflops": _written(tflops, _numbers_in_csv),
        "config": [cell for cell, _ in map(_config, cells["family"], cells["config"])],
        "samples_us": [
            f'"{text}"' if text and "," in text else text or "" for text in cells["samples_us"]
        ],
        "finished_at": _moments_in_csv(cells["finished_at"]),
    }
    for name in (*_TEXTS, *_WORDS, "family"):
        written[name] = _written(cells[name], _texts_in_csv)
    for name in (*_WHOLE, *_REAL, "time_us"):
        written[name] = _written(cells[name], _numbers_in_csv)
    return written | _used_in_csv(part.resources)


def _moments_in_csv(column: Column) -> list[str]:
    """The texts of `datetime.isoformat` for moments in UTC, in a tenth of its time."""
    text = to_json(column).decode()[1:-1]
    return text.replace('Z"', "+00:00").replace('"', "").split(",")


def _written(column: Column, write: Callable[[Column], list[str]]) -> Iterable[str]:
    return write(column[:1])[0] if is_constant(column) else write(column)


def _used_in_csv(resources: Sequence[tuple[Any, ...]]) -> dict[str, Iterable[str]]:
    """The column with all resources, and those of the first kernel."""
    if is_constant(resources):
        whole, _, first = _used(resources[0])
        return {"resources": whole, **dict(zip(RESOURCES, first, strict=True))}
    used = list(map(_used, resources))
    columns = zip(*(texts for _, _, texts in used), strict=True)
    return {
        "resources": [cell for cell, _, _ in used],
        **dict(zip(RESOURCES, columns, strict=True)),
    }


def _texts_in_csv(column: Column) -> list[str]:
    known = set(column)
    if len(known) > len(column) // 2 and None not in known and _is_word("".join(column)):
        return list(column)
    in_csv = {text: "" if text is None else _csv([text, ""])[:-1] for text in known}
    return [in_csv[text] for text in column]


def _is_word(text: str) -> bool:
    """Whether CSV takes it as it is."""
    return text.isascii() and text.isalnum()


def _numbers_in_csv(column: Column) -> list[str]:
    """Write them like Python, which takes longer: the same but for very small and large ones."""
    texts = to_json(column, inf_nan_mode="constants").decode()[1:-1].replace("null", "").split(",")
    known = list(filter(None, column))
    if not known or (min(known) >= 1e-4 and max(known) < 1e16 and math.isfinite(sum(known))):
        return texts
    return [
        text if value is None or not value or 1e-4 <= value < 1e16 else repr(value)
        for text, value in zip(texts, column, strict=True)
    ]


def _csv(cells: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(cells)
    return buffer.getvalue()


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
            [line for _, line in map(_config, cells["family"], cells["config"])],
            *(cells["status"], texts["reason"], cells["kernel_sha256"]),
            [_used(one)[1] for one in part.resources],
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

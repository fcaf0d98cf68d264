"""Values to table rows and back: a field lies in the column of its name. No database is touched.

Rows that cannot be converted (an unknown word, a missing fact) raise ValueError, TypeError or
KeyError: the database was damaged or edited by hand.
"""

import json
import math
from collections.abc import Callable, Hashable
from dataclasses import asdict, fields
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource, Resources
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Check, Verdict
from autogemm.model.results.columns import ERRORS, names_of
from autogemm.model.results.outcome import (
    Call,
    Environment,
    Finals,
    FinalsEntry,
    Measurement,
    Outcome,
    Status,
    Sustained,
    Telemetry,
    Verification,
)
from autogemm.store.tables.models import (
    Base,
    FinalsEntryRecord,
    FinalsRecord,
    KernelRecord,
    MeasurementRecord,
    ResourcesRecord,
    TrialRecord,
)
from autogemm.store.tables.records import RunSpec, TrialRow

Columns = dict[str, Any]
Kind = TypeVar("Kind")
# How each field of a kind of values is read from a row.
Readers = tuple[tuple[str, Callable[[Any], object]], ...]

# Parts of a value whose fields are columns of the same row.
_PARTS = ("verification", "telemetry", "config", "sustained")
_MISSING = object()


def columns_of(model: type[Base], value: object) -> Columns:
    """The columns of a table that a value fills, with what lies in its errors, telemetry, config.

    Raises ValueError for a time that is not finite.
    """
    parts = [value, *(getattr(value, name, None) for name in _PARTS)]
    found: Columns = {}
    for column in model.__table__.columns:
        cells = (getattr(part, column.key, _MISSING) for part in parts)
        cell = next((cell for cell in cells if cell is not _MISSING), _MISSING)
        if cell is not _MISSING:
            found[column.key] = _cell(column.key, cell)
    return found


def _cell(name: str, value: object) -> object:
    match value:
        case DType() | Epilogue() | Batch() | Groups():
            return str(value)
        case StrEnum():
            return value.value
        case Config():
            return value.as_dict()
        case tuple():
            return _json(name, value)
        case float() if math.isnan(value):
            # SQL has no NaN. A ratio was not measured, an error has no bound.
            return math.inf if name in ERRORS else None
    return value


def _json(name: str, values: tuple[Any, ...]) -> object:
    if name == "counters":
        return dict(values)
    if name in ("checks", "calls"):
        cells = [{key: _cell(key, cell) for key, cell in asdict(one).items()} for one in values]
        # NULL in finals that say nothing of other calls, as in those of before.
        return cells or (None if name == "calls" else [])
    if not all(map(math.isfinite, values)):
        raise ValueError(f"{name} must hold finite numbers of its unit, got {values}")
    return list(values)


def value_of(kind: type[Kind], record: Any, /, **given: object) -> Kind:
    """The value of a row; ``given`` are the fields that other tables hold."""
    key: Any = kind
    readers: Readers = _readers(key)
    return kind(**{name: of(record) for name, of in readers if name not in given}, **given)


@cache
def _readers(kind: Hashable) -> Readers:
    """The reader of each field of a row."""
    hints = get_type_hints(kind)
    assert isinstance(kind, type)
    return tuple((f.name, _reader(f.name, hints[f.name])) for f in fields(kind) if f.init)


def _reader(name: str, hint: Any) -> Callable[[Any], object]:
    if hint in _OTHERS:
        return _OTHERS[hint]
    kinds = set(get_args(hint)) or {hint}
    words = [one for one in kinds if isinstance(one, type) and issubclass(one, StrEnum)]
    if hint is float:
        return lambda record: math.nan if (cell := getattr(record, name)) is None else cell
    if get_origin(hint) is tuple:
        return lambda record: tuple(getattr(record, name) or ())
    if hint in (Epilogue, Batch, Groups):
        return lambda record: hint.parse(getattr(record, name))
    if hint is not DType and not words:
        return lambda record: getattr(record, name)
    word_of: Callable[[str], object] = words[0] if words else DType.parse

    def read(record: Any) -> object:
        cell = getattr(record, name)
        return None if cell is None and NoneType in kinds else word_of(cell)

    return read


def device_key(device: Device) -> Columns:
    """The facts that make a GPU model; memory and clocks differ a little between drivers."""
    return {"name": device.name, "arch": device.arch, "num_sms": device.num_sms}


def device_of(facts: Columns) -> Device:
    """The device of a row. Raises ValueError for a fact of another kind, TypeError without one."""
    device = Device(**facts)
    if type(device.name) is not str or any(
        type(fact) is not int for fact in device.limits().values()
    ):
        raise ValueError(f"the facts of {device.name!r} are not a name and whole numbers")
    return device


def device_in(record: Any) -> Device:
    """The device that a row of devices holds. Raises as `device_of`."""
    return device_of(record.facts)


def environment_in(record: Any) -> Environment:
    """The environment that a row of environments holds."""
    return value_of(Environment, record)


def problem_of(record: Any) -> Problem:
    """The problem of a row. Raises ValueError as `problem_in`."""
    return problem_in(record.problem)


def problem_in(record: Any) -> Problem:
    """The problem that a row of problems holds. SQLite keeps a text in a column of numbers:
    ValueError.
    """
    problem = value_of(Problem, record)
    sizes = (problem.m, problem.n, problem.k, problem.lda, problem.ldb, problem.ldc)
    factors = (problem.alpha, problem.beta)
    if {*map(type, sizes)} != {int} or not {*map(type, factors)} <= {int, float}:
        raise ValueError(f"a problem is made of numbers, got {problem!r:.200}")
    return problem


def config_of(record: Any) -> Config | None:
    """The config of a row, None for a kernel that has none."""
    return None if record.config is None else Config.of(record.family or "", record.config)


def kernel_columns(source: KernelSource) -> Columns:
    """The columns of ``kernels`` besides its key, the sha256 of the text."""
    return columns_of(KernelRecord, source) | {"source": source.text}


def kernel_of(record: KernelRecord) -> KernelSource:
    """The source of a row. Raises ValueError if the text is not the one that was stored."""
    source = value_of(KernelSource, record, text=record.source)
    if source.sha256 != record.kernel_sha256:
        raise ValueError(f"the source of kernel {record.id} is not the one that was stored")
    return source


# The names in `spec_columns`: everything that identifies a run, except the foreign keys.
_ELSEWHERE = {"problem", "device", "environment", "command"}
SPEC_COLUMNS = tuple(name for name in names_of(RunSpec) if name not in _ELSEWHERE)


def spec_columns(spec: RunSpec) -> Columns:
    """The columns of ``runs`` that make two runs the same run, but for the foreign keys."""
    # Canonical JSON: one text for one narrowing, whatever the order of its names.
    fix = json.dumps(dict(spec.fix), sort_keys=True, separators=(",", ":"))
    texts = {"families": " ".join(spec.families), "fix": fix}
    return {name: _cell(name, texts.get(name, getattr(spec, name))) for name in SPEC_COLUMNS}


def spec_of(record: Any, **given: object) -> RunSpec:
    """The request of a run's row; ``given`` as in `value_of`."""
    fix: dict[str, list[Value]] = json.loads(record.fix)
    if not isinstance(fix, dict):
        raise ValueError(f"the narrowing of run {record.id} is not a JSON object")
    return value_of(
        RunSpec,
        record,
        families=tuple(record.families.split()),
        fix=tuple((name, tuple(values)) for name, values in fix.items()),
        **given,
    )


def verification_of(record: Any) -> Verification | None:
    """The errors of a row, None if nothing was compared."""
    if record.max_error_ratio is None or record.error is None:
        return None
    return value_of(Verification, record)


def trial_columns(outcome: Outcome) -> Columns:
    """The columns of ``run_trials`` that an outcome fills, its measurement and resources."""
    measured, resources = outcome.measurement, enumerate(outcome.resources)
    times = MeasurementRecord(**columns_of(MeasurementRecord, measured)) if measured else None
    return {
        **columns_of(TrialRecord, outcome),
        "measurement": times,
        "resources": [ResourcesRecord(position=i, **asdict(used)) for i, used in resources],
    }


def outcome_of(record: TrialRecord) -> Outcome:
    """The outcome of a trial's row."""
    measured = record.measurement
    return value_of(
        Outcome,
        record,
        resources=tuple(value_of(Resources, used) for used in record.resources),
        measurement=value_of(Measurement, measured) if measured is not None else None,
    )


def trial_row_of(record: TrialRecord) -> TrialRow:
    """A trial with its run's circumstances."""
    own = {name: getattr(record, name) for name in ("run_id", "number", "kernel_id", "finished_at")}
    return value_of(TrialRow, record.run, trial_id=record.id, outcome=outcome_of(record), **own)


def calls_of(record: FinalsRecord) -> tuple[Call, ...]:
    """The calls of cuBLAS in a row of finals. Raises KeyError, TypeError or ValueError."""
    return tuple(
        Call(
            str(one["name"]),
            Status(one["status"]),
            str(one["reason"]),
            tuple(map(float, one["samples_us"])),
        )
        for one in record.calls or ()
    )


def sustained_of(record: FinalsRecord) -> Sustained | None:
    """The times of winner and baseline running alone, None if they did not."""
    is_there = record.sustained_us and record.sustained_baseline_us
    return value_of(Sustained, record) if is_there else None


def entry_columns(entry: FinalsEntry) -> Columns:
    """The columns of ``finals_entries`` that a contestant fills."""
    columns = columns_of(FinalsEntryRecord, entry)
    # NULL, not an empty list, where energy was not measured.
    columns["samples_mj"] = columns["samples_mj"] or None
    return columns


def finals_of(record: FinalsRecord) -> Finals:
    """The finals of a row. Raises ValueError if they have no baseline or no contestant."""
    entries = [value_of(FinalsEntry, entry) for entry in record.entries]
    if len(entries) < 2 or record.entries[0].place != 0:
        raise ValueError(f"finals {record.id} have no baseline or no contestant")
    baseline, *others = entries
    kept = {"num_checks": 0, "disqualified": ()}
    return value_of(Finals, record, entries=tuple(others), baseline=baseline, **kept)


# Fields that are read from several columns, or from a row of another table.
_OTHERS: dict[Any, Callable[[Any], object]] = {
    Config: config_of,
    Config | None: config_of,
    Verification | None: verification_of,
    Telemetry: lambda record: value_of(Telemetry, record),
    Sustained | None: sustained_of,
    tuple[Call, ...]: calls_of,
    Problem: problem_of,
    Device: lambda record: device_in(record.device),
    Environment: lambda record: environment_in(record.environment),
    tuple[Check, ...]: lambda record: tuple(
        Check(**{**check, "verdict": Verdict(check["verdict"])}) for check in record.checks
    ),
    tuple[tuple[str, float], ...]: lambda record: tuple(record.counters.items()),
}

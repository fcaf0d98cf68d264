"""Trials as a table, one a row, with the run that each belongs to: CSV, and JSON for scripts.

A table holds all that is known of a trial but its kernel's source; finals and certificates have no
place in it.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from autogemm.exchange.jsonl.converting import copy_of, form_of
from autogemm.exchange.jsonl.fields import EnvironmentForm, TelemetryForm
from autogemm.exchange.jsonl.forms import RunForm, TrialForm
from autogemm.formats import MAX_LINE_CHARS, fault, lines_of
from autogemm.store import Copy, RunCopy, TrialCopy
from autogemm.support.errors import ExchangeError

Row = dict[str, Any]

_PROBLEM = ("m", "n", "k", "layout", "dtype", "lda", "ldb", "ldc", "alpha", "beta")
_RUN = (
    *("family_sha256", "sampler", "seed", "l2", "fill", "objective", "max_error"),
    *("provenance", "state", "stopped_by", "command"),
)
_ENVIRONMENT = tuple(EnvironmentForm.model_fields)
_TRIAL = ("number", "status", "reason", "family", "config", "kernel_sha256")
_COST = ("compile_seconds", "measure_seconds", "finished_at")
_MEASURED = ("samples_us", "method", "launches_per_sample", "energy_mj", "throttled_samples")
_ERRORS = ("max_abs_error", "max_error_ratio", "relative_frobenius")
_TELEMETRY = tuple(TelemetryForm.model_fields)
_RESOURCES = (
    *("registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes"),
    "static_smem_bytes",
)

COLUMNS: tuple[str, ...] = (
    *("run_id", *_TRIAL[:3], "gpu", "size", *_PROBLEM, "provenance", *_TRIAL[3:]),
    *("time_us", "tflops", *_MEASURED, *_ERRORS, *_RESOURCES, *_TELEMETRY, *_COST, *_ENVIRONMENT),
    *("families", "fix", *(name for name in _RUN if name != "provenance")),
    *("started_at", "run_finished_at", "device_facts", "resources"),
    *("measured_l2", "measured_provenance"),
)
# What is there for people, and follows from the rest.
_FOLLOWS = frozenset({"size", "time_us", "tflops", *_RESOURCES})
_NEEDED = tuple(name for name in COLUMNS if name not in _FOLLOWS)
_OF_RUN = (
    *("run_id", "gpu", *_PROBLEM, *_RUN, *_ENVIRONMENT, "families", "fix"),
    *("started_at", "run_finished_at", "device_facts"),
)
_AS_JSON = frozenset({"config", "samples_us", "fix", "families", "device_facts", "resources"})
_TEXTS = frozenset({"reason", "kernel_sha256", "command", "family_sha256", "sampler", "max_error"})

# What the first line of every such file begins with.
MARK = ",".join(COLUMNS[:6]).encode()


def table_rows(copies: Iterable[Copy]) -> Iterator[Row]:
    """A row for each trial, with the columns COLUMNS. Raises ExchangeError for what has no place.

    Values are those of Python; an error may be infinite.
    """
    of_run: Row = {}
    tflops_of = 0.0
    for copy in copies:
        try:
            if isinstance(copy, RunCopy):
                form = form_of(copy)
                assert isinstance(form, RunForm)
                of_run = _run_cells(form) | {"size": copy.spec.problem.size_label}
                tflops_of = copy.spec.problem.flops * 1e-6
            elif isinstance(copy, TrialCopy):
                form = form_of(copy)
                assert isinstance(form, TrialForm)
                time_us = copy.outcome.time_us
                tflops = tflops_of / time_us if time_us else None
                yield of_run | _trial_cells(form) | {"time_us": time_us, "tflops": tflops}
        except ValueError as error:
            raise ExchangeError(f"a row cannot be written: {fault(error)}") from error


def _run_cells(form: RunForm) -> Row:
    problem = form.model_dump(include={"problem"})["problem"]
    return {
        "run_id": form.run,
        "gpu": form.device.name,
        "device_facts": form.device.facts,
        **problem,
        **form.environment.model_dump(),
        **{name: getattr(form, name) for name in (*_RUN, "families", "fix", "started_at")},
        "run_finished_at": form.finished_at,
    }


def _trial_cells(form: TrialForm) -> Row:
    measured, errors = form.measurement, form.verification
    used = form.resources[0].model_dump(exclude={"kernel"}) if form.resources else {}
    return {
        **{name: getattr(form, name) for name in (*_TRIAL, *_COST)},
        **used,
        "resources": [one.model_dump() for one in form.resources],
        **{name: getattr(measured, name, None) for name in _MEASURED},
        **{name: getattr(errors, name, None) for name in _ERRORS},
        **(measured.telemetry.model_dump() if measured is not None else {}),
        "measured_l2": measured.l2 if measured is not None else None,
        "measured_provenance": measured.provenance if measured is not None else None,
    }


def csv_pieces(copies: Iterable[Copy]) -> Iterator[str]:
    """The table as CSV, the first line with the names of the columns."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in table_rows(copies):
        writer.writerow({name: _cell(value) for name, value in row.items()})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def json_pieces(copies: Iterable[Copy]) -> Iterator[str]:
    """The table as a JSON list of objects. An infinite error becomes null: JSON has none."""
    yield "["
    comma = ""
    for row in table_rows(copies):
        plain = {name: _plain(row.get(name)) for name in COLUMNS}
        yield f"{comma}\n  {json.dumps(plain)}"
        comma = ","
    yield "\n]\n" if comma else "]\n"


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return value.isoformat() if isinstance(value, datetime) else _word(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, datetime) else _word(value)


def _word(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def read_csv(path: Path) -> Iterator[Copy]:
    """What is in the file, row by row; columns may have any order, and others beside them.

    Raises ExchangeError naming the line and its fault.
    """
    csv.field_size_limit(MAX_LINE_CHARS)
    # Excel begins a file with a mark, which is no part of the first name.
    lines = (line.removeprefix("\ufeff") + "\n" for _, line in lines_of(path))
    reader = csv.reader(lines, strict=True)
    runs: dict[str, tuple[str, ...]] = {}
    header: Sequence[str] = ()
    try:
        header = _header(next(reader, []))
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise ValueError(f"{len(cells)} cells, the header has {len(header)}")
            row = dict(zip(header, cells, strict=True))
            of_run = tuple(row[name] for name in _OF_RUN)
            if row["run_id"] not in runs:
                yield copy_of(RunForm.model_validate(_run_fields(row), strict=False))
            elif runs[row["run_id"]] != of_run:
                raise ValueError(f"run {row['run_id']!r:.20} is another one than in earlier rows")
            runs[row["run_id"]] = of_run
            yield copy_of(TrialForm.model_validate(_trial_fields(row), strict=False))
    except (ValueError, RecursionError, csv.Error) as error:
        raise ExchangeError(f"{path}, line {reader.line_num}: {fault(error)}") from error


def _header(names: Sequence[str]) -> Sequence[str]:
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise ValueError(f"the first line names the columns; {missing[0]!r} is not among them")
    if len(set(names)) < len(names):
        raise ValueError("the first line names a column twice")
    return names


def _run_fields(row: Mapping[str, str]) -> Row:
    fields = {name: _value(name, row[name]) for name in (*_RUN, "families", "fix", "started_at")}
    return fields | {
        "run": row["run_id"],
        "problem": {name: _number(row[name]) for name in _PROBLEM},
        "device": {"name": row["gpu"], "facts": _value("device_facts", row["device_facts"])},
        "environment": {name: row[name] for name in _ENVIRONMENT},
        "finished_at": _value("run_finished_at", row["run_finished_at"]),
    }


def _trial_fields(row: Mapping[str, str]) -> Row:
    fields = {name: _value(name, row[name]) for name in (*_TRIAL, *_COST, "resources")}
    errors = {name: _value(name, row[name]) for name in _ERRORS}
    measured = {name: _value(name, row[name]) for name in _MEASURED}
    measured["telemetry"] = {name: _value(name, row[name]) for name in _TELEMETRY}
    measured |= {"l2": row["measured_l2"], "provenance": row["measured_provenance"]}
    return fields | {
        "run": row["run_id"],
        "verification": errors if errors["max_error_ratio"] is not None else None,
        "measurement": measured if measured["samples_us"] is not None else None,
    }


def _value(name: str, cell: str) -> Any:
    """Of a cell; nothing for an empty one, but where a text may be empty."""
    if not cell and name not in _TEXTS:
        return None
    return json.loads(cell) if name in _AS_JSON else cell


def _number(cell: str) -> Any:
    """Sizes and scalars as numbers; layout and element type stay words."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell

"""Trials as a table, one a row, with the run that each belongs to: CSV, and JSON for scripts.

A table holds all that is known of a trial but its kernel's source; finals and certificates have no
place in it.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from autogemm.exchange.csv_columns import RunCells, csv_cell, csv_line, csv_texts
from autogemm.exchange.jsonl.columns import is_plain
from autogemm.exchange.jsonl.lines import fields_of, value_of_fields
from autogemm.formats import MAX_LINE_CHARS, fault, lines_of
from autogemm.model.results.columns import (
    ENVIRONMENT,
    ERRORS,
    FORMER,
    OUTCOME,
    PROBLEM,
    RESOURCES,
    SPEED,
    TELEMETRY,
    Paths,
    Row,
    nested,
    row_of,
    under,
)
from autogemm.store import Copy, RunCopy, RunsOrTrials, TrialColumns, TrialCopy
from autogemm.support.errors import ExchangeError

_RUN: Paths = {
    "run_id": "run_id",
    "gpu": "spec.device.name",
    **under("spec.problem", PROBLEM),
    **under("spec.environment", ENVIRONMENT),
    **under("spec", ("families", "fix", "family_sha256", "sampler", "seed", "l2", "fill")),
    **under("spec", ("objective", "max_error", "provenance", "command")),
    **under("", ("state", "stopped_by", "started_at")),
    "run_finished_at": "finished_at",
    "device_facts": "spec.device",
}
_TRIAL: Paths = {
    "run_id": "run_id",
    "number": "number",
    **{name: f"outcome.{path}" for name, path in OUTCOME.items() if name != "time_us"},
    "config": "outcome.config.values",
    "resources": "outcome.resources",
    "measured_l2": "outcome.measurement.l2",
    "measured_provenance": "outcome.measurement.provenance",
    "finished_at": "finished_at",
}

COLUMNS: tuple[str, ...] = (
    *("run_id", "number", "status", "reason", "gpu", "size", *PROBLEM, "provenance"),
    *("family", "config", "kernel_sha256", *SPEED, "samples_us", "method"),
    *("launches_per_sample", "energy_mj", "throttled_samples", *ERRORS, *RESOURCES, *TELEMETRY),
    *("compile_seconds", "measure_seconds", "finished_at", *ENVIRONMENT, "families", "fix"),
    *("family_sha256", "sampler", "seed", "l2", "fill", "objective", "max_error", "state"),
    *("stopped_by", "command", "started_at", "run_finished_at", "device_facts", "resources"),
    *("measured_l2", "measured_provenance", "gpu_number", "pace"),
)
# Columns for human readers, which follow from the others.
_FOLLOWS = frozenset({"size", *SPEED, *RESOURCES})
_AS_JSON = frozenset({"config", "samples_us", "fix", "families", "device_facts", "resources"})
_TEXTS = frozenset({"reason", "kernel_sha256", "command", "family_sha256", "sampler", "max_error"})
_TEXTS |= frozenset((*ENVIRONMENT, "epilogue", "batch", "groups"))
# Columns that tables of before do not have.
_LATER = {"epilogue": "", "batch": "", "groups": "", "gpu_number": "", "pace": "1.0"}
_NEEDED = tuple(name for name in COLUMNS if name not in _FOLLOWS | _LATER.keys())

# The first line of every such file begins with this.
MARK = ",".join(COLUMNS[:6]).encode()


def _run_row(copy: RunCopy) -> Row:
    """The cells of a run, and ``flops``."""
    run = row_of(fields_of(copy), _RUN)
    problem = copy.spec.problem
    # The name is a column of its own.
    facts = {"device_facts": copy.spec.device.limits(), "size": problem.size_label}
    return {**run, **facts, "flops": problem.flops}


def _trial_row(copy: TrialCopy, run: Row) -> Row:
    """The cells of a trial and its run."""
    trial = row_of(fields_of(copy), _TRIAL)
    used = trial["resources"][0] if trial["resources"] else {}
    time_us = copy.outcome.time_us
    tflops = run["flops"] * 1e-6 / time_us if time_us else None
    speed = {"time_us": time_us, "tflops": tflops}
    return {**run, **trial, **{name: used.get(name) for name in RESOURCES}, **speed}


@contextmanager
def _fault_in_one_line() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ExchangeError(f"a row cannot be written: {fault(error)}") from error


def csv_pieces(found: Iterable[RunsOrTrials]) -> Iterator[str]:
    """The table as CSV, the first line with the names of the columns.

    A row for each trial, with the columns COLUMNS. Raises ExchangeError for what has no place.
    """
    rows: dict[int, Row] = {}
    cells: dict[int, RunCells] = {}
    yield ",".join(COLUMNS) + "\n"
    for one in found:
        if not isinstance(one, TrialColumns):
            rows = _run_rows(one)
            cells = {run_id: _run_cells(row) for run_id, row in rows.items()}
        elif is_plain(one):
            yield from csv_texts(one, cells, COLUMNS)
        else:
            yield "".join(map(_csv_row, _trial_rows(one, rows)))


def json_pieces(found: Iterable[RunsOrTrials]) -> Iterator[str]:
    """The table as a JSON list of objects. An infinite error becomes null: JSON has none."""
    rows: dict[int, Row] = {}
    comma = ""
    yield "["
    for one in found:
        if not isinstance(one, TrialColumns):
            rows = _run_rows(one)
            continue
        for row in _trial_rows(one, rows):
            plain = {name: _plain(row.get(name)) for name in COLUMNS}
            yield f"{comma}\n  {json.dumps(plain)}"
            comma = ","
    yield "\n]\n" if comma else "]\n"


def _run_rows(runs: Iterable[RunCopy]) -> dict[int, Row]:
    """The rows of runs by number. Raises ExchangeError for what has no place."""
    with _fault_in_one_line():
        return {run.run_id: _run_row(run) for run in runs}


def _trial_rows(batch: TrialColumns, runs: Mapping[int, Row]) -> Iterator[Row]:
    for copy in batch.copies():
        with _fault_in_one_line():
            row = _trial_row(copy, runs[copy.run_id])
        yield row


def _run_cells(run: Row) -> RunCells:
    return RunCells({name: csv_cell(_cell(value)) for name, value in run.items()}, run["flops"])


def _csv_row(row: Row) -> str:
    return csv_line(_cell(row.get(name)) for name in COLUMNS)


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value)
    return _word(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _word(value)


def _word(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value


def read_csv(path: Path) -> Iterator[Copy]:
    """The values in the file, row by row; columns may have any order, and others beside them.

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
            row = _LATER | dict(zip(header, cells, strict=True))
            of_run = tuple(row[name] for name in _RUN)
            if row["run_id"] not in runs:
                yield _copy(_run_fields(row))
            elif runs[row["run_id"]] != of_run:
                raise ValueError(f"run {row['run_id']!r:.20} is another one than in earlier rows")
            runs[row["run_id"]] = of_run
            yield _copy(_trial_fields(row))
    except (ValueError, RecursionError, csv.Error) as error:
        raise ExchangeError(f"{path}, line {reader.line_num}: {fault(error)}") from error


def _header(header: Sequence[str]) -> Sequence[str]:
    names = [FORMER.get(name, name) for name in header]
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise ValueError(f"the first line names the columns; {missing[0]!r} is not among them")
    if len(set(names)) < len(names):
        raise ValueError("the first line names a column twice")
    return names


def _copy(fields: Row) -> Copy:
    copy = value_of_fields(fields)
    assert isinstance(copy, Copy)
    return copy


def _run_fields(row: Mapping[str, str]) -> Row:
    cells = {name: _value(name, row[name]) for name in _RUN}
    facts = cells["device_facts"]
    if not isinstance(facts, dict):
        raise ValueError("device_facts: must be an object")
    place = {name: path for name, path in _RUN.items() if name not in ("gpu", "device_facts")}
    run = nested(cells, place)
    run["spec"]["device"] = {**facts, "name": row["gpu"]}
    return {"record": "run", **run}


def _trial_fields(row: Mapping[str, str]) -> Row:
    trial = nested({name: _value(name, row[name]) for name in _TRIAL}, _TRIAL)
    outcome = trial["outcome"]
    if outcome["verification"]["max_error_ratio"] is None:
        outcome["verification"] = None
    if outcome["measurement"]["samples_us"] is None:
        outcome["measurement"] = None
    return {"record": "trial", **trial}


def _value(name: str, cell: str) -> Any:
    """The value of a cell; None for an empty one, but where a text may be empty."""
    if not cell and name not in _TEXTS:
        return None
    return json.loads(cell) if name in _AS_JSON else cell

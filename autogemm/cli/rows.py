"""Values of the store as flat rows: the same names in tables, JSON and CSV.

Names and places of cells are those of `autogemm.model.results.columns`.
"""

import json
import math
import textwrap
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from autogemm.catalogue.winners import Winner
from autogemm.cli.output import Form, print_rows
from autogemm.cli.prose import say
from autogemm.cli.table import print_table
from autogemm.model.config import Config, label, shared_values
from autogemm.model.hardware.device import short_gpu_name
from autogemm.model.problem import Problem
from autogemm.model.results.columns import (
    ENVIRONMENT,
    ERRORS,
    OUTCOME,
    PLACE,
    RATIO,
    RESOURCES,
    SPEED,
    SUSTAINED,
    TELEMETRY,
    Paths,
    row_of,
    under,
)
from autogemm.model.results.columns import PROBLEM as PROBLEM_FIELDS
from autogemm.model.results.outcome import Finals, FinalsEntry, Provenance
from autogemm.model.results.stored import StoredKernel
from autogemm.model.splitting import splitting_of
from autogemm.store import ResultRow, RunLine, RunRow, Store, TrialRow, open_store

FlatRow = dict[str, Any]
# Types of most cells, which JSON has.
_PLAIN = frozenset({str, int, bool, type(None)})
Columns = tuple[str, ...]

# For people: `problem` also names what is not the default, such as beta=1.
SHORT_PLACE: Columns = ("gpu", "problem", "provenance")
# Layout and dtype are shown with the place.
PROBLEM: Columns = tuple(name for name in PROBLEM_FIELDS if name not in PLACE)
_WHERE: Paths = {**PLACE, "problem": "problem.label", **under("problem", PROBLEM)}
_ENVIRONMENT = under("environment", ENVIRONMENT)

BEST_TABLE: Columns = (
    *(*SHORT_PLACE, *SPEED, *RATIO, "ratio_of_medians", "against_baseline", "baseline"),
    *("sustained_ratio", "energy_mj", "baseline_energy_mj"),
    *("family", "kernel_id", "run_id", "measured_at"),
)
# Without --wide.
BEST_SHORT: Columns = ("gpu", "problem", "provenance", "time_us", "ratio", "against_baseline")
BEST: Columns = (
    *(*PLACE, *PROBLEM, "l2", "fill", *SPEED, *RATIO, "ratio_of_medians", "against_baseline"),
    *("baseline", "energy_mj", "baseline_energy_mj", *SUSTAINED),
    *("family", "config", "kernel_id", "run_id", "measured_at"),
)

WINNER: Columns = (
    *(*PLACE, *PROBLEM, "l2", *SPEED, *RATIO, "baseline", "baseline_us", "text", "family"),
    *("config", "kernel_sha256", "driver", "compiler", "cublas", "rounds", "max_error", "error"),
    *("baseline_error", "date", "commit", "source", "command"),
)
WINNER_TABLE: Columns = (
    *(*SHORT_PLACE, *SPEED, *RATIO, "baseline", "text", "family", "date", "commit", "source"),
)
WINNER_SHORT: Columns = ("gpu", "problem", "provenance", "time_us", "ratio", "text", "family")

RUN_TABLE: Columns = (
    *("run_id", "state", *SHORT_PLACE, "families", "sampler", "num_trials", "num_ok"),
    *(*SPEED, "ratio", "started_at"),
)
RUN_SHORT: Columns = ("run_id", "state", *SHORT_PLACE, "ratio")
RUN: Columns = (
    *("run_id", "state", "stopped_by", *PLACE, *PROBLEM, "l2", "fill", "objective", "max_error"),
    *("families", "family_sha256", "fix", "sampler", "seed", "num_trials", "num_ok"),
    *(*SPEED, *RATIO, "started_at", "finished_at", "command", *ENVIRONMENT),
)

TRIAL_TABLE: Columns = (
    *("trial_id", "run_id", "number", "status", "problem", "provenance", *SPEED, "kernel_id"),
    *("config", "reason"),
)
TRIAL_SHORT: Columns = ("trial_id", "status", "provenance", "time_us", "config", "reason")
KERNEL_TRIAL_TABLE: Columns = (
    *("trial_id", "run_id", "status", *SHORT_PLACE, *SPEED, "max_error_ratio", "finished_at"),
    "reason",
)
KERNEL_TRIAL_SHORT: Columns = ("run_id", "status", "problem", "provenance", "time_us", "reason")
TRIAL: Columns = (
    *("trial_id", "run_id", "number", "status", "reason", *PLACE, *PROBLEM, "l2", "family"),
    *("config", "kernel_id", "kernel_sha256", *SPEED, "samples_us", "method"),
    *("launches_per_sample", "energy_mj", *ERRORS, *RESOURCES, *TELEMETRY, "throttled_samples"),
    *("compile_seconds", "measure_seconds", "gpu_number", "pace", "finished_at", *ENVIRONMENT),
)

ENTRY: Columns = (
    *(
        "place",
        "name",
        *SPEED,
        *RATIO,
        "ratio_of_medians",
        "tied",
        "spread",
        "registers",
        "energy_mj",
        *ERRORS,
    ),
    *("family", "config", "kernel_sha256"),
)

# A contestant is named by its config; the baseline has only its name.
ENTRY_TABLE: Columns = (
    *(
        "place",
        "config",
        *SPEED,
        *RATIO,
        "ratio_of_medians",
        "tied",
        "spread",
        "registers",
        "energy_mj",
        "family",
    ),
    "kernel_sha256",
)

ENTRY_SHORT: Columns = ("place", "config", "time_us", *RATIO)

KERNEL: Columns = (
    *("kernel_id", "kernel_sha256", "template_sha256", "family", "config", "arithmetic"),
    *(*PLACE, *PROBLEM, "l2", *SPEED, *RATIO, *ERRORS, *RESOURCES, "run_id", "measured_at"),
    *ENVIRONMENT,
    *("certificate", "certified_at", "checks"),
)

_BEST: Paths = {
    **_WHERE,
    **under("", BEST[BEST.index("l2") :]),
    **under("sustained", SUSTAINED),
}
_SPEC: Paths = {
    **_WHERE,
    **_ENVIRONMENT,
    **under("", ("l2", "fill", "objective", "max_error", "family_sha256", "sampler", "seed")),
    "command": "command",
}
_RUN: Paths = {
    **under("spec", _SPEC),
    **under("", ("run_id", "state", "stopped_by", "num_trials", "num_ok", "time_us")),
    **under("", ("started_at", "finished_at")),
}
_TRIAL: Paths = {
    **_WHERE,
    **_ENVIRONMENT,
    **under("", ("trial_id", "run_id", "number", "kernel_id", "l2", "finished_at")),
    **under("outcome", OUTCOME),
}
_KERNEL: Paths = {
    **_WHERE,
    **_ENVIRONMENT,
    **under("verification", ERRORS),
    **under("source", ("template_sha256", "family", "config")),
    **under("", ("kernel_id", "run_id", "l2", "time_us", *RATIO, "measured_at")),
    "kernel_sha256": "source.sha256",
    "certificate": "certificate.verdict",
    "certified_at": "certificate.made_at",
}
_ENTRY: Paths = {
    **under("", ("name", "time_us", "ratio", "tied", "config", "kernel_sha256", "registers")),
    "energy_mj": "energy_mj",
    "family": "config.family",
    **under("verification", ERRORS),
}


def best_row(row: ResultRow) -> FlatRow:
    """Return the columns BEST."""
    return row_of(row, _BEST)


def winner_row(winner: Winner) -> FlatRow:
    """Return the columns WINNER."""
    kernel = winner.kernels[0]
    return {
        **row_of(winner, {name: name for name in WINNER if hasattr(winner, name)}),
        **row_of(winner, under("problem", PROBLEM)),
        "gpu": winner.gpu,
        "size": winner.problem.size_label,
        "layout": winner.problem.layout,
        "dtype": winner.problem.dtype.label,
        "problem": winner.problem.label,
        "provenance": Provenance.RECORDED,
        **row_of(kernel, under("", ("time_us", *RATIO))),
        **_tflops(winner.problem, kernel.time_us),
        "family": kernel.config.family,
    }


def run_row(row: RunRow | RunLine) -> FlatRow:
    """Return the columns RUN."""
    if isinstance(row, RunLine):
        ratios = {name: getattr(row, name) for name in RATIO}
    else:
        ratios = ratio_cells(row.finals.winner) if row.finals is not None else {}
    return {
        **row_of(row, _RUN),
        **_tflops(row.spec.problem, row.time_us),
        **ratios,
        "families": " ".join(row.spec.families),
        "fix": {name: list(values) for name, values in row.spec.fix},
    }


def trial_row(row: TrialRow) -> FlatRow:
    """Return the columns TRIAL."""
    outcome = row.outcome
    cells = {**row_of(row, _TRIAL), **_tflops(row.problem, outcome.time_us)}
    if outcome.resources:
        # The first kernel of a source is the GEMM; the others sum or split.
        cells |= row_of(outcome.resources[0], under("", RESOURCES))
    return cells


def finals_rows(finals: Finals, problem: Problem) -> list[FlatRow]:
    """Return rows with the columns ENTRY, the baseline last."""
    entries = (finals.baseline, *finals.entries)
    rows = [
        {"place": place, **entry_row(entry, finals, problem)} for place, entry in enumerate(entries)
    ]
    return [*rows[1:], rows[0]]


def entry_row(entry: FinalsEntry, finals: Finals, problem: Problem) -> FlatRow:
    """Return the columns ENTRY but the place."""
    return {
        **row_of(entry, _ENTRY),
        **_tflops(problem, entry.time_us),
        **ratio_cells(entry),
        "ratio_of_medians": finals.ratio_of_medians(entry),
        "spread": finals.spread_of(entry),
    }


def ratio_cells(entry: FinalsEntry) -> FlatRow:
    """Return the columns RATIO; without an interval where there is none."""
    return dict(zip(RATIO, (entry.ratio, *(entry.interval or (None, None))), strict=True))


def kernel_row(kernel: StoredKernel) -> FlatRow:
    """Return the columns KERNEL; ``arithmetic`` says which products an FP32 result is made of."""
    splitting, certificate = splitting_of(kernel.source.config), kernel.certificate
    return {
        **row_of(kernel, _KERNEL),
        **_tflops(kernel.problem, kernel.time_us),
        "arithmetic": splitting.words if splitting is not None else None,
        "checks": [check.line for check in certificate.checks] if certificate else None,
    }


def latest_resources(trials: list[FlatRow]) -> FlatRow:
    """Return the resources of the newest of these trials that compiled."""
    newest = next((trial for trial in trials if "registers" in trial), {})
    return {name: newest.get(name) for name in RESOURCES}


def for_people(row: FlatRow) -> FlatRow:
    """Return short dates, configs as ``BM=128 BN=128``, the beginning of every sha256."""
    readable = {name: _for_people(value) for name, value in row.items()}
    for name, value in row.items():
        if name.endswith("_sha256") and value:
            readable[name] = value[:12]
    return readable


def for_table(row: FlatRow) -> FlatRow:
    """Return the row as for_people, with the GPU's short name, and with a reason (perhaps a
    compiler's log) shortened to a line.
    """
    readable = for_people(row)
    if row.get("gpu"):
        readable["gpu"] = short_gpu_name(row["gpu"])
    if "reason" in row:
        readable["reason"] = textwrap.shorten(row["reason"], 100, placeholder=" ...")
    return readable


def for_json(row: FlatRow) -> FlatRow:
    """Return plain JSON types; an infinite error becomes null, as JSON has no infinity."""
    return {
        name: value if type(value) in _PLAIN else _for_json(value) for name, value in row.items()
    }


def for_csv(row: FlatRow) -> FlatRow:
    """Return one text or number a cell: configs and lists as JSON text."""
    return {
        name: json.dumps(plain) if isinstance(plain, dict | list) else plain
        for name, plain in for_json(row).items()
    }


def _for_people(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone().strftime("%Y-%m-%d %H:%M")
        case Config():
            return value.label
        case [str(), *_]:
            return "\n".join(map(str, value))
        case dict():
            return " ".join(f"{name}={','.join(map(str, kept))}" for name, kept in value.items())
        case Enum():
            return value.value
    return value


def _for_json(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat(timespec="seconds")
        case Config():
            return value.as_dict()
        case Enum():
            return value.value
        case float() if not math.isfinite(value):
            return None
        case list() | tuple():
            return [_for_json(item) for item in value]
    return value


def _tflops(problem: Problem, time_us: float | None) -> FlatRow:
    return {"tflops": None if time_us is None else problem.tflops(time_us)}


def open_database(url: str | None) -> Store:
    """Open the database of ``--db``. Raises NotFoundError if it is not there."""
    return open_store(url, create=False)


def print_rows_as(
    rows: Sequence[FlatRow],
    columns: Columns,
    table: Columns,
    form: Form,
    *,
    short: Columns = (),
) -> None:
    """Print the rows as a table of the columns ``table``, or as JSON or CSV of ``columns``.

    ``short`` names the columns of the table without ``--wide``; empty means all.
    """
    if form is not Form.TABLE:
        shape = for_csv if form is Form.CSV else for_json
        print_rows([shape(row) for row in rows], columns, form)
    elif rows:
        print_readable(rows, table, short=short)


def print_readable(
    rows: Sequence[FlatRow], columns: Columns, title: str | None = None, *, short: Columns = ()
) -> None:
    """Print a table for people; values that all configs share are printed once, below it."""
    configs = [row["config"] for row in rows if row.get("config") is not None]
    shared = shared_values(configs) if "config" in columns else {}
    shown = [for_table(row) for row in rows]
    for row, readable in zip(rows, shown, strict=True):
        if row.get("config") is None:
            # cuBLAS has a name, and no config.
            readable["config"] = row.get("name")
        elif shared:
            own = label(pair for pair in row["config"] if pair[0] not in shared)
            readable["config"] = own or "(the same)"
    print_table(shown, columns, title, short=short)
    if shared:
        say(f"all of them: {label(shared.items())}")

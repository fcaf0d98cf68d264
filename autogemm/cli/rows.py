"""What the store returns, as flat rows: the same names in tables, JSON and CSV."""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import asdict
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from autogemm.model.config import Config
from autogemm.model.splitting import splitting_of

if TYPE_CHECKING:
    from autogemm.model.certificate import Certificate
    from autogemm.model.hardware.device import Device
    from autogemm.model.outcome import (
        Environment,
        Finals,
        FinalsEntry,
        Outcome,
        Provenance,
        Verification,
    )
    from autogemm.model.problem import Problem
    from autogemm.model.stored_kernel import StoredKernel
    from autogemm.store import ResultRow, RunRow, TrialRow

FlatRow = dict[str, Any]
Columns = tuple[str, ...]

PLACE: Columns = ("gpu", "size", "layout", "dtype", "provenance")
# The same for people: `problem` also names what is not the default, such as beta=1.
SHORT_PLACE: Columns = ("gpu", "problem", "provenance")
PROBLEM: Columns = ("m", "n", "k", "lda", "ldb", "ldc", "alpha", "beta")
SPEED: Columns = ("time_us", "tflops")
RATIO: Columns = ("ratio_to_cublas", "ratio_low", "ratio_high")
ERRORS: Columns = ("max_abs_error", "max_error_ratio", "relative_frobenius")
RESOURCES: Columns = (
    *("registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes"),
    "static_smem_bytes",
)
TELEMETRY: Columns = (
    *("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"),
    "throttle_reasons",
)
ENVIRONMENT: Columns = (
    "driver",
    "cuda_runtime",
    "compiler",
    "cublas",
    "cupy",
    "python",
    "autogemm",
)

BEST_TABLE: Columns = (*SHORT_PLACE, *SPEED, *RATIO, "family", "kernel_id", "run_id", "measured_at")
BEST: Columns = (
    *(*PLACE, *PROBLEM, "l2", "fill", *SPEED, *RATIO, "family", "config", "kernel_id", "run_id"),
    "measured_at",
)

RUN_TABLE: Columns = (
    *("run_id", "state", *SHORT_PLACE, "family", "sampler", "num_trials", "num_ok"),
    *("time_us", "tflops", "ratio_to_cublas", "started_at"),
)
RUN: Columns = (
    *("run_id", "state", "stopped_by", *PLACE, *PROBLEM, "l2", "fill", "objective", "max_error"),
    *("family", "family_sha256", "fix", "sampler", "seed", "num_trials", "num_ok", *SPEED, *RATIO),
    *("started_at", "finished_at", "command"),
    *ENVIRONMENT,
)

TRIAL_TABLE: Columns = (
    *("trial_id", "run_id", "number", "status", "problem", "provenance", *SPEED, "kernel_id"),
    *("config", "reason"),
)
KERNEL_TRIAL_TABLE: Columns = (
    *(
        "trial_id",
        "run_id",
        "status",
        *SHORT_PLACE,
        *SPEED,
        "max_error_ratio",
        "finished_at",
        "reason",
    ),
)
TRIAL: Columns = (
    *("trial_id", "run_id", "number", "status", "reason", *PLACE, *PROBLEM, "l2", "family"),
    *("config", "kernel_id", "kernel_sha256", *SPEED, "samples_us", "method"),
    *("launches_per_sample", "energy_mj", *ERRORS, *RESOURCES, *TELEMETRY, "throttled_samples"),
    "compile_seconds",
    *("measure_seconds", "finished_at", *ENVIRONMENT),
)

ENTRY: Columns = (
    *("place", "name", *SPEED, *RATIO, "tied", "spread", "registers", "energy_mj", "family"),
    *("config", "kernel_sha256"),
)

# A contestant's name is its config; the baseline has no other.
ENTRY_TABLE: Columns = (
    *("place", "config", *SPEED, *RATIO, "tied", "spread", "registers", "energy_mj", "family"),
    "kernel_sha256",
)

KERNEL: Columns = (
    *("kernel_id", "source_sha256", "template_sha256", "family", "config", "arithmetic"),
    *(*PLACE, *PROBLEM, "l2", *SPEED, *RATIO, *ERRORS, *RESOURCES, "run_id", "measured_at"),
    *ENVIRONMENT,
    *("certificate", "certified_at", "checks"),
)


def best_row(row: ResultRow) -> FlatRow:
    """Columns BEST."""
    return {
        **_place(row.device, row.problem, row.provenance),
        **_speed(row.problem, row.time_us),
        **_ratio(row.ratio, row.ratio_low, row.ratio_high),
        **{
            name: getattr(row, name)
            for name in ("l2", "fill", "family", "config", "kernel_id", "run_id")
        },
        "measured_at": row.measured_at,
    }


def run_row(row: RunRow) -> FlatRow:
    """Columns RUN."""
    spec = row.spec
    winner = row.finals.winner if row.finals else None
    return {
        **_place(spec.device, spec.problem, spec.provenance),
        **_speed(spec.problem, row.best_us),
        **(_ratio(winner.ratio, *(winner.interval or (None, None))) if winner else {}),
        **asdict(spec.environment),
        **{
            name: getattr(spec, name)
            for name in ("l2", "fill", "objective", "max_error", "family_sha256", "sampler")
        },
        "family": " ".join(spec.families),
        "stopped_by": row.stopped_by,
        **{name: getattr(row, name) for name in ("run_id", "state", "num_trials", "num_ok")},
        "fix": {name: list(values) for name, values in spec.fix},
        "seed": spec.seed,
        "command": spec.command,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
    }


def trial_row(row: TrialRow) -> FlatRow:
    """Columns TRIAL."""
    outcome = row.outcome
    return {
        **_place(row.device, row.problem, row.provenance),
        **_speed(row.problem, outcome.time_us),
        **_errors(outcome.verification),
        **_resources(outcome),
        **_measurement(outcome),
        **asdict(row.environment),
        **{name: getattr(row, name) for name in ("trial_id", "run_id", "number", "kernel_id")},
        **{name: getattr(outcome, name) for name in ("status", "reason", "config")},
        "family": outcome.config.family,
        "l2": row.l2,
        "kernel_sha256": outcome.kernel_sha256,
        "compile_seconds": outcome.compile_seconds,
        "measure_seconds": outcome.measure_seconds,
        "finished_at": row.finished_at,
    }


def finals_rows(finals: Finals, problem: Problem) -> list[FlatRow]:
    """Columns ENTRY, the baseline last."""
    everybody = (finals.baseline, *finals.entries)
    rows = [
        {**_entry_row(entry, place, problem), "spread": finals.spread_of(entry)}
        for place, entry in enumerate(everybody)
    ]
    return [*rows[1:], rows[0]]


def kernel_row(kernel: StoredKernel) -> FlatRow:
    """Columns KERNEL; ``arithmetic`` of those that make FP32 of other products."""
    source = kernel.source
    splitting = splitting_of(source.config)
    return {
        "arithmetic": splitting.words if splitting is not None else None,
        **_place(kernel.device, kernel.problem, kernel.provenance),
        **_speed(kernel.problem, kernel.time_us),
        **_ratio(kernel.ratio, kernel.ratio_low, kernel.ratio_high),
        **_errors(kernel.verification),
        **asdict(kernel.environment),
        **{name: getattr(kernel, name) for name in ("kernel_id", "run_id", "l2", "measured_at")},
        **{name: getattr(source, name) for name in ("template_sha256", "family", "config")},
        "source_sha256": source.sha256,
        **_certificate(kernel.certificate),
    }


def environment_row(environment: Environment) -> FlatRow:
    """Columns ENVIRONMENT."""
    return asdict(environment)


def _certificate(certificate: Certificate | None) -> FlatRow:
    if certificate is None:
        return {}
    return {
        "certificate": certificate.verdict,
        "certified_at": certificate.made_at,
        "checks": [check.line for check in certificate.checks],
    }


def latest_resources(trials: list[FlatRow]) -> FlatRow:
    """What the newest compiled one of these trials uses."""
    compiled = (trial for trial in trials if "registers" in trial)
    newest = next(compiled, {})
    return {name: newest.get(name) for name in RESOURCES}


def for_people(row: FlatRow) -> FlatRow:
    """Short dates, configs as ``BM=128 BN=128``, as much of a kernel's sha256 as finds it."""
    readable = {name: _for_people(value) for name, value in row.items()}
    if "kernel_sha256" in row:
        readable["kernel_sha256"] = row["kernel_sha256"][:12]
    return readable


def for_table(row: FlatRow) -> FlatRow:
    """As for_people, with a reason (perhaps a compiler's log) cut to one line."""
    readable = for_people(row)
    if "reason" in row:
        readable["reason"] = textwrap.shorten(row["reason"], 100, placeholder=" ...")
    return readable


def for_json(row: FlatRow) -> FlatRow:
    """Plain JSON types; an infinite error becomes null, which is all that JSON has for it."""
    return {name: _for_json(value) for name, value in row.items()}


def for_csv(row: FlatRow) -> FlatRow:
    """One text or number a cell: configs and lists as JSON text."""
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
        case list():
            return [_for_json(item) for item in value]
    return value


def _place(device: Device, problem: Problem, provenance: Provenance) -> FlatRow:
    return {
        "gpu": device.name,
        "problem": problem.label,
        "size": problem.size_label,
        "layout": problem.layout,
        "dtype": problem.dtype.label,
        "provenance": provenance,
        **{name: getattr(problem, name) for name in PROBLEM},
    }


def _speed(problem: Problem, time_us: float | None) -> FlatRow:
    return {"time_us": time_us, "tflops": None if time_us is None else problem.tflops(time_us)}


def _ratio(ratio: float | None, low: float | None, high: float | None) -> FlatRow:
    return dict(zip(RATIO, (ratio, low, high), strict=True))


def _errors(verification: Verification | None) -> FlatRow:
    return asdict(verification) if verification else {}


def _resources(outcome: Outcome) -> FlatRow:
    # Of a source with several kernels the first is the GEMM; the others sum or split.
    return asdict(outcome.resources[0]) if outcome.resources else {}


def _measurement(outcome: Outcome) -> FlatRow:
    measurement = outcome.measurement
    if measurement is None:
        return {}
    return {
        "samples_us": list(measurement.samples_us),
        "method": measurement.method,
        "launches_per_sample": measurement.launches_per_sample,
        "energy_mj": measurement.energy_mj,
        "throttled_samples": measurement.throttled_samples,
        **asdict(measurement.telemetry),
    }


def _entry_row(entry: FinalsEntry, place: int, problem: Problem) -> FlatRow:
    return {
        "place": place,
        **_speed(problem, entry.median_us),
        **_ratio(entry.ratio, *(entry.interval or (None, None))),
        **{name: getattr(entry, name) for name in ("name", "tied", "config", "kernel_sha256")},
        **{name: getattr(entry, name) for name in ("registers", "energy_mj")},
        "family": entry.config.family if entry.config is not None else None,
    }

"""Values to table rows and back. Nothing here touches a database.

What cannot be turned back (an unknown word, a missing fact) raises ValueError, TypeError or
KeyError: the database was damaged or edited by hand.
"""

import json
import math
from dataclasses import asdict
from typing import Any

from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource, Resources
from autogemm.model.outcome import (
    CacheState,
    Environment,
    Fill,
    Finals,
    FinalsEntry,
    Measurement,
    Objective,
    Outcome,
    Provenance,
    Status,
    Telemetry,
    Verification,
)
from autogemm.model.problem import Layout, Problem
from autogemm.store.tables.models import (
    DeviceRecord,
    EnvironmentRecord,
    FinalsEntryRecord,
    FinalsRecord,
    KernelRecord,
    MeasurementRecord,
    ProblemRecord,
    ResourcesRecord,
    RunRecord,
    TelemetryColumns,
    TrialRecord,
    VerificationColumns,
)
from autogemm.store.tables.records import RunSpec, TrialRow

Columns = dict[str, Any]


def problem_columns(problem: Problem) -> Columns:
    """All columns of ``problems``, its natural key."""
    return asdict(problem) | {"layout": problem.layout.value, "dtype": problem.dtype.label}


def problem_of(record: ProblemRecord) -> Problem:
    """The problem of a row."""
    return Problem(
        record.m,
        record.n,
        record.k,
        layout=Layout(record.layout),
        dtype=DType.parse(record.dtype),
        lda=record.lda,
        ldb=record.ldb,
        ldc=record.ldc,
        alpha=record.alpha,
        beta=record.beta,
    )


def device_key(device: Device) -> Columns:
    """What makes two cards the same model; memory and clocks differ a little between drivers."""
    return {"name": device.name, "arch": device.arch, "num_sms": device.num_sms}


def device_of(record: DeviceRecord) -> Device:
    """The device of a row."""
    return Device(**record.facts)


def environment_columns(environment: Environment) -> Columns:
    """All columns of ``environments``, its natural key."""
    return asdict(environment)


def environment_of(record: EnvironmentRecord) -> Environment:
    """The environment of a row."""
    names = Environment.__dataclass_fields__
    return Environment(**{name: getattr(record, name) for name in names})


def kernel_columns(source: KernelSource) -> Columns:
    """What a row of ``kernels`` holds besides its key, the sha256 of the text."""
    return {
        "template_sha256": source.template_sha256,
        "family": source.family,
        "layout": source.layout.value,
        "config": source.config.as_dict(),
        "source": source.text,
    }


def kernel_of(record: KernelRecord) -> KernelSource:
    """The source of a row. Raises ValueError if the text is not the one that was stored."""
    source = KernelSource(
        family=record.family,
        template_sha256=record.template_sha256,
        config=Config.of(record.family, record.config),
        layout=Layout(record.layout),
        text=record.source,
    )
    if source.sha256 != record.source_sha256:
        raise ValueError(f"the source of kernel {record.id} is not the one that was stored")
    return source


def fix_text(spec: RunSpec) -> str:
    """``fix`` as canonical JSON: one text for one narrowing, whatever the order of its names."""
    narrowed = {name: list(values) for name, values in spec.fix}
    return json.dumps(narrowed, sort_keys=True, separators=(",", ":"))


# What `spec_columns` gives.
SPEC_COLUMNS = (
    *("family", "family_sha256", "fix", "sampler", "seed", "l2", "objective", "fill"),
    *("max_error", "provenance"),
)


def spec_columns(spec: RunSpec) -> Columns:
    """The columns of ``runs`` that make two runs the same run, but for the foreign keys."""
    return {
        "family": " ".join(spec.families),
        "family_sha256": spec.family_sha256,
        "fix": fix_text(spec),
        "sampler": spec.sampler,
        "seed": spec.seed,
        "l2": spec.l2.value,
        "objective": spec.objective.value,
        "fill": spec.fill.value,
        "max_error": spec.max_error,
        "provenance": spec.provenance.value,
    }


def spec_of(record: RunRecord) -> RunSpec:
    """What the run of a row was asked for."""
    fix: dict[str, list[Value]] = json.loads(record.fix)
    return RunSpec(
        problem=problem_of(record.problem),
        device=device_of(record.device),
        environment=environment_of(record.environment),
        families=tuple(record.family.split()),
        family_sha256=record.family_sha256,
        fix=tuple((name, tuple(values)) for name, values in fix.items()),
        sampler=record.sampler,
        seed=record.seed,
        provenance=Provenance(record.provenance),
        command=record.command,
        l2=CacheState(record.l2),
        objective=Objective(record.objective),
        fill=Fill(record.fill),
        max_error=record.max_error,
    )


def verification_columns(verification: Verification | None) -> Columns:
    """The three errors. One that is not a number becomes infinite: SQL has no NaN."""
    if verification is None:
        return {}
    return {
        name: math.inf if error is not None and math.isnan(error) else error
        for name, error in asdict(verification).items()
    }


def verification_of(record: VerificationColumns) -> Verification | None:
    """The errors of a row, None if nothing was compared."""
    if record.max_error_ratio is None or record.relative_frobenius is None:
        return None
    return Verification(record.max_abs_error, record.max_error_ratio, record.relative_frobenius)


def telemetry_of(record: TelemetryColumns) -> Telemetry:
    """The telemetry of a row."""
    return Telemetry(
        sm_clock_mhz=record.sm_clock_mhz,
        memory_clock_mhz=record.memory_clock_mhz,
        power_w=record.power_w,
        temperature_c=record.temperature_c,
        throttle_reasons=record.throttle_reasons,
    )


def finite_samples(samples_us: tuple[float, ...]) -> list[float]:
    """The samples as JSON can hold them. Raises ValueError for a time that is none."""
    if not all(math.isfinite(sample) for sample in samples_us):
        raise ValueError(f"a time must be a finite number of microseconds, got {samples_us}")
    return list(samples_us)


def trial_columns(outcome: Outcome) -> Columns:
    """The columns of ``run_trials`` that an outcome fills."""
    return {
        "status": outcome.status.value,
        "reason": outcome.reason,
        "family": outcome.config.family,
        "config": outcome.config.as_dict(),
        "time_us": outcome.time_us,
        "compile_seconds": outcome.compile_seconds,
        "measure_seconds": outcome.measure_seconds,
        **verification_columns(outcome.verification),
    }


def resources_records(resources: tuple[Resources, ...]) -> list[ResourcesRecord]:
    """One row for each kernel of the source, in order."""
    return [ResourcesRecord(position=i, **asdict(used)) for i, used in enumerate(resources)]


def measurement_record(measurement: Measurement) -> MeasurementRecord:
    """The row of a measurement."""
    return MeasurementRecord(
        median_us=measurement.median_us,
        samples_us=finite_samples(measurement.samples_us),
        method=measurement.method,
        launches_per_sample=measurement.launches_per_sample,
        l2=measurement.l2.value,
        provenance=measurement.provenance.value,
        energy_mj=measurement.energy_mj,
        throttled_samples=measurement.throttled_samples,
        **asdict(measurement.telemetry),
    )


def measurement_of(record: MeasurementRecord) -> Measurement:
    """The measurement of a row."""
    return Measurement(
        samples_us=tuple(record.samples_us),
        provenance=Provenance(record.provenance),
        method=record.method,
        launches_per_sample=record.launches_per_sample,
        l2=CacheState(record.l2),
        energy_mj=record.energy_mj,
        telemetry=telemetry_of(record),
        throttled_samples=record.throttled_samples,
    )


def outcome_of(record: TrialRecord) -> Outcome:
    """The outcome of a trial's row."""
    resources = tuple(
        Resources(**{name: getattr(used, name) for name in Resources.__dataclass_fields__})
        for used in record.resources
    )
    return Outcome(
        config=Config.of(record.family, record.config),
        status=Status(record.status),
        reason=record.reason,
        kernel_sha256=record.kernel.source_sha256 if record.kernel else "",
        resources=resources,
        verification=verification_of(record),
        measurement=measurement_of(record.measurement) if record.measurement else None,
        compile_seconds=record.compile_seconds,
        measure_seconds=record.measure_seconds,
    )


def trial_row_of(record: TrialRecord) -> TrialRow:
    """A trial with its run's circumstances."""
    return TrialRow(
        trial_id=record.id,
        run_id=record.run_id,
        number=record.number,
        outcome=outcome_of(record),
        kernel_id=record.kernel_id,
        problem=problem_of(record.run.problem),
        device=device_of(record.run.device),
        environment=environment_of(record.run.environment),
        provenance=Provenance(record.run.provenance),
        l2=CacheState(record.run.l2),
        finished_at=record.finished_at,
    )


def entry_record(entry: FinalsEntry, place: int, kernel_id: int | None) -> FinalsEntryRecord:
    """The row of one contestant; ``place`` 0 is the baseline."""
    return FinalsEntryRecord(
        place=place,
        name=entry.name,
        kernel_id=kernel_id,
        family=entry.config.family if entry.config else None,
        config=entry.config.as_dict() if entry.config else None,
        registers=entry.registers,
        median_us=entry.median_us,
        samples_us=finite_samples(entry.samples_us),
        energy_mj=entry.energy_mj,
        samples_mj=list(entry.samples_mj) or None,
        ratio=_number_or_null(entry.ratio),
        ratio_low=_number_or_null(entry.ratio_low),
        ratio_high=_number_or_null(entry.ratio_high),
        tied=entry.tied,
        **verification_columns(entry.verification),
    )


def finals_of(record: FinalsRecord) -> Finals:
    """The finals of a row. Raises ValueError if they have no baseline or no contestant."""
    entries = [_entry_of(entry) for entry in record.entries]
    if len(entries) < 2 or record.entries[0].place != 0:
        raise ValueError(f"finals {record.id} have no baseline or no contestant")
    return Finals(
        entries=tuple(entries[1:]),
        baseline=entries[0],
        rounds=record.rounds,
        provenance=Provenance(record.provenance),
        telemetry=telemetry_of(record),
        method=record.method,
        launches_per_sample=record.launches_per_sample,
        throttled_rounds=record.throttled_rounds,
    )


def _entry_of(record: FinalsEntryRecord) -> FinalsEntry:
    return FinalsEntry(
        name=record.name,
        config=None if record.config is None else Config.of(record.family or "", record.config),
        kernel_sha256=record.kernel.source_sha256 if record.kernel else "",
        samples_us=tuple(record.samples_us),
        ratio=_number_or_nan(record.ratio),
        ratio_low=_number_or_nan(record.ratio_low),
        ratio_high=_number_or_nan(record.ratio_high),
        tied=record.tied,
        verification=verification_of(record),
        registers=record.registers,
        samples_mj=tuple(record.samples_mj or ()),
    )


def _number_or_null(ratio: float) -> float | None:
    return None if math.isnan(ratio) else ratio


def _number_or_nan(ratio: float | None) -> float:
    return math.nan if ratio is None else ratio

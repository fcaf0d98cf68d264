"""Values of the program to lines of a results file, and back."""

import math
from dataclasses import asdict
from functools import singledispatch
from typing import Any

from autogemm.certificate import Certificate, Check
from autogemm.config import Config
from autogemm.device import Device
from autogemm.exchange.forms import (
    CertificateForm,
    CheckForm,
    CopyForm,
    DeviceForm,
    EntryForm,
    EnvironmentForm,
    FinalsForm,
    KernelForm,
    MeasurementForm,
    ResourcesForm,
    RunForm,
    TelemetryForm,
    TrialForm,
    VerificationForm,
)
from autogemm.kernel import KernelSource, Resources
from autogemm.outcome import (
    Environment,
    Finals,
    FinalsEntry,
    Measurement,
    Outcome,
    Telemetry,
    Verification,
)
from autogemm.store import (
    CertificateCopy,
    Copy,
    FinalsCopy,
    KernelCopy,
    RunCopy,
    RunSpec,
    TrialCopy,
)


def form_of(copy: Copy) -> CopyForm:
    """The line that a value becomes. Raises ValueError for what no line may hold."""
    match copy:
        case RunCopy():
            return _run_form(copy)
        case KernelCopy():
            return _kernel_form(copy)
        case TrialCopy():
            return _trial_form(copy)
        case FinalsCopy():
            return _finals_form(copy)
        case CertificateCopy():
            return _certificate_form(copy)


@singledispatch
def copy_of(form: CopyForm) -> Copy:
    """The value that a line stands for.

    Raises ValueError for facts that are no device's, a source that is not the one that was written,
    and a contestant that is half a baseline.
    """
    raise TypeError(f"{type(form).__name__} stands for no value")


def _fields(value: object, names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names.split()}


_SPEC = "problem family_sha256 sampler seed l2 objective fill max_error provenance command"


def _run_form(copy: RunCopy) -> RunForm:
    spec = copy.spec
    assert copy.started_at is not None, "what comes out of a database has begun"
    return RunForm(
        run=copy.key,
        device=DeviceForm(name=spec.device.name, facts=spec.device.limits()),
        environment=EnvironmentForm(**asdict(spec.environment)),
        families=list(spec.families),
        fix={name: list(values) for name, values in spec.fix},
        **_fields(spec, _SPEC),
        **_fields(copy, "state stopped_by started_at finished_at"),
    )


@copy_of.register
def _run(form: RunForm) -> RunCopy:
    spec = RunSpec(
        device=device_of(form.device),
        environment=Environment(**form.environment.model_dump()),
        families=tuple(form.families),
        fix=tuple((name, tuple(values)) for name, values in form.fix.items()),
        **_fields(form, _SPEC),
    )
    return RunCopy(form.run, spec, **_fields(form, "state stopped_by started_at finished_at"))


def device_of(form: DeviceForm) -> Device:
    """Raises ValueError for facts that are not those of a device."""
    try:
        return Device(name=form.name, **form.facts)
    except TypeError:
        missing = sorted(Device.__dataclass_fields__.keys() - form.facts.keys() - {"name"})
        odd = sorted(form.facts.keys() - Device.__dataclass_fields__.keys())
        what = f"lack {missing[0]!r}" if missing else f"hold {odd[0]!r}"
        raise ValueError(f"the facts of the device {what}") from None


def _kernel_form(copy: KernelCopy) -> KernelForm:
    source = copy.source
    return KernelForm(
        **_fields(source, "sha256 family layout template_sha256"),
        config=source.config.as_dict(),
        source=source.text,
        created_at=copy.created_at,
    )


@copy_of.register
def _kernel(form: KernelForm) -> KernelCopy:
    config = Config.of(form.family, form.config)
    source = KernelSource(form.family, form.template_sha256, config, form.layout, form.source)
    if source.sha256 != form.sha256:
        raise ValueError(f"the source is not the one whose sha256 is {form.sha256}")
    return KernelCopy(source, form.created_at)


def _trial_form(copy: TrialCopy) -> TrialForm:
    outcome = copy.outcome
    measured = outcome.measurement
    return TrialForm(
        run=copy.run_key,
        number=copy.number,
        family=outcome.config.family,
        config=outcome.config.as_dict(),
        **_fields(outcome, "status reason kernel_sha256 compile_seconds measure_seconds"),
        verification=_verification_form(outcome.verification),
        measurement=_measurement_form(measured) if measured else None,
        resources=[ResourcesForm(**asdict(used)) for used in outcome.resources],
        finished_at=copy.finished_at,
    )


@copy_of.register
def _trial(form: TrialForm) -> TrialCopy:
    outcome = Outcome(
        config=Config.of(form.family, form.config),
        **_fields(form, "status reason kernel_sha256 compile_seconds measure_seconds"),
        resources=tuple(Resources(**used.model_dump()) for used in form.resources),
        verification=_verification(form.verification),
        measurement=_measurement(form.measurement) if form.measurement else None,
    )
    return TrialCopy(form.run, form.number, outcome, form.finished_at)


_MEASURED = "provenance method launches_per_sample l2 energy_mj throttled_samples"


def _measurement_form(measured: Measurement) -> MeasurementForm:
    return MeasurementForm(
        samples_us=list(measured.samples_us),
        telemetry=TelemetryForm(**asdict(measured.telemetry)),
        **_fields(measured, _MEASURED),
    )


def _measurement(form: MeasurementForm) -> Measurement:
    return Measurement(
        samples_us=tuple(form.samples_us),
        telemetry=Telemetry(**form.telemetry.model_dump()),
        **_fields(form, _MEASURED),
    )


def _verification_form(errors: Verification | None) -> VerificationForm | None:
    return VerificationForm(**asdict(errors)) if errors is not None else None


def _verification(form: VerificationForm | None) -> Verification | None:
    return Verification(**form.model_dump()) if form is not None else None


_FINALS = "rounds method launches_per_sample provenance throttled_rounds"


def _finals_form(copy: FinalsCopy) -> FinalsForm:
    finals = copy.finals
    return FinalsForm(
        run=copy.run_key,
        **_fields(finals, _FINALS),
        telemetry=TelemetryForm(**asdict(finals.telemetry)),
        measured_at=copy.measured_at,
        entries=[_entry_form(entry) for entry in (finals.baseline, *finals.entries)],
    )


@copy_of.register
def _finals(form: FinalsForm) -> FinalsCopy:
    baseline, *entries = map(_entry, form.entries)
    telemetry = Telemetry(**form.telemetry.model_dump())
    finals = Finals(tuple(entries), baseline, telemetry=telemetry, **_fields(form, _FINALS))
    return FinalsCopy(form.run, finals, form.measured_at)


def _entry_form(entry: FinalsEntry) -> EntryForm:
    config = entry.config
    return EntryForm(
        **_fields(entry, "name kernel_sha256 tied registers"),
        family=config.family if config is not None else None,
        config=config.as_dict() if config is not None else None,
        samples_us=list(entry.samples_us),
        samples_mj=list(entry.samples_mj),
        ratios=[None if math.isnan(ratio) else ratio for ratio in _ratios(entry)],
        verification=_verification_form(entry.verification),
    )


def _ratios(entry: FinalsEntry) -> tuple[float, float, float]:
    return (entry.ratio, entry.ratio_low, entry.ratio_high)


def _entry(form: EntryForm) -> FinalsEntry:
    if (form.family is None) is not (form.config is None):
        raise ValueError("a contestant has a family and a config, the baseline neither")
    ratio, ratio_low, ratio_high = (math.nan if one is None else one for one in form.ratios)
    return FinalsEntry(
        **_fields(form, "name kernel_sha256 tied registers"),
        config=None if form.config is None else Config.of(form.family or "", form.config),
        samples_us=tuple(form.samples_us),
        samples_mj=tuple(form.samples_mj),
        ratio=ratio,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        verification=_verification(form.verification),
    )


def _certificate_form(copy: CertificateCopy) -> CertificateForm:
    return CertificateForm(
        run=copy.run_key,
        kernel_sha256=copy.kernel_sha256,
        made_at=copy.certificate.made_at,
        checks=[CheckForm(**asdict(check)) for check in copy.certificate.checks],
    )


@copy_of.register
def _certificate(form: CertificateForm) -> CertificateCopy:
    checks = tuple(Check(**check.model_dump()) for check in form.checks)
    return CertificateCopy(form.run, form.kernel_sha256, Certificate(checks, form.made_at))

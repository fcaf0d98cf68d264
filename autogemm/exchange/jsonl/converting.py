"""Values of the program to lines of a results file, and back."""

import math
from dataclasses import asdict
from functools import singledispatch

from autogemm.exchange.jsonl.bench_converting import (
    bench_copy,
    bench_form,
    ceilings_copy,
    ceilings_form,
    profile_copy,
    profile_form,
)
from autogemm.exchange.jsonl.forms import (
    CertificateForm,
    CheckForm,
    CopyForm,
    EntryForm,
    FinalsForm,
    KernelForm,
    MeasurementForm,
    ResourcesForm,
    RunForm,
    TrialForm,
)
from autogemm.exchange.jsonl.parts import (
    config_cells,
    config_of,
    fields_of,
    telemetry_form,
    telemetry_of,
    verification_form,
    verification_of,
    where_form,
    where_of,
)
from autogemm.model.certificate import Certificate, Check
from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource, Resources
from autogemm.model.outcome import Finals, FinalsEntry, Measurement, Outcome
from autogemm.store import (
    CertificateCopy,
    Copy,
    FinalsCopy,
    KernelCopy,
    RunCopy,
    RunSpec,
    TrialCopy,
)


@singledispatch
def form_of(copy: Copy) -> CopyForm:
    """The line that a value becomes. Raises ValueError for what no line may hold."""
    raise TypeError(f"{type(copy).__name__} becomes no line")


@singledispatch
def copy_of(form: CopyForm) -> Copy:
    """The value that a line stands for.

    Raises ValueError for facts that are no device's, a source that is not the one that was written,
    and a contestant that is half a baseline.
    """
    raise TypeError(f"{type(form).__name__} stands for no value")


for _converter in (bench_form, profile_form, ceilings_form):
    form_of.register(_converter)
for _reader in (bench_copy, profile_copy, ceilings_copy):
    copy_of.register(_reader)


_SPEC = "problem family_sha256 sampler seed l2 objective fill max_error provenance command"


@form_of.register
def _run_form(copy: RunCopy) -> RunForm:
    spec = copy.spec
    assert copy.started_at is not None, "what comes out of a database has begun"
    return RunForm(
        run=copy.key,
        **where_form(spec.device, spec.environment),
        families=list(spec.families),
        fix={name: list(values) for name, values in spec.fix},
        **fields_of(spec, _SPEC),
        **fields_of(copy, "state stopped_by started_at finished_at"),
    )


@copy_of.register
def _run(form: RunForm) -> RunCopy:
    spec = RunSpec(
        **where_of(form.device, form.environment),
        families=tuple(form.families),
        fix=tuple((name, tuple(values)) for name, values in form.fix.items()),
        **fields_of(form, _SPEC),
    )
    return RunCopy(form.run, spec, **fields_of(form, "state stopped_by started_at finished_at"))


@form_of.register
def _kernel_form(copy: KernelCopy) -> KernelForm:
    source = copy.source
    return KernelForm(
        **fields_of(source, "sha256 family layout template_sha256"),
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


@form_of.register
def _trial_form(copy: TrialCopy) -> TrialForm:
    outcome = copy.outcome
    measured = outcome.measurement
    return TrialForm(
        run=copy.run_key,
        number=copy.number,
        family=outcome.config.family,
        config=outcome.config.as_dict(),
        **fields_of(outcome, "status reason kernel_sha256 compile_seconds measure_seconds"),
        verification=verification_form(outcome.verification),
        measurement=_measurement_form(measured) if measured else None,
        resources=[ResourcesForm(**asdict(used)) for used in outcome.resources],
        finished_at=copy.finished_at,
    )


@copy_of.register
def _trial(form: TrialForm) -> TrialCopy:
    outcome = Outcome(
        config=Config.of(form.family, form.config),
        **fields_of(form, "status reason kernel_sha256 compile_seconds measure_seconds"),
        resources=tuple(Resources(**used.model_dump()) for used in form.resources),
        verification=verification_of(form.verification),
        measurement=_measurement(form.measurement) if form.measurement else None,
    )
    return TrialCopy(form.run, form.number, outcome, form.finished_at)


_MEASURED = "provenance method launches_per_sample l2 energy_mj throttled_samples"


def _measurement_form(measured: Measurement) -> MeasurementForm:
    return MeasurementForm(
        samples_us=list(measured.samples_us),
        telemetry=telemetry_form(measured.telemetry),
        **fields_of(measured, _MEASURED),
    )


def _measurement(form: MeasurementForm) -> Measurement:
    return Measurement(
        samples_us=tuple(form.samples_us),
        telemetry=telemetry_of(form.telemetry),
        **fields_of(form, _MEASURED),
    )


_FINALS = "rounds method launches_per_sample provenance throttled_rounds"


@form_of.register
def _finals_form(copy: FinalsCopy) -> FinalsForm:
    finals = copy.finals
    return FinalsForm(
        run=copy.run_key,
        **fields_of(finals, _FINALS),
        telemetry=telemetry_form(finals.telemetry),
        measured_at=copy.measured_at,
        entries=[_entry_form(entry) for entry in (finals.baseline, *finals.entries)],
    )


@copy_of.register
def _finals(form: FinalsForm) -> FinalsCopy:
    baseline, *entries = map(_entry, form.entries)
    telemetry = telemetry_of(form.telemetry)
    finals = Finals(tuple(entries), baseline, telemetry=telemetry, **fields_of(form, _FINALS))
    return FinalsCopy(form.run, finals, form.measured_at)


def _entry_form(entry: FinalsEntry) -> EntryForm:
    return EntryForm(
        **fields_of(entry, "name kernel_sha256 tied registers"),
        **config_cells(entry.config),
        samples_us=list(entry.samples_us),
        samples_mj=list(entry.samples_mj),
        ratios=[None if math.isnan(ratio) else ratio for ratio in _ratios(entry)],
        verification=verification_form(entry.verification),
    )


def _ratios(entry: FinalsEntry) -> tuple[float, float, float]:
    return (entry.ratio, entry.ratio_low, entry.ratio_high)


def _entry(form: EntryForm) -> FinalsEntry:
    ratio, ratio_low, ratio_high = (math.nan if one is None else one for one in form.ratios)
    return FinalsEntry(
        **fields_of(form, "name kernel_sha256 tied registers"),
        config=config_of(form.family, form.config),
        samples_us=tuple(form.samples_us),
        samples_mj=tuple(form.samples_mj),
        ratio=ratio,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        verification=verification_of(form.verification),
    )


@form_of.register
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

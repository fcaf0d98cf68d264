"""The lines of a results file: which fields there are, what type each has, what it may hold.

One line is one JSON object, and its ``record`` says which. The fields are those of the values that
they stand for; units are in the names.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from autogemm.exchange.jsonl.bench_forms import BenchForm, CeilingsForm, ProfileForm
from autogemm.exchange.jsonl.fields import (
    MAX_SAMPLES,
    AnySha256,
    Count,
    DeviceForm,
    EnvironmentForm,
    Form,
    Line,
    Long,
    LongText,
    Moment,
    Name,
    ParameterValue,
    Ratio,
    Samples,
    Seconds,
    Sha256,
    Source,
    TelemetryForm,
    Values,
    VerificationForm,
    Word,
    one_line,
)
from autogemm.formats import ProblemField
from autogemm.model.certificate import Verdict
from autogemm.model.outcome import CacheState, Fill, Objective, Provenance, Status, StopRule
from autogemm.model.problem import Layout
from autogemm.store import RunState

FORMAT: Literal["autogemm-results"] = "autogemm-results"
SCHEMA_VERSION: Literal[1] = 1


class FileForm(Form):
    """The first line."""

    record: Literal["file"] = "file"
    format: Literal["autogemm-results"] = FORMAT
    schema_version: Literal[1] = SCHEMA_VERSION
    autogemm: Line


class EndForm(Form):
    """The last line, without which a file was cut short. ``records`` counts those before it."""

    record: Literal["end"] = "end"
    records: Annotated[int, Field(ge=0)]


class RunForm(Form):
    """A run: what was asked for, where, and how far it got. ``run`` is its number in the file."""

    record: Literal["run"] = "run"
    run: Count
    problem: ProblemField
    device: DeviceForm
    environment: EnvironmentForm
    families: Annotated[list[Word], Field(min_length=1, max_length=64)]
    family_sha256: Line
    fix: Annotated[
        dict[Name, Annotated[list[ParameterValue], Field(max_length=10_000)]], Field(max_length=64)
    ]
    sampler: Line
    seed: Long
    l2: CacheState
    objective: Objective
    fill: Fill
    max_error: Line = ""
    provenance: Provenance
    state: RunState
    stopped_by: StopRule | None
    command: LongText
    started_at: Moment
    finished_at: Moment | None


class KernelForm(Form):
    """A source, byte for byte. It stands before the first line that names it."""

    record: Literal["kernel"] = "kernel"
    sha256: Sha256
    family: Word
    layout: Layout
    config: Values
    template_sha256: Line
    created_at: Moment
    source: Source


class MeasurementForm(Form):
    """The times of one kernel."""

    samples_us: Samples
    provenance: Provenance
    method: Line
    launches_per_sample: Annotated[Count, Field(ge=1)]
    l2: CacheState
    energy_mj: Seconds | None
    throttled_samples: Count
    telemetry: TelemetryForm


class ResourcesForm(Form):
    """What one kernel of a source uses."""

    kernel: Line
    registers: Count
    spill_store_bytes: Count
    spill_load_bytes: Count
    stack_bytes: Count
    static_smem_bytes: Count


class TrialForm(Form):
    """The end of one candidate. ``kernel_sha256`` is empty where no source was made."""

    record: Literal["trial"] = "trial"
    run: Count
    number: Count
    status: Status
    reason: LongText
    family: Word
    config: Values
    kernel_sha256: AnySha256
    compile_seconds: Seconds
    measure_seconds: Seconds
    verification: VerificationForm | None
    measurement: MeasurementForm | None
    resources: Annotated[list[ResourcesForm], Field(max_length=64)]
    finished_at: Moment


class EntryForm(Form):
    """A contestant of finals; the first of them is the baseline, without a config. The name of the
    others is the whole config.
    """

    name: Annotated[LongText, AfterValidator(one_line)]
    family: Word | None
    config: Values | None
    kernel_sha256: AnySha256
    samples_us: Samples
    ratios: Annotated[list[Ratio], Field(min_length=3, max_length=3)]
    """Of the baseline's time over its own, with the ends of the interval."""
    tied: bool
    verification: VerificationForm | None
    registers: Count | None
    samples_mj: Annotated[list[Seconds], Field(max_length=MAX_SAMPLES)]


class FinalsForm(Form):
    """Interleaved re-timing of a run's best kernels and the baseline."""

    record: Literal["finals"] = "finals"
    run: Count
    rounds: Count
    method: Line
    launches_per_sample: Annotated[Count, Field(ge=1)]
    provenance: Provenance
    throttled_rounds: Count
    telemetry: TelemetryForm
    measured_at: Moment
    entries: Annotated[list[EntryForm], Field(min_length=2, max_length=1000)]


class CheckForm(Form):
    """One check of a certificate."""

    name: Line
    verdict: Verdict
    what: LongText
    tool: Line
    seconds: Seconds


class CertificateForm(Form):
    """What was checked of a kernel."""

    record: Literal["certificate"] = "certificate"
    run: Count
    kernel_sha256: Sha256
    made_at: Moment
    checks: Annotated[list[CheckForm], Field(max_length=1000)]


CopyForm = (
    RunForm
    | KernelForm
    | TrialForm
    | FinalsForm
    | CertificateForm
    | BenchForm
    | ProfileForm
    | CeilingsForm
)
AnyForm = Annotated[FileForm | CopyForm | EndForm, Field(discriminator="record")]

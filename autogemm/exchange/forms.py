"""The lines of a results file: which fields there are, what type each has, what it may hold.

One line is one JSON object, and its ``record`` says which. The fields are those of the values that
they stand for; units are in the names.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from autogemm.certificate import Verdict
from autogemm.outcome import CacheState, Fill, Objective, Provenance, Status, StopRule
from autogemm.problem import Layout
from autogemm.store import RunState
from autogemm.targets.recorded.format import ProblemField, TimeUs

FORMAT: Literal["autogemm-results"] = "autogemm-results"
SCHEMA_VERSION: Literal[1] = 1

MAX_SAMPLES = 100_000
MAX_SOURCE_CHARS = 2 * 2**20


def _one_line(text: str) -> str:
    if not (text.isprintable() or text == ""):
        raise ValueError("must be one printable line")
    return text


def _without_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a zero character")
    return text


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a date needs its offset from UTC")
    if not 1970 < moment.year < 2200:
        raise ValueError("a date is of the years 1971 to 2199")
    return moment.astimezone(UTC)


def _word(text: str) -> str:
    if text != "".join(text.split()):
        raise ValueError("must be one word")
    return text


Line = Annotated[str, StringConstraints(max_length=200), AfterValidator(_one_line)]
Word = Annotated[Line, StringConstraints(min_length=1), AfterValidator(_word)]
LongText = Annotated[str, StringConstraints(max_length=2**16), AfterValidator(_without_zero)]
Source = Annotated[
    str, StringConstraints(max_length=MAX_SOURCE_CHARS), AfterValidator(_without_zero)
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
AnySha256 = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
Moment = Annotated[datetime, AfterValidator(_in_utc)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Long = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Samples = Annotated[list[TimeUs], Field(min_length=1, max_length=MAX_SAMPLES)]
# JSON has no infinity: an error that is none is written as a text.
Error = Annotated[float, Field(ge=0, strict=False)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,59}$")]
ParameterValue = Annotated[int, Field(ge=-(2**62), le=2**62)] | Annotated[Line, Field(min_length=1)]
Values = Annotated[dict[Name, ParameterValue], Field(max_length=64)]


class Form(BaseModel):
    """Nothing unknown is let through, and nothing is taken for something else."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        ser_json_inf_nan="strings",
    )


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


class DeviceForm(Form):
    """The facts of a GPU by name."""

    name: Annotated[Line, Field(min_length=1)]
    facts: Annotated[dict[Name, Annotated[int, Field(ge=0, le=2**53)]], Field(max_length=64)]


class EnvironmentForm(Form):
    """Versions; empty for a part that was not in play."""

    driver: Line = ""
    cuda_runtime: Line = ""
    compiler: Line = ""
    cublas: Line = ""
    cupy: Line = ""
    python: Line = ""
    autogemm: Line = ""


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


class VerificationForm(Form):
    """Largest errors against the reference."""

    max_abs_error: Error
    max_error_ratio: Error
    relative_frobenius: Error


class TelemetryForm(Form):
    """Sampled beside the timings."""

    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    power_w: Seconds | None = None
    temperature_c: Annotated[int, Field(ge=-300, le=2**31 - 1)] | None = None
    throttle_reasons: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None


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

    name: Annotated[LongText, AfterValidator(_one_line)]
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


CopyForm = RunForm | KernelForm | TrialForm | FinalsForm | CertificateForm
AnyForm = Annotated[FileForm | CopyForm | EndForm, Field(discriminator="record")]

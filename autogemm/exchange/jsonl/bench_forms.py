"""The lines of a results file that are of no run: benchmarks, profiles, ceilings."""

from typing import Annotated, Literal

from pydantic import Field

from autogemm.exchange.jsonl.fields import (
    MAX_SAMPLES,
    Amount,
    AnySha256,
    Count,
    DeviceForm,
    EnvironmentForm,
    Form,
    Line,
    Long,
    LongText,
    Moment,
    Ratio,
    Sha256,
    TelemetryForm,
    Values,
    VerificationForm,
    Word,
)
from autogemm.formats import ProblemField, TimeUs
from autogemm.model.benchmark import KernelKind
from autogemm.model.outcome import CacheState, Fill, Provenance, Status


class BenchEntryForm(Form):
    """One kernel on one problem; ``samples_us`` is empty for one that was not timed."""

    kernel: Line
    kind: KernelKind
    problem: ProblemField
    status: Status
    reason: LongText
    family: Word | None
    config: Values | None
    kernel_sha256: AnySha256
    library: Line
    samples_us: Annotated[list[TimeUs], Field(max_length=MAX_SAMPLES)]
    method: Line
    launches_per_sample: Annotated[Count, Field(ge=1)]
    ratio: Ratio
    ratio_low: Ratio
    ratio_high: Ratio
    registers: Count | None
    verification: VerificationForm | None
    telemetry: TelemetryForm


class BenchForm(Form):
    """One call of ``autogemm bench``, with all that it timed."""

    record: Literal["bench"] = "bench"
    device: DeviceForm
    environment: EnvironmentForm
    provenance: Provenance
    command: LongText
    preset: Line
    seed: Long
    l2: CacheState
    fill: Fill
    started_at: Moment
    finished_at: Moment | None
    entries: Annotated[list[BenchEntryForm], Field(max_length=10_000)]


class ProfileForm(Form):
    """Counters of one kernel on one problem, by the profiler's names."""

    record: Literal["profile"] = "profile"
    kernel: Line
    family: Word
    config: Values
    kernel_sha256: Sha256
    problem: ProblemField
    device: DeviceForm
    environment: EnvironmentForm
    profiler: Line
    counters: Annotated[
        dict[Line, Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=10_000)
    ]
    made_at: Moment


class CeilingsForm(Form):
    """What small kernels reached on a card."""

    record: Literal["ceilings"] = "ceilings"
    device: DeviceForm
    environment: EnvironmentForm
    fma_tflops: Amount
    copy_gb_s: Amount
    sm_clock_mhz: Count | None
    measured_at: Moment
    l2_gb_s: Amount | None = None
    smem_gb_s: Amount | None = None

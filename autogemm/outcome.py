"""What became of a candidate, and how its times were taken."""

import statistics
from dataclasses import dataclass
from enum import StrEnum

from autogemm.config import Config
from autogemm.kernel import Resources


class Status(StrEnum):
    """How a candidate ended. Everything but OK carries a reason."""

    OK = "ok"
    REJECTED = "rejected"
    COMPILE_FAILED = "compile_failed"
    COMPILE_TIMEOUT = "compile_timeout"
    LAUNCH_FAILED = "launch_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    WRONG_RESULT = "wrong_result"
    TOO_SLOW = "too_slow"


class Provenance(StrEnum):
    """Where a time comes from. A recorded time is never shown as measured on this machine."""

    MEASURED = "measured"
    RECORDED = "recorded"


class CacheState(StrEnum):
    """State of the L2 cache before each timed launch."""

    WARM = "warm"
    """As the launch before left it, on the same matrices."""
    COLD = "cold"
    """Flushed."""
    ROTATE = "rotate"
    """As launches on other copies of the inputs left it: full, and of nothing that is needed."""


class Fill(StrEnum):
    """What the matrices hold while kernels are timed: power, and so clocks, depend on it."""

    UNIFORM = "uniform"
    """Reals on [-1, 1)."""
    NORMAL = "normal"
    """Reals of mean 0 and standard deviation 1."""
    INTEGERS = "integers"
    """-3 to 3 without 0."""
    ZEROS = "zeros"
    """Faster than any real data: only for comparing with others who time zeros."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Sampled beside the timings; None where the driver does not tell."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """What besides the GPU decides a time. Empty text where a part is not in play."""

    driver: str = ""
    cuda_runtime: str = ""
    compiler: str = ""
    cublas: str = ""
    cupy: str = ""
    python: str = ""
    autogemm: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of one kernel. Each sample is microseconds for one GEMM.

    ``method`` says how: ``events`` around single launches, or ``graph`` (a CUDA graph of
    ``launches_per_sample`` launches between two events, divided by their number).
    ``throttled_samples`` more were taken while the card was throttled and thrown away.
    """

    samples_us: tuple[float, ...]
    provenance: Provenance
    method: str = "events"
    launches_per_sample: int = 1
    l2: CacheState = CacheState.WARM
    telemetry: Telemetry = Telemetry()
    throttled_samples: int = 0

    @property
    def median_us(self) -> float:
        """Median of the samples, in microseconds."""
        return statistics.median(self.samples_us)


@dataclass(frozen=True, slots=True)
class Verification:
    """Largest errors against the float64-accumulated reference.

    ``max_error_ratio`` is the largest |C - reference| / bound over all elements (at most 1 passes),
    ``relative_frobenius`` is ||C - reference||_F / ||reference||_F.
    """

    max_abs_error: float
    max_error_ratio: float
    relative_frobenius: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one candidate. ``reason`` is empty only for OK."""

    config: Config
    status: Status
    reason: str = ""
    kernel_sha256: str = ""
    resources: tuple[Resources, ...] = ()
    verification: Verification | None = None
    measurement: Measurement | None = None
    compile_seconds: float = 0.0
    measure_seconds: float = 0.0

    @property
    def time_us(self) -> float | None:
        """Median time of one GEMM in microseconds, None unless the status is OK."""
        if self.status is Status.OK and self.measurement is not None:
            return self.measurement.median_us
        return None


@dataclass(frozen=True, slots=True)
class FinalsEntry:
    """One contestant of the finals: ``samples_us[i]`` was taken in round i, beside all others.

    ``ratio`` is baseline time / own time, from the paired rounds (above 1 is faster than cuBLAS),
    with its interval. ``tied`` says that the winner's interval over this one contains 1.
    """

    name: str
    config: Config | None
    kernel_sha256: str
    samples_us: tuple[float, ...]
    ratio: float
    ratio_low: float
    ratio_high: float
    tied: bool
    verification: Verification | None = None

    @property
    def median_us(self) -> float:
        """Median over the rounds, in microseconds."""
        return statistics.median(self.samples_us)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A finalist that must not win, and why: wrong, crashed, or not certified."""

    config: Config
    kernel_sha256: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finals:
    """Interleaved re-timing of the best candidates and the baseline. ``entries`` are best first.

    ``method`` and ``launches_per_sample`` are those of :class:`Measurement`, the same for all.
    ``num_checks`` is how many times each entry's result was compared with the reference, over and
    above the search.
    ``throttled_rounds`` more were run while the card was throttled and thrown away.
    """

    entries: tuple[FinalsEntry, ...]
    baseline: FinalsEntry
    rounds: int
    provenance: Provenance
    telemetry: Telemetry = Telemetry()
    method: str = "events"
    launches_per_sample: int = 1
    num_checks: int = 0
    dropped: tuple[Dropped, ...] = ()
    throttled_rounds: int = 0

    @property
    def winner(self) -> FinalsEntry:
        """The fastest entry by paired ratio."""
        return self.entries[0]

"""The end of a candidate, and how its times were taken."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Self

from annotated_types import MaxLen, MinLen

from autogemm.model.config import Config
from autogemm.model.kernel import Resources
from autogemm.support import limits

CONVERSION = "conversion to"
"""How the name of a call begins that gets converted operands."""


class Status(StrEnum):
    """The end of a candidate. Everything but OK carries a reason."""

    OK = "ok"
    REJECTED = "rejected"
    COMPILE_FAILED = "compile_failed"
    COMPILE_TIMEOUT = "compile_timeout"
    LAUNCH_FAILED = "launch_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    WRONG_RESULT = "wrong_result"
    INACCURATE = "inaccurate"
    """Right, but its error is above what the run allows."""
    TOO_SLOW = "too_slow"


class Provenance(StrEnum):
    """The origin of a time. A recorded time is never shown as measured on this machine."""

    MEASURED = "measured"
    RECORDED = "recorded"


class CacheState(StrEnum):
    """State of the L2 cache before each timed launch."""

    WARM = "warm"
    """Left so by the launch before, on the same matrices."""
    COLD = "cold"
    """Flushed."""
    ROTATE = "rotate"
    """Left so by launches on other copies of the inputs: full, and of nothing that is needed."""


class Fill(StrEnum):
    """The contents of matrices while kernels are timed: power, and so clocks, depend on it."""

    UNIFORM = "uniform"
    """Reals on [-1, 1)."""
    NORMAL = "normal"
    """Reals of mean 0 and standard deviation 1."""
    INTEGERS = "integers"
    """-3 to 3 without 0."""
    ZEROS = "zeros"
    """Faster than any real data: only for comparing with others who time zeros."""


class Objective(StrEnum):
    """The figure to minimise: the time of one GEMM, its energy, or the product of both."""

    TIME = "time"
    ENERGY = "energy"
    EDP = "edp"


class StopRule(StrEnum):
    """The reason for which a search ended, and how that reads after "because"."""

    words: str

    def __new__(cls, value: str, words: str) -> Self:
        """Return the member; its value alone is stored."""
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    TRIALS = "trials", "all trials were done"
    BUDGET = "budget", "the time was up"
    RATIO = "ratio", "the ratio was reached"
    GAIN = "gain", "too little gain was expected"
    USED_UP = "used_up", "no config was left"
    INTERRUPTED = "interrupted", "it was interrupted"


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Sampled beside the timings; None where the driver does not tell."""

    sm_clock_mhz: limits.Count | None = None
    memory_clock_mhz: limits.Count | None = None
    power_w: limits.Amount | None = None
    temperature_c: limits.Celsius | None = None
    throttle_reasons: limits.Bits | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """The versions that, besides the GPU, decide a time. Empty where a part is not in play."""

    driver: limits.Line = ""
    cuda_runtime: limits.Line = ""
    compiler: limits.Line = ""
    cublas: limits.Line = ""
    cupy: limits.Line = ""
    python: limits.Line = ""
    autogemm: limits.Line = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of one kernel. Each sample is microseconds for one GEMM.

    ``energy_mj`` is what one GEMM takes of the whole GPU, in millijoules; None if not measured.
    ``method`` says how: ``events`` around single launches, or ``graph`` (a CUDA graph of
    ``launches_per_sample`` launches between two events, divided by their number).
    ``throttled_samples`` more were taken while the GPU was throttled and thrown away.
    """

    samples_us: limits.Samples
    provenance: Provenance
    method: limits.Line = "events"
    launches_per_sample: limits.Launches = 1
    l2: CacheState = CacheState.WARM
    telemetry: Telemetry = Telemetry()
    energy_mj: limits.Amount | None = None
    throttled_samples: limits.Count = 0

    @property
    def time_us(self) -> float:
        """Median of the samples, in microseconds."""
        return statistics.median(self.samples_us)


@dataclass(frozen=True, slots=True)
class Verification:
    """Largest errors against the float64-accumulated reference.

    ``max_abs_error`` is None where it was not kept, as in a recording, ``max_error_ratio`` the
    largest |C - reference| / bound over all elements (at most 1 passes), ``error``
    ||C - reference||_F / ||reference||_F.
    """

    max_abs_error: limits.Error | None
    max_error_ratio: limits.Error
    error: limits.Error


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one candidate. ``reason`` is empty only for OK.

    Where several GPUs of one model measure the candidates of a run, ``gpu_number`` is that of the
    one that measured this candidate, and ``pace`` the baseline's time on the run's first GPU / its
    time on this one, both of about the same minute. Samples are as measured, never scaled.
    """

    config: Config
    status: Status
    reason: limits.LongText = ""
    kernel_sha256: limits.AnySha256 = ""
    resources: Annotated[tuple[Resources, ...], MaxLen(64)] = ()
    verification: Verification | None = None
    measurement: Measurement | None = None
    compile_seconds: limits.Amount = 0.0
    measure_seconds: limits.Amount = 0.0
    gpu_number: limits.Count | None = None
    pace: limits.Ratio = 1.0

    @property
    def time_us(self) -> float | None:
        """Median time of one GEMM in microseconds, None unless the status is OK."""
        if self.status is Status.OK and self.measurement is not None:
            return self.measurement.time_us
        return None

    @property
    def comparable_us(self) -> float | None:
        """The time, brought to the pace of the run's first GPU: for comparing, not for showing."""
        return None if self.time_us is None else self.time_us * self.pace

    def __repr__(self) -> str:
        end = (
            f"{self.time_us:.4g} us" if self.time_us is not None else f"{self.status} {self.reason}"
        )
        return f"<Outcome: {end.strip()}, {self.config.family} {self.config}>"

    def cost(self, objective: Objective) -> float | None:
        """The objective's figure (us, mJ, or us * mJ); None if it has no such figure.

        Times are those of `comparable_us`.
        """
        energy_mj = self.measurement.energy_mj if self.measurement is not None else None
        return cost(objective, self.comparable_us, energy_mj)


def cost(objective: Objective, time_us: float | None, energy_mj: float | None) -> float | None:
    """The figure to minimise (us, mJ, or us * mJ); None if a part of it is not known."""
    if time_us is None or objective is Objective.TIME:
        return time_us
    if energy_mj is None:
        return None
    return energy_mj if objective is Objective.ENERGY else energy_mj * time_us


# For the interval of a median: with fewer values the extremes say more than a bootstrap does.
CONFIDENCE = 0.95
MIN_BOOTSTRAP_ROUNDS = 6


def confidence_of(rounds: int) -> float:
    """The probability that the interval of a median over so many rounds holds the true one.

    With fewer than MIN_BOOTSTRAP_ROUNDS the interval is from the smallest to the largest value: all
    of n lie on one side of the true median in one of 2^(n - 1) cases (the sign test's).
    """
    return CONFIDENCE if rounds >= MIN_BOOTSTRAP_ROUNDS else 1 - 2.0 ** (1 - rounds)


def relative_spread(samples: Sequence[float]) -> float:
    """Interquartile range as a share of the median. Two samples or more."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle


@dataclass(frozen=True, slots=True)
class FinalsEntry:
    """One contestant of the finals: ``samples_us[i]`` was taken in round i, beside all others.

    ``ratio`` is baseline time / own time, from the paired rounds (above 1 is faster than cuBLAS),
    with its interval, NaN where none was measured. ``tied`` says that no difference to the winner
    was shown: the interval of its ratio over the winner contains 1. ``registers`` are those of the
    source's largest kernel.
    ``samples_mj`` are millijoules for one GEMM, empty if energy was not measured.
    """

    name: limits.LongLine
    config: Config | None
    kernel_sha256: limits.AnySha256
    samples_us: limits.Samples
    ratio: limits.RatioOrNan
    ratio_low: limits.RatioOrNan
    ratio_high: limits.RatioOrNan
    tied: bool
    verification: Verification | None = None
    registers: limits.Count | None = None
    samples_mj: limits.Energies = ()

    def __repr__(self) -> str:
        return f"<FinalsEntry: {self.name}, {self.time_us:.4g} us, {self.ratio:.3f} x cuBLAS>"

    @property
    def time_us(self) -> float:
        """Median over the rounds, in microseconds."""
        return statistics.median(self.samples_us)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ratio's ends; None for a recording, which has one median, and for the baseline."""
        return (self.ratio_low, self.ratio_high) if self.ratio_low < self.ratio_high else None

    @property
    def energy_mj(self) -> float | None:
        """Median energy of one GEMM in millijoules, None if it was not measured."""
        return statistics.median(self.samples_mj) if self.samples_mj else None


class AgainstBaseline(StrEnum):
    """The conclusion of finals about their winner, by both estimators of its ratio."""

    words: str

    def __new__(cls, value: str, words: str) -> Self:
        """Return the member; its value alone is stored."""
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    FASTER = "faster", "faster than"
    TIED = "tied", "not shown to be faster than"
    SLOWER = "slower", "slower than"


@dataclass(frozen=True, slots=True)
class Call:
    """Another call of the baseline's library, which is not the baseline.

    ``samples_us[i]`` was taken in round i, beside all others, if its status is OK. TOO_SLOW: it was
    clearly slower before the rounds; REJECTED: it cannot be called here, or was not timed.
    """

    name: limits.Line
    status: Status = Status.OK
    reason: limits.LongText = ""
    samples_us: limits.AnySamples = ()

    @property
    def time_us(self) -> float | None:
        """Median over the rounds, in microseconds; None if it took no part."""
        return statistics.median(self.samples_us) if self.samples_us else None


@dataclass(frozen=True, slots=True)
class Sustained:
    """Winner and baseline each alone, back to back, on a GPU that they have heated up.

    Each ran twice for ``sustained_s`` seconds, in turn, the baseline first; the beginning of each
    run does not count. Times are means for one GEMM; millijoules for one GEMM, idle power of the
    GPU included, are None where the driver tells no energy.
    """

    sustained_s: limits.Amount
    sustained_us: limits.TimeUs
    sustained_baseline_us: limits.TimeUs
    sustained_mj: limits.Amount | None = None
    sustained_baseline_mj: limits.Amount | None = None

    @property
    def sustained_ratio(self) -> float:
        """The baseline's time / the winner's: above 1 is faster."""
        return self.sustained_baseline_us / self.sustained_us


@dataclass(frozen=True, slots=True)
class Disqualified:
    """A finalist that must not win, and why: wrong, crashed, or not certified.

    Its trial ends with that status after all.
    """

    config: Config
    kernel_sha256: str
    reason: str
    status: Status = Status.WRONG_RESULT


def against_baseline(
    ratio: float, interval: tuple[float, float] | None, ratio_of_medians: float
) -> AgainstBaseline:
    """The conclusion from a ratio to the baseline: faster or slower only if the interval and both
    estimators agree. Without an interval the estimators decide.
    """
    low, high = interval or (ratio, ratio)
    if low > 1.0 and ratio_of_medians > 1.0:
        return AgainstBaseline.FASTER
    if high < 1.0 and ratio_of_medians < 1.0:
        return AgainstBaseline.SLOWER
    return AgainstBaseline.TIED


@dataclass(frozen=True, slots=True)
class Finals:
    """Interleaved re-timing of the best candidates and the baseline. ``entries`` are best first.

    ``method`` and ``launches_per_sample`` are those of :class:`Measurement`, the same for all.
    ``num_checks`` is how many times each entry's result was compared with the reference, over and
    above the search. ``throttled_rounds`` more were run while the GPU was throttled and thrown
    away. ``disqualified`` finalists took part and are no entries. ``baseline`` is the fastest over
    the rounds of all calls of its library, ``calls`` are the others. ``sustained`` is of winner and
    baseline, None if that was not asked for.
    """

    entries: Annotated[tuple[FinalsEntry, ...], MinLen(1), MaxLen(999)]
    baseline: FinalsEntry
    rounds: limits.Count
    provenance: Provenance
    telemetry: Telemetry = Telemetry()
    method: limits.Line = "events"
    launches_per_sample: limits.Launches = 1
    throttled_rounds: limits.Count = 0
    num_checks: Annotated[int, limits.NotKept()] = 0
    disqualified: Annotated[tuple[Disqualified, ...], limits.NotKept()] = ()
    calls: Annotated[tuple[Call, ...], MaxLen(999)] = ()
    sustained: Sustained | None = None

    def __repr__(self) -> str:
        winner = self.winner
        found = f"{winner.time_us:.4g} us, {winner.ratio:.3f} x {self.baseline.name}"
        return f"<Finals: {len(self.entries)} kernels, {self.rounds} rounds, winner {found}>"

    @property
    def confidence(self) -> float | None:
        """Confidence of the entries' intervals; None without them (a recording, one round)."""
        return confidence_of(self.rounds) if self.winner.interval is not None else None

    @property
    def winner(self) -> FinalsEntry:
        """The first entry."""
        return self.entries[0]

    def ratio_of_medians(self, entry: FinalsEntry) -> float:
        """The baseline's median time / the entry's: the other estimator of its ratio."""
        return self.baseline.time_us / entry.time_us

    @property
    def against_baseline(self) -> AgainstBaseline:
        """Whether the winner is faster, by its interval and by the ratio of medians."""
        winner = self.winner
        return against_baseline(winner.ratio, winner.interval, self.ratio_of_medians(winner))

    def spread_of(self, entry: FinalsEntry) -> float | None:
        """Spread of the entry's paired ratios to the baseline, from which drift has gone.

        None for the baseline itself, and without two rounds of both (a recording has none).
        """
        over, under = self.baseline.samples_us, entry.samples_us
        if entry is self.baseline or not 2 <= len(under) == len(over):
            return None
        return relative_spread([a / b for a, b in zip(over, under, strict=True)])

    @property
    def ties(self) -> tuple[FinalsEntry, ...]:
        """The entries to which the winner has shown no difference."""
        return tuple(entry for entry in self.entries if entry.tied)

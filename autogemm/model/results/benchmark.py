"""Kernels timed side by side: what is kept of each, and the figures that follow from it."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from annotated_types import MaxLen

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device, Roof
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    CONFIDENCE,
    CacheState,
    Environment,
    Fill,
    Provenance,
    Status,
    Telemetry,
    Verification,
    confidence_of,
)
from autogemm.support import limits

# The first rung.
NAIVE = "naive"
# The id of a benchmark that is in no database.
NOT_STORED = 0
DATE_UNKNOWN = "date unknown"


class KernelKind(StrEnum):
    """The origin of a benchmarked kernel."""

    RUNG = "rung"
    """A named config of the ladder."""
    STORED = "stored"
    """A kernel of the tuning database."""
    LIBRARY = "library"
    """A kernel of cuBLAS, PyTorch, Triton or CUTLASS."""


def baseline_of(dtype: DType) -> str:
    """The library that kernels of these types are compared with: cuBLAS in the same types."""
    return f"cublas_{dtype.label.replace('-', '_')}"


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """The circumstances of a benchmark: all its times were taken under them."""

    device: Device
    environment: Environment
    provenance: Provenance
    command: limits.LongText
    preset: limits.Line = ""
    seed: limits.Long = 0
    l2: CacheState = CacheState.WARM
    fill: Fill = Fill.UNIFORM


@dataclass(frozen=True, slots=True)
class BenchEntry:
    """One kernel on one problem. ``samples_us[i]`` was taken in round i, beside all the others.

    A slow kernel sits the later rounds out. ``ratio`` is the time of cuBLAS in the benchmark's
    dtype (`baseline_of`) / own time from the rounds of both (above 1 is faster), with its interval;
    None where that was not timed.
    Without ``samples_us`` the kernel was not timed, and ``status`` and ``reason`` say why.
    ``problem.dtype`` is what it multiplied. ``library`` names a library's version.
    """

    kernel: limits.Line
    kind: KernelKind
    problem: Problem
    status: Status
    reason: limits.LongText = ""
    config: Config | None = None
    kernel_sha256: limits.AnySha256 = ""
    library: limits.Line = ""
    samples_us: limits.AnySamples = ()
    method: limits.Line = "events"
    launches_per_sample: limits.Launches = 1
    ratio: limits.Ratio | None = None
    ratio_low: limits.Ratio | None = None
    ratio_high: limits.Ratio | None = None
    registers: limits.Count | None = None
    verification: Verification | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)

    @property
    def is_baseline(self) -> bool:
        """Whether ratios compare with this one: its own, to itself, is exactly 1."""
        return self.kind is KernelKind.LIBRARY and self.ratio == 1.0

    @property
    def time_us(self) -> float | None:
        """Median over the rounds in microseconds, None unless the status is OK."""
        is_timed = self.status is Status.OK and self.samples_us
        return statistics.median(self.samples_us) if is_timed else None


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark. ``entries`` stand by problem, then in the order they were asked for.

    ``started_at`` is None for a listing that does not say when it was measured.
    """

    bench_id: limits.Count
    spec: BenchSpec
    started_at: limits.Moment | None
    finished_at: limits.Moment | None
    entries: Annotated[tuple[BenchEntry, ...], MaxLen(10_000)]

    def when(self, style: str = "%Y-%m-%d") -> str:
        """Return when it was measured, in a style of `strftime`, or `DATE_UNKNOWN`."""
        return DATE_UNKNOWN if self.started_at is None else self.started_at.strftime(style)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of one timed kernel; None where what it is compared with was not timed.

    ``confidence`` is that of the interval of ``ratio``. ``bandwidth_gb_s`` and
    ``flop_per_byte`` count each matrix once, A and B read and C written. ``percent_of_roof`` is of
    what the GPU's theory allows at that intensity, for the numbers that are multiplied.
    """

    time_us: float
    tflops: float
    bandwidth_gb_s: float
    flop_per_byte: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    confidence: float | None
    speedup_over_naive: float | None
    percent_of_roof: float | None

    @property
    def gflops(self) -> float:
        """The speed as people say it of slow kernels, 1e-3 TFLOP/s."""
        return 1e3 * self.tflops

    @property
    def percent_of_cublas(self) -> float | None:
        """The ratio as people say it of a ladder."""
        return None if self.ratio is None else 100 * self.ratio

    def interval(self, between: str) -> str | None:
        """``98.5..101`` percent, with its confidence where that is less than usual."""
        low, high, confidence = self.ratio_low, self.ratio_high, self.confidence
        if low is None or high is None or confidence is None or not low < high:
            return None
        text = f"{100 * low:.4g}{between}{100 * high:.4g}"
        return text if confidence >= CONFIDENCE else f"{text} ({100 * confidence:.3g} %)"


def metrics(entry: BenchEntry, beside: Iterable[BenchEntry], roof: Roof | None) -> Metrics | None:
    """The figures of an entry, None if it was not timed.

    ``beside`` are entries of the same benchmark, of which NAIVE and the baseline on the same size
    are looked for; ``roof`` is the GPU's for what the entry multiplies, None if it has none.
    """
    time_us, problem = entry.time_us, entry.problem
    if time_us is None:
        return None
    tflops = problem.tflops(time_us)
    same_size = [one for one in beside if one.problem.size_label == problem.size_label]
    naive_us = next((one.time_us for one in same_size if one.kernel == NAIVE), None)
    attainable = roof.attainable_tflops(problem.flop_per_byte) if roof is not None else None
    return Metrics(
        time_us=time_us,
        tflops=tflops,
        bandwidth_gb_s=1e-3 * problem.moved_bytes / time_us,
        flop_per_byte=problem.flop_per_byte,
        ratio=entry.ratio,
        ratio_low=entry.ratio_low,
        ratio_high=entry.ratio_high,
        confidence=_confidence(entry, same_size),
        speedup_over_naive=naive_us / time_us if naive_us is not None else None,
        percent_of_roof=100 * tflops / attainable if attainable else None,
    )


def _confidence(entry: BenchEntry, same_size: Iterable[BenchEntry]) -> float | None:
    """Confidence from the rounds of both: a slow kernel, maybe the baseline, sat later ones out.

    Winners of several problems of one size have a baseline each.
    """
    if entry.ratio is None:
        return None
    baselines = [one for one in same_size if one.is_baseline]
    own = [one for one in baselines if one.problem == entry.problem]
    paired = (entry, *(own or baselines)[:1])
    return confidence_of(min(len(one.samples_us) for one in paired))

"""Requests to a worker and its replies: frozen values, pickled."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.kernel import Candidate, CompiledKernel
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    Call,
    Disqualified,
    Environment,
    Finals,
    Outcome,
    Status,
    Sustained,
)
from autogemm.targets import MeasureOptions
from autogemm.targets.target import BenchCandidate, BenchTimes


@dataclass(frozen=True, slots=True)
class Start:
    """Take the GPU. Answer: Started."""

    device_index: int


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """The calls of cuBLAS that a worker found near the fastest, by name, and those it left out."""

    problem: Problem
    near: tuple[str, ...]
    left_out: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for a problem: inputs, references, baseline. Answer: Prepared.

    ``known`` is what a worker found that has died since: it is not searched for again.
    """

    problem: Problem
    options: MeasureOptions
    known: KnownCalls | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Verify and time a candidate. Answer: Measured."""

    candidate: Candidate
    best_us: float | None


@dataclass(frozen=True, slots=True)
class RunFinals:
    """Time candidates and baseline interleaved. Answer: Finals."""

    candidates: tuple[Candidate, ...]
    rounds: int
    seed: int


@dataclass(frozen=True, slots=True)
class RunSustained:
    """Time a candidate and a call of cuBLAS, by name, each alone. Answer: Sustained."""

    candidate: Candidate
    baseline: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RunBench:
    """Time candidates that were right and libraries, by name, in turn. Answer: BenchTimes."""

    candidates: tuple[BenchCandidate, ...]
    libraries: tuple[str, ...]
    rounds: int
    seed: int


@dataclass(frozen=True, slots=True)
class RunCeilings:
    """Measure what the GPU reaches at most; ceilings.cu compiled. Answer: Ceilings."""

    compiled: CompiledKernel


Request = Start | Prepare | Measure | RunFinals | RunSustained | RunBench | RunCeilings


@dataclass(frozen=True, slots=True)
class Started:
    """The GPU is taken."""

    device: Device
    environment: Environment


@dataclass(frozen=True, slots=True)
class Prepared:
    """The problem is ready; ``baseline_us`` is a first, provisional time of the baseline,
    ``baseline_error`` its relative Frobenius error; None where there is none.
    """

    baseline_us: float | None
    baseline_error: float | None = None
    known: KnownCalls | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcome of a candidate. ``poisoned``: the worker can not be trusted with another one.

    ``seconds`` says by phase what it took, ``launches_s`` how long its own launches ran.
    """

    outcome: Outcome
    baseline_us: float | None
    poisoned: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    launches_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """One of our own errors, by its class name in autogemm.support.errors; the worker goes on."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Anything else went wrong. The worker ends after this answer."""

    message: str


Reply = (
    Started | Prepared | Measured | Finals | Sustained | BenchTimes | Ceilings | Refused | Broken
)


def outcome_without_times(candidate: Candidate, status: Status, reason: str) -> Outcome:
    """Return an outcome before any verification or times, the reason folded to one line."""
    return Outcome(
        config=candidate.config,
        status=status,
        reason=" ".join(reason.split()),
        kernel_sha256=candidate.source.sha256,
        resources=candidate.compiled.resources if candidate.compiled else (),
        compile_seconds=candidate.compiled.seconds if candidate.compiled else 0.0,
    )


def disqualified(
    candidate: Candidate, reason: str, status: Status = Status.WRONG_RESULT
) -> Disqualified:
    """A finalist that is out, the reason folded to one line."""
    folded = " ".join(reason.split())
    return Disqualified(candidate.config, candidate.source.sha256, folded, status)

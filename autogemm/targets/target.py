"""The protocol that the tuner knows targets by, and how they measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate
from autogemm.model.outcome import (
    CacheState,
    Environment,
    Fill,
    Finals,
    Objective,
    Outcome,
    Provenance,
)
from autogemm.model.problem import Problem


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How a target times candidates. ``deadline_s`` bounds one candidate, load to last sample,
    ``host_memory_bytes`` the memory of the process that runs it. An ``objective`` that needs it
    makes the target measure energy too, of contenders only. Without ``compares`` candidates are
    verified, and no baseline is made: finals and the provisional ratio need one.
    """

    l2: CacheState = CacheState.WARM
    fill: Fill = Fill.UNIFORM
    seed: int = 0
    deadline_s: float = 30.0
    host_memory_bytes: int = 16 * 2**30
    max_samples: int = 20
    # A candidate slower than this multiple of the best so far is timed once and let go; after n
    # samples, what it may be slower is an n-th of that.
    hopeless_ratio: float = 1.5
    objective: Objective = Objective.TIME
    compares: bool = True


class Target(Protocol):
    """A place where candidates are verified and timed. Not thread-safe: one caller at a time."""

    device: Device
    environment: Environment
    provenance: Provenance
    needs_cubin: bool
    """Whether ``Candidate.compiled`` must be there."""
    baseline_us: float | None
    """A provisional time of the baseline for progress lines, once prepared; finals decide."""
    baseline_error: float | None
    """Its relative Frobenius error on the inputs that candidates are verified on, once prepared."""

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        """Get ready for one problem: inputs, reference, baseline.

        Raises UsageError when the problem does not fit the GPU, RecordingError when no recording
        holds it, DeviceError when there is no usable GPU.
        """

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        """Verify, then time. What the candidate did wrong is the outcome's status."""

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        """Re-time candidates and baseline interleaved, in random order, round after round.

        They are ranked by the objective of the options that the target was prepared with.
        """

    def close(self) -> None:
        """Free the GPU and end the worker. May be called twice."""

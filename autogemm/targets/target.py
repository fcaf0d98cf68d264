"""The protocols that others know targets by, the options of measuring, and what a bench times."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from autogemm.model.config import Value
from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Check
from autogemm.model.results.outcome import (
    CacheState,
    Environment,
    Fill,
    Finals,
    Objective,
    Outcome,
    Provenance,
    Status,
    Sustained,
    Telemetry,
    Verification,
)
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.compile import Compiler
    from autogemm.space import Family, Space

# A slow kernel takes part in few rounds: with all its samples it stays near this, but for the least
# that say something.
SHARE_US = 300_000.0
LEAST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of measuring candidates. ``deadline_s`` bounds one candidate, load to last sample,
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
    # A candidate slower than this multiple of the best so far is timed once and dropped; after n
    # samples, what it may be slower is an n-th of that.
    hopeless_ratio: float = 1.5
    objective: Objective = Objective.TIME
    compares: bool = True


@dataclass(frozen=True, slots=True)
class BenchCandidate:
    """A candidate that was right, and about how long one launch of it takes."""

    name: str
    candidate: Candidate
    launch_us: float


@dataclass(frozen=True, slots=True)
class ContestantTimes:
    """The times of one contestant round by round, or the reason why there are none.

    ``problem`` has the dtype in which it multiplied, ``library`` the name and version of code of
    others.
    """

    name: str
    problem: Problem
    status: Status
    reason: str = ""
    library: str = ""
    samples_us: tuple[float, ...] = ()
    method: str = "events"
    launches_per_sample: int = 1
    verification: Verification | None = None


@dataclass(frozen=True, slots=True)
class BenchTimes:
    """All contestants in the order in which they were named, and the state of the GPU meanwhile."""

    contestants: tuple[ContestantTimes, ...]
    telemetry: Telemetry


def rounds_of(sample_us: float, rounds: int) -> int:
    """Return in how many of the rounds a kernel takes part of which one sample takes that long."""
    affordable = math.floor(SHARE_US / max(sample_us, 1.0))
    return min(rounds, max(LEAST_ROUNDS, affordable))


class Target(Protocol):
    """A place where candidates are verified and timed. Not thread-safe: one caller at a time.

    A class of targets derives from this one and inherits the answers of a place that runs whatever
    kernel it is given.
    """

    device: Device
    environment: Environment
    provenance: Provenance
    needs_cubin: bool
    """Whether ``Candidate.compiled`` must be there."""
    baseline_us: float | None
    """A provisional time of the baseline for progress lines, once prepared; finals decide."""
    baseline_error: float | None
    """Its relative Frobenius error on the inputs that candidates are verified on, once prepared."""
    own_family: "Family | None" = None
    """The family of a target that brings its own configs (`own_space`), and neither kernels nor a
    baseline; None for one that runs the kernels of any family."""
    own_size: str = ""
    """The size ``MxNxK`` of these configs; empty where it is not known."""
    only_family: str | None = None
    """The name of the one family that it knows; None where it runs kernels of any."""
    number: int | None = None
    """The number of its GPU among those of its kind; None where no GPU is."""
    phase_s: Mapping[str, float] = MappingProxyType({})
    """Seconds of the last candidate that was measured, by phase, as far as they are known."""
    launches_s: float = 0.0
    """Seconds of them in which its own launches ran: no other work can take their place."""
    can_sanitize: bool = False
    """Whether `sanitize` watches a candidate's machine code."""
    on_round: Callable[[int, int], None] | None = None
    """Told by `finals` and `bench`, in the caller's thread: rounds that are over, rounds in all."""

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        """Get ready for one problem: inputs, reference, baseline.

        Raises UsageError when the problem does not fit the GPU, RecordingError when no recording
        holds it, DeviceError when there is no usable GPU.
        """

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        """Verify, then time. The outcome's status says what the candidate did wrong."""

    def revive(self) -> None:
        """Be ready for another candidate. Raises DeviceError where the GPU is lost."""
        return

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        """Re-time candidates and baseline interleaved, in random order, round after round.

        They are ranked by the objective of the options that the target was prepared with.
        """

    def sustained(self, candidate: Candidate, finals: Finals, seconds: float) -> Sustained | None:
        """Run the winner of finals and their baseline each alone, twice for ``seconds``, in turn.

        None where kernels do not run.
        """
        return None

    def close(self) -> None:
        """Free the GPU and end the worker. May be called twice."""

    def compiler(self) -> "Compiler | None":
        """A new compiler for the kernels of this target; None where ``needs_cubin`` is false."""
        return None

    def own_space(self, problem: Problem, fix: Mapping[str, Sequence[Value]]) -> "Space":
        """The configs that it brings. Raises UsageError where it brings none."""
        raise UsageError(f"{self.device.name} has no configs of its own")

    def restriction(self, family: "Family") -> Mapping[str, tuple[Value, ...]]:
        """The values that it knows by parameter; a parameter that is not named may be any."""
        return {}

    def caveats(self, family: "Family") -> tuple[str, ...]:
        """Remarks that a person must read before believing its times, a line each."""
        return ()

    def sanitize(
        self, candidate: Candidate, problem: Problem, deadline_s: float
    ) -> tuple[Check, ...]:
        """One check of the machine code for each tool that watches memory accesses."""
        return ()


class GpuTarget(Target, Protocol):
    """A target that is a GPU of this machine: it also runs benches and shows its ceilings."""

    def compiler(self) -> "Compiler":
        """A new compiler for the kernels of this GPU."""

    def bench(
        self, candidates: Sequence[BenchCandidate], libraries: Sequence[str], rounds: int, seed: int
    ) -> BenchTimes:
        """Time candidates and libraries side by side, in random order, round after round."""

    def ceilings(self, compiler: "Compiler") -> Ceilings:
        """Measure what the GPU reaches in multiply-adds and in reading each memory."""


class RecordedPlace(Target, Protocol):
    """A target that replays the times in a file."""

    path: Path

    @property
    def gpu_names(self) -> str:
        """The GPU whose times it replays; several where it is not known yet for which problem."""
        ...

    @property
    def remark(self) -> str:
        """The file's other statements, as the end of a sentence; empty for none."""
        ...

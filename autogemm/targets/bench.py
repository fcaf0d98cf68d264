"""Kernels of ours and of others, fast and slow, timed side by side on one problem."""

import math
from dataclasses import dataclass

from autogemm.model.kernel import Candidate
from autogemm.model.outcome import Status, Telemetry, Verification
from autogemm.model.problem import Problem

# A slow kernel takes part in few rounds: with all its samples it stays near this, but for the least
# that say something.
SHARE_US = 300_000.0
LEAST_ROUNDS = 3


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

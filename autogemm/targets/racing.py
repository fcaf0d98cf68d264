"""Any number of kernels, fast and slow, ours and others', timed in turn on one problem."""

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
class Racer:
    """A candidate that was right, and what one launch of it takes about."""

    name: str
    candidate: Candidate
    launch_us: float


@dataclass(frozen=True, slots=True)
class Raced:
    """What became of one: its times round by round, or why there are none.

    ``problem`` has the dtype in which it multiplied, ``library`` name and version of somebody
    else's code.
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
class Race:
    """All that took part, in the order in which they were named, and the card meanwhile."""

    entries: tuple[Raced, ...]
    telemetry: Telemetry


def rounds_of(sample_us: float, rounds: int) -> int:
    """In how many of the rounds a kernel takes part of which one sample takes that long."""
    affordable = math.floor(SHARE_US / max(sample_us, 1.0))
    return min(rounds, max(LEAST_ROUNDS, affordable))

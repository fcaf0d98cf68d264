"""Contestants timed side by side: each once a round, in a fresh random order.

Drifts of clocks and temperature affect all of them alike. Finals and benches are both
made of such rounds.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autogemm.model.results.outcome import Telemetry
from autogemm.targets.cuda.worker.gpu.telemetry import is_throttled
from autogemm.targets.cuda.worker.gpu.timing import COOLING_S, Stopwatch

# Longer than while searching: here a per cent decides.
INTERLEAVED_SAMPLE_US = 2000.0

# Told how many of how many rounds are done.
Report = Callable[[int, int], None]


@dataclass(slots=True)
class Series:
    """The samples of one contestant, which takes part in the first ``num_rounds`` rounds."""

    stopwatch: Stopwatch
    num_rounds: int
    samples_us: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rounds:
    """A reading of each round that counts, and how many rounds were thrown away."""

    readings: tuple[Telemetry, ...]
    num_thrown: int


def interleave(
    series: Sequence[Series],
    read: Callable[[], Telemetry],
    seed: int,
    most_thrown: int,
    after_round: Callable[[], None] = lambda: None,
) -> Rounds:
    """Take one sample a round of each series that still takes part.

    The rounds end with the series that takes part in most. ``read`` is called once a round, while
    the GPU works. A round in which the GPU was throttled is thrown away and run again after a
    pause, ``most_thrown`` times at most; ``after_round`` is called after each of the others.
    """
    readings: list[Telemetry] = []
    num_thrown = 0
    generator = np.random.default_rng(seed)

    def note_reading() -> None:
        readings.append(read())

    while running := [one for one in series if len(readings) < one.num_rounds]:
        for place, index in enumerate(generator.permutation(len(running))):
            one = running[index]
            one.samples_us += one.stopwatch.samples(1, note_reading if place == 0 else None)
        if is_throttled(readings[-1]) and num_thrown < most_thrown:
            num_thrown += 1
            readings.pop()
            for one in running:
                one.samples_us.pop()
            time.sleep(COOLING_S[0])
        else:
            after_round()
    return Rounds(tuple(readings), num_thrown)

"""Whether something became faster, from samples: one of four words.

NumPy is imported where it is needed: most questions to a database compare nothing, and ask for the
values of this module all the same.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE = 0.95
NUM_RESAMPLES = 2000
# Below this many samples a side nothing is said.
MIN_SAMPLES = 6
# Kernels that are closer than that are the same for all that people do with them.
SAME_WITHIN = 0.01


class Change(StrEnum):
    """The conclusion from an interval of a ratio of speeds."""

    SAME = "SAME"
    """The interval lies within SAME_WITHIN of 1."""
    FAST = "FAST"
    """It lies above 1."""
    SLOW = "SLOW"
    """It lies below 1."""
    AMBG = "AMBG"
    """It holds 1 and more than SAME allows, or there are too few samples."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The speed of the second as a multiple of the first; no interval with too few samples."""

    ratio: float
    low: float | None
    high: float | None
    change: Change


def compare_samples(before: Sequence[float], after: Sequence[float]) -> Compared:
    """``before`` and ``after`` are costs of one thing, less is better, in no common order.

    The ratio is that of the medians, before / after; its interval a percentile bootstrap in which
    both sides are resampled (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters
    8 and 13). SAME needs evidence too: an interval within the bounds, not one that is merely wide
    (two one-sided tests; Schuirmann 1987). Raises ValueError for a side without samples.
    """
    if not before or not after:
        raise ValueError("both sides need a sample")
    ratio = statistics.median(before) / statistics.median(after)
    if min(len(before), len(after)) < MIN_SAMPLES:
        return Compared(ratio, None, None, Change.AMBG)
    import numpy as np

    ratios = _resampled_medians(before, seed=0) / _resampled_medians(after, seed=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = (float(bound) for bound in np.quantile(ratios, (tail, 1 - tail)))
    return Compared(ratio, low, high, _word(low, high))


def _resampled_medians(samples: Sequence[float], seed: int) -> NDArray[np.float64]:
    import numpy as np

    values = np.sort(np.asarray(samples, dtype=np.float64))
    low, high = _resampled_ranks(len(values), seed)
    medians: NDArray[np.float64] = (values[low] + values[high]) / 2
    return medians


@functools.lru_cache(maxsize=64)
def _resampled_ranks(size: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The two sorted samples in the middle of each resample: the same for all samples."""
    import numpy as np

    drawn = np.random.default_rng(seed).integers(0, size, size=(NUM_RESAMPLES, size))
    drawn.sort(axis=1)
    return drawn[:, (size - 1) // 2], drawn[:, size // 2]


def _word(low: float, high: float) -> Change:
    if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN:
        return Change.SAME
    if low > 1:
        return Change.FAST
    return Change.SLOW if high < 1 else Change.AMBG


class Figure(StrEnum):
    """The figure that is compared: time, or time / cuBLAS's time in the same rounds."""

    TIME = "time"
    CUBLAS = "cublas"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Times of one kernel, and of the baseline in the same rounds; none of it without finals."""

    own_us: tuple[float, ...]
    baseline_us: tuple[float, ...] = ()

    @property
    def is_paired(self) -> bool:
        """Whether every time has one of the baseline beside it; a recording's have not."""
        return len(self.own_us) == len(self.baseline_us)

    def costs(self, by: Figure) -> tuple[float, ...]:
        """The figures to compare. Raises UsageError where there was no baseline."""
        if by is Figure.TIME:
            return self.own_us
        if not self.is_paired:
            raise UsageError(
                f"a side was in no finals beside cuBLAS: compare times (--by {Figure.TIME})"
            )
        pairs = zip(self.own_us, self.baseline_us, strict=True)
        return tuple(own / baseline for own, baseline in pairs)


def fairest(before: Rounds, after: Rounds, same_baseline: bool) -> Figure:
    """Ratios to cuBLAS where that is the same cuBLAS on the same GPU, else times.

    Clocks of one GPU drift by several per cent between two sessions, and cuBLAS drifts with them.
    """
    sides = (before, after)
    is_paired = all(side.is_paired and len(side.own_us) >= MIN_SAMPLES for side in sides)
    return Figure.CUBLAS if same_baseline and is_paired else Figure.TIME


def compare_rounds(before: Rounds, after: Rounds, by: Figure) -> Compared:
    """Whether the second is faster. Raises UsageError where a side lacks the figure."""
    return compare_samples(before.costs(by), after.costs(by))

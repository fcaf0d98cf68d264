"""The importance of each parameter for being among the fastest configs."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autogemm.model.config import Config, Value

# The fastest tenth must hold a few configs, or the answer is noise.
LEAST_CONFIGS = 50
# A larger number is sampled, evenly over the ranks: more say nothing else.
MOST_CONFIGS = 2000
FASTEST = 0.1
# One config more, whose value is not known, so that no value has a density of zero.
PRIOR_WEIGHT = 1.0
LEAST_DENSITY = 1e-12


def parameter_importance(tried: Sequence[tuple[Config, float]]) -> dict[str, float]:
    """Shares in what sets the fastest tenth apart, which add up to 1; the largest comes first.

    ``tried`` are configs of one family, each with what is minimised. Parameters that never varied
    are left out; empty for fewer than LEAST_CONFIGS configs. PED-ANOVA (Watanabe et al., IJCAI
    2023) compares the values in the fastest tenth with those that were tried, so that it does not
    matter where the search spent its trials.
    """
    seen: dict[str, dict[Value, None]] = {}
    for config, _ in tried:
        for name, value in config:
            seen.setdefault(name, {})[value] = None
    varied = {name: list(values) for name, values in seen.items() if len(values) > 1}
    if len(tried) < LEAST_CONFIGS or not varied:
        return {}
    ranked = sorted(tried, key=lambda pair: pair[1])
    sample = [one for one in ranked[:: -(-len(ranked) // MOST_CONFIGS)] if math.isfinite(one[1])]
    if not sample:
        return {}
    slowest = sample[math.ceil(FASTEST * len(sample)) - 1][1]
    num_fastest = sum(cost <= slowest for _, cost in sample)
    apart = {
        name: _divergence([config[name] for config, _ in sample], num_fastest, values)
        for name, values in varied.items()
    }
    total = sum(apart.values())
    # The fastest tenth may be all, where all are as fast as each other: nothing sets it apart.
    shares = {name: one / total if total else 1 / len(apart) for name, one in apart.items()}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _divergence(tried: Sequence[Value], num_fastest: int, values: Sequence[Value]) -> float:
    """Pearson's divergence of the values of the first ones, the fastest, from those of all."""
    place = {value: number for number, value in enumerate(values)}
    places = [place[value] for value in tried]
    of_fastest = _densities(places[:num_fastest], len(values))
    of_all = _densities(places, len(values))
    return float(of_all @ (of_fastest / of_all - 1) ** 2)


def _densities(places: Sequence[int], num_values: int) -> NDArray[np.float64]:
    """A Parzen estimate: how often each value is, some of it spread over all other values.

    Each value that occurs has a kernel of its weight, and so has the prior; a kernel puts
    PRIOR_WEIGHT / kernels on each value besides 1 on its own.
    """
    counts = np.bincount(places, minlength=num_values)
    occur = np.flatnonzero(counts)
    num_kernels = len(occur) + 1
    spread = PRIOR_WEIGHT / num_kernels
    # A kernel adds up to 1, the prior's is even.
    weights = counts / (1 + spread * num_values)
    beside = counts.sum() * spread / (1 + spread * num_values) + PRIOR_WEIGHT / num_values
    densities: NDArray[np.float64] = (weights + beside) / (counts.sum() + PRIOR_WEIGHT)
    return densities + LEAST_DENSITY

"""More accurate neighbours of a config whose sums are not accurate enough."""

import numpy as np

from autogemm.search.enumerated import CHAIN, EXPECTED_TIME, EnumeratedSpace, neighbours

# So many of them are worth a trial.
MOST = 3
# The relative error of a sum in FP32, for each root of the products that it adds up one after the
# other: 0.29 to 0.30 ulp without chains, in suites on an H200 and in benchmarks/results/
# chain_error.txt. Where there are many short chains, adding up these has an error of its own.
ERROR_OF_ROOT = 0.3 * 2.0**-24
# Seeds that are looked at before any is tried, and the share of the limit from which on one is
# expected to miss it.
MOST_SEEDS = 8
MISSES = 1.2


def more_accurate(space: EnumeratedSpace, index: int, excess: float) -> list[int]:
    """Return legal configs that differ in one parameter and add up shorter chains of products.

    ``excess`` is the error as a multiple of the one that is allowed. An error grows with the square
    root of a chain's length (Higham and Mary, A New Approach to Probabilistic Rounding Error
    Analysis, SIAM J. Sci. Comput. 41, 2019): chains have to be shorter by its square. Those come
    first that are expected to be fastest; where none is short enough, those with the shortest.
    Empty where the space does not say how long chains are.
    """
    near = neighbours(space, index)
    names, columns = space.features(np.array([index, *near], dtype=np.int64))
    if CHAIN not in names or not near:
        return []
    chains = columns[:, names.index(CHAIN)]
    of_near = chains[1:]
    enough = of_near <= chains[0] - 2.0 * np.log2(excess) + 1e-9
    if not enough.any():
        shorter = of_near < chains[0]
        if not shorter.any():
            return []
        enough = of_near == of_near[shorter].min()
    kept = np.flatnonzero(enough)
    figures = -of_near if EXPECTED_TIME not in names else columns[1:, names.index(EXPECTED_TIME)]
    order = kept[np.argsort(figures[kept], kind="stable")]
    return [near[i] for i in order[:MOST]]


def accurate_seeds(space: EnumeratedSpace, limit: float) -> list[int]:
    """Return what to try in place of the first seeds that are expected to miss a limit of error.

    ``limit`` is the largest relative error (Frobenius) that is allowed, of FP32. For each such seed
    the fastest of `more_accurate`; empty where the space does not say how long chains are.
    """
    seeds = list(space.seeds[:MOST_SEEDS])
    if not seeds:
        return []
    names, columns = space.features(np.array(seeds, dtype=np.int64))
    if CHAIN not in names:
        return []
    excesses = ERROR_OF_ROOT * np.exp2(0.5 * columns[:, names.index(CHAIN)]) / limit
    found = [
        more_accurate(space, seed, excess)[:1]
        for seed, excess in zip(seeds, excesses, strict=True)
        if excess > MISSES
    ]
    return list(dict.fromkeys(one for some in found for one in some))

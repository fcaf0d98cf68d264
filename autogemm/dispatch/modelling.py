"""Fits how long each kernel takes at any size: three coefficients, from its measured times."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from autogemm.dispatch.table import Losses, Table
from autogemm.model.config import Config
from autogemm.model.rule import Modelled, TimeModel

# Blocks of one SM that run at a time: what a kernel's registers allow is not known here, but fits.
RESIDENT = (1, 2, 3, 4)
# Times that a kernel needs before three coefficients mean anything.
FEWEST_TIMES = 6


def time_models(
    table: Table, rows: Sequence[int], kernels: Sequence[int], num_sms: int
) -> Modelled | None:
    """A model for each kernel, from these rows; None where one has no tile or too few times."""
    models = []
    for kernel in kernels:
        times = {row: table.time_us(row, kernel) for row in rows}
        known = [row for row, time_us in times.items() if math.isfinite(time_us)]
        shapes = _shapes(table.kernels[kernel], num_sms)
        if not shapes or len(known) < FEWEST_TIMES:
            return None
        sizes = [table.sizes[row].size for row in known]
        measured = np.array([times[row] for row in known])
        fits = (_fitted(shape, sizes, measured) for shape in shapes)
        models.append(min(fits, key=lambda model: model.error))
    return Modelled(tuple(models), tuple(kernels))


def _shapes(config: Config, num_sms: int) -> list[TimeModel]:
    """Models without coefficients, for each number of blocks that may run at a time."""
    values = config.as_dict()
    tile = [values.get(name) for name in ("BM", "BN", "BK")]
    if not all(isinstance(extent, int) for extent in tile):
        return []
    bm, bn, bk = (int(extent) for extent in tile if extent is not None)
    parts, shared = int(values.get("SPLIT_K", 1)), int(values.get("STREAM_BLOCKS", 0))
    return [
        TimeModel(bm, bn, bk, parts, num_sms * resident, shared > 0, 0.0, 0.0, 0.0, math.inf)
        for resident in RESIDENT
    ]


def _fitted(shape: TimeModel, sizes: Sequence[tuple[int, int, int]], measured: Losses) -> TimeModel:
    """Least squares of relative errors, no coefficient below 0.

    With three of them all seven subsets are solved, and the best without a negative one taken.
    """
    terms = [shape.terms(size) for size in sizes]
    columns = np.array([[1.0, depth, depth * waves] for depth, waves in terms])
    relative = columns / measured[:, np.newaxis]
    best, least = np.zeros(3), math.inf
    for count in (1, 2, 3):
        for subset in itertools.combinations(range(3), count):
            found, *_ = np.linalg.lstsq(relative[:, subset], np.ones(len(measured)), rcond=None)
            if (found < 0).any():
                continue
            full = np.zeros(3)
            full[list(subset)] = found
            error = float(np.sqrt(np.mean((relative @ full - 1.0) ** 2)))
            if error < least:
                best, least = full, error
    # As they are written out, so that what is written chooses as what was learned.
    launch_us, depth_us, work_us = (float(f"{value:.5g}") for value in best)
    return TimeModel(
        *(shape.bm, shape.bn, shape.bk, shape.parts, shape.per_wave, shape.is_even),
        *(launch_us, depth_us, work_us, least),
    )

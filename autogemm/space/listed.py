"""A space that is a list: exactly the configs that somebody measured, whatever the rule was."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autogemm.model.config import Value
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space.build import MAX_RAW
from autogemm.space.family import Family
from autogemm.space.legal import Radix, Space
from autogemm.space.narrowing import narrowed
from autogemm.support.errors import EmptySpaceError, UsageError

Rows = npt.NDArray[np.intp]


def listed_space(
    family: Family,
    problem: Problem,
    device: Device,
    columns: Mapping[str, Sequence[Value]],
    fix: Mapping[str, Sequence[Value]] | None = None,
) -> tuple[Space, Rows]:
    """The space of the configs in ``columns`` (one list for each parameter, all equally long).

    The family's constraints are not asked: legal is what is listed and within ``fix``. The second
    value has, for each index of the space, the row of ``columns`` that it is. Raises UsageError for
    an unknown name or value in ``fix``, EmptySpaceError when nothing listed is within it.
    """
    fix = fix or {}
    radix = Radix(narrowed(family, fix))
    if radix.count > MAX_RAW:
        raise UsageError(f"{family.name} has {radix.count} raw configs, at most {MAX_RAW} can be")
    listed = next(iter(columns.values()), ())
    keys = np.zeros(len(listed), dtype=np.int64)
    is_kept = np.ones(len(listed), dtype=np.bool_)
    for parameter, stride in zip(radix.parameters, radix.strides, strict=True):
        ranks = {value: rank for rank, value in enumerate(parameter.values)}
        digits = np.array([ranks.get(v, -1) for v in columns[parameter.name]], dtype=np.int64)
        is_kept &= digits >= 0
        keys += digits * stride
    rows = np.flatnonzero(is_kept)
    if not len(rows):
        raise EmptySpaceError(
            f"none of the {len(listed)} configs that are listed is left; fix fewer values"
        )
    rows = rows[np.argsort(keys[rows], kind="stable")]
    chosen = {p.name: p.values for p in radix.parameters if p.name in fix}
    return Space(family, problem, device, chosen, (), radix, keys[rows]), rows

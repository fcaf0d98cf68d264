"""A config that was good elsewhere, moved to the nearest one that is legal here."""

from autogemm.config import Config
from autogemm.device import Device
from autogemm.errors import EmptySpaceError
from autogemm.problem import Problem
from autogemm.space.build import build_space
from autogemm.space.derived import broken_constraints
from autogemm.space.family import Family

# What makes a kernel the kernel it is; the rest (widths, padding, parts of K) may change.
KEPT_NAMES = ("BM", "BN", "BK", "WM", "WN", "TM", "TN", "STAGES")


def snapped(family: Family, config: Config, problem: Problem, device: Device) -> Config | None:
    """The config itself where it is legal, else the nearest legal one with the same tiles.

    None where there is none. Raises UsageError for a config that is none of the family's.
    """
    if not broken_constraints(family, config, problem, device):
        return config
    kept = {name: (value,) for name, value in config if name in KEPT_NAMES}
    try:
        space = build_space(family, problem, device, kept)
    except EmptySpaceError:
        return None
    return space.config(space.nearest(config))

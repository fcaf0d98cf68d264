"""Counters of a profiler, of one kernel on one problem."""

from dataclasses import dataclass
from typing import Annotated

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.limits import Finite, Line, Mapped, Moment, Sha256
from autogemm.model.outcome import Environment
from autogemm.model.problem import Problem


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profiler counted. ``kernel`` is the name of a rung, or empty for a stored kernel.

    ``counters`` are the profiler's own names with values in base units (bytes, seconds, shares as
    percent). ``profiler`` has its version. A time under a profiler is none to compare.
    """

    kernel: Line
    config: Config
    kernel_sha256: Sha256
    problem: Problem
    device: Device
    environment: Environment
    profiler: Line
    counters: Annotated[tuple[tuple[str, float], ...], Mapped(Finite, Line, 10_000)]
    made_at: Moment

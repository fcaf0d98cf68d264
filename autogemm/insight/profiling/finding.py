"""What is said of one topic, and what several topics look at."""

from dataclasses import dataclass

from autogemm.insight.profiling import counters as names
from autogemm.insight.profiling.counters import Counters
from autogemm.model.config import Config

# What counts as near a limit.
NEAR_PERCENT = 80.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One topic. ``cause`` and ``cure`` are empty where nothing is wrong.

    ``parameters`` are those of the kernel's own family that bear on it.
    """

    topic: str
    figure: str
    says: str
    cause: str = ""
    cure: str = ""
    parameters: tuple[str, ...] = ()


def own_parameters(config: Config, *wanted: str) -> tuple[str, ...]:
    """Those of the parameters that the family has."""
    return tuple(name for name in wanted if name in config.as_dict())


def memory_levels(counters: Counters) -> dict[str, float]:
    """Percent of what each level of memory can deliver, as far as the page says."""
    levels = {
        "L1 and shared memory": counters.get(names.L1),
        "L2": counters.get(names.L2),
        "device memory": counters.get(names.DRAM),
    }
    return {level: percent for level, percent in levels.items() if percent is not None}

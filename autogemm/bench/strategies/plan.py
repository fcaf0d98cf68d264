"""The plan of a comparison of search strategies."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from autogemm.search import check_sampler, sampler_names
from autogemm.support.errors import UsageError

KERNEL_TUNER = "kernel_tuner:"
# Those that Kernel Tuner's authors found best, and two to compare them with.
KERNEL_TUNER_DEFAULTS = ("hybrid_vndx", "genetic_algorithm", "simulated_annealing", "random_sample")


def has_kernel_tuner() -> bool:
    """Whether Kernel Tuner is installed; it is not imported."""
    return find_spec("kernel_tuner") is not None


def known_strategies() -> tuple[str, ...]:
    """The samplers, and some of Kernel Tuner's strategies where it is installed."""
    others = KERNEL_TUNER_DEFAULTS if has_kernel_tuner() else ()
    return (*sampler_names(), *(KERNEL_TUNER + name for name in others))


@dataclass(frozen=True, slots=True)
class Plan:
    """Strategies x recordings x batches x seeds, each for so many evaluations.

    ``kernel_tuner:NAME`` is a strategy of Kernel Tuner, which works one config at a time whatever
    ``batches`` says. Raises UsageError for a strategy that is not known or not installed, and for a
    number below 1.
    """

    recordings: tuple[Path, ...]
    strategies: tuple[str, ...]
    seeds: int = 25
    evaluations: int = 200
    batches: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if min(self.seeds, self.evaluations, *self.batches) < 1:
            raise UsageError("seeds, evaluations and batches are at least 1")
        for strategy in self.strategies:
            _check(strategy)

    def jobs(self) -> "list[Job]":
        """Every replay, those of one recording together."""
        return [
            Job(path, strategy, batch, seed, self.evaluations)
            for path in self.recordings
            for strategy in self.strategies
            for batch in (self.batches if not is_kernel_tuner(strategy) else (1,))
            for seed in range(self.seeds)
        ]


@dataclass(frozen=True, slots=True)
class Job:
    """One strategy on one recording with one seed."""

    path: Path
    strategy: str
    batch: int
    seed: int
    evaluations: int


def is_kernel_tuner(strategy: str) -> bool:
    """Whether it is one of Kernel Tuner's."""
    return strategy.startswith(KERNEL_TUNER)


def _check(strategy: str) -> None:
    if not is_kernel_tuner(strategy):
        check_sampler(strategy, "strategy", (f"{KERNEL_TUNER}NAME",))
        return
    if not has_kernel_tuner():
        raise UsageError(f"{strategy}: Kernel Tuner is not installed: pip install kernel-tuner")
    from kernel_tuner.interface import strategy_map

    name = strategy.removeprefix(KERNEL_TUNER)
    if name not in strategy_map:
        raise UsageError(
            f"Kernel Tuner has no strategy {name!r}; it has {', '.join(sorted(strategy_map))}"
        )

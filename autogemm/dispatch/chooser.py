"""Which config to run for a problem: its own result, the rule's choice, or the best guess."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from autogemm.config import Config
from autogemm.device import Device
from autogemm.dispatch.guess import guessed
from autogemm.dispatch.learning import Learned, learn
from autogemm.dispatch.snapper import Snapper
from autogemm.dispatch.table import Table, TunedSize, table_of, tuned_sizes
from autogemm.errors import EmptySpaceError
from autogemm.problem import Problem
from autogemm.similarity import distance
from autogemm.space import Family
from autogemm.store import RunRow


@dataclass(frozen=True, slots=True)
class Choice:
    """A legal config of a family, and in a few words why it."""

    family: Family
    config: Config
    why: str


class Chooser:
    """Chooses for one GPU, from what the database had when this was made."""

    def __init__(self, runs: Sequence[RunRow], families: Sequence[Family], device: Device) -> None:
        self._runs = runs
        self._families = families
        self._device = device
        self._snap = Snapper(families, device)
        self._sizes = tuned_sizes(runs, device)

    def is_tuned(self, problem: Problem) -> bool:
        """Whether this very problem has a result on this GPU, whatever its alpha and beta."""
        return self._own(problem) is not None

    def choose(self, problem: Problem) -> Choice:
        """The first of the candidates that is legal. Raises EmptySpaceError where none is."""
        for config, why in self._candidates(problem):
            legal = self._snap(config, problem)
            if legal is not None:
                return Choice(self._snap.family(legal), legal, why)
        raise EmptySpaceError(
            f"no kernel for {problem.label} on {self._device.name}: no result and no seed is legal"
        )

    def _candidates(self, problem: Problem) -> Iterator[tuple[Config, str]]:
        own = self._own(problem)
        if own is not None:
            yield own.winner, f"tuned in run {own.run_id}"
        if self._sizes:
            chosen = self._learned.rule.choose((problem.m, problem.n, problem.k))
            yield self._table.kernels[chosen], str(self._learned.rule)
        for size, device in self._by_distance(problem):
            where = "" if device.name == self._device.name else f" on {device.name}"
            yield size.winner, f"nearest tuned size {size.problem.label}{where}"
        for config in guessed(self._families, problem, self._device, self._snap):
            yield config, "nothing tuned: a seed of the family"

    def _own(self, problem: Problem) -> TunedSize | None:
        return next((size for size in self._sizes if _same(size.problem, problem)), None)

    @cached_property
    def _table(self) -> Table:
        kernels = tuple(dict.fromkeys(size.winner for size in self._sizes))
        return table_of(self._sizes, kernels, self._snap)

    @cached_property
    def _learned(self) -> Learned:
        return learn(self._table)

    def _by_distance(self, problem: Problem) -> list[tuple[TunedSize, Device]]:
        devices = {run.spec.device.name: run.spec.device for run in self._runs}
        known = [
            (size, device)
            for device in devices.values()
            for size in tuned_sizes(self._runs, device)
            if size.problem.dtype is problem.dtype
        ]
        return sorted(
            known, key=lambda pair: distance(problem, self._device, pair[0].problem, pair[1])
        )


def _same(one: Problem, other: Problem) -> bool:
    """Whether a kernel for one is a kernel for the other, and no slower."""
    return (
        (one.m, one.n, one.k, one.layout, one.dtype)
        == (other.m, other.n, other.k, other.layout, other.dtype)
    ) and all(getattr(one, name) % 4 == getattr(other, name) % 4 for name in ("lda", "ldb", "ldc"))

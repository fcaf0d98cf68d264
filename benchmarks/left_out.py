"""Measures what the choice for sizes that were not tuned loses, size by size.

    python benchmarks/left_out.py [DATABASE]

Each size is left out in turn, in all its layouts and types, and chosen for from the results of the
others. Times are those of stored finals, measured on the GPU that the first line names: none is
taken here. Without a database they are the committed ones whose kernels are emitted as they were.
Only kernels that were timed at a size can be judged there: finalists, which are near its best.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from committed import committed, rows_of

from autogemm.dispatch import NearestLegal, Predictor, Regret, tuned_sizes
from autogemm.dispatch.table import TunedSize
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.similarity import distance
from autogemm.space import default_families, expected_time
from autogemm.store import DecidedRow, open_store

# Orders those of the kernels that it knows, the best first.
Order = Callable[[Problem, Sequence[Config]], list[Config]]


@dataclass
class Judged:
    """Losses of the ways to choose, by their names, of one set of candidates."""

    title: str
    losses: dict[str, list[float]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def judge(self, size: TunedSize, candidates: list[Config], orders: dict[str, Order]) -> None:
        """Add a size that was left out, if it has two candidates that each way has an order of."""
        best_us = min(size.times_us[one] for one in candidates) if candidates else 0.0
        losses = {}
        for name, order in orders.items():
            chosen = next(iter(order(size.problem, candidates)), None)
            if chosen is None or len(candidates) < 2:
                return
            losses[name] = size.times_us[chosen] / best_us - 1.0
        times = [size.times_us[one] for one in candidates]
        losses["slowest"] = max(times) / best_us - 1.0
        for name, loss in losses.items():
            self.losses.setdefault(name, []).append(loss)
        cells = "".join(f"{100 * loss:>22.1f}" for loss in losses.values())
        self.lines.append(f"{size.problem.label:>30}{len(candidates):>9}{cells}")

    def show(self) -> None:
        """Print the table."""
        print(f"\n{self.title}: {len(self.lines)} left out")
        print(f"{'':>30}{'kernels':>9}" + "".join(f"{name:>22}" for name in self.losses))
        print("\n".join(self.lines))
        for name in ("mean", "median", "worst"):
            values = (getattr(Regret(tuple(losses)), name) for losses in self.losses.values())
            print(f"{name:>39}" + "".join(f"{100 * value:>22.1f}" for value in values))


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else ""
    rows = _rows(source)
    device = rows[-1].spec.device
    nearest_legal = NearestLegal(default_families(), device)
    sizes = [one for one in tuned_sizes(rows, device) if nearest_legal.knows(one.winner)]
    print(f"{device.name}: RECORDED, {len(sizes)} problems of {source or 'benchmarks/results'}")
    print("loss: time over that of the fastest candidate, less 1, in per cent")
    shared = Judged("candidates: kernels timed there that are winners of other sizes")
    timed = Judged("candidates: all kernels timed there")
    seconds = []
    for size in sorted({one.size for one in sizes}):
        others = [one for one in sizes if one.size != size]
        predictor = Predictor(others, nearest_legal)
        nearest = {"nearest size": _nearest(others, nearest_legal)}
        orders: dict[str, Order] = {
            "expected time": _expected(nearest_legal),
            "corrected": predictor.ranked,
        }
        for left_out in (one for one in sizes if one.size == size):
            problem = left_out.problem
            started = time.process_time()
            known = set(predictor(problem))
            seconds.append(time.process_time() - started)
            # By name: in the order of the finals the winner would be first.
            candidates = sorted(filter(nearest_legal.knows, left_out.times_us), key=str)
            known_there = [one for one in candidates if one in known]
            shared.judge(left_out, known_there, nearest | orders)
            timed.judge(left_out, candidates, orders)
    shared.show()
    timed.show()
    print(f"\npredicting for a new size: {max(seconds):.2f} s of a CPU core at most")


def _rows(source: str) -> list[DecidedRow]:
    if not source:
        return rows_of([one for one in committed() if one.row.spec.problem.epilogue.is_plain])
    with open_store(source, create=False) as store:
        return store.decided()


def _nearest(others: Sequence[TunedSize], nearest_legal: NearestLegal) -> Order:
    device = nearest_legal.device

    def order(problem: Problem, candidates: Sequence[Config]) -> list[Config]:
        near = sorted(others, key=lambda one: distance(problem, device, one.problem, device))
        same_type = (one for one in near if one.problem.dtype is problem.dtype)
        winners = dict.fromkeys(nearest_legal(one.winner, problem) for one in same_type)
        return [one for one in winners if one is not None and one in candidates]

    return order


def _expected(nearest_legal: NearestLegal) -> Order:
    def order(problem: Problem, candidates: Sequence[Config]) -> list[Config]:
        device = nearest_legal.device
        times = {
            one: expected_time(nearest_legal.family(one), one, problem, device)
            for one in candidates
        }
        known = {one: time for one, time in times.items() if time is not None}
        return sorted(known, key=known.__getitem__)

    return order


if __name__ == "__main__":
    main()

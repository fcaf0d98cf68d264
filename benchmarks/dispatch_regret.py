"""Measures what dispatch rules lose at each size of a crossed sweep when that size is left out.

    python benchmarks/dispatch_regret.py DATABASE

The sweep is `autogemm tune --problems FILE --cross`; every time is one that was measured there.
"""

import math
import sys

from autogemm.dispatch import NearestLegal, Regret, common_table, learn, tuned_sizes
from autogemm.space import default_families
from autogemm.store import open_store


def main() -> None:
    with open_store(sys.argv[1], create=False) as store:
        runs = store.decided()
    device = runs[-1].spec.device
    table = common_table(tuned_sizes(runs, device), NearestLegal(default_families(), device))
    learned = learn(table, device.num_sms)
    best = Regret(tuple(float(losses.min()) for losses in table.losses))
    columns = {"best of the kernels": best, **learned.regrets}
    ratios = [size.winner_ratio for size in table.sizes]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{device.name}, {len(table.sizes)} sizes, {len(table.kernels)} kernels timed at each")
    print(f"winners: {mean:.3f} times the speed of cuBLAS in the geometric mean")
    print("loss: time over that of the fastest kernel known at the size, less 1, in per cent;")
    print("of rules learned without the size and without the kernel that only it brought")
    print()
    print(f"{'MxNxK':>16}{'winner us':>11}{'x cuBLAS':>10}" + "".join(f"{n:>21}" for n in columns))
    for place, size in enumerate(table.sizes):
        cells = "".join(f"{100 * one.losses[place]:>21.1f}" for one in columns.values())
        best_us = min(size.times_us.values())
        print(f"{size.problem.size_label:>16}{best_us:>11.2f}{size.winner_ratio:>10.3f}{cells}")
    for name in ("mean", "median", "worst"):
        cells = "".join(f"{100 * getattr(one, name):>21.1f}" for one in columns.values())
        print(f"{name:>37}{cells}")
    # What is left of the winner's ratio when the rule's kernel takes longer than the fastest.
    speeds = [
        [ratio / (1 + loss) for ratio, loss in zip(ratios, one.losses, strict=True)]
        for one in columns.values()
    ]
    means = (math.exp(sum(map(math.log, of_rule)) / len(of_rule)) for of_rule in speeds)
    print(f"{'x cuBLAS, geometric mean':>37}" + "".join(f"{one:>21.3f}" for one in means))
    slower = (sum(one < 1 for one in of_rule) for of_rule in speeds)
    print(f"{'sizes where cuBLAS is faster':>37}" + "".join(f"{one:>21}" for one in slower))
    print(f"taken: {learned.rule}")


if __name__ == "__main__":
    main()

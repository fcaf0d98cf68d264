"""Rules from a table of losses, and what they lose on sizes they were not learned from."""

import numpy as np
from store_samples import config

from autogemm.dispatch.learning import by_merit, learn
from autogemm.dispatch.table import Table, TunedSize
from autogemm.model.problem import Problem
from autogemm.model.rule import Leaf, Nearest, Rule, Split, Tree, feature_value

KERNELS = tuple(config(bm) for bm in (16, 64, 256))


def choose(rule: Rule, size: tuple[int, int, int]) -> int:
    return rule.ranked(size)[0]


def table(rows: list[tuple[tuple[int, int, int], tuple[float, ...]]]) -> Table:
    losses = np.array([losses for _, losses in rows])
    sizes = tuple(
        TunedSize(Problem(*size), KERNELS[int(np.argmin(row))], 1.0, {}, 1)
        for (size, _), row in zip(rows, losses, strict=True)
    )
    return Table(sizes, KERNELS, losses, tuple(int(np.nanargmin(row)) for row in losses))


def by_m(*extents: int) -> Table:
    """Small M wants kernel 0, large M kernel 2; kernel 1 is never far off."""
    return table(
        [((m, 512, 512), (0.0, 0.05, 0.5) if m < 300 else (0.9, 0.04, 0.0)) for m in extents]
    )


def test_a_tree_asks_for_what_matters() -> None:
    """K alone decides, and the nearest size often has the wrong K."""
    rng = np.random.default_rng(1)
    sizes = [tuple(int(2 ** rng.uniform(5, 12)) for _ in range(3)) for _ in range(30)]
    rows = [(size, (0.0, 0.2, 0.6) if size[2] < 300 else (0.6, 0.2, 0.0)) for size in sizes]
    learned = learn(table(rows), 132)  # type: ignore[arg-type]
    assert isinstance(learned.rule, Tree)
    assert learned.rule.root == Split("K", learned.rule.root.threshold, Leaf(0), Leaf(2))
    assert all((k <= learned.rule.root.threshold) == (k < 300) for *_, k in sizes)
    assert learned.regret is not None
    assert learned.regret.mean < 0.5 * learned.regrets["nearest size"].mean


def test_a_kernel_that_is_never_far_off_is_better_than_a_guess() -> None:
    """Times that no feature explains: a tree of classes would take the most frequent winner."""
    wild = np.random.default_rng(0).integers(0, 2, 30)
    rows = [
        ((512, 512, 512 + i), (0.0, 0.05, 2.0) if wild[i] else (2.0, 0.05, 0.0)) for i in range(30)
    ]
    # The one in the middle wins where nobody else asks.
    rows += [((16, 16, 512 + i), (0.1, 0.0, 0.1)) for i in range(3)]
    learned = learn(table(rows), 132)
    assert isinstance(learned.rule, Tree)
    chosen = [choose(learned.rule, (512, 512, 512 + i)) for i in range(30)]
    assert chosen.count(1) > 10
    assert learned.regret is not None
    assert learned.regret.mean < learned.regrets["nearest size"].mean


def test_what_only_the_left_out_size_brought_is_not_used() -> None:
    rows = [((m, 512, 512), (0.0, 0.1, 0.3)) for m in (64, 128, 256, 512, 1024)]
    rows.append(((2048, 512, 512), (0.8, 0.6, 0.0)))
    learned = learn(table(rows), 132)
    # Kernel 2 wins there alone: without that size nobody would have it.
    assert learned.regrets["tree"].losses[-1] == 0.8
    assert learned.regrets["nearest size"].losses[-1] == 0.8


def test_a_tree_may_not_use_what_only_the_left_out_size_brought() -> None:
    """Kernel 2 is all but best everywhere, and found by nobody but the last size."""
    wild = [(0.0, 0.4, 0.01), (0.4, 0.0, 0.01)] * 4
    rows = [((512, 512, 512 + i), losses) for i, losses in enumerate(wild)]
    rows.append(((512, 512, 600), (0.5, 0.6, 0.0)))
    learned = learn(table(rows), 132)
    assert learned.regrets["tree"].losses[-1] >= 0.5
    # Any other size may.
    assert max(learned.regrets["tree"].losses[:-1]) <= 0.01


def test_a_kernel_that_is_not_legal_at_a_size_gives_way_to_the_next() -> None:
    rows = [((m, 512, 512), (0.0, 0.1, 0.3)) for m in (64, 128, 256, 512)]
    rows += [((5000, 512, 512), (0.3, 0.2, 0.0)), ((600, 512, 512), (np.inf, 0.0, 0.2))]
    learned = learn(table(rows), 132)
    # Kernel 0 is the nearest's, kernel 1 only this size's own: 2 is left.
    assert learned.regrets["nearest size"].losses[-1] == 0.2


def test_without_all_times_it_is_the_nearest_and_no_loss_is_claimed() -> None:
    rows = [((m, 512, 512), (0.0, np.nan, 0.3)) for m in (64, 128, 256, 512)]
    learned = learn(table(rows), 132)
    assert isinstance(learned.rule, Nearest)
    assert learned.regret is None
    assert choose(learned.rule, (100, 512, 512)) == 0


def test_the_order_of_merit() -> None:
    assert by_merit(by_m(16, 32, 512, 1024), range(4), range(3)) == [1, 2, 0]


def test_nearest_is_nearest_in_ratios() -> None:
    rule = Nearest(((100, 100, 100), (1000, 1000, 1000)), (5, 6))
    assert [choose(rule, (m, m, m)) for m in (1, 300, 330, 10**6)] == [5, 5, 6, 6]


def test_features_are_what_they_are_called() -> None:
    assert feature_value("M * N", (2, 3, 5)) == 6
    assert feature_value("M * N * K", (2, 3, 5)) == 30
    tree = Tree(Split("K", 4, Leaf(0), Leaf(1)))
    assert [choose(tree, (9, 9, k)) for k in (4, 5)] == [0, 1]
    assert str(tree) == "decision tree with 2 leaves"

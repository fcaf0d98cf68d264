"""Predicted times, tables of losses, and the problems that stand for kinds of kernels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.dispatch import NearestLegal
from autogemm.dispatch.assembling import variants_of
from autogemm.dispatch.chooser import waves_cost
from autogemm.dispatch.learning import learn, time_models
from autogemm.dispatch.table import Table, TunedSize, common_table, table_of
from autogemm.model.config import Config
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Modelled, Size, TimeModel
from autogemm.space import load_family

H100 = find_device("h100")
SMS = 132
SIMT = load_family("sgemm_simt")


def model(**given: float) -> TimeModel:
    one = TimeModel(64, 128, 16, 1, SMS, False, 5.0, 0.01, 0.02, 0.0)
    return replace(one, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "size", "depth", "waves"),
    [
        # 16 x 8 tiles of 64 x 128 are 128 blocks: one wave of 132.
        (model(), (1024, 1024, 512), 512, 1),
        # One row more is a row of tiles more, 136 blocks: two waves.
        (model(), (1025, 1024, 512), 512, 2),
        (model(is_even=True), (1025, 1024, 512), 512, 136 / 132),
        (model(per_wave=2 * SMS), (1025, 1024, 512), 512, 1),
        # Four blocks share K, and a part is as deep as a k_tile at least.
        (model(parts=4), (1024, 1024, 514), 129, 4),
        (model(parts=4), (64, 128, 40), 16, 1),
        (model(), (64, 128, 5), 16, 1),
    ],
)
def test_blocks_come_in_waves(one: TimeModel, size: Size, depth: int, waves: float) -> None:
    assert one.terms(size) == (depth, waves)
    assert one.time_us(size) == pytest.approx(5.0 + depth * (0.01 + waves * 0.02))


SIZES = [
    (m, n, k)
    for m, n in ((64, 128), (512, 512), (1500, 900), (4096, 4096))
    for k in (64, 700, 4096)
]


def timed_table(
    times: Sequence[Callable[[Size], float]],
    configs: Sequence[Config],
    sizes: Sequence[Size] = SIZES,
) -> Table:
    """Kernels that take these times."""
    rows = []
    for size in sizes:
        by_config = {config: time(size) for config, time in zip(configs, times, strict=True)}
        winner = min(by_config, key=lambda config: by_config[config])
        rows.append(TunedSize(Problem(*size), winner, 1.0, by_config, 1))
    losses = [[one.times_us[c] / min(one.times_us.values()) - 1 for c in configs] for one in rows]
    winners = tuple(configs.index(one.winner) for one in rows)
    return Table(tuple(rows), tuple(configs), np.array(losses), winners)


def tiles(bm: int, bn: int, bk: int, **more: int) -> Config:
    return Config.of("tiny", {"BM": bm, "BN": bn, "BK": bk, **more})


@pytest.mark.parametrize(
    ("truth", "config"),
    [
        (model(), tiles(64, 128, 16)),
        (model(per_wave=3 * SMS), tiles(64, 128, 16)),
        (model(parts=4, per_wave=2 * SMS), tiles(64, 128, 16, SPLIT_K=4)),
        (model(is_even=True), tiles(64, 128, 16, STREAM_BLOCKS=132)),
        (model(launch_us=0.0), tiles(64, 128, 16)),
        (model(depth_us=0.0), tiles(64, 128, 16)),
    ],
)
def test_a_model_is_found_from_the_times_that_it_made(truth: TimeModel, config: Config) -> None:
    table = timed_table([truth.time_us], [config])
    found = time_models(table, range(len(SIZES)), [0], SMS)
    assert found is not None
    (one,) = found.models
    assert one.error < 1e-6
    assert (one.parts, one.is_even) == (truth.parts, truth.is_even)
    if not one.is_even:
        # Where waves are even, how many blocks run at a time is no more than a factor.
        assert one.per_wave == truth.per_wave
        expected = [truth.launch_us, truth.depth_us, truth.work_us]
        fitted = [one.launch_us, one.depth_us, one.work_us]
        assert fitted == pytest.approx(expected, rel=1e-4, abs=1e-9)
    for size in ((300, 900, 2000), (8192, 8192, 64)):
        assert one.time_us(size) == pytest.approx(truth.time_us(size), rel=1e-4)


def test_no_coefficient_is_negative() -> None:
    """Times that fall with K, as no kernel's do."""
    table = timed_table([lambda size: 100.0 - size[2] / 100], [tiles(64, 128, 16)])
    found = time_models(table, range(len(SIZES)), [0], SMS)
    assert found is not None
    (one,) = found.models
    assert min(one.launch_us, one.depth_us, one.work_us) >= 0
    relative = [one.time_us(size) / (100.0 - size[2] / 100) - 1 for size in SIZES]
    assert one.error == pytest.approx(math.sqrt(np.mean(np.square(relative))), rel=1e-3)
    assert one.error > 0.05


def test_models_need_tiles_and_six_times() -> None:
    table = timed_table([model().time_us], [tiles(64, 128, 16)])
    assert time_models(table, range(6), [0], SMS) is not None
    assert time_models(table, range(5), [0], SMS) is None
    # A time that is not known is none: seven sizes, two of them without.
    table.losses[[1, 3], 0] = np.nan, np.inf
    assert time_models(table, range(8), [0], SMS) is not None
    assert time_models(table, range(7), [0], SMS) is None
    for gone in ("BM", "BN", "BK"):
        odd = Config.of("tiny", {**tiles(64, 128, 16).as_dict(), gone: "auto"})
        assert time_models(timed_table([model().time_us], [odd]), range(12), [0], SMS) is None


def test_predicted_times_are_taken_where_they_lose_least() -> None:
    """Two kernels change places by waves, which neither the nearest size nor a tree sees."""
    small, large = model(bm=32, bn=32, work_us=0.003), model(work_us=0.02)
    rng = np.random.default_rng(3)
    sizes = [tuple(int(2 ** rng.uniform(6, 12)) for _ in range(3)) for _ in range(40)]
    configs = [tiles(32, 32, 16), tiles(64, 128, 16)]
    table = timed_table([small.time_us, large.time_us], configs, sizes)  # type: ignore[arg-type]
    assert set(table.winners) == {0, 1}
    learned = learn(table, SMS)
    assert learned.kind == "predicted times"
    assert isinstance(learned.rule, Modelled)
    assert learned.regret is not None
    assert learned.regret.worst < 1e-6
    assert str(learned.rule) == "least of 2 predicted times"
    for size, winner in zip(sizes, table.winners, strict=True):
        assert learned.rule.ranked(size)[0] == winner  # type: ignore[arg-type]
    assert len(learned.regrets["tree"].losses) == 40


def test_regret_is_of_ratios_of_times() -> None:
    table = timed_table([lambda size: 1.0, lambda size: 2.0], [tiles(8, 8, 8), tiles(8, 8, 16)])
    losses = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    sizes = tuple(
        replace(one, winner=table.kernels[i % 2]) for i, one in enumerate(table.sizes[:3])
    )
    learned = learn(Table(sizes, table.kernels, losses, (0, 1, 0)), SMS)
    # Without the one in the middle nobody has its kernel: twice the time there.
    regret = learned.regrets["nearest size"]
    assert regret.losses[1] == 1.0
    assert regret.mean == pytest.approx(math.prod(1 + one for one in regret.losses) ** (1 / 3) - 1)
    assert regret.worst == max(regret.losses)


FIRST, SECOND, THIRD = SIMT.seeds[:3]


def tuned(m: int, **times: float) -> TunedSize:
    known = {"first": FIRST, "second": SECOND, "third": THIRD}
    by_config = {known[name]: time for name, time in times.items()}
    winner = min(by_config, key=lambda config: by_config[config])
    return TunedSize(Problem(m, 1024, 1024), winner, 1.0, by_config, 1)


def test_a_table_has_losses_over_the_best_time_known() -> None:
    legal = NearestLegal((SIMT,), H100)
    sizes = (tuned(1024, first=10.0, second=12.0), tuned(2048, second=20.0, first=30.0, third=25.0))
    table = table_of(sizes, (FIRST, SECOND, THIRD), legal)
    assert np.allclose(table.losses, [[0.0, 0.2, np.nan], [0.5, 0.0, 0.25]], equal_nan=True)
    assert table.winners == (0, 1)
    assert not table.is_complete
    assert table.time_us(1, 2) == pytest.approx(25.0)
    assert math.isnan(table.time_us(0, 2))
    # The winner is not among these kernels: the fastest of those that are known.
    assert table_of(sizes[:1], (THIRD, SECOND), legal).winners == (1,)


def test_a_kernel_that_is_not_legal_is_never_chosen() -> None:
    skinny = load_family("sgemm_skinny")
    legal = NearestLegal((SIMT, skinny), H100)
    table = table_of((tuned(1024, first=10.0),), (skinny.seeds[0], FIRST), legal)
    assert table.losses.tolist() == [[math.inf, 0.0]]


def test_the_table_is_of_winners_that_were_measured_at_every_size() -> None:
    legal = NearestLegal((SIMT,), H100)
    crossed = [tuned(1024, first=10.0, second=12.0), tuned(2048, second=20.0, first=30.0)]
    once = tuned(512, third=1.0, first=2.0, second=3.0)
    assert common_table([*crossed, once], legal).kernels == (FIRST, SECOND)
    # One alone is no choice.
    apart = [tuned(1024, first=10.0), tuned(2048, second=20.0, first=30.0)]
    assert common_table(apart, legal).kernels == (FIRST, SECOND)
    gone = replace(crossed[0], winner=Config.of("gone", {"BM": 1}))
    assert common_table([*crossed, gone], legal).sizes == tuple(crossed)


def test_waves_cost_more_where_more_of_them_are_needed_and_parts_are_added_up() -> None:
    def cost(config: Config, m: int, n: int, k: int) -> float:
        return waves_cost(SIMT, config, Problem(m, n, k), H100)

    base = Config.of(SIMT.name, {**FIRST.as_dict(), "SPLIT_K": 1})
    deep = cost(base, 1024, 1024, 8192)
    assert cost(base, 1024, 1024, 4096) == pytest.approx(deep / 2)
    # Four parts: a quarter of the depth, and adding up.
    split = Config.of(SIMT.name, {**base.as_dict(), "SPLIT_K": 4})
    blocks = (1024 // int(base["BM"])) * (1024 // int(base["BN"]))
    assert 4 * blocks <= SMS
    assert cost(split, 1024, 1024, 8192) == pytest.approx(deep / 4 + 800_000)
    # As many warps as share a k_tile wait that many times less: 1000 multiply-adds a step.
    shared = Config.of(SIMT.name, {**base.as_dict(), "SLICE_K": 2})
    assert deep - cost(shared, 1024, 1024, 8192) == pytest.approx(8192 * 500)


@pytest.mark.parametrize("layout", [Layout.NN, Layout.TN], ids=str)
@pytest.mark.parametrize("written", ["guarded", "inward"])
def test_each_kind_of_kernel_is_made_for_a_problem_of_its_kind(
    layout: Layout, written: str
) -> None:
    legal = NearestLegal((SIMT,), H100)
    config = next(seed for seed in SIMT.seeds if seed["EDGES"] == written)
    bm, bn, bk = (int(config[name]) for name in ("BM", "BN", "BK"))
    variants = {one.edges: one for one in variants_of(config, 7, (layout,), legal)}
    assert "no edges" in variants
    assert len(variants) >= 4
    assert "any size" in variants or written == "guarded"
    for edges, one in variants.items():
        p = one.problem
        assert (one.config_number, p.layout, one.family.name) == (7, layout, SIMT.name)
        rests = (p.m % bm, p.n % bn, p.k % bk)
        divided = {
            "no edges": (True, True, True),
            "edges of C at multiples of 4": (False, False, True),
        }
        assert tuple(rest == 0 for rest in rests) == divided.get(edges, (False, False, False))
        in_fours = [extent % 4 == 0 for extent in (p.m, p.n, p.k)]
        assert (
            all(in_fours) if "multiples of 4" in edges or edges == "no edges" else not any(in_fours)
        )
        strides = [stride % 4 for stride in (p.lda, p.ldb, p.ldc)]
        assert strides == ([1, 1, 1] if edges in ("any rows", "any size") else [0, 0, 0])
        small = [own < tile for own, tile in ((p.m, bm), (p.n, bn), (p.k, bk))]
        assert small == [edges == "any size"] * 3

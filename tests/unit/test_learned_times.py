"""What expected times miss, learned from trials: the trees that ship, and what is made of them."""

import gzip
import importlib
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor
from sqlalchemy import create_engine, text

from autogemm.catalogue.gpus import find_device
from autogemm.catalogue.learned import (
    FILE_NAME,
    LEARNED,
    LearnedTimes,
    Tree,
    learned_times,
    read_learned,
)
from autogemm.dispatch import Chooser, NearestLegal, Predictor
from autogemm.model.batch import Batch
from autogemm.model.called import parsed_called
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import EXPECTED_TIME, build_space, derived_columns, load_family
from autogemm.support.errors import ExchangeError
from autogemm.support.resources import data_folder

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
learn_times: Any = importlib.import_module("learn_times")

H200 = find_device("h200")
WGMMA = load_family("gemm_wgmma")
SHIPPED = data_folder("db/catalogue") / FILE_NAME


def learned(*trees: Tree, features: tuple[str, ...]) -> LearnedTimes:
    return LearnedTimes(
        family="gemm_wgmma",
        arch=90,
        dtypes=("bf16",),
        extents=((1, 9999),) * 3,
        gpu="x",
        trials=1,
        problems=1,
        expressions_sha256=WGMMA.expressions_sha256,
        features=features,
        trees=trees,
    )


def stump(feature: int, threshold: float, below: float, above: float) -> Tree:
    """One question: so much at most the threshold, so much above it."""
    return Tree((feature, -1, -1), (threshold, 0, 0), (1, 0, 0), (2, 0, 0), (0.0, below, above))


def test_a_correction_is_the_sum_of_what_the_trees_say() -> None:
    deep = Tree(
        (0, -1, 1, -1, -1), (2, 0, 0.5, 0, 0), (1, 0, 3, 0, 0), (2, 0, 4, 0, 0), (0, 1, 0, 2, 4)
    )
    both = learned(deep, stump(0, 5.0, 0.5, 0.25), features=("BM", "SCHEDULE=pingpong"))
    words = np.array(["pingpong", "pingpong", "cooperative", "cooperative"])
    found = both.corrections({"BM": np.array([2, 3, 3, 9]), "SCHEDULE": words}, 4)
    assert found.tolist() == [1.5, 4.5, 2.5, 2.25]
    # One value for all configs.
    assert both.corrections({"BM": 2, "SCHEDULE": "pingpong"}, 2).tolist() == [1.5, 1.5]


def test_trees_say_what_scikit_learn_says() -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 2000, size=(300, 3)).astype(np.float32)
    targets = np.log2(1 + rows[:, 0]) + (rows[:, 1] > 700) * rows[:, 2] / 500
    model = GradientBoostingRegressor(n_estimators=20, max_depth=4, random_state=0)
    model.fit(rows, targets)
    trees = [learn_times.tree_of(one.tree_, model.learning_rate) for (one,) in model.estimators_]
    ours = learned(*trees, features=("BM", "BN", "WM"))
    found = ours.corrections(dict(zip(("BM", "BN", "WM"), rows.T, strict=True)), len(rows))
    difference = model.predict(rows) - found
    assert np.ptp(difference) < 1e-4
    assert np.ptp(found) > 5.0


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        (lambda: Tree((0, -1), (1, 0), (1, 0), (0, 0), (0, 0)), "children"),
        (lambda: Tree((0, -1), (1, 0), (1, 0), (2, 0), (0, 0)), "children"),
        (lambda: Tree((-1,), (), (0,), (0,), (0,)), "one value for each node"),
        (lambda: learned(stump(1, 0, 0, 0), features=("BM",)), "more than 1 features"),
    ],
)
def test_what_is_no_tree_is_refused(tree: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        tree()


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(gzip.compress(b'[{"family": "gemm_wgmma"}]'))
    with pytest.raises(ExchangeError, match=str(path)):
        read_learned(path)


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the catalogue, which other tests do without."""
    monkeypatch.delenv("AUTOGEMM_CATALOGUE")


@pytest.mark.usefixtures("shipped")
def test_without_a_catalogue_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(learned_times(90)) == set(learn_times.FAMILIES)
    assert learned_times(80) == {}
    monkeypatch.setenv("AUTOGEMM_CATALOGUE", "none")
    assert learned_times(90) == {}


@pytest.mark.parametrize("one", read_learned(SHIPPED), ids=lambda one: one.family)
def test_what_ships_belongs_to_the_families_of_today(one: LearnedTimes) -> None:
    family = load_family(one.family)
    assert one.expressions_sha256 == family.expressions_sha256, (
        f"what {one.family} derives or expects has changed: run benchmarks/learn_times.py, and "
        "look at the losses that --judge shows"
    )
    problem = Problem(100, 200, 300, Layout.NT, DType.parse(one.dtypes[0]))
    space = build_space(family, problem, H200)
    config = space.config(len(space) // 2)
    columns = derived_columns(family, [(config, problem)], H200)
    assert np.isfinite(one.corrections(columns, 1)).all()


def test_columns_of_a_space_are_those_of_its_configs() -> None:
    problem = Problem(320, 64, 1024, Layout.TN, DType.BF16)
    space = build_space(WGMMA, problem, H200)
    rows = np.array([0, len(space) // 3, len(space) - 1])
    found = space.columns(rows)
    pairs = [(space.config(int(row)), problem) for row in rows]
    wanted = derived_columns(WGMMA, pairs, H200)
    assert found.keys() == wanted.keys()
    for name, column in wanted.items():
        assert np.broadcast_to(found[name], 3).tolist() == np.broadcast_to(column, 3).tolist(), name


def test_the_choice_follows_what_was_learned() -> None:
    problem = Problem(768, 768, 1024, Layout.NT, DType.BF16)
    for below, above in ((-5.0, 5.0), (5.0, -5.0)):
        model = {"gemm_wgmma": learned(stump(0, 1.0, below, above), features=("SPLIT_K",))}
        first, *_ = Predictor((), NearestLegal((WGMMA,), H200), model)(problem)
        assert (first["SPLIT_K"] == 1) == (below < above)


@pytest.mark.usefixtures("shipped")
def test_what_was_learned_is_not_used_for_another_family_of_that_name() -> None:
    problem = Problem(256, 256, 256, Layout.NT, DType.BF16)
    derive = {name: one for name, one in WGMMA.derive.items() if name != "guard_k"}
    other = replace(WGMMA, derive=derive)
    assert Predictor((), NearestLegal((WGMMA,), H200), learned_times(90)).has_learned(problem)
    assert not Predictor((), NearestLegal((other,), H200), learned_times(90)).has_learned(problem)


@pytest.mark.usefixtures("shipped")
def test_the_shipped_choice_splits_what_is_deep() -> None:
    # Four tiles of C on 132 SMs: no kernel that leaves them whole is near the best.
    chosen = Chooser((), (WGMMA,), H200).choose(Problem(256, 256, 16384, Layout.NT, DType.BF16))
    assert chosen.why == "least of 16 expected times"
    assert int(chosen.config["SPLIT_K"]) > 1


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize(
    "problem",
    [
        Problem(256, 256, 256, Layout.NT, DType.parse("e4m3")),
        Problem(256, 256, 256, Layout.NT, DType.BF16, epilogue=Epilogue.parse("relu(acc)")),
        Problem(256, 256, 256, Layout.NT, DType.BF16, batch=Batch(4)),
        Problem(8, 256, 256, Layout.NT, DType.BF16),
        Problem(256, 256, 100_000, Layout.NT, DType.BF16),
    ],
    ids=["another type", "an epilogue", "a batch", "fewer rows", "a larger depth"],
)
def test_what_was_learned_is_used_where_there_were_such_problems_alone(problem: Problem) -> None:
    predictor = Predictor((), NearestLegal((WGMMA,), H200), learned_times(90))
    assert predictor.has_learned(Problem(256, 256, 256, Layout.NT, DType.BF16))
    assert not predictor.has_learned(problem)


def test_trials_of_a_database_are_added_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn_times, "TRIALS", tmp_path / "trials.json.gz")
    problem = Problem(320, 64, 1024, Layout.TN, DType.BF16)
    space = build_space(WGMMA, problem, H200)
    configs = [space.config(row) for row in (0, len(space) - 1)]
    with create_engine(f"sqlite:///{tmp_path}/t.db").begin() as connection:
        connection.execute(text("CREATE TABLE problems (id, m, n, k, layout, dtype)"))
        connection.execute(text("CREATE TABLE runs (id, problem_id)"))
        connection.execute(text("CREATE TABLE run_trials (id, run_id, family, config, time_us)"))
        connection.execute(text("INSERT INTO problems VALUES (1, 320, 64, 1024, 'tn', 'bf16')"))
        connection.execute(text("INSERT INTO runs VALUES (7, 1)"))
        for number, (config, time_us) in enumerate(zip(configs, (4.0, None), strict=True)):
            connection.execute(
                text("INSERT INTO run_trials VALUES (:number, 7, 'gemm_wgmma', :config, :us)"),
                {"number": number, "config": json.dumps(config.as_dict()), "us": time_us},
            )
    for date in ("first", "second"):
        assert learn_times.add(tmp_path / "t.db", {"date": date}) == {"gemm_wgmma": 1}
    trials = learn_times.read_trials(learn_times.TRIALS)
    assert trials == [learn_times.Trial(problem, configs[0], 4.0)] * 2
    with gzip.open(learn_times.TRIALS, "rt") as file:
        assert [one["date"] for one in json.loads(next(file))["sources"]] == ["first", "second"]


def test_targets_are_what_is_missed_beside_the_fastest() -> None:
    problem = Problem(320, 64, 1024, Layout.TN, DType.BF16)
    space = build_space(WGMMA, problem, H200)
    configs = [space.config(row) for row in (0, len(space) // 2, len(space) - 1)]
    expected = [
        int(derived_columns(WGMMA, [(one, problem)], H200)[EXPECTED_TIME]) for one in configs
    ]
    times = [1.0, 3.0, 30.0]
    trials = [
        learn_times.Trial(problem, one, time_us)
        for one, time_us in zip(configs, times, strict=True)
    ]
    (table,) = learn_times.tables_of(trials)
    # The third took far longer than any kernel does: its launch was disturbed.
    assert [trial.config for trial in table.trials] == configs[:2]
    first, second = table.targets
    assert second - first == pytest.approx(math.log2(3.0 * expected[0] / expected[1]))


def test_problems_that_are_drawn_can_be_searched(tmp_path: Path) -> None:
    learn_times.draw(tmp_path, 5, 8)
    for dtype in ("f32", "bf16", "tf32"):
        recorded = parsed_called((tmp_path / f"{dtype}.jsonl").read_text(), dtype)
        problems = [one.problem for one in recorded.gemms]
        assert [one.layout.value for one in problems if one] == ["nn", "nt", "tn", "tt"] * 2
        assert {one.dtype.label for one in problems if one} == {dtype}


def test_the_shipped_file_is_read_as_it_was_written() -> None:
    packed = gzip.decompress(SHIPPED.read_bytes())
    assert LEARNED.dump_json(read_learned(SHIPPED)) == packed


def test_extents_are_powers_of_two() -> None:
    assert learn_times.extents_of([(37, 64, 65), (100, 64, 5)]) == ((32, 128), (64, 64), (4, 128))

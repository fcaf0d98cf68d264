"""Pictures of a run: what is drawn, for which run, and what they say of themselves."""

import random
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import optuna
import pytest
from click.testing import CliRunner, Result
from store_samples import H100, SPEC, failed, fill, new_store, ok

from autogemm.cli import main
from autogemm.insight.analysis import grid, importance, read_run
from autogemm.insight.analysis.trials import RunTrials
from autogemm.model.config import Config
from autogemm.model.results.outcome import Measurement, Objective, Outcome, Provenance, Status
from autogemm.search.importance import parameter_importance
from autogemm.store import BestQuery, RunRow, RunState, Store
from autogemm.support.errors import NotFoundError, UsageError

KINDS = ("history", "distribution", "importance", "heatmap")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    return new_store(tmp_path)


def grid_of_trials(store: Store, **changes: object) -> int:
    """BM decides, BK helps a little, PAD does nothing; BM=256 with BK=32 crashes."""
    run = store.begin_run(replace(SPEC, **changes))  # type: ignore[arg-type]
    number = 0
    for bm in (32, 64, 128, 256):
        for bk in (8, 16, 32):
            for pad in range(6):
                config = Config("sgemm_simt", (("BM", bm), ("BK", bk), ("PAD", pad)))
                time_us = 1e6 / bm + 10 * bk + 0.01 * ((7 * pad) % 6)
                store.record_trial(run, number, outcome(config, time_us), None)
                number += 1
    store.finish_run(run, RunState.FINISHED)
    return run


def outcome(config: Config, time_us: float) -> Outcome:
    if (config["BM"], config["BK"]) == (256, 32):
        return Outcome(config, Status.CRASHED, "illegal address")
    return Outcome(
        config, Status.OK, measurement=Measurement((time_us,), provenance=SPEC.provenance)
    )


def plot(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["plot", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def words(path: Path) -> list[str]:
    """The texts of an SVG: Matplotlib leaves each as a comment beside its outlines."""
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    tree = ET.parse(path, parser)
    return [
        unescape(str(node.text)).strip() for node in tree.iter() if not isinstance(node.tag, str)
    ]


def test_the_best_so_far_only_gets_better(store: Store) -> None:
    fill(store)
    trials = read_run(store, BestQuery(run_id=1))
    tflops = SPEC.problem.tflops
    assert trials.merits() == [tflops(2800.0), tflops(2700.0)]
    steps = trials.best_so_far()
    assert [(step.number, step.merit) for step in steps] == [
        (0, tflops(2800.0)),
        (1, tflops(2700.0)),
    ]
    assert 0 <= steps[0].seconds <= steps[1].seconds < 60
    assert trials.counts() == {Status.OK: 2, Status.CRASHED: 1}
    assert trials.baseline_merit == pytest.approx(tflops(2655.0 * 1.01))


def test_a_worse_trial_is_no_step(store: Store) -> None:
    run = store.begin_run(SPEC)
    for number, time_us in enumerate((3000.0, 2000.0, 2500.0, 1000.0)):
        store.record_trial(run, number, ok(2**number, time_us), None)
    store.record_trial(run, 4, failed(16), None)
    steps = read_run(store, BestQuery()).best_so_far()
    assert [step.number for step in steps] == [0, 1, 3]


def test_energy_is_better_the_less_it_is(store: Store) -> None:
    fill(store)
    run = read_run(store, BestQuery(run_id=1)).run
    outcomes = [
        replace(ok(64, 100.0), measurement=Measurement((100.0,), SPEC.provenance, energy_mj=mj))
        for mj in (9.0, 5.0, 7.0)
    ]
    row = store.trial_rows(BestQuery(run_id=1))[0]
    rows = tuple(replace(row, number=i, outcome=one) for i, one in enumerate(outcomes))
    spec = replace(run.spec, objective=Objective.EDP)
    frugal: RunRow = replace(run, spec=spec)
    assert [step.merit for step in RunTrials(frugal, rows).best_so_far()] == [900.0, 500.0]
    assert RunTrials(frugal, rows).baseline_merit is None


def test_importance_finds_what_decides(store: Store) -> None:
    grid_of_trials(store)
    shares = importance(read_run(store, BestQuery()), "sgemm_simt")
    assert next(iter(shares)) == "BM"
    assert shares["BM"] > 0.5 > shares["PAD"]
    assert sum(shares.values()) == pytest.approx(1.0)


def test_too_few_configs_say_nothing_of_importance() -> None:
    tried = [(Config("f", (("BM", value),)), float(value)) for value in range(49)]
    assert parameter_importance(tried) == {}
    assert parameter_importance([*tried, (Config("f", (("BM", 50),)), 1.0)]) == {"BM": 1.0}
    assert parameter_importance([(Config("f", (("BM", 1),)), 1.0)] * 60) == {}


@pytest.mark.parametrize(("count", "digits"), [(60, 3), (200, 0), (2500, 3)])
def test_importance_is_what_optuna_makes_of_it(count: int, digits: int) -> None:
    """Computed without Optuna, whose imports are half of the time of a report."""
    chance = random.Random(count)
    sizes = {"BM": 5, "BN": 3, "PAD": 2, "ORDER": 9}
    tried = []
    for _ in range(count):
        values = {name: chance.randrange(size) for name, size in sizes.items()}
        cost = 2 * values["BM"] + values["BN"] ** 2 + values["PAD"] + 3 * chance.random()
        words = values | {"ORDER": f"after {values['ORDER']}"}
        tried.append((Config("f", tuple(words.items())), round(cost, digits)))
    study = optuna.create_study()
    ranked = sorted(tried, key=lambda pair: pair[1])
    choices: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(
            sorted({one[name] for one, _ in tried}, key=str)
        )
        for name in sizes
    }
    for config, cost in ranked[:: 2 if count > 2000 else 1]:
        trial = optuna.create_trial(params=dict(config), distributions=choices, value=cost)
        study.add_trial(trial)
    expected = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
    )
    shares = parameter_importance(tried)
    assert shares == pytest.approx(expected, abs=1e-12)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_what_is_as_fast_everywhere_has_equal_shares() -> None:
    tried = [(Config("f", (("BM", i % 3), ("BN", i % 5))), 1.0) for i in range(60)]
    assert parameter_importance(tried) == {"BM": 0.5, "BN": 0.5}


def test_a_heat_map_has_the_best_of_each_pair(store: Store) -> None:
    grid_of_trials(store)
    trials = read_run(store, BestQuery())
    cells = grid(trials, "sgemm_simt", "BM", "BK")
    assert (cells.x_values, cells.y_values) == ((32, 64, 128, 256), (8, 16, 32))
    assert cells.best[0][3] == SPEC.problem.tflops(1e6 / 256 + 80)
    assert cells.best[2][3] is None
    assert grid(trials, "sgemm_simt").x == "BM"
    assert grid(trials, "sgemm_simt", y="BM").y == "BM"
    with pytest.raises(UsageError, match="do not vary 'BN'; they vary: BM, BK, PAD"):
        grid(trials, "sgemm_simt", "BN")
    with pytest.raises(UsageError, match="needs two parameters"):
        grid(trials, "sgemm_simt", "BM", "BM")


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_say_what_they_are_of(store: Store, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    grid_of_trials(store, provenance=Provenance.RECORDED)
    path = tmp_path / "picture.svg"
    result = plot(kind, path)
    assert result.exit_code == 0, result.output
    caption = read_run(store, BestQuery()).caption
    assert result.stdout == f"{path}: {caption}\n"
    assert caption.startswith("4096 nn f32 on NVIDIA H100 80GB HBM3, run 1, 20")
    assert caption.endswith("recorded times")
    text = " ".join(words(path))
    assert all(word in text for word in caption.split())


def test_the_same_run_gives_the_same_file(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill(store)
    paths = [tmp_path / name for name in ("once.svg", "again.svg")]
    for path in paths:
        assert plot("distribution", path).exit_code == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_png_and_the_chosen_run(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill(store)
    result = plot("history", tmp_path / "a.png", "--run", 3)
    assert "512x256x64 nn f32 on Tesla T4, run 3" in result.stdout
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert plot("history", tmp_path / "a.png").exit_code == 2
    assert plot("history", tmp_path / "a.png", "--force").exit_code == 0


def test_names_are_text_and_never_formulas(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    grid_of_trials(store, device=replace(H100, name="<b>$\\frac{$ \u4e2d"))
    path = tmp_path / "a.svg"
    result = plot("heatmap", path)
    assert result.exit_code == 0, result.output
    assert r"<b>$\frac{$" in " ".join(words(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("history", "a.txt"), "a plot is one of .png .svg .pdf, got 'a.txt'"),
        (("history", "nowhere/a.svg"), "there is no folder nowhere"),
        (("history", "a.svg", "--x", "BM"), "--x and --y are for heatmap, not for history"),
        (("heatmap", "a.svg", "--x", "NO"), "do not vary 'NO'; they vary: BM"),
        (("history", "a.svg", "--run", "9"), "no run with trials matches"),
    ],
)
def test_wrong_requests(store: Store, arguments: tuple[str, ...], message: str) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill(store)
    result = plot(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("a.svg").exists()


def test_an_empty_run_is_not_found(store: Store) -> None:
    store.begin_run(SPEC)
    with pytest.raises(NotFoundError, match="no run with trials"):
        read_run(store, BestQuery())

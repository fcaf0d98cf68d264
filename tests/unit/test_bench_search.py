"""Search strategies compared on recorded spaces: what is counted, what is a median of what."""

import csv
import gzip
import json
import multiprocessing
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from fake_target import tiny_family, tiny_recording
from kernel_tuner_caches import COMPILE_MS, VALUES, content, time_ms, write_cache

import autogemm.bench.strategies.replaying
from autogemm.bench.strategies import Plan, Replay, known_strategies, replays, summarise
from autogemm.bench.strategies.plan import Job
from autogemm.bench.strategies.replaying import replay
from autogemm.cli import main
from autogemm.formats import write_recording
from autogemm.search import SAMPLERS, Search
from autogemm.support.child_process import child_environment
from autogemm.support.errors import AutogemmError, UsageError
from autogemm.targets.recorded import RecordedSpace, open_recorded_space, recording_folder

NUM_CONFIGS = len(content()["cache"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_cache(tmp_path / "gpu.json")


@pytest.fixture
def recorded(path: Path) -> RecordedSpace:
    return open_recorded_space(path)


def job(recorded: RecordedSpace, strategy: str, **changes: Any) -> Job:
    facts = {"batch": 1, "seed": 0, "evaluations": NUM_CONFIGS} | changes
    return Job(Path(recorded.name), strategy, **facts)


def test_fractions_are_best_over_best_so_far(recorded: RecordedSpace) -> None:
    done = replay(job(recorded, "exhaustive"), recorded)
    best_so_far = np.minimum.accumulate(recorded.times_us)
    assert np.isinf(best_so_far[0])
    assert done.fractions == pytest.approx(recorded.best_us / best_so_far)
    assert done.fractions[0] == 0.0
    assert done.fractions[-1] == 1.0
    assert done.ms_per_proposal > 0.0


@pytest.mark.parametrize("strategy", [s for s in SAMPLERS if s not in ("exhaustive", "gp")])
def test_every_sampler_finds_the_best_of_a_whole_space(
    recorded: RecordedSpace, strategy: str
) -> None:
    done = replay(job(recorded, strategy, evaluations=NUM_CONFIGS + 5), recorded)
    assert len(done.fractions) == NUM_CONFIGS + 5
    assert (np.diff(done.fractions) >= 0).all()
    assert done.fractions[-1] == 1.0


def test_a_gaussian_process_proposes_beyond_its_random_beginning(recorded: RecordedSpace) -> None:
    pytest.importorskip("torch", reason="Optuna's Gaussian process needs torch")
    evaluations = 14  # of which 10 are random; all of the space would take half a minute
    done = replay(job(recorded, "gp", evaluations=evaluations), recorded)
    assert len(done.fractions) == evaluations
    assert done.fractions[-1] > 0.0


def test_a_seed_decides(recorded: RecordedSpace) -> None:
    first, again, other = (
        replay(job(recorded, "random", seed=seed), recorded).fractions for seed in (1, 1, 2)
    )
    assert list(first) == list(again)
    assert list(first) != list(other)


def test_a_batch_is_asked_before_any_of_it_is_told(
    recorded: RecordedSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    class Spy(Search):
        def ask(self) -> Any:
            calls.append("ask")
            return super().ask()

        def tell(self, *arguments: Any) -> None:
            calls.append("tell")
            super().tell(*arguments)

    monkeypatch.setattr(autogemm.bench.strategies.replaying, "Search", Spy)
    replay(job(recorded, "random", batch=3, evaluations=7), recorded)
    assert calls == [*["ask"] * 3, *["tell"] * 3] * 2 + ["ask", "tell"]


def test_recorded_seconds_add_up(tmp_path: Path) -> None:
    rows = content()["cache"]
    for row in rows.values():
        row |= {"compile_time": COMPILE_MS, "verification_time": 0.0, "benchmark_time": 50.0}
    recorded = open_recorded_space(write_cache(tmp_path / "costs.json", cache=rows))
    done = replay(job(recorded, "random", evaluations=4), recorded)
    assert done.spent_s == pytest.approx([0.15, 0.3, 0.45, 0.6])
    assert done.includes_compiling


def test_nobody_is_told_of_seeds(tmp_path: Path) -> None:
    path = tmp_path / "own.json.gz"
    write_recording(tiny_recording(tiny_family(tmp_path / "tiny")), path)
    assert open_recorded_space(path).space.seeds == []


@pytest.mark.parametrize("strategy", ["random_sample", "genetic_algorithm", "hybrid_vndx"])
def test_kernel_tuner_plays_by_the_same_rules(recorded: RecordedSpace, strategy: str) -> None:
    pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
    from autogemm.bench.strategies.kernel_tuner import tried

    wanted = job(recorded, f"kernel_tuner:{strategy}", evaluations=30)
    tries, search_s = tried(wanted, recorded)
    assert len(set(tries)) == len(tries) <= 30
    assert search_s >= 0.0
    assert tried(wanted, recorded)[0] == tries
    assert (np.diff(replay(wanted, recorded).fractions) >= 0).all()


def test_kernel_tuner_goes_the_way_it_goes_without_us(tmp_path: Path) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
    from autogemm.bench.strategies.kernel_tuner import tried

    # Its own replay of a cache leaves out what failed: here nothing did.
    rows = {key: row | {"time": time_ms(row)} for key, row in content()["cache"].items()}
    path = write_cache(tmp_path / "gpu.json", cache=rows)
    recorded = open_recorded_space(path)
    tries, _ = tried(job(recorded, "kernel_tuner:hybrid_vndx", seed=3, evaluations=40), recorded)
    random.seed(3)
    np.random.seed(3)
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_cache(
            str(path), strategy="hybrid_vndx", strategy_options={"max_fevals": 40}, quiet=True
        )
    theirs = dict.fromkeys(tuple(row[name] for name in VALUES) for row in results)
    ours = [tuple(value for _, value in recorded.space.config(index)) for index in tries]
    assert ours == list(theirs)


def test_kernel_tuner_may_try_what_failed(recorded: RecordedSpace) -> None:
    pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
    from autogemm.bench.strategies.kernel_tuner import tried

    tries, _ = tried(job(recorded, "kernel_tuner:random_sample"), recorded)
    assert sorted(tries) == list(range(NUM_CONFIGS))


def test_kernel_tuner_giving_up_is_one_line(
    recorded: RecordedSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")

    def broken(**_: Any) -> None:
        raise ValueError("no neighbours")

    monkeypatch.setattr(kernel_tuner, "tune_kernel", broken)
    with pytest.raises(AutogemmError, match="kernel_tuner:pso failed on gpu: no neighbours"):
        replay(job(recorded, "kernel_tuner:pso"), recorded)


def test_plans(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan((path,), ("random", "tpe"), seeds=3, batches=(1, 8))
    assert len(plan.jobs()) == 2 * 2 * 3
    assert set(SAMPLERS) <= set(known_strategies())
    with pytest.raises(UsageError, match="unknown strategy 'magic'"):
        Plan((path,), ("magic",))
    for numbers in ({"seeds": 0}, {"evaluations": 0}, {"batches": (0,)}):
        with pytest.raises(UsageError, match="at least 1"):
            Plan((path,), ("random",), **numbers)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    monkeypatch.setattr("autogemm.bench.strategies.plan.find_spec", lambda name: None)
    assert known_strategies() == SAMPLERS
    with pytest.raises(UsageError, match="Kernel Tuner is not installed"):
        Plan((path,), ("kernel_tuner:pso",))


def test_plans_with_kernel_tuner(path: Path) -> None:
    pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed")
    plan = Plan((path,), ("kernel_tuner:hybrid_vndx", "random"), seeds=2, batches=(1, 8))
    assert [one.batch for one in plan.jobs()] == [1, 1, 1, 1, 8, 8]
    assert set(known_strategies()) - set(SAMPLERS) >= {"kernel_tuner:hybrid_vndx"}
    with pytest.raises(UsageError, match="Kernel Tuner has no strategy 'magic'; it has"):
        Plan((path,), ("kernel_tuner:magic",))


def made_up(
    plan: Plan, fractions: Sequence[Sequence[float]], spent_s: Sequence[float] | None = None
) -> list[Replay]:
    return [
        Replay(one, np.array(row), None if spent_s is None else np.array(spent_s), True, 2.0)
        for one, row in zip(plan.jobs(), fractions, strict=True)
    ]


def test_medians_over_seeds_then_over_spaces() -> None:
    plan = Plan((Path("a.json"), Path("b.json")), ("random",), seeds=3, evaluations=2)
    rows = [[0.1, 0.5], [0.3, 0.6], [0.2, 1.0], [0.5, 0.5], [0.9, 0.9], [0.7, 0.7]]
    done = made_up(plan, rows)
    for order in (done, done[::-1]):
        summary = summarise(plan, order)
        assert [curve.space for curve in summary.by_space] == ["a", "b"]
        assert list(summary.by_space[0].median) == [0.2, 0.6]
        assert list(summary.by_space[1].median) == [0.7, 0.7]
        (curve,) = summary.curves
        assert curve.space is None
        assert list(curve.median) == pytest.approx([0.45, 0.65])
        assert curve.low[0] == pytest.approx((0.15 + 0.6) / 2)
        assert (curve.after(1), curve.after(50)) == pytest.approx((0.45, 0.65))
        assert (summary.marks, summary.seconds) == ((2,), None)
        assert curve.ms_per_proposal == 2.0


def test_marks_stop_at_the_number_of_evaluations() -> None:
    plan = Plan((Path("a.json"),), ("random",), seeds=1, evaluations=60)
    assert summarise(plan, made_up(plan, [[1.0] * 60])).marks == (25, 50, 60)
    plan = replace(plan, evaluations=1000)
    marks = (25, 50, 100, 200, 400, 800, 1000)
    assert summarise(plan, made_up(plan, [[1.0] * 1000])).marks == marks


def test_fractions_over_seconds() -> None:
    plan = Plan((Path("a.json"),), ("random",), seeds=1, evaluations=3)
    summary = summarise(plan, made_up(plan, [[0.2, 0.4, 0.8]], [1.0, 10.0, 100.0]))
    assert summary.seconds is not None
    (curve,) = summary.curves
    assert curve.by_seconds is not None
    assert (summary.seconds[0], summary.seconds[-1]) == pytest.approx((1.0, 100.0))
    assert (curve.by_seconds[0], curve.by_seconds[-1]) == (0.2, 0.8)
    for second, fraction in zip(summary.seconds[1:-1], curve.by_seconds[1:-1], strict=True):
        assert fraction == (0.2 if second < 10.0 else 0.4)


def test_seconds_of_timed_launches_alone_are_not_mixed_with_whole_ones() -> None:
    plan = Plan((Path("whole.json"), Path("alone.json")), ("random",), seeds=1, evaluations=2)
    whole, alone = plan.jobs()
    fractions = np.array([0.5, 1.0])
    done = [
        Replay(whole, fractions, np.array([10.0, 20.0]), True, 1.0),
        Replay(alone, fractions, np.array([1e-3, 2e-3]), False, 1.0),
    ]
    summary = summarise(plan, done)
    assert summary.includes_compiling
    assert summary.seconds is not None
    assert summary.seconds[0] == pytest.approx(10.0)
    assert [curve.by_seconds is None for curve in summary.by_space] == [False, True]
    only = summarise(Plan((Path("alone.json"),), ("random",), 1, 2), done[1:])
    assert not only.includes_compiling
    assert only.curves[0].by_seconds is not None


def test_processes_do_not_change_the_result(path: Path) -> None:
    plan = Plan((path,), ("random",), seeds=4, evaluations=20)
    by_process = [
        {one.job.seed: list(one.fractions) for one in replays(plan, processes)}
        for processes in (1, 2)
    ]
    assert by_process[0] == by_process[1]
    assert list(by_process[0]) == [0, 1, 2, 3]


def test_a_process_is_deaf_to_ctrl_c_and_keeps_to_one_core() -> None:
    """The parent decides what Ctrl-C ends; threads of others would fight over the cores."""
    code = (
        "import signal, threadpoolctl, numpy\n"
        "from autogemm.bench.strategies.replaying import _prepare_worker\n"
        "_prepare_worker()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "assert all(one['num_threads'] == 1 for one in threadpoolctl.threadpool_info())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=child_environment())


def repeated(file: str, place: Path) -> Path:
    """A recording that ships, every config four times: with other values of GROUP_M."""
    shipped = recording_folder() / file
    fields = json.loads(gzip.decompress(shipped.read_bytes()))
    num_rows = len(fields["status"])
    rows = {name: fields[name] * 4 for name in fields if _is_column(fields[name], num_rows)}
    columns = {name: values * 4 for name, values in fields["parameters"].items()}
    columns["GROUP_M"] = [value for value in (1, 2, 4, 8) for _ in range(num_rows)]
    fields |= rows | {"parameters": columns}
    place.write_bytes(gzip.compress(json.dumps(fields).encode()))
    return place


def _is_column(value: object, num_rows: int) -> bool:
    return isinstance(value, list) and len(value) == num_rows


def test_stopping_early_leaves_no_process_and_waits_for_none(tmp_path: Path) -> None:
    large = repeated("sgemm_simt_h200_4096_nn.json.gz", tmp_path / "large.json.gz")
    # The second of the two is at work for another nine seconds when the first is done.
    begun = replays(Plan((large,), ("random", "tpe"), seeds=1, evaluations=1600), 2)
    assert isinstance(begun, Generator)
    assert next(begun).job.strategy == "random"
    before = time.monotonic()
    begun.close()
    assert time.monotonic() - before < 3
    assert multiprocessing.active_children() == []


def bench_search(*arguments: object) -> Result:
    few = ("--seeds", 2, "--evaluations", 30, "--processes", 1)
    return CliRunner().invoke(main, ["bench-search", *map(str, (*few, *arguments))])


def test_the_table(path: Path, tmp_path: Path) -> None:
    other = write_cache(tmp_path / "other.json", device_name="Other GPU")
    arguments = ("--strategies", "random,exhaustive", "--batch", 1, "--batch", 4)
    result = bench_search(*arguments, "--recordings", path, other)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("2 recordings, 2 seeds, recorded times; the fraction of the optimum")
    assert lines[1].split() == ["strategy", "batch", "25", "30", "ms_per_proposal"]
    assert [line.split()[:2] for line in lines[2:6]] == [
        ["random", "1"],
        ["random", "4"],
        ["exhaustive", "1"],
        ["exhaustive", "4"],
    ]
    assert "each recording" in lines
    assert sum(line.startswith("other ") for line in lines) == 4


def test_rows_for_scripts(path: Path) -> None:
    result = bench_search("--strategies", "random", path, "--json", "-q")
    rows = json.loads(result.stdout)
    assert [row["recording"] for row in rows] == ["median", "gpu"]
    assert rows[0]["30"] == rows[1]["30"] <= 1.0
    assert result.stderr == ""
    printed = bench_search("--strategies", "random", path, "--csv", "-q").stdout
    (median, _) = csv.DictReader(printed.splitlines())
    assert float(median["30"]) == rows[0]["30"]


def test_shipped_recordings_are_the_default() -> None:
    result = bench_search("--strategies", "random", "--evaluations", 3, "-q")
    assert result.exit_code == 0, result.output
    assert "sgemm_simt_h200_4096_nn" in result.stdout


def test_curves_in_a_file(path: Path, tmp_path: Path) -> None:
    save = tmp_path / "curves.json"
    assert bench_search("--strategies", "random", path, "--save", save).exit_code == 0
    saved = json.loads(save.read_text())
    assert saved["recordings"] == ["gpu.json"]
    assert [len(curve["median"]) for curve in saved["curves"]] == [30, 30]
    assert bench_search("--strategies", "random", path, "--save", save).exit_code == 0
    save.write_text("mine")
    result = bench_search("--strategies", "random", path, "--save", save)
    assert result.exit_code == 2
    assert save.read_text() == "mine"


@pytest.mark.parametrize("name", ["curves.svg", "curves.png"])
def test_the_plot(path: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    plot = tmp_path / name
    result = bench_search("--strategies", "random,exhaustive", path, "--plot", plot, "-q")
    assert result.exit_code == 0, result.output
    assert plot.stat().st_size > 5000
    if plot.suffix == ".svg":
        text = plot.read_text()
        assert "exhaustive" in text
        assert "evaluations" in text


def test_seconds_have_plain_numbers() -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    from autogemm.insight.plots import strategies_picture

    curve = SimpleNamespace(label="random", median=[0.8, 0.9, 1.0], by_seconds=[0.8, 0.9, 1.0])
    summary: Any = SimpleNamespace(
        curves=[curve], seconds=[1.0, 10.0, 1000.0], includes_compiling=True
    )
    text = strategies_picture(".svg", summary, "curves").decode()
    assert "recorded seconds" in text
    assert "<!-- 1,000 -->" in text
    assert "mathdefault" not in text, "TeX in the labels of ticks"


def test_the_plot_tells_curves_apart_without_colour() -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    from autogemm.insight.plots.drawing import LINES, MARKERS

    looks = {
        (LINES[i % len(LINES)], MARKERS[i % len(MARKERS)], i % 5)
        for i in range(len(known_strategies()))
    }
    assert len(looks) == len(known_strategies())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--strategies", "magic"), 2, "unknown strategy 'magic'"),
        (("--recordings", "nowhere.json"), 2, "no such recording: nowhere.json"),
        (("--plot", "curves.txt"), 2, "a plot is one of .png .svg .pdf, got 'curves.txt'"),
        (("--plot", "nowhere/curves.svg"), 2, "there is no folder nowhere"),
        (("--json", "--csv"), 2, "exclude each other"),
        (("--seeds", 0), 2, "0 is not in the range"),
    ],
)
def test_wrong_requests(arguments: tuple[object, ...], code: int, message: str) -> None:
    result = bench_search("--strategies", "random", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_a_broken_recording_is_one_line(tmp_path: Path) -> None:
    broken = write_cache(tmp_path / "broken.json", cache={})
    result = bench_search("--strategies", "random", broken, "-q")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: broken Kernel Tuner cache")

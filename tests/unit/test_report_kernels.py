"""Tests of the reports of benchmarks and of whole databases."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import PROFILE, fill_bench, timed
from bench_samples import SPEC as BENCH
from click.testing import CliRunner, Result
from store_samples import fill, new_store, source
from test_report_run import Texts, data_of

from autogemm.cli import main
from autogemm.insight.analysis import compare
from autogemm.insight.profiling.counters import OCCUPANCY, POSSIBLE_OCCUPANCY
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance
from autogemm.store import BestQuery, Store

pytest.importorskip("pygments", reason="Pygments is not installed")

from autogemm.insight.report.kernels import bench_words, limits_of_kernels, losses


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    return new_store(tmp_path)


def report(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["report", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_words_name_the_fastest_of_each_size(store: Store) -> None:
    fill_bench(store)
    found = compare(store, BestQuery(), None, winners=False)
    first, second, ceilings = bench_words(found)
    assert first == (
        "1024: kernel 1 is the fastest with 26.84 TFLOP/s, 125 % of cuBLAS and 12.5 times "
        "naive (measured)."
    )
    assert second.startswith("512x256x64: kernel 1 is the fastest")
    assert "63 of 66.9 TFLOP/s" in ceilings
    assert ceilings.endswith("3352 GB/s; it read data that stays in L2 at 5600 GB/s.")
    assert limits_of_kernels(found)[0] == (
        "1024: 171 FLOP per byte that must move, so arithmetic is the limit; kernel 1 reaches "
        "40.1 % of the roof."
    )


def test_a_size_that_memory_bounds(store: Store) -> None:
    bench = store.begin_bench(BENCH)
    store.record_entries(bench, [timed("naive", Problem.of_size("1x4096x4096"), 100.0, None)], {})
    found = compare(store, BestQuery(), None, winners=False)
    assert "0.5 FLOP per byte that must move, so memory is the limit" in limits_of_kernels(found)[0]


def test_rungs_that_lost_to_the_rung_before(store: Store) -> None:
    problem = Problem.of_size("1024")
    bench = store.begin_bench(BENCH)
    times = {"naive": 100.0, "unrolled": 101.0, "coarsened": 250.0, "tiled": 50.0}
    # Not in the ladder's order: the ladder is the order that counts.
    entries = [timed(name, problem, time_us, None) for name, time_us in reversed(times.items())]
    store.record_entries(bench, entries, {})
    assert losses(compare(store, BestQuery(), None, winners=False)) == [
        "coarsened: 0.404 times the speed of unrolled at 1024."
    ]


def test_the_report_of_a_benchmark(store: Store, tmp_path: Path) -> None:
    fill_bench(store)
    path = tmp_path / "a.html"
    result = report(path, "--bench", "last")
    assert result.exit_code == 0, result.output
    page = path.read_text()
    texts = Texts(page)
    assert texts.loads == []
    assert "4 kernels on NVIDIA H100 80GB HBM3" in texts.of("h1")
    cells = texts.of("td")
    limit = "L1, since each multiply-add takes two loads"
    words = ("coarsened", "wrong_result", "3 of 9 elements are wrong", "cuBLAS 13.1", limit)
    for word in words:
        assert word in cells or any(word in cell for cell in cells)
    assert any("23.4" in cell or "377 GFLOP/s" in cell for cell in cells), "published"
    drawn = data_of(page)["kernels"]
    assert drawn["sizes"] == ["512x256x64", "1024"]
    own = next(one for one in drawn["timed"] if (one["kernel"], one["size"]) == ("naive", "1024"))
    assert (own["gflops"], own["percent"]) == (pytest.approx(2147.5, rel=1e-3), 10.0)


def test_profiles_of_the_kernels_are_told(store: Store, tmp_path: Path) -> None:
    fill_bench(store)
    counted = {OCCUPANCY: 49.0, POSSIBLE_OCCUPANCY: 50.0, "launch__waves_per_multiprocessor": 0.25}
    own = replace(PROFILE, counters=tuple(counted.items()))
    store.record_profile(own, source(64))
    store.record_profile(replace(own, kernel_sha256=source(32).sha256), source(32))
    report(tmp_path / "a.html", "--bench", "last")
    texts = Texts((tmp_path / "a.html").read_text())
    assert texts.of("span").count("tiled, 1024 nn f32, Nsight Compute 2025.3") == 1
    assert any("49 % of an SM's warps" in text for text in texts.of("td"))
    fill(store)
    report(tmp_path / "run.html", "--no-explain")
    assert "Nsight" not in (tmp_path / "run.html").read_text().partition("<script")[0]


def test_the_report_of_a_database(store: Store, tmp_path: Path) -> None:
    fill(store)
    path = tmp_path / "a.html"
    result = report(path, "--all", "--gpu", "h100")
    assert result.exit_code == 0, result.output
    texts = Texts(path.read_text())
    assert any("101 % of cuBLAS (measured)" in text for text in texts.of("p"))
    assert texts.of("td").count("NVIDIA H100 80GB HBM3") >= 2
    assert "Recorded times." not in texts.of("strong")
    recorded = report(tmp_path / "b.html", "--all", "--provenance", "recorded")
    assert recorded.exit_code == 0
    assert "Recorded times." in Texts((tmp_path / "b.html").read_text()).of("strong")


def test_a_recorded_benchmark_is_marked(store: Store, tmp_path: Path) -> None:
    bench = store.begin_bench(replace(BENCH, provenance=Provenance.RECORDED))
    store.record_entries(bench, [timed("naive", Problem.of_size("256"), 9.0, None)], {})
    report(tmp_path / "a.html", "--bench", bench)
    texts = Texts((tmp_path / "a.html").read_text())
    assert "Recorded times." in texts.of("strong")
    assert any("(recorded)" in text for text in texts.of("p"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--bench", "first"),
            "'first' is neither the number of a benchmark, nor last, nor a .json file",
        ),
        (("--bench", "7"), "no benchmark 7"),
        (("--bench", "1", "--all"), "--bench and --all exclude each other"),
        (("--all", "--gpu", "b200"), "nothing matches in the database"),
    ],
)
def test_wrong_requests(
    store: Store, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    fill_bench(store)
    result = report(tmp_path / "a.html", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "a.html").exists()

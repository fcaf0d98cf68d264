"""Roofline, sizes and ladder: which kernels they show, with which figures."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import CEILINGS, fill_bench
from click.testing import CliRunner, Result
from store_samples import H100, SPEC, T4, entry, fill, finals, new_store, ok, source
from test_plots_runs import words

from autogemm.catalogue.palette import THEMES
from autogemm.cli import main
from autogemm.insight.analysis import compare
from autogemm.insight.analysis.comparison import roofs
from autogemm.model.results.outcome import Provenance
from autogemm.store import BestQuery, RunState, Store
from autogemm.support.errors import NotFoundError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    return new_store(tmp_path)


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_benchmark_with_the_smallest_size_first(store: Store) -> None:
    fill_bench(store)
    found = compare(store, BestQuery(), None, winners=False)
    assert found.sizes() == ["512x256x64", "1024"]
    assert {one.kernel for one in found.timed()} == {"naive", "tiled", "kernel 1", "cublas_f32"}
    own = next(one for one in found.timed() if one.kernel == "kernel 1")
    assert own.tflops == pytest.approx(2 * 1024**3 / 80e-6 * 1e-12)
    assert own.metrics.speedup_over_naive == pytest.approx(12.5)
    assert found.caption.startswith("NVIDIA H100 80GB HBM3, benchmark 1, 20")
    assert found.caption.endswith("measured times")
    only = compare(store, BestQuery(size="1024"), 1, winners=False)
    assert only.sizes() == ["1024"]
    with pytest.raises(NotFoundError, match="benchmark 1 timed no kernel of size 7"):
        compare(store, BestQuery(size="7"), 1, winners=False)


def test_winners_stand_beside_the_cublas_of_their_run(store: Store) -> None:
    fill(store)
    found = compare(store, BestQuery(gpu="h100"), None, winners=False)
    assert found.provenance is Provenance.MEASURED
    assert [(one.kernel, one.metrics.time_us) for one in found.timed()] == [
        ("winner", 2655.0),
        ("cublas_f32", pytest.approx(2655.0 * 1.01)),
    ]
    # Later finals of its run, with another winner: the best stays beside the cuBLAS of its own.
    store.record_finals(1, finals(entry(64, 3000.0, ratio=0.5)), {})
    assert compare(store, BestQuery(gpu="h100"), None, winners=False).timed() == found.timed()
    recorded = compare(store, BestQuery(provenance=Provenance.RECORDED), None, winners=True)
    assert recorded.caption.endswith("recorded times")
    assert [one.kernel for one in recorded.timed()] == ["winner"]
    with pytest.raises(NotFoundError, match="nothing matches in the database"):
        compare(store, BestQuery(gpu="b200"), None, winners=True)


def test_winners_of_two_gpus_or_of_two_provenances_are_not_mixed(store: Store) -> None:
    for device in (H100, T4):
        for provenance in Provenance:
            run = store.begin_run(replace(SPEC, device=device, provenance=provenance))
            store.record_trial(run, 0, ok(64, 2800.0, provenance), source(64))
            best = finals(entry(64, 2800.0, ratio=1.5), provenance=provenance)
            store.record_finals(run, best, {})
            store.finish_run(run, RunState.FINISHED)
    found = compare(store, BestQuery(), None, winners=True)
    assert (found.device.name, found.provenance) == ("Tesla T4", Provenance.MEASURED)
    assert len(found.entries) == 2


def test_roofs_are_those_of_the_gpu_and_as_measured() -> None:
    slopes, ceilings = roofs(H100, None)
    assert [(one.name, round(one.tb_s, 3)) for one in slopes] == [("DRAM", 3.352)]
    assert [(one.name, round(one.tflops, 1)) for one in ceilings] == [
        ("FP32, CUDA cores", 66.9),
        ("TF32, tensor cores", 535.3),
        ("BF16 and F16, tensor cores", 1070.5),
        ("E4M3 and E5M2 and I8, tensor cores", 2141.1),
    ]
    slopes, ceilings = roofs(H100, CEILINGS)
    assert [(one.name, one.tb_s) for one in slopes[1:]] == [
        ("copy as measured", pytest.approx(3.03)),
        ("L2 as measured", pytest.approx(5.6)),
    ]
    assert len(roofs(H100, replace(CEILINGS, l2_gb_s=None))[0]) == 2
    assert ceilings[1].tflops == 63.0
    assert len(roofs(replace(H100, arch=60), None)[1]) == 1, "no tensor cores are known"


def test_a_gpu_of_which_only_the_name_is_known(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    facts = dict.fromkeys(H100.limits(), 0)
    unknown = replace(H100, name="Other GPU", **facts)
    run = store.begin_run(replace(SPEC, device=unknown, provenance=Provenance.RECORDED))
    store.record_trial(run, 0, ok(64, 2800.0, Provenance.RECORDED), source(64))
    assert roofs(unknown, None) == ([], [])
    (row,) = json.loads(invoke("roofline", tmp_path / "a.svg", "--json").stdout)
    assert (row["roof_tflops"], row["percent_of_roof"], row["bound_by"]) == (None, None, None)
    assert "no roofs: only the name of this GPU is known" in words(tmp_path / "a.svg")
    for kind in ("sizes", "ladder"):
        result = invoke("plot", kind, tmp_path / f"{kind}.svg")
        assert (result.exit_code, result.stderr) == (0, "")
    assert "Other GPU" in invoke("roofline").stdout


def test_the_roofline_as_a_table(store: Store, tmp_path: Path) -> None:
    fill_bench(store)
    printed = invoke("roofline").stdout
    assert "3352" in printed
    assert "19.96" in printed
    rows = json.loads(invoke("roofline", "--json").stdout)
    own = next(row for row in rows if (row["kernel"], row["size"]) == ("kernel 1", "1024"))
    assert own["flop_per_byte"] == pytest.approx(1024 / 6)
    assert own["percent_of_roof"] == pytest.approx(100 * own["tflops"] / H100.peak_f32_tflops)
    assert own["bound_by"] == "arithmetic"
    thin = next(row for row in rows if (row["kernel"], row["size"]) == ("naive", "512x256x64"))
    assert thin["roof_tflops"] == pytest.approx(min(66.908, 3.35232 * thin["flop_per_byte"]), 1e-3)
    table = list(csv.DictReader(invoke("roofline", "--csv").stdout.splitlines()))
    assert [row["kernel"] for row in table] == [row["kernel"] for row in rows]
    assert {row["provenance"] for row in table} == {"measured"}


@pytest.mark.parametrize("command", [("plot", "sizes"), ("plot", "ladder"), ("roofline",)])
def test_pictures_name_kernels_gpu_and_provenance(
    store: Store, tmp_path: Path, command: tuple[str, ...]
) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill_bench(store)
    path = tmp_path / "a.svg"
    result = invoke(*command, path)
    assert result.exit_code == 0, result.output
    text = " ".join(words(path))
    for word in ("naive", "kernel 1", "cublas_f32", "NVIDIA H100 80GB HBM3, benchmark 1", "1024"):
        assert word in text
    assert "measured times" in text
    assert "coarsened" not in text, "it was wrong and has no time"


def test_sizes_with_short_and_with_long_names(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill_bench(store)
    for size in ("1024", "512x256x64"):
        path = tmp_path / f"{size}.svg"
        assert invoke("plot", "sizes", path, "--size", size).exit_code == 0
        assert size in words(path)


def test_sizes_have_numbers_up_the_side_within_one_decade(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill(store)
    assert invoke("plot", "sizes", tmp_path / "a.svg", "--gpu", "h100").exit_code == 0
    numbers = [word for word in words(tmp_path / "a.svg") if re.fullmatch(r"[\d,]+(\.\d+)?", word)]
    # Beside the size itself: of GFLOP/s and of percent.
    assert len(numbers) > 5, numbers


def test_the_ladder_is_of_one_size(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill_bench(store)
    invoke("plot", "ladder", tmp_path / "large.svg")
    assert "The ladder at 1024" in " ".join(words(tmp_path / "large.svg"))
    invoke("plot", "ladder", tmp_path / "small.svg", "--size", "512x256x64")
    text = " ".join(words(tmp_path / "small.svg"))
    assert "The ladder at 512x256x64" in text
    assert "125 % of cuBLAS, 12.5 x naive" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plot", "history", "a.svg", "--bench", "1"), "--bench and --winners are for sizes"),
        (("plot", "sizes", "a.svg", "--bench", "9"), "no benchmark 9"),
        (("roofline", "a.gif"), "a plot is one of .png .svg .pdf, got 'a.gif'"),
    ],
)
def test_wrong_requests(store: Store, arguments: tuple[str, ...], message: str) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    fill_bench(store)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("a.svg").exists()


def test_each_kernel_has_its_panel_and_number_on_either_ground(
    store: Store, tmp_path: Path
) -> None:
    fill_bench(store)
    names = ["naive", "tiled", "kernel 1", "cublas_f32"]
    for theme, palette in THEMES.items():
        for kind in ("sizes", "roofline"):
            path = tmp_path / f"{kind}_{theme}.svg"
            command = (kind,) if kind == "roofline" else ("plot", kind)
            result = invoke(*command, path, "--theme", theme)
            assert result.exit_code == 0, result.output
            texts = words(path)
            assert all(texts.count(name) == 1 for name in names)
            assert {"kernel of your own", "the baseline", "rung of the ladder"} <= set(texts)
            content = path.read_text()
            assert f"fill: {palette.ground}" in content
            assert palette.own in content
            # As wide as a page between its margins, with what it shows as its title.
            width = re.search(r'<svg [^>]*width="([\d.]+)pt"', content)
            assert width is not None
            assert float(width[1]) <= 7.2 * 72
            assert "NVIDIA H100 80GB HBM3, benchmark 1" in content.partition("</metadata>")[0]

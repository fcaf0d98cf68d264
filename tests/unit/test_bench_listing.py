"""Output of ``autogemm bench --json``, read back: shown, drawn and reported as it was."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autogemm.cli import main
from autogemm.formats import read_bench_listing
from autogemm.store.tables.records import BenchCopy
from autogemm.support.errors import RecordingError, UsageError

SHIPPED = Path(__file__).parents[2] / "benchmarks" / "results" / "ladder_h100.json"
ROWS = json.loads(SHIPPED.read_text())


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], prog_name="autogemm")


def test_the_figures_are_those_of_the_listing(tmp_path: Path) -> None:
    shown = call("bench", "--show", SHIPPED, "--json")
    assert shown.exit_code == 0, shown.output
    again = json.loads(shown.stdout)
    assert len(again) == len(ROWS)
    for before, now in zip(ROWS, again, strict=True):
        for name in ("kernel", "kind", "size", "status", "reason", "rounds", "registers"):
            assert now[name] == before[name]
        for name in ("time_us", "percent_of_roof", "speedup_over_naive"):
            assert now[name] == pytest.approx(before[name]), (before["kernel"], name)
        if before["percent_of_cublas"] is not None:
            assert now["ratio"] == pytest.approx(before["percent_of_cublas"] / 100)
    # Listings printed now name their GPU and time, so that a file of any name can be read.
    own = tmp_path / "own.json"
    own.write_text(shown.stdout)
    twice = call("bench", "--show", own, "--json")
    assert json.loads(twice.stdout) == again
    assert again[0]["gpu"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("family", ["sgemm_emulated_wgmma", ""])
def test_a_stored_kernel_keeps_its_config_and_the_roof_of_what_it_multiplies(
    family: str, tmp_path: Path
) -> None:
    """FP32 from tensor cores is not held against the peak of CUDA cores."""
    config = "SPLIT=f16x3 CHUNK=64 BM=128 BN=64 BK=32"
    told = {"family": family} if family else {}
    row = next(one for one in ROWS if one["kind"] == "library" and one["dtype"] == "f32")
    own = {"kernel": "winner", "kind": "stored", "config": config, "library": "", **told}
    listing = tmp_path / "h100.json"
    listing.write_text(json.dumps([row | own, row]))
    stored, library = json.loads(call("bench", "--show", listing, "--json").stdout)
    assert (stored["family"], stored["config"]) == (family or "unknown", config)
    assert (stored["splitting"], library["splitting"]) == ("f16x3", "")
    assert stored["tflops"] == library["tflops"]
    assert stored["percent_of_roof"] < 0.5 * library["percent_of_roof"]


def test_a_listing_without_a_date_has_none() -> None:
    """Listings of earlier versions have no date; that of the file only says when it was copied."""
    assert "measured_at" not in ROWS[0]
    shown = call("bench", "--show", SHIPPED)
    assert shown.stdout.splitlines()[0] == "NVIDIA H100 80GB HBM3, date unknown"
    assert {
        row["measured_at"] for row in json.loads(call("bench", "--show", SHIPPED, "--json").stdout)
    } == {None}


def test_a_benchmark_without_a_date_is_not_stored() -> None:
    with pytest.raises(ValueError, match="has no started_at"):
        BenchCopy(bench=read_bench_listing(SHIPPED))


def test_pictures_and_report_need_no_database(tmp_path: Path) -> None:
    for kind in ("ladder", "sizes"):
        picture = tmp_path / f"{kind}.svg"
        result = call("plot", kind, picture, "--bench", SHIPPED, "--size", "4096")
        assert result.exit_code == 0, result.output
        assert b"<svg" in picture.read_bytes()
    page = tmp_path / "ladder.html"
    result = call("report", page, "--bench", SHIPPED)
    assert result.exit_code == 0, result.output
    assert "naive_uncoalesced" in page.read_text() and "date unknown" in page.read_text()
    roofs = call("roofline", "--bench", SHIPPED, "--json")
    assert {row["provenance"] for row in json.loads(roofs.stdout)} == {"recorded"}


BROKEN = [
    ("{}", "a list of kernels is expected"),
    ("[", "is not output"),
    ("[{}]", "no 'time_us'"),
    (json.dumps([ROWS[0] | {"rounds": 10**9}]), "us in 1000000000 rounds"),
    (json.dumps([ROWS[0] | {"kind": "mine"}]), "'mine' is not a valid KernelKind"),
    (json.dumps([ROWS[0] | {"size": "0"}]), "M must be from 1"),
]


@pytest.mark.parametrize(("text", "said"), BROKEN, ids=[said for _, said in BROKEN])
def test_a_file_that_is_none_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ladder_h100.json"
    path.write_text(text)
    with pytest.raises((RecordingError, UsageError), match=said):
        read_bench_listing(path)
    result = call("plot", "ladder", tmp_path / "x.svg", "--bench", path)
    assert result.exit_code in (1, 2)
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "x.svg").exists()


def test_a_gpu_that_nothing_names_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "ladder.json"
    path.write_text(json.dumps(ROWS))
    with pytest.raises(UsageError, match="give --gpu"):
        read_bench_listing(path)
    assert read_bench_listing(path, "h200").spec.device.name == "NVIDIA H200"
    assert call("bench", "--show", "ladder").exit_code == 2
    assert call("bench", "--show", tmp_path / "none.json").exit_code == 2

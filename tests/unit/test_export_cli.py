"""``autogemm export``: what it picks, what it writes where, what it refuses."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from export_samples import split_family
from store_samples import SPEC, VERIFIED, measurement, new_store

from autogemm.catalogue.winners import TimedKernel, Winner, read_winners, write_winners
from autogemm.cli import main
from autogemm.codegen import render
from autogemm.codegen.export import extract_kernel
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry, Outcome, Provenance, Status
from autogemm.model.results.stored import TimedText
from autogemm.space import Family, load_family
from autogemm.store import RunSpec, Store, open_store
from autogemm.verify.cases import CaseSet

SMALL = replace(SPEC, problem=Problem(1024, 1024, 1024))
RECORDED = replace(SPEC, problem=Problem(512, 512, 512), provenance=Provenance.RECORDED)


def source_of(spec: RunSpec, seed: int) -> KernelSource:
    family = load_family("sgemm_simt")
    return render(family, family.seeds[seed], spec.problem)


def outcome(source: KernelSource, spec: RunSpec, time_us: float) -> Outcome:
    return Outcome(
        config=source.config,
        status=Status.OK,
        kernel_sha256=source.sha256,
        verification=VERIFIED,
        measurement=measurement(time_us, provenance=spec.provenance),
    )


def add_run(store: Store, spec: RunSpec, *sources: KernelSource) -> int:
    """A run whose first source wins the finals."""
    run_id = store.begin_run(spec)
    for number, source in enumerate(sources):
        store.record_trial(run_id, number, outcome(source, spec, 100.0 + number), source)
    winner = sources[0]
    entry = FinalsEntry("winner", winner.config, winner.sha256, (99.0,), 1.02, 1.01, 1.03, False)
    baseline = FinalsEntry("cuBLAS", None, "", (101.0,), 1.0, 1.0, 1.0, False)
    store.record_finals(run_id, Finals((entry,), baseline, 1, spec.provenance), {})
    return run_id


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; a database with run 1 (4096), 2 (512, recorded) and 3 (1024)."""
    with new_store(tmp_path) as store:
        add_run(store, SPEC, source_of(SPEC, 0), source_of(SPEC, 1))
        add_run(store, RECORDED, source_of(RECORDED, 2))
        add_run(store, SMALL, source_of(SMALL, 3))
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def export(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", *arguments])


def expect_refusal(result: Result, exit_code: int, *words: str) -> None:
    assert result.exit_code == exit_code, result.output
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_exports_the_newest_measured_winner(folder: Path) -> None:
    result = export("best.cu")
    assert result.exit_code == 0, result.output
    assert extract_kernel((folder / "best.cu").read_text()) == source_of(SMALL, 3).text
    assert "1024 nn f32" in result.stdout
    assert "1.020 times the speed of cuBLAS\n" in result.stdout
    assert result.stderr == ""
    assert {path.name for path in folder.iterdir()} == {"best.cu", "best.h"}


def test_names_the_call_that_the_ratio_is_to(folder: Path) -> None:
    # Each in its own finals, and contestants have names too.
    with closing(sqlite3.connect(folder.parent / "a.db")) as database, database:
        database.execute(
            "UPDATE finals_entries SET name = 'cuBLASLt proposal ' || finals_id WHERE place = 0"
        )
    words = "times the speed of cuBLASLt proposal 3"
    assert f"1.020 {words}\n" in export("best.cu").stdout
    assert f"1.0200 {words} [" in (folder / "best.cu").read_text().replace("\n//          ", " ")
    export("best.json", "--format", "json")
    said = json.loads((folder / "best.json").read_text())
    assert said["measurement"]["baseline"] == "cuBLASLt proposal 3"


@pytest.mark.parametrize(
    ("arguments", "spec", "seed"),
    [
        (["--size", "4096"], SPEC, 0),
        (["--run", "1"], SPEC, 0),
        (["--gpu", "h100", "--size", "4096", "--layout", "nn", "--family", "sgemm_simt"], SPEC, 0),
        (["--kernel", source_of(SPEC, 1).sha256[:12]], SPEC, 1),
    ],
)
def test_options_choose(folder: Path, arguments: list[str], spec: RunSpec, seed: int) -> None:
    result = export(*arguments, "-")
    assert result.exit_code == 0, result.output
    assert extract_kernel(result.stdout) == source_of(spec, seed).text
    assert list(folder.iterdir()) == []


def test_an_epilogue_chooses_however_it_is_spaced(folder: Path) -> None:
    fused = replace(SPEC, problem=replace(SPEC.problem, epilogue=Epilogue("relu(acc + bias[n])")))
    with open_store(str(folder.parent / "a.db")) as store:
        add_run(store, fused, source_of(fused, 0))
    found = export("--epilogue", "relu( acc+bias[n] )", "-")
    assert found.exit_code == 0, found.output
    assert extract_kernel(found.stdout) == source_of(fused, 0).text
    # A type that the array has anyway is no part of the problem; another one is.
    typed = export("--epilogue", "relu(acc + bias[n]); bias: f32", "-")
    assert extract_kernel(typed.stdout) == source_of(fused, 0).text
    other = export("--epilogue", "relu(acc + bias[n]); bias: bf16", "-")
    expect_refusal(other, 2, "no result matches")
    # Without the option it is the newest, plain or not; none are the plain ones.
    assert extract_kernel(export("-").stdout) == source_of(fused, 0).text
    assert extract_kernel(export("--epilogue", "none", "-").stdout) == source_of(SMALL, 3).text
    expect_refusal(export("--epilogue", "acc * 2", "-"), 2, "no result matches")
    several = export("--epilogue", "acc * 2", "--epilogue", "none", "-")
    expect_refusal(several, 2, "a kernel has one epilogue: several --epilogue are for --library")
    wrong = export("--epilogue", "relu(acc", "-")
    assert wrong.exit_code == 2
    assert "expected ')'" in wrong.stderr


def test_a_recorded_time_is_loud(folder: Path) -> None:
    result = export("--size", "512", "--no-verify", "best.cu")
    assert result.exit_code == 0, result.output
    assert "RECORDED" in result.stderr
    text = (folder / "best.cu").read_text()
    assert "RECORDED, NOT MEASURED ON THIS MACHINE" in text
    assert "this text was not checked before it was written" in text
    assert "as every candidate is" not in text


@pytest.mark.emulated
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_recorded_kernel_runs_on_the_cpu_first(folder: Path) -> None:
    result = export("--size", "512", "best.cu")
    assert result.exit_code == 0, result.output
    assert re.search(r"verified on the CPU, every access checked: [1-9]\d* small", result.stderr)
    # No recording that ships has this problem: the text that was timed is not known.
    text = " ".join((folder / "best.cu").read_text().replace("//", " ").split())
    assert "time: not known to be of this text" in text
    assert "checked: this text, verified on the CPU, every access checked" in text


@pytest.mark.emulated
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_recorded_kernel_that_is_wrong_is_not_written(folder: Path, tmp_path: Path) -> None:
    """A family whose kernel computes nothing."""
    family = split_family(tmp_path / "split")
    spec = replace(RECORDED, families=("split",), problem=Problem(64, 64, 64))
    with new_store(tmp_path) as store:
        add_run(store, spec, render(family, family.seeds[0], spec.problem))
    arguments = ["--family", str(tmp_path / "split"), "best.cu"]
    result = export(*arguments)
    assert result.exit_code == 1
    assert "is wrong on the CPU" in result.stderr
    assert list(folder.iterdir()) == []
    assert export("--no-verify", *arguments).exit_code == 0


def test_without_a_compiler_it_says_that_it_did_not_verify(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEMM_GXX", "no-such-compiler")
    result = export("--size", "512", "best.cu")
    assert result.exit_code == 0, result.output
    assert "not verified on the CPU: " in result.stderr
    assert (folder / "best.cu").exists()


def test_nothing_verified_is_said_to_be_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cases(family: Family, config: Config, *_: object, **__: object) -> CaseSet:
        return CaseSet(config, DType.F32, (), 3)

    monkeypatch.setattr("autogemm.cli.export.run.cases_of_tuned", no_cases)
    result = export("--size", "512", "best.cu")
    assert result.exit_code == 0, result.output
    assert "not verified on the CPU: no small problem" in result.stderr


def test_json_says_where_it_comes_from(folder: Path) -> None:
    assert export("--format", "json", "best.json").exit_code == 0
    content = json.loads((folder / "best.json").read_text())
    assert content["source"] == source_of(SMALL, 3).text
    assert content["run_id"] == 3


def test_an_earlier_export_is_replaced_and_nothing_else(folder: Path) -> None:
    path = folder / "best.cu"
    assert export("--size", "4096", "best.cu").exit_code == 0
    assert export("best.cu").exit_code == 0
    assert extract_kernel(path.read_text()) == source_of(SMALL, 3).text
    path.write_text("// my own kernel\n")
    expect_refusal(export("best.cu"), 2, "best.cu", "--force")
    # Before a recorded kernel is run on the CPU, which takes seconds.
    early = export("--size", "512", "best.cu")
    assert len(early.stderr.splitlines()) == 1, early.stderr
    assert path.read_text() == "// my own kernel\n"
    assert export("--force", "best.cu").exit_code == 0
    assert extract_kernel(path.read_text()) == source_of(SMALL, 3).text


def test_a_link_stays_a_link(folder: Path) -> None:
    (folder / "link.cu").symlink_to("real.cu")
    assert export("link.cu").exit_code == 0
    assert (folder / "link.cu").is_symlink()
    assert extract_kernel((folder / "real.cu").read_text())


def test_places_where_no_file_can_be(folder: Path) -> None:
    expect_refusal(export("."), 2, "folder")
    expect_refusal(export("no/such/best.cu"), 2, "no folder")
    expect_refusal(export("/dev/null", "--force"), 2, "regular file")
    assert Path("/dev/null").is_char_device()
    if sys.platform == "linux":
        expect_refusal(export("/proc/best.cu"), 1, "cannot write /proc/best.cu")
    assert list(folder.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert export("--size", "4096", "best.cu").exit_code == 0
    before = (folder / "best.cu").read_bytes()

    def no_space(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", no_space)
    expect_refusal(export("best.cu"), 1, "No space left on device")
    assert (folder / "best.cu").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {"best.cu", "best.h"}


def test_what_is_not_there(folder: Path) -> None:
    expect_refusal(export("--size", "77", "best.cu"), 2, "no result matches")
    expect_refusal(export("--run", "99", "best.cu"), 2)
    expect_refusal(export("--kernel", "99", "best.cu"), 2, "no kernel 99")
    expect_refusal(export("--size", "4096x", "best.cu"), 2, "4096x")
    expect_refusal(export("--kernel", "1", "--size", "4096", "best.cu"), 2, "--kernel names one")
    expect_refusal(export("--db", "missing.db", "best.cu"), 2, "missing.db")
    expect_refusal(export("--family", "nonsense", "best.cu"), 2, "nonsense")
    assert list(folder.iterdir()) == []


def test_a_family_of_ones_own_needs_its_folder(folder: Path, tmp_path: Path) -> None:
    family = split_family(tmp_path / "split")
    spec = replace(SPEC, families=("split",), problem=Problem(64, 64, 64))
    source = render(family, family.seeds[0], spec.problem)
    with new_store(tmp_path) as store:
        add_run(store, spec, source)
    expect_refusal(export("best.cu"), 2, "split", "--family PATH")
    result = export("--family", str(tmp_path / "split"), "best.cu")
    assert result.exit_code == 0, result.output
    assert extract_kernel((folder / "best.cu").read_text()) == source.text


def test_a_kernel_of_an_older_family_is_refused(folder: Path, tmp_path: Path) -> None:
    family = load_family("sgemm_simt")
    old = replace(source_of(SPEC, 0), text="// an older text\n")
    config: Config = family.seeds[0]
    with new_store(tmp_path) as store:
        add_run(store, SPEC, replace(old, config=config))
    expect_refusal(export("best.cu"), 1, "another version of the family", "tune again")
    assert list(folder.iterdir()) == []


@pytest.mark.compile
def test_compiled_formats(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "cache"))
    assert export("--format", "cubin", "best.cubin").exit_code == 0
    assert (folder / "best.cubin").read_bytes().startswith(b"\x7fELF")
    expect_refusal(export("--format", "cubin", "best.cubin"), 2, "--force")
    assert export("--format", "ptx", "best.ptx").exit_code == 0
    assert export("--format", "ptx", "best.ptx").exit_code == 0
    text = (folder / "best.ptx").read_text()
    assert text.startswith("// Written by autogemm")
    assert ".entry gemm_kernel" in text


@pytest.mark.compile
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    "options",
    [[], ["-O3", "-arch=sm_90"], ["-O3", "-arch=sm_90", "-DAUTOGEMM_LIBRARY", "-c"]],
    ids=["plain", "recommended", "library"],
)
def test_nvcc_compiles_it_without_a_warning(folder: Path, options: list[str]) -> None:
    assert export("--size", "4096", "best.cu").exit_code == 0
    warnings = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"]
    subprocess.run(["nvcc", *options, *warnings, "best.cu", "-o", "best"], cwd=folder, check=True)
    if "-c" in options:
        return
    for word, code, output in (("--help", 0, "stdout"), ("--rond", 2, "stderr")):
        asked = subprocess.run([folder / "best", word], capture_output=True, text=True, check=False)
        assert asked.returncode == code
        assert "usage: " in getattr(asked, output)


def test_a_prefix_names_the_functions_and_the_header_declares_them(folder: Path) -> None:
    assert export("--prefix", "mine", "best.cu").exit_code == 0
    for name in ("best.cu", "best.h"):
        assert " mine_sgemm(" in (folder / name).read_text()
    (folder / "best.h").write_text("my own")
    before = (folder / "best.cu").read_bytes()
    expect_refusal(export("best.cu"), 2, "best.h exists and is not an earlier output")
    assert (folder / "best.cu").read_bytes() == before
    assert export("--force", "best.cu").exit_code == 0
    assert " autogemm_sgemm(" in (folder / "best.h").read_text()
    expect_refusal(export("--prefix", "my-own", "best.cu"), 2, "a prefix is a name for C++")
    expect_refusal(export("--prefix", "mine", "--format", "json", "-"), 2, "json has none")
    expect_refusal(export("--prefix", "mine", "--library", "out"), 2, "leave out --prefix")


def shipped(problem: Problem, gpu: str = "NVIDIA H200") -> Winner:
    """An entry of a catalogue whose text is not the one of today."""
    kernel = TimedKernel(load_family("sgemm_simt").seeds[0], 12.5, 1.25, 1.24, 1.26)
    versions = {"driver": "580.1", "compiler": "nvrtc 13.0", "cublas": "13.1"}
    return Winner(
        **{"gpu": gpu, "problem": problem, "kernels": (kernel,), "kernel_sha256": ""},
        **{"text": TimedText.UNKNOWN, "baseline": "cuBLASLt proposal 2", "baseline_us": 15.6},
        **{"date": "2026-11-20", "commit": "abc1234", "source": "a.json", "command": "suite.py"},
        **{"error": 1.5e-6, "baseline_error": 2.5e-6},
        **versions,
    )


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of 768 plain on two GPUs and with a bias on one, of 896 with epilogues alone, of
    640 plain on one GPU and with a bias on another.
    """
    biased = Epilogue("acc + bias[n]")
    found = [
        shipped(Problem(768, 768, 768)),
        shipped(Problem(768, 768, 768), "NVIDIA H100 80GB HBM3"),
        shipped(Problem(768, 768, 768).with_epilogue(biased)),
        shipped(Problem(896, 896, 896).with_epilogue(biased)),
        shipped(Problem(896, 896, 896).with_epilogue(Epilogue("relu(acc)"))),
        shipped(Problem(896, 896, 896).with_epilogue(biased), "NVIDIA H100 80GB HBM3"),
        shipped(Problem(640, 640, 640).with_epilogue(biased), "NVIDIA H100 80GB HBM3"),
        shipped(Problem(640, 640, 640)),
        shipped(Problem(4096, 4096, 4096)),
    ]
    path = tmp_path / "winners.jsonl.gz"
    write_winners(path, found)
    read_winners.cache_clear()
    monkeypatch.setenv("AUTOGEMM_CATALOGUE", str(path))


@pytest.mark.usefixtures("catalogue")
def test_what_the_database_lacks_comes_from_the_catalogue(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = export("best.cu", "--size", "768", "--gpu", "h200", "--no-verify")
    assert result.exit_code == 0, result.output
    assert "from the catalogue, 2026-11-20" in result.stderr
    assert "does not say whether its time belongs to this source" in result.stderr
    assert "the catalogue's kernel for 768 nn f32 on NVIDIA H200" in result.stdout
    text = (folder / "best.cu").read_text()
    problem = Problem(768, 768, 768)
    family = load_family("sgemm_simt")
    assert extract_kernel(text) == render(family, family.seeds[0], problem).text
    assert "RECORDED, NOT MEASURED ON THIS MACHINE" in text
    assert "// from:    the catalogue, 2026-11-20, whose source was not kept\n" in text
    assert "not known to be of this text" in text
    assert "relative (Frobenius) 1.5e-06\n" in text.replace("\n//          ", " ")
    assert "1.2500 times the speed of cuBLASLt proposal 2" in text.replace("\n//          ", " ")
    monkeypatch.setenv("AUTOGEMM_DB", str(folder / "no.db"))
    json_of = ("best.json", "--size", "768", "--gpu", "h100", "--format", "json", "--no-verify")
    assert export(*json_of).exit_code == 0
    said = json.loads((folder / "best.json").read_text())
    assert (said["kernel_id"], said["run_id"]) == (None, None)
    assert said["measurement"]["timed_text"] == "unknown"
    assert said["measurement"]["provenance"] == "recorded"
    assert said["measurement"]["error"] == 1.5e-6


@pytest.mark.usefixtures("catalogue")
def test_the_catalogue_is_asked_for_one_problem_on_one_gpu(folder: Path) -> None:
    words = ("several GPUs", "--gpu 'H100' or --gpu 'H200'")
    expect_refusal(export("best.cu", "--size", "768"), 2, *words)
    result = export("best.cu", "--size", "896", "--gpu", "h200")
    expect_refusal(result, 2, "the catalogue has 2", "acc + bias[n]", "name --layout")
    one = export("best.cu", "--size", "896", "--epilogue", "relu(acc)", "--no-verify")
    assert one.exit_code == 0, one.output
    # Another GPU has it with an epilogue alone, which is not asked for.
    plain = export("best.cu", "--size", "640", "--no-verify")
    assert "640 nn f32 on NVIDIA H200" in plain.stdout
    expect_refusal(export("other.cu", "--size", "641"), 2, "no result", "catalogue has no such")
    assert not (folder / "other.cu").exists()
    # The database comes first, and alone where a run, or no size, is named.
    assert "run 1," in export("-", "--size", "4096").stdout
    expect_refusal(export("other.cu", "--size", "768", "--run", "1"), 2)


@pytest.mark.usefixtures("catalogue")
def test_a_kernel_of_the_catalogue_runs_on_the_cpu_first(folder: Path) -> None:
    result = export("best.cu", "--size", "768", "--gpu", "h200")
    assert result.exit_code == 0, result.output
    assert "verified on the CPU" in result.stderr
    assert "// checked: this text, verified on the CPU" in (folder / "best.cu").read_text()

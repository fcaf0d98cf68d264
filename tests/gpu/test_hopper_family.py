"""TMA, tensor maps and wgmma on a GPU of compute capability 9.0: what the emulator proves is right
there too, and goes the whole way of a family.
"""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import hopper
import pytest
from hopper import PROBLEMS, tiny_wgmma

import autogemm
from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Status
from autogemm.runtime import plans
from autogemm.space import launch_plan
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def target(target: CudaTarget) -> CudaTarget:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    return target


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_what_the_emulator_holds_for_right_is(
    target: CudaTarget, compiler: Compiler, problem: Problem
) -> None:
    family = tiny_wgmma()
    target.prepare(problem, MeasureOptions(deadline_s=10.0))
    for config in family.seeds:
        source = render(family, config, problem)
        compiled = compiler.compile(source, target.device.sm)
        plan = launch_plan(family, config, problem)
        outcome = target.measure(Candidate(source, plan, compiled), None)
        assert (outcome.status, outcome.reason) == (Status.OK, "")


def test_a_family_goes_the_whole_way(target: CudaTarget, tmp_path: Path) -> None:
    """As a user would: tune, with the winner's certificate, export, compile, run."""
    if which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    folder = str(Path(hopper.__file__).parent)
    environment = os.environ | {"AUTOGEMM_DB": str(tmp_path / "a.db")}

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command = [sys.executable, "-m", "autogemm"]
    options = ["--dtype", "bf16", "--layout", "nt", "--trials", "2"]
    run(*command, "tune", "--family", folder, "--size", "512", *options, "--gpu", "auto")
    run(*command, "export", "--family", folder, "best.cu")
    nvcc = ["nvcc", "-O3", "-gencode", "arch=compute_90a,code=sm_90a"]
    run(*nvcc, "best.cu", "-o", "best")
    said = run("./best")
    assert "baseline cuBLAS" in said
    assert "times the speed of cuBLAS" in said
    run("./best", "200", "136", "72", "--rounds", "0")  # verifies itself


@pytest.mark.parametrize(
    ("family", "dtype", "size"),
    [
        ("gemm_wgmma", "bf16", "1024"),
        ("gemm_wgmma", "bf16", "1023"),
        ("gemm_wgmma", "f16", "1500 nt"),
        ("gemm_wgmma", "tf32", "1024"),
        ("gemm_wgmma", "tf32", "1024 tn"),
        ("gemm_mma", "f16", "1024"),
        ("sgemm_emulated_wgmma", "f32", "1024"),
        ("gemm_skinny", "bf16", "8x1024x4096"),
        ("sgemm_skinny", "f32", "64x1024x1024"),
    ],
)
def test_winners_of_families_that_ship_are_certified(
    target: CudaTarget, tmp_path: Path, family: str, dtype: str, size: str
) -> None:
    size, _, layout = size.partition(" ")
    command = [sys.executable, "-m", "autogemm", "tune", "--require-gpu", "--size", size]
    command += ["--layout", layout or "nn", "--family", family, "--dtype", dtype]
    command += ["--trials", "2", "--rounds", "6"]
    command += ["--db", str(tmp_path / "a.db"), *(["--allow-emulation"] * (dtype == "f32"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checked: gpu passed" in done.stdout, done.stdout


def test_gemm_of_arrays_that_move(
    target: CudaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensor maps hold addresses: each call has its own."""
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "none.db"))
    monkeypatch.setattr(plans, "default_families", lambda emulation: [tiny_wgmma()])
    autogemm.forget()
    for seed in range(3):
        generator = torch.Generator("cuda").manual_seed(seed)
        a, b = (
            torch.randn(3, *shape, device="cuda", dtype=torch.bfloat16, generator=generator)
            for shape in ((130, 72), (72, 200))
        )
        expected = a.double() @ b.double()
        found = torch.stack([autogemm.gemm(*one) for one in zip(a, b, strict=True)])
        torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=2e-1)
    autogemm.forget()

"""Baselines of types that cuBLAS does not multiply, or of which it makes no C."""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from simulated_gpu import CublasLibrary, SimulatedGpu, compiled_helpers, memory, prepared_problem

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.fusion import Fusion
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Fill
from autogemm.targets.cuda.worker.gpu import cublas
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, Gemm
from autogemm.targets.cuda.worker.libraries import cublas_calls, fused
from autogemm.targets.cuda.worker.libraries.cublas_calls import Baseline, CublasCalls
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]
SIZE = (13, 16, 40)


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled_helpers(tmp_path_factory.mktemp("verify"))


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> CublasLibrary:
    one = CublasLibrary()
    monkeypatch.setattr(cublas, "load_library", lambda: one)
    return one


def problem_of(dtype: DType, epilogue: str = "", **more: Any) -> Problem:
    problem = Problem(*SIZE, layout=Layout.NT, dtype=dtype, **more)
    return problem.with_epilogue(Epilogue(epilogue)) if epilogue else problem


class LtOfOne:
    """cuBLASLt that proposes GemmEx for all that has no epilogue."""

    def __init__(self, gpu: Any) -> None:
        self._cublas = Cublas(gpu)

    def algorithms(
        self, problem: Problem, most: int, reduction: int, fusion: Fusion | None, *, adds_fast: bool
    ) -> list[Callable[[Gemm], None]]:
        assert problem.dtype.has_gemm_ex and not adds_fast and not problem.epilogue.scales
        return [] if fusion else [partial(self._cublas.gemm_ex, dtype=problem.dtype)]


@pytest.fixture(autouse=True)
def lt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas_calls, "CublasLt", LtOfOne)


def calls_of(helpers: Any, problem: Problem) -> tuple[PreparedProblem, list[Baseline]]:
    prepared = prepared_problem(SimulatedGpu(helpers), problem)
    library = CublasCalls(prepared, Cublas(prepared.gpu))
    assert not library.left_out
    return prepared, library.all()


def check_both(prepared: PreparedProblem, calls: list[Baseline], name: str) -> None:
    """GemmEx and the proposal: right, and named so."""
    asked = [one for one in calls if "GroupedBatched" not in one.name]
    proposal = name.replace("cuBLAS GemmEx", "cuBLASLt proposal 1")
    assert [one.name for one in asked] == [name, proposal]
    assert [prepared.check(one).complaint for one in asked] == ["", ""]


SCALED = "acc * sa[m] * sb[n]; sa: f32; sb: f32"
WIDE = "conversion to bf16 + cuBLAS GemmEx"
PASS = " + pointwise kernel"


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        (problem_of(DType.E5M2, alpha=1.5, beta=-0.5), WIDE),
        (problem_of(DType.E5M2, ldc=19, lda=43), WIDE),
        (problem_of(DType.E5M2_F16), "conversion to f16 + cuBLAS GemmEx"),
        (problem_of(DType.E5M2_F32, beta=0.5), WIDE),
        (problem_of(DType.E5M2_E5M2), WIDE + PASS),
        (problem_of(DType.E5M2_E5M2, beta=0.5), WIDE + PASS),
        (problem_of(DType.E5M2, "relu(acc + bias[n])"), WIDE + PASS),
        (problem_of(DType.E5M2, groups=Groups.parse("4,0,9")), WIDE + ", looped"),
        (problem_of(DType.BF16_E4M3, alpha=0.5), "cuBLAS GemmEx" + PASS),
        (problem_of(DType.I8_BF16, alpha=0.5), "cuBLAS GemmEx" + PASS),
        (problem_of(DType.I8_BF16, alpha=0.5, beta=0.5, ldc=24), "cuBLAS GemmEx" + PASS),
        (problem_of(DType.I8_F16, alpha=2**-8), "cuBLAS GemmEx" + PASS),
        (problem_of(DType.I8_BF16, SCALED), "cuBLAS GemmEx" + PASS),
        (
            problem_of(DType.I8_BF16, SCALED, groups=Groups.parse("4,0,9")),
            "cuBLAS GemmEx, looped" + PASS,
        ),
        (problem_of(DType.I8_BF16, "silu(acc[n] * s) * acc[n + N]"), "cuBLAS GemmEx" + PASS),
    ],
    ids=lambda value: value.label if isinstance(value, Problem) else "",
)
def test_they_are_right_and_say_what_they_do(helpers: Any, problem: Problem, name: str) -> None:
    check_both(*calls_of(helpers, problem), name)


BLOCKS = "sa[k / 128, m] * sb[n / 128, k / 128]"


@pytest.mark.parametrize(
    ("dtype", "epilogue", "name"),
    [
        (DType.E5M2, f"acc * {BLOCKS}", WIDE),
        (DType.E5M2_F16, f"acc * {BLOCKS}", "conversion to f16 + cuBLAS GemmEx"),
        (DType.E5M2_F32, f"acc * {BLOCKS}", WIDE),
        (DType.E5M2, f"relu(acc * {BLOCKS} + bias[n])", WIDE + PASS),
        (DType.E5M2_E5M2, f"acc * {BLOCKS}", WIDE + PASS),
    ],
    ids=str,
)
# Rows of whole pieces of 16 elements, and others; blocks that are cut off.
@pytest.mark.parametrize("k", [272, 300])
def test_two_e5m2_are_multiplied_by_the_scales_of_their_blocks(
    helpers: Any, dtype: DType, epilogue: str, name: str, k: int
) -> None:
    problem = Problem(13, 200, k, Layout.NT, dtype, epilogue=Epilogue(epilogue))
    check_both(*calls_of(helpers, problem), name)


@pytest.mark.parametrize(("k", "apart"), [(1024, 8), (768, 8), (1152, 12), (640, 8)])
def test_scales_of_blocks_are_as_far_apart_as_cublaslt_takes_them(
    helpers: Any, k: int, apart: int
) -> None:
    gpu: Any = SimulatedGpu(helpers)
    text = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
    problem = Problem(24, 400, k, Layout.NT, DType.E4M3, epilogue=Epilogue(text))
    extras = InputSet(gpu, problem, 1, Fill.UNIFORM).extras
    of_a, given = extras["epilogue_sa"], extras["epilogue_sb"]
    arranged = fused._arranged(gpu, problem, of_a, given)
    ((address_a, address_b),) = arranged.addresses
    assert address_a == of_a.address
    one = memory(given.address, given.rows, given.cols, given.ld, np.float32)
    other = memory(address_b, given.rows, apart, apart, np.float32)
    assert (one == other[:, : given.cols]).all() and np.isfinite(one).all()

"""What kernels are compared with: cuBLAS, by whichever of its calls is the fastest here.

FP32 is SGEMM. For the types of tensor cores `cublasGemmEx` picks one algorithm by a heuristic,
which is not always the fastest; `cublasLtMatmul` shows the heuristic's other proposals. All that
are right are timed in turn, and the name says which one is the baseline. Parts of K may be added
up in C's own type, which for 16 bits can be too coarse: where no proposal is right, those that add
up in FP32 are asked for.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from autogemm.errors import DeviceError
from autogemm.problem import Problem
from autogemm.targets.cuda.cublas import Cublas, Gemm
from autogemm.targets.cuda.cublas_lt import ANY_REDUCTION, FP32_REDUCTION, CublasLt
from autogemm.targets.cuda.inputs import InputSet
from autogemm.targets.cuda.timing import warm_up

if TYPE_CHECKING:
    from autogemm.targets.cuda.bench import Bench

MOST_PROPOSALS = 8
ROUNDS = 5

Calls = dict[str, Callable[[Gemm], None]]


@dataclass(frozen=True, slots=True)
class Baseline:
    """One call of cuBLAS for a problem, into the C at ``c_address`` or the inputs' own."""

    name: str
    call: Callable[[Gemm], None]
    problem: Problem
    c_address: int

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream."""
        problem = self.problem
        self.call(
            Gemm(
                m=problem.m,
                n=problem.n,
                k=problem.k,
                trans_a=problem.layout.trans_a,
                trans_b=problem.layout.trans_b,
                alpha=inputs.alpha,
                a=inputs.a.address,
                lda=problem.lda,
                b=inputs.b.address,
                ldb=problem.ldb,
                beta=inputs.beta,
                c=inputs.own_c or self.c_address,
                ldc=problem.ldc,
            )
        )


def fastest_baseline(bench: "Bench", cublas: Cublas) -> Baseline:
    """The fastest of cuBLAS's calls that are right. Raises DeviceError when none is."""
    problem = bench.problem
    dtype = problem.dtype
    if dtype.has_fp32_products:
        call = partial(cublas.gemm, dtype=dtype)
        return Baseline("cuBLAS SGEMM", call, problem, bench.result.address)
    lt = CublasLt(bench.card)
    own: Calls = {"cuBLAS GemmEx": partial(cublas.gemm, dtype=dtype)}
    right, wrong = _checked(bench, own | _proposals(lt, problem, ANY_REDUCTION, ""))
    if not right:
        right, _ = _checked(bench, _proposals(lt, problem, FP32_REDUCTION, " (FP32 reduction)"))
    if not right:
        raise DeviceError(f"cuBLAS gives a wrong result here: {wrong[0]}")
    return _fastest(bench, right)


def _proposals(lt: CublasLt, problem: Problem, reduction: int, remark: str) -> Calls:
    """cuBLASLt's proposals by name, the most promising first."""
    proposed = lt.algorithms(problem, MOST_PROPOSALS, reduction)
    return {
        f"cuBLASLt {number} of {len(proposed)}{remark}": call
        for number, call in enumerate(proposed, start=1)
    }


def _checked(bench: "Bench", calls: Calls) -> tuple[list[Baseline], list[str]]:
    """Those that are right, and what is wrong with the others."""
    right, wrong = [], []
    for name, call in calls.items():
        one = Baseline(name, call, bench.problem, bench.result.address)
        try:
            complaint = bench.check(one).complaint
        except DeviceError as error:
            complaint = str(error)
        if complaint:
            wrong.append(complaint)
        else:
            right.append(one)
    return right, wrong


def _fastest(bench: "Bench", baselines: list[Baseline]) -> Baseline:
    """Timed in turn, a few rounds; the least median."""
    launch_us = warm_up(lambda launches: bench.batch_us(baselines[0], launches))
    method = bench.stopwatch_about(baselines[0], launch_us).method
    stopwatches = bench.stopwatches(baselines, method)
    rounds = [[one.samples(1)[0] for one in stopwatches] for _ in range(ROUNDS)]
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    return baselines[medians.index(min(medians))]

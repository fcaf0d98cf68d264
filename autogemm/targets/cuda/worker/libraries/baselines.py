"""The baseline that kernels are compared with: the fastest here of cuBLAS's calls.

FP32 is SGEMM. For the types of tensor cores `cublasGemmEx` picks one algorithm by a heuristic,
which is not always the fastest; `cublasLtMatmul` shows the heuristic's other proposals. All that
are right are timed in turn, and the name says which one is the baseline. Parts of K may be added
up in C's own type, which for 16 bits can be too coarse: where no proposal is right, those that add
up in FP32 are asked for.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from autogemm.model.problem import Problem
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, Gemm
from autogemm.targets.cuda.worker.gpu.cublas_lt import ANY_REDUCTION, FP32_REDUCTION, CublasLt
from autogemm.targets.cuda.worker.gpu.timing import Stopwatch, warm_up
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import Contestant, PreparedProblem

MOST_PROPOSALS = 8
ROUNDS = 5
TRIALS = 3
# Share of the least median up to which calls are near it, and the rounds in which these are timed.
NEAR, NEAR_ROUNDS = 1.05, 40


class NotHereError(Exception):
    """The library is not installed, or cannot do this problem; the message says what to do."""


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


def fastest_baseline(prepared: PreparedProblem, cublas: Cublas) -> Baseline:
    """The fastest of cuBLAS's calls that are right. Raises DeviceError when none is."""
    problem = prepared.problem
    dtype = problem.dtype
    if dtype.has_fp32_products:
        call = partial(cublas.gemm, dtype=dtype)
        return Baseline("cuBLAS SGEMM", call, problem, prepared.result.address)
    lt = CublasLt(prepared.gpu)
    calls: Calls = {"cuBLAS GemmEx": partial(cublas.gemm, dtype=dtype)}
    calls |= _proposals(lt, problem, ANY_REDUCTION, "")
    wrong: list[str] = []
    found = _fastest_right(prepared, calls, wrong)
    if found is None:
        calls = _proposals(lt, problem, FP32_REDUCTION, " (FP32 reduction)")
        found = _fastest_right(prepared, calls, wrong)
    if found is None:
        raise DeviceError(f"cuBLAS gives a wrong result here: {wrong[0]}")
    return found


def fastest_of(prepared: PreparedProblem, contestants: Sequence[Contestant]) -> int:
    """The place of the fastest of a few, timed quickly; the first launch loads or compiles it."""
    launches_us = []
    for contestant in contestants:
        prepared.batch_us(contestant, 1)
        launches_us.append(prepared.batch_us(contestant, TRIALS))
    return launches_us.index(min(launches_us))


def _proposals(lt: CublasLt, problem: Problem, reduction: int, remark: str) -> Calls:
    """cuBLASLt's proposals by name, the most promising first."""
    proposed = lt.algorithms(problem, MOST_PROPOSALS, reduction)
    return {
        f"cuBLASLt {number} of {len(proposed)}{remark}": call
        for number, call in enumerate(proposed, start=1)
    }


def _fastest_right(prepared: PreparedProblem, calls: Calls, wrong: list[str]) -> Baseline | None:
    """The fastest that is right; complaints about the others are added to ``wrong``."""

    def is_right(baseline: Baseline) -> bool:
        complaint = _complaint(prepared, baseline)
        if complaint:
            wrong.append(complaint)
        return not complaint

    named = (
        Baseline(name, call, prepared.problem, prepared.result.address)
        for name, call in calls.items()
    )
    right = [one for one in named if is_right(one)]
    # A call that adds up in a changing order may be right once and wrong then.
    while right:
        fastest = _fastest(prepared, right)
        if is_right(fastest):
            return fastest
        right.remove(fastest)
    return None


def _complaint(prepared: PreparedProblem, baseline: Baseline) -> str:
    """Return what is wrong with its result; a call that fails is wrong, too."""
    try:
        return prepared.check(baseline).complaint
    except DeviceError as error:
        return str(error)


def _fastest(prepared: PreparedProblem, baselines: list[Baseline]) -> Baseline:
    """Timed in turn, a few rounds; those that are near the fastest many more, so that the GPU is
    as warm as in finals: there one may be 3 % faster that was as fast as another before.
    """
    launch_us = warm_up(lambda launches: prepared.batch_us(baselines[0], launches))
    method = prepared.stopwatch_about(baselines[0], launch_us).method
    stopwatches = prepared.stopwatches(baselines, method)
    medians = _medians(stopwatches, ROUNDS)
    near = [i for i, median in enumerate(medians) if median <= NEAR * min(medians)]
    if len(near) == 1:
        return baselines[near[0]]
    medians = _medians([stopwatches[i] for i in near], NEAR_ROUNDS)
    return baselines[near[medians.index(min(medians))]]


def _medians(stopwatches: list[Stopwatch], num_rounds: int) -> list[float]:
    rounds = [[one.samples(1)[0] for one in stopwatches] for _ in range(num_rounds)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]

"""All calls of cuBLAS for a problem, with what is done before and behind a product that cuBLAS does
not multiply as it is, or of which it does not make the problem's C.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from autogemm.model.fusion import Fusion, fusion_of
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CONVERSION, Call, Status
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, Gemm
from autogemm.targets.cuda.worker.gpu.cublas_lt import ANY_REDUCTION, CublasLt
from autogemm.targets.cuda.worker.libraries.fused import Step, behind, fused
from autogemm.targets.cuda.worker.libraries.grouped import grouped
from autogemm.targets.cuda.worker.libraries.looped import looped
from autogemm.targets.cuda.worker.libraries.widened import Widen, widened
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem

MOST_PROPOSALS = 100
# Proposals for one product that are tried in a loop over those of a batch.
MOST_LOOPED = 8


@dataclass(frozen=True, slots=True)
class Baseline:
    """One call of cuBLAS for a problem, into the C at ``c_address`` or the inputs' own.

    ``step`` has what is done behind the product, ``widened`` what is done before: it gives the
    GEMM that is called.
    """

    name: str
    call: Callable[[Gemm], None]
    problem: Problem
    c_address: int
    step: Step | None = None
    widened: Widen | None = None

    @property
    def rounds_sums(self) -> bool:
        """Whether sums may be rounded to C's type before an epilogue."""
        return self.step is not None and self.step.rounds_sums

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream."""
        problem = self.problem
        rows_a, rows_b, rows_c = problem.batch_rows
        gemm = Gemm(
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
            count=problem.batch.count,
            stride_a=rows_a * problem.lda,
            stride_b=rows_b * problem.ldb,
            stride_c=rows_c * problem.ldc,
            ranges=() if problem.groups.is_none else problem.groups.ranges(problem.grouped_rows),
            divides_k=problem.divides_k,
        )
        if self.widened is not None:
            gemm = self.widened(gemm, inputs)
        if self.step is not None:
            self.step.queue(self.call, gemm, inputs)
        else:
            self.call(gemm)


def called_for(problem: Problem, *, converts: bool) -> Problem:
    """The product that cuBLAS is asked for, of types that it has. Scales of blocks are its own, but
    where operands are converted, which are multiplied by them then.
    """
    dtype = problem.dtype.converted if converts else problem.multiplied
    has_own_scales = bool(problem.epilogue.scales) and not converts
    if has_own_scales or not problem.needs_pass:
        return replace(problem, dtype=dtype)
    # Between rows of one C is what is between C's.
    is_gated = problem.epilogue.num_columns > 1
    ldc = problem.plain_product.n if is_gated else problem.ldc
    return replace(problem.plain_product, ldc=ldc, dtype=dtype)


class CublasCalls:
    """All calls of cuBLAS for a problem; ``left_out`` has what cannot be called."""

    def __init__(self, prepared: PreparedProblem, cublas: Cublas) -> None:
        self._prepared_problem, self._cublas = prepared, cublas
        self.left_out: list[Call] = []
        self._widened: Widen | None = None
        self._set_up(converts=prepared.problem.converts)
        self._lt: CublasLt | None = None
        try:
            self._lt = CublasLt(prepared.gpu)
        except DeviceError as error:
            self.left_out.append(Call("cuBLASLt", Status.REJECTED, str(error)))

    def _set_up(self, *, converts: bool) -> None:
        prepared = self._prepared_problem
        self._called = called_for(prepared.problem, converts=converts)
        self._behind = self._step(converts=converts)
        if converts:
            self._widened = widened(prepared.gpu, prepared.problem, prepared.reals)

    def all(self) -> list[Baseline]:
        """The plain ones, then proposals of cuBLASLt, the most promising first. With scales of
        blocks of which it has no call, as for groups of odd sizes, those of converted operands.
        """
        found = self._all()
        if found or not self._prepared_problem.problem.epilogue.scales:
            return found
        self._set_up(converts=True)
        return self._all()

    def _all(self) -> list[Baseline]:
        if not self._prepared_problem.problem.batch.is_one:
            return self._calls_of_batch()
        if not self._prepared_problem.problem.groups.is_none:
            return self._calls_of_groups()
        dtype = self._called.dtype
        gemm_ex = self._named("cuBLAS GemmEx", partial(self._cublas.gemm_ex, dtype=dtype))
        plain = [gemm_ex] if dtype.has_gemm_ex else []
        if dtype.has_fp32_products:
            plain = [self._named("cuBLAS SGEMM", self._cublas.sgemm), gemm_ex]
        return [*self._fused_proposals(), *plain, *self.proposals(ANY_REDUCTION)]

    def _calls_of_batch(self) -> list[Baseline]:
        """Calls for batches, with cuBLASLt's proposals; then loops of calls for one product."""
        prepared, cublas = self._prepared_problem, self._cublas
        problem, dtype = self._called, self._called.dtype
        batched = partial(cublas.strided_batched_ex, dtype=dtype)
        ones: list[tuple[str, Callable[[Gemm], None]]] = []
        if dtype.has_fp32_products:
            ones.append(("cuBLAS SGEMM", cublas.sgemm))
        plain = []
        if dtype.has_gemm_ex:
            plain = [self._named("cuBLAS GemmStridedBatchedEx", batched)]
            ones.append(("cuBLAS GemmEx", partial(cublas.gemm_ex, dtype=dtype)))
        with suppress(DeviceError):
            ones += self._proposed(problem.one_product, MOST_LOOPED)
        return [
            *self._fused_proposals(),
            *plain,
            *self.proposals(ANY_REDUCTION),
            *(
                self._named(f"{name}, looped", looped(prepared.gpu, call, dtype))
                for name, call in ones
            ),
        ]

    def _calls_of_groups(self) -> list[Baseline]:
        """One call for all groups, then loops of a call for each that has rows, as one graph: the
        host knows the rows.
        """
        prepared, cublas = self._prepared_problem, self._cublas
        dtype = self._called.dtype
        ones: list[tuple[str, Callable[[Gemm], None]]] = []
        if dtype.has_fp32_products:
            ones.append(("cuBLAS SGEMM", cublas.sgemm))
        if dtype.has_gemm_ex:
            ones.append(("cuBLAS GemmEx", partial(cublas.gemm_ex, dtype=dtype)))
        ones += self._proposals_of_groups()
        at_once = []
        if dtype.has_gemm_ex and not dtype.ab.is_integer:
            call = grouped(prepared.gpu, cublas, dtype, prepared.problem.groups.count)
            at_once = [self._named("cuBLAS GemmGroupedBatchedEx", call)]
        return [
            *at_once,
            *(
                self._named(f"{name}, looped", looped(prepared.gpu, call, dtype))
                for name, call in ones
            ),
        ]

    def _proposed(
        self,
        problem: Problem,
        most: int,
        reduction: int = ANY_REDUCTION,
        fusion: Fusion | None = None,
    ) -> list[tuple[str, Callable[[Gemm], None]]]:
        """cuBLASLt's proposals by name, numbered from 1 in its order; of 8-bit floats those that
        promote their sums, then those that do not. Raises DeviceError where it has none.
        """
        if self._lt is None:
            return []
        ways = {"": False}
        if problem.dtype.adds_in_few_bits and not problem.epilogue.scales:
            ways[" (fast accumulation)"] = True
        return [
            (f"cuBLASLt proposal {number}{way}", call)
            for way, adds_fast in ways.items()
            for number, call in enumerate(
                self._lt.algorithms(problem, most, reduction, fusion, adds_fast=adds_fast), start=1
            )
        ]

    def _proposals_of_groups(self) -> list[tuple[str, Callable[[Gemm], None]]]:
        """The first proposals for every group's rows, the second ones and so on; where there are
        fewer, the last.
        """
        of_groups = self._called
        divided = "k" if of_groups.divides_k else "m"
        by_rows: dict[int, list[tuple[str, Callable[[Gemm], None]]]] = {}
        all_rows = set(of_groups.groups.rows(of_groups.grouped_rows))
        if of_groups.divides_k and 0 in all_rows:
            # The library proposes nothing for products without a term.
            return []
        try:
            for rows in all_rows - {0}:
                by_rows[rows] = self._proposed(of_groups.product_of_group(rows), MOST_LOOPED)
        except DeviceError as error:
            self.left_out.append(Call("cuBLASLt", Status.REJECTED, str(error)))
            return []
        if not all(by_rows.values()):
            return []

        def queue(number: int, gemm: Gemm) -> None:
            proposed = by_rows[getattr(gemm, divided)]
            proposed[min(number, len(proposed) - 1)][1](gemm)

        longest = max(by_rows.values(), key=len, default=[])
        return [(name, partial(queue, number)) for number, (name, _) in enumerate(longest)]

    def _step(self, *, converts: bool) -> Step | None:
        """The step behind the product, None where it is the whole problem."""
        prepared = self._prepared_problem
        if not prepared.problem.needs_pass:
            return None
        return behind(
            prepared.problem.spelled_out,
            prepared.behind_product,
            prepared.gpu,
            prepared.input_sets,
            converts=converts,
        )

    def _fused_proposals(self) -> list[Baseline]:
        """cuBLASLt's proposals with its own epilogue, where it has the problem's."""
        problem = self._prepared_problem.problem
        if self._lt is None or problem.epilogue.is_plain:
            return []
        address = self._prepared_problem.result.address
        fusion = fusion_of(problem.epilogue, problem.dtype)
        if fusion is None:
            return []
        asked = problem
        if self._widened is not None:
            asked = replace(problem, dtype=self._called.dtype)
        if asked.dtype.c is not problem.dtype.c:
            return []
        try:
            proposed = self._proposed(asked, MOST_PROPOSALS, ANY_REDUCTION, fusion)
        except DeviceError as error:
            self.left_out.append(Call("cuBLASLt, fused", Status.REJECTED, str(error)))
            return []
        step = fused(fusion, problem, self._prepared_problem.gpu)
        return [
            Baseline(self._before + f"{name}, fused", call, problem, address, step, self._widened)
            for name, call in proposed
        ]

    def proposals(self, reduction: int, remark: str = "") -> list[Baseline]:
        """cuBLASLt's proposals, numbered from 1 in its order."""
        if self._lt is None or not self._prepared_problem.problem.groups.is_none:
            return []
        try:
            proposed = self._proposed(self._called, MOST_PROPOSALS, reduction)
        except DeviceError as error:
            self.left_out.append(Call("cuBLASLt", Status.REJECTED, str(error)))
            return []
        return [self._named(name + remark, call) for name, call in proposed]

    def _named(self, name: str, call: Callable[[Gemm], None]) -> Baseline:
        prepared = self._prepared_problem
        step = self._behind
        more = " + pointwise kernel" if step is not None and step.is_pass else ""
        name = self._before + name + more
        return Baseline(
            *(name, call, prepared.problem, prepared.result.address, step, self._widened)
        )

    @property
    def _before(self) -> str:
        return f"{CONVERSION} {self._called.dtype.ab} + " if self._widened is not None else ""

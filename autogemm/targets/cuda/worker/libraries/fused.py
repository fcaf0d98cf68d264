"""Calls of cuBLAS for a problem with an epilogue: fused by cuBLASLt, or with a kernel behind.

Where cuBLASLt has no epilogue (`autogemm.model.fusion`), the call is the plain product, rounded to
C's type or to 16 bits where that has 8, and one pointwise kernel of the same expression, which
accesses 16 bytes at a time. The same is done where cuBLAS does not make a C of the problem's type:
sums of integers are integers then.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autogemm.model.fusion import Fusion
from autogemm.model.problem import Problem
from autogemm.space import EPILOGUE_PREFIX, epilogue_rules
from autogemm.targets.cuda.worker.gpu.cublas import Gemm
from autogemm.targets.cuda.worker.gpu.cublas_lt import SCALE_ROWS
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, Helpers, pointer
from autogemm.targets.cuda.worker.problem.inputs import InputSet, Matrix
from autogemm.targets.cuda.worker.problem.reference import epilogue_inputs

VECTOR_BYTES = 16
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Step:
    """The work of a call besides the product. ``is_pass``: whether a kernel is behind it;
    ``rounds_sums``: whether sums may be rounded to C's type before an epilogue.
    """

    queue: Callable[[Callable[[Gemm], None], Gemm, InputSet], None]
    is_pass: bool = True
    rounds_sums: bool = True


def behind(
    problem: Problem,
    helpers: Helpers,
    gpu: Gpu,
    input_sets: Sequence[InputSet],
    *,
    converts: bool,
) -> Step:
    """The step behind the product, no kernel where that has all scales and the epilogue no more.

    ``input_sets`` are all inputs that it will be queued with; ``converts``: operands are converted.
    """
    if not problem.epilogue.scales:
        return pointwise(problem, helpers, gpu)
    of_a, of_b = (EPILOGUE_PREFIX + one.name for one in problem.epilogue.scales)
    # Converted operands have the scales.
    own_sets = () if converts else input_sets
    arranged = {
        inputs: _arranged(gpu, problem, inputs.extras[of_a], inputs.extras[of_b])
        for inputs in own_sets
    }
    rest = None
    if not problem.epilogue.is_scaled_product or problem.dtype.c.saturates:
        rest = pointwise(problem, helpers, gpu)

    def queue(call: Callable[[Gemm], None], gemm: Gemm, inputs: InputSet) -> None:
        if inputs in arranged:
            scales = arranged[inputs].addresses
            if gemm.ranges:
                gemm = replace(gemm, scales_of_groups=scales)
            else:
                gemm = replace(gemm, scale_a=scales[0][0], scale_b=scales[0][1])
        if rest is None:
            call(replace(gemm, alpha=1.0, beta=0.0))
        else:
            rest.queue(call, gemm, inputs)

    return Step(queue, is_pass=rest is not None, rounds_sums=rest is not None)


@dataclass(frozen=True, slots=True)
class _Scales:
    """Scales of blocks: addresses of A's and of B's for each product, and what holds them."""

    addresses: tuple[tuple[int, int], ...]
    kept: tuple[object, ...]


def _arranged(gpu: Gpu, problem: Problem, of_a: Matrix, of_b: Matrix) -> _Scales:
    """Scales as cuBLASLt takes them: those of 128 x 128 elements of B with their rows a multiple of
    SCALE_ROWS apart, those of a group's rows of A packed. It is done once, not for each product, as
    those of weights are stored once.
    """
    more = -of_b.cols % SCALE_ROWS
    padded = _stored(gpu, np.pad(_values(gpu, of_b), ((0, 0), (0, more))))
    if problem.groups.is_none:
        return _Scales(((of_a.address, padded.ptr),), (padded,))
    values = _values(gpu, of_a)
    ranges = problem.groups.ranges(problem.m)
    packed = [_stored(gpu, values[:, first:end]) for first, end in ranges]
    step = of_b.rows // len(ranges) * (of_b.cols + more) * of_b.element.size_bytes
    addresses = tuple((one.ptr, padded.ptr + group * step) for group, one in enumerate(packed))
    return _Scales(addresses, (padded, *packed))


def _values(gpu: Gpu, scales: Matrix) -> Floats:
    values = np.empty((scales.rows, scales.cols), np.float32)
    gpu.read(scales.address, values)
    return values


def _stored(gpu: Gpu, values: Floats) -> Any:
    """The values in memory of their own; its address is ``.ptr``."""
    memory = gpu.allocate(max(values.nbytes, 1))
    gpu.write(int(memory.ptr), np.ascontiguousarray(values))
    return memory


def pointwise(problem: Problem, helpers: Helpers, gpu: Gpu) -> Step:
    """The product, then a kernel. Where C is read, or has fewer columns, the product goes to memory
    of its own; so it does in the 16 bits that products of an 8-bit C have.
    """
    of_sums = problem.dtype.of_sums
    is_gated = problem.epilogue.num_columns > 1
    columns = problem.plain_product.n
    ld = columns if is_gated else problem.ldc
    rows = problem.stacked_rows[2]
    # It lives as long as the function below.
    needs_spare = problem.reads_c or is_gated or of_sums is not problem.dtype
    spare = gpu.allocate(of_sums.c.size_bytes * rows * ld) if needs_spare else None

    def queue(call: Callable[[Gemm], None], gemm: Gemm, inputs: InputSet) -> None:
        product = replace(gemm, alpha=1.0, beta=0.0, n=columns, ldc=ld)
        if spare is not None:
            product = replace(product, c=spare.ptr)
        call(product)
        if gemm.ranges and not gemm.divides_k:
            apply_to_groups(product.c, gemm.c, inputs)
            return
        pairs = (product.products(of_sums), gemm.products(problem.dtype))
        for from_product, to in zip(*pairs, strict=True):
            apply(from_product.c, to.c, inputs)

    def apply_to_groups(from_address: int, to_address: int, inputs: InputSet) -> None:
        groups = problem.groups
        if not groups.masked and not problem.epilogue.is_of_groups:
            # Rows of all groups are one C.
            apply(from_address, to_address, inputs)
            return
        for group, (first, end) in enumerate(groups.ranges(problem.m)):
            if first < end:
                from_rows = from_address + first * ld * of_sums.c.size_bytes
                to_rows = to_address + first * problem.ldc * problem.dtype.c.size_bytes
                apply(from_rows, to_rows, inputs, end - first, group, first)

    def apply(  # noqa: PLR0913, PLR0917  # where, and of which group's rows
        from_address: int,
        to_address: int,
        inputs: InputSet,
        rows: int = problem.used_rows,
        group: int = 0,
        first_row: int = 0,
    ) -> None:
        vector = VECTOR_BYTES // problem.dtype.c.size_bytes
        is_aligned = problem.n % vector == 0 and problem.ldc % vector == 0
        helpers.run(
            "fused_pointwise",
            rows * (problem.n // vector if is_aligned else problem.n),
            pointer(from_address),
            np.int64(ld),
            pointer(to_address),
            np.int64(problem.ldc),
            np.int32(rows),
            np.int32(problem.n),
            np.int32(vector if is_aligned else 1),
            np.float32(inputs.alpha),
            np.float32(inputs.beta),
            *(
                np.float32(one) if isinstance(one, float) else one
                for one in epilogue_inputs(problem, inputs, group, first_row)
            ),
            *([pointer(inputs.output_address)] if problem.epilogue.output is not None else []),
        )

    return Step(queue, rounds_sums=not of_sums.c.is_integer)


def fused(fusion: Fusion, problem: Problem, gpu: Gpu) -> Step:
    """The one call of cuBLASLt."""
    # It lives as long as the function below.
    scale = gpu.allocate(4) if fusion.scale else None
    values = {one.name: one.neutral for one in epilogue_rules(problem)}
    alpha = math.prod(np.float32(values[EPILOGUE_PREFIX + name]) for name in fusion.factors)

    def queue(call: Callable[[Gemm], None], gemm: Gemm, inputs: InputSet) -> None:
        arrays = inputs.extras
        bias = arrays[EPILOGUE_PREFIX + fusion.bias].address if fusion.bias else 0
        added = 0
        if fusion.adds_input:
            added = arrays[EPILOGUE_PREFIX + fusion.added].address
        beta = 1.0 if fusion.added else 0.0
        gemm = replace(gemm, alpha=float(alpha), beta=beta, bias=bias, added=added)
        call(gemm if scale is None else replace(gemm, scale_c=int(scale.ptr)))

    if scale is not None:
        value = values[EPILOGUE_PREFIX + fusion.scale]
        gpu.write(int(scale.ptr), np.array([value], np.float32))
    return Step(queue, is_pass=False)

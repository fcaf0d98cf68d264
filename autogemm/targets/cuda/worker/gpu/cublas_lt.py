"""cuBLASLt through its C interface: every algorithm that its heuristics propose for one GEMM."""

import ctypes
import weakref
from collections.abc import Callable

from autogemm.model.fusion import Fusion
from autogemm.model.problem import Problem
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu.cublas import (
    OP_N,
    OP_T,
    Gemm,
    loaded_library,
    scalars,
)
from autogemm.targets.cuda.worker.gpu.gpu import Gpu

# Twice what cuBLAS recommends for Hopper: no proposal that splits K is kept out.
WORKSPACE_BYTES = 64 * 2**20
# cublasLtMatmulDescAttributes_t and cublasLtMatmulPreferenceAttributes_t.
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
DESC_FAST_ACCUM, DESC_BIAS_DATA_TYPE = 25, 26
DESC_A_SCALE_POINTER, DESC_B_SCALE_POINTER, DESC_A_SCALE_MODE, DESC_B_SCALE_MODE = 17, 18, 31, 32
DESC_D_SCALE_POINTER = 20
# cublasLtMatmulMatrixScale_t: scales of 128 elements along k, all rows side by side, and of
# 128 x 128 elements, those along k side by side, rows of them a multiple of SCALE_ROWS apart.
SCALE_VEC128, SCALE_BLK128, SCALE_ROWS = 4, 5, 4
# cublasLtMatrixLayoutAttribute_t.
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_STRIDE = 5, 6
PREF_MAX_WORKSPACE_BYTES, PREF_REDUCTION_SCHEME_MASK = 1, 3
# cublasLtReductionScheme_t: how parts of K may be added up. All; or in FP32, not in C's own type.
ANY_REDUCTION, FP32_REDUCTION = 7, 2


class HeuristicResult(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace_size", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves_count", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLt:
    """One handle on the GPU's stream. Raises DeviceError when a call fails."""

    def __init__(self, gpu: Gpu) -> None:
        self._library = lt_library()
        self._stream = ctypes.c_void_p(gpu.stream.ptr)
        self._workspace = gpu.allocate(WORKSPACE_BYTES)
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        weakref.finalize(self, self._library.cublasLtDestroy, self._handle)

    def algorithms(
        self,
        problem: Problem,
        most: int,
        reduction: int = ANY_REDUCTION,
        fusion: Fusion | None = None,
        *,
        adds_fast: bool = False,
    ) -> list[Callable[[Gemm], None]]:
        """Return the heuristics' proposals for a problem, the most promising first.

        Each queues the problem's GEMM with the addresses and scalars that it is given. With
        ``adds_fast`` sums of 8-bit floats stay in the tensor cores, which keep fewer bits.
        """
        plan = _Plan(self._call, problem, reduction, fusion)
        if problem.epilogue.scales:
            plan.scale_blocks()
        if adds_fast:
            plan.add_fast()
        found = (HeuristicResult * most)()
        count = ctypes.c_int()
        self._call(
            "cublasLtMatmulAlgoGetHeuristic",
            self._handle,
            plan.description,
            *plan.layouts,
            plan.preference,
            ctypes.c_int(most),
            found,
            ctypes.byref(count),
        )
        usable = [one for one in found[: count.value] if one.state == 0]
        return [self._queueing(plan, one) for one in usable]

    def _queueing(self, plan: "_Plan", found: HeuristicResult) -> Callable[[Gemm], None]:
        a_layout, b_layout, c_layout, d_layout = plan.layouts

        def queue(gemm: Gemm) -> None:
            if gemm.bias:
                plan.set_bias(gemm.bias)
            if gemm.scale_a:
                plan.set_scales(gemm.scale_a, gemm.scale_b)
            if gemm.scale_c:
                plan.set_scale_of_c(gemm.scale_c)
            alpha, beta = scalars(gemm, plan.dtype)
            # It refuses a D of 8-bit floats in the place of its C, which has 16 bits.
            added = gemm.added or (0 if plan.dtype.c.saturates else gemm.c)
            self._call(
                "cublasLtMatmul",
                self._handle,
                plan.description,
                ctypes.byref(alpha),
                *(ctypes.c_void_p(gemm.b), a_layout),
                *(ctypes.c_void_p(gemm.a), b_layout),
                ctypes.byref(beta),
                *(ctypes.c_void_p(added), c_layout),
                *(ctypes.c_void_p(gemm.c), d_layout),
                ctypes.byref(found.algo),
                ctypes.c_void_p(self._workspace.ptr),
                ctypes.c_size_t(WORKSPACE_BYTES),
                self._stream,
            )

        return queue

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise DeviceError(f"{function} failed with cuBLAS status {status}")


class _Plan:
    """The descriptors of one GEMM, column-major as cuBLASLt has it: op(B)^T op(A)^T."""

    def __init__(
        self,
        call: Callable[..., None],
        problem: Problem,
        reduction: int,
        fusion: Fusion | None = None,
    ) -> None:
        self._call = call
        self.dtype = dtype = problem.dtype
        layout = problem.layout
        self.description = ctypes.c_void_p()
        call(
            "cublasLtMatmulDescCreate",
            ctypes.byref(self.description),
            ctypes.c_int(dtype.cublas_compute_type),
            ctypes.c_int(dtype.cublas_scale_type),
        )
        transpositions = ((DESC_TRANSA, layout.trans_b), (DESC_TRANSB, layout.trans_a))
        for attribute, transposed in transpositions:
            self._set(attribute, ctypes.c_int32(OP_T if transposed else OP_N))
        if fusion is not None:
            self._set(DESC_EPILOGUE, ctypes.c_uint32(fusion.code))
            if fusion.bias:
                # Any address with the alignment of arrays: proposals may depend on it.
                self.set_bias(1 << 21)
                if dtype.c.saturates:
                    self._set(DESC_BIAS_DATA_TYPE, ctypes.c_int32(dtype.of_arrays.cuda_data_type))
            if fusion.scale:
                self.set_scale_of_c(1 << 21)
        is_other = fusion is not None and fusion.adds_input
        of_a, of_b, of_c = problem.batch_rows
        # What may be added to a C of 8 bits has 16: cuBLASLt's C, of which C here is the D.
        added = dtype.of_arrays.cuda_data_type
        # A row-major matrix seen as column-major; the stride from one product to the next is in
        # rows.
        matrices = (
            (dtype.b.cuda_data_type, *reversed(problem.b_shape), problem.ldb, of_b),
            (dtype.ab.cuda_data_type, *reversed(problem.a_shape), problem.lda, of_a),
            (added, problem.n, problem.m, *((problem.n, 0) if is_other else (problem.ldc, of_c))),
            (dtype.c.cuda_data_type, problem.n, problem.m, problem.ldc, of_c),
        )
        self.layouts = tuple(ctypes.c_void_p() for _ in matrices)
        for created, (element, rows, columns, ld, apart) in zip(
            self.layouts, matrices, strict=True
        ):
            call(
                "cublasLtMatrixLayoutCreate",
                ctypes.byref(created),
                ctypes.c_int(element),
                ctypes.c_uint64(rows),
                ctypes.c_uint64(columns),
                ctypes.c_int64(ld),
            )
            if not problem.batch.is_one:
                self._stack(created, problem.batch.count, apart * ld)
        self.preference = ctypes.c_void_p()
        call("cublasLtMatmulPreferenceCreate", ctypes.byref(self.preference))
        for attribute, value in (
            (PREF_MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_BYTES)),
            (PREF_REDUCTION_SCHEME_MASK, ctypes.c_uint32(reduction)),
        ):
            call(
                "cublasLtMatmulPreferenceSetAttribute",
                self.preference,
                ctypes.c_int(attribute),
                ctypes.byref(value),
                ctypes.c_size_t(ctypes.sizeof(value)),
            )

    def _stack(self, layout: ctypes.c_void_p, count: int, stride: int) -> None:
        for attribute, value in (
            (LAYOUT_BATCH_COUNT, ctypes.c_int32(count)),
            (LAYOUT_BATCH_STRIDE, ctypes.c_int64(stride)),
        ):
            self._call(
                "cublasLtMatrixLayoutSetAttribute",
                layout,
                ctypes.c_int(attribute),
                ctypes.byref(value),
                ctypes.c_size_t(ctypes.sizeof(value)),
            )

    def add_fast(self) -> None:
        """Leave sums of 8-bit floats in the tensor cores, as a kernel does that never promotes."""
        self._set(DESC_FAST_ACCUM, ctypes.c_int8(1))

    def scale_blocks(self) -> None:
        """Blocks of A and B have scales. cuBLASLt's A is B, and its B is A."""
        for attribute, mode in (
            (DESC_A_SCALE_MODE, SCALE_BLK128),
            (DESC_B_SCALE_MODE, SCALE_VEC128),
        ):
            self._set(attribute, ctypes.c_int32(mode))
        # Any addresses, as with a bias.
        self.set_scales(1 << 21, 1 << 21)

    def set_scales(self, scale_a: int, scale_b: int) -> None:
        """Say where scales of blocks of A and B lie."""
        self._set(DESC_A_SCALE_POINTER, ctypes.c_void_p(scale_b))
        self._set(DESC_B_SCALE_POINTER, ctypes.c_void_p(scale_a))

    def set_scale_of_c(self, address: int) -> None:
        """Say where the factor lies by which results are multiplied before they are rounded."""
        self._set(DESC_D_SCALE_POINTER, ctypes.c_void_p(address))

    def set_bias(self, address: int) -> None:
        """Say where the bias lies."""
        self._set(DESC_BIAS_POINTER, ctypes.c_void_p(address))

    def _set(
        self,
        attribute: int,
        value: ctypes.c_int8 | ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_void_p,
    ) -> None:
        self._call(
            "cublasLtMatmulDescSetAttribute",
            self.description,
            ctypes.c_int(attribute),
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )


def lt_library() -> ctypes.CDLL:
    """The libcublasLt that cuBLAS itself has loaded. Raises DeviceError where there is none."""
    path = loaded_library("libcublasLt.so")
    if path is None:
        raise DeviceError(
            "cuBLAS came without libcublasLt: reinstall the CUDA toolkit or its wheel"
        )
    return ctypes.CDLL(path)

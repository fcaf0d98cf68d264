"""Arguments of cuBLAS and cuBLASLt: stream, workspace, types, layouts, which sums are allowed."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.fusion import Fusion, fusion_of
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu import cublas, cublas_lt
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, Gemm, loaded_library
from autogemm.targets.cuda.worker.gpu.cublas_lt import ANY_REDUCTION, FP32_REDUCTION, CublasLt

STREAM, MIB = 0x5000, 2**20
GEMM = Gemm(
    *(5, 6, 7),
    trans_a=False,
    trans_b=True,
    alpha=0.25,
    a=0xA000,
    lda=9,
    b=0xB000,
    ldb=11,
    beta=-2.0,
    c=0xC000,
    ldc=13,
)


class Gpu:
    """Gives memory at known places."""

    def __init__(self) -> None:
        self.stream = SimpleNamespace(ptr=STREAM)
        self.sizes: dict[int, int] = {}

    def allocate(self, num_bytes: int) -> Any:
        address = 0x100000 * (1 + len(self.sizes))
        self.sizes[address] = num_bytes
        return SimpleNamespace(ptr=address)


class Library:
    """Keeps all calls; handles and descriptors are numbered from 1. ``failing`` gives a status."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.failing = failing
        self.proposals: list[int] = []
        self._number = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cublas"):
            raise AttributeError(name)

        def call(*given: Any) -> int:
            if name.endswith(("Create", "Create_v2")):
                self._number += 1
                given[0]._obj.value = self._number
            if name == "cublasGetProperty":
                given[1]._obj.value = (13, 1, 2)[given[0].value]
            values = tuple(self.value(one) for one in given)
            if name == "cublasLtMatmulAlgoGetHeuristic":
                # Their states; the number of each is its algorithm.
                for place, state in enumerate(self.proposals):
                    given[-2][place].state = state
                    given[-2][place].algo[0] = 100 + place
                given[-1]._obj.value = len(self.proposals)
            self.calls.append((name, values))
            return 14 if name == self.failing else 0

        return call

    @staticmethod
    def value(one: Any) -> Any:
        """The number behind an argument, or behind its address."""
        inner = getattr(one, "_obj", one)
        if isinstance(inner, ctypes.Array):
            return inner[0] if isinstance(inner[0], int) else len(inner)
        return inner.value

    def told(self, name: str) -> list[tuple[Any, ...]]:
        return [values for called, values in self.calls if called == name]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    one = Library()
    monkeypatch.setattr(cublas, "load_library", lambda: one)
    monkeypatch.setattr(cublas_lt, "lt_library", lambda: one)
    return one


def test_cublas_works_on_our_stream_in_memory_of_its_own_and_fp32(library: Library) -> None:
    gpu: Any = Gpu()
    assert Cublas(gpu).version == "13.1.2"
    ((address, size),) = gpu.sizes.items()
    assert size >= 32 * MIB
    assert library.told("cublasSetStream_v2") == [(1, STREAM)]
    assert library.told("cublasSetMathMode") == [(1, 0)]
    assert library.told("cublasSetWorkspace_v2") == [(1, address, size)]


@pytest.mark.parametrize(("name", "kind"), [("sgemm", "S"), ("dgemm", "D")])
def test_a_plain_product_is_told_as_its_transpose(library: Library, name: str, kind: str) -> None:
    """cuBLAS is column-major: B first, N before M."""
    gpu: Any = Gpu()
    getattr(Cublas(gpu), name)(GEMM)
    assert library.told(f"cublas{kind}gemm_v2") == [
        (1, 1, 0, 6, 5, 7, 0.25, 0xB000, 11, 0xA000, 9, -2.0, 0xC000, 13)
    ]


# Numbers of cudaDataType and cublasComputeType_t.
TYPES = {
    DType.F32: (0, 0, 68),
    DType.TF32: (0, 0, 77),
    DType.F16: (2, 2, 68),
    DType.F16_F32: (2, 0, 68),
    DType.BF16: (14, 14, 68),
    DType.BF16_F32: (14, 0, 68),
    DType.E4M3: (28, 14, 68),
    DType.E4M3_F16: (28, 2, 68),
    DType.E4M3_F32: (28, 0, 68),
    DType.E5M2: (29, 14, 68),
    DType.E5M2_F16: (29, 2, 68),
    DType.E5M2_F32: (29, 0, 68),
    DType.E4M3_BY_E5M2: (28, 14, 68),
    DType.E4M3_BY_E5M2_F16: (28, 2, 68),
    DType.E4M3_BY_E5M2_F32: (28, 0, 68),
    DType.E5M2_BY_E4M3: (29, 14, 68),
    DType.E5M2_BY_E4M3_F16: (29, 2, 68),
    DType.E5M2_BY_E4M3_F32: (29, 0, 68),
    DType.E4M3_E4M3: (28, 28, 68),
    DType.E5M2_E5M2: (29, 29, 68),
    DType.BF16_E4M3: (14, 28, 68),
    DType.I8: (3, 10, 72),
    DType.I8_BF16: (3, 14, 68),
    DType.I8_F16: (3, 2, 68),
    DType.I8_F32: (3, 0, 68),
}


@pytest.mark.parametrize("dtype", [one for one in DType if one.has_gemm_ex], ids=str)
def test_gemm_ex_is_told_the_types_of_operands_result_and_sums(
    library: Library, dtype: DType
) -> None:
    operand, result, compute = TYPES[dtype]
    gpu: Any = Gpu()
    alpha, beta = (1, 0) if dtype is DType.I8 else (0.25, -2.0)
    Cublas(gpu).gemm_ex(replace(GEMM, alpha=float(alpha), beta=float(beta)), dtype)
    a, b, c = (0xA000, operand, 9), (0xB000, operand, 11), (0xC000, result, 13)
    (told,) = library.told("cublasGemmEx")
    assert told == (1, 1, 0, 6, 5, 7, alpha, *b, *a, beta, *c, compute, -1)
    # Sums of integers are multiplied by integers, all others by floats.
    assert type(told[6]) is type(told[-6]) is (int if dtype is DType.I8 else float)


def test_a_call_that_fails_gives_its_name_and_status(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = Gpu()
    for failing, module in (("cublasSgemm_v2", cublas), ("cublasLtCreate", cublas_lt)):
        one = Library(failing)
        monkeypatch.setattr(cublas, "load_library", lambda one=one: one)
        monkeypatch.setattr(cublas_lt, "lt_library", lambda one=one: one)
        with pytest.raises(DeviceError, match=f"{failing} failed with cuBLAS status 14"):
            Cublas(gpu).sgemm(GEMM) if module is cublas else CublasLt(gpu)


@pytest.mark.parametrize("dtype", list(DType), ids=str)
@pytest.mark.parametrize("layout", list(Layout), ids=str)
def test_proposals_are_asked_for_the_whole_problem(
    library: Library, dtype: DType, layout: Layout
) -> None:
    operand, result, compute = TYPES[dtype]
    problem = Problem(5, 6, 7, layout, dtype, lda=16, ldb=24, ldc=32)
    library.proposals = [0, 15, 0]
    gpu: Any = Gpu()
    found = CublasLt(gpu).algorithms(problem, 10)
    assert len(found) == 2, "what is not supported is none"
    scale = 10 if dtype is DType.I8 else 0
    assert library.told("cublasLtMatmulDescCreate") == [(2, compute, scale)]
    # CUBLASLT_MATMUL_DESC_TRANSA and TRANSB: of B and of A, 4 bytes each.
    assert library.told("cublasLtMatmulDescSetAttribute") == [
        (2, 3, int(layout.trans_b), 4),
        (2, 4, int(layout.trans_a), 4),
    ]
    a_rows, a_columns = problem.a_shape
    b_rows, b_columns = problem.b_shape
    assert [one[1:] for one in library.told("cublasLtMatrixLayoutCreate")] == [
        ({"e4m3xe5m2": 29, "e5m2xe4m3": 28}.get(dtype.operands, operand), b_columns, b_rows, 24),
        (operand, a_columns, a_rows, 16),
        # What is added to a C of 8-bit floats is BF16.
        (14 if dtype.c.saturates else result, 6, 5, 32),
        (result, 6, 5, 32),
    ]
    ((handle, description, *layouts, preference, most, room, _),) = library.told(
        "cublasLtMatmulAlgoGetHeuristic"
    )
    assert (handle, description, layouts, preference) == (1, 2, [3, 4, 5, 6], 7)
    assert most == room == 10


def test_a_c_of_8_bit_floats_has_one_scale_and_a_bias_of_16_bits(library: Library) -> None:
    epilogue = Epilogue("relu(acc + bias[n]) * s")
    problem = Problem(16, 16, 32, Layout.NT, DType.E4M3_E4M3, epilogue=epilogue)
    fusion = fusion_of(epilogue, problem.dtype)
    assert fusion == Fusion(6, bias="bias", scale="s")
    gpu: Any = Gpu()
    library.proposals = [0]
    (queue,) = CublasLt(gpu).algorithms(problem, 1, fusion=fusion)
    told = library.told("cublasLtMatmulDescSetAttribute")
    # CUBLASLT_MATMUL_DESC_EPILOGUE, BIAS_POINTER, BIAS_DATA_TYPE, D_SCALE_POINTER.
    assert told[2:] == [(2, 7, 6, 4), (2, 8, 1 << 21, 8), (2, 26, 14, 4), (2, 20, 1 << 21, 8)]
    queue(replace(GEMM, bias=512, scale_c=1024))
    told = library.told("cublasLtMatmulDescSetAttribute")
    assert told[-2:] == [(2, 8, 512, 8), (2, 20, 1024, 8)]
    ((*_, c, _, d, _, _, _, _, _),) = library.told("cublasLtMatmul")
    assert (c, d) == (None, GEMM.c), "a C of 16 bits is not a D of 8"


@pytest.mark.parametrize(
    "text", ["acc + c[m, n]", "acc * s * t", "acc * scale[m]", "acc / s", "acc * alpha"]
)
def test_what_cublas_has_no_epilogue_for_is_left_to_a_kernel_behind(text: str) -> None:
    assert fusion_of(Epilogue(text), DType.E4M3_E4M3) is None


@pytest.mark.parametrize(
    ("text", "fusion"),
    [
        ("acc * s", Fusion(1, factors=("s",))),
        ("t * acc * s", Fusion(1, factors=("t", "s"))),
        ("relu(bias[n] + acc * s * t)", Fusion(6, bias="bias", factors=("s", "t"))),
        ("acc * s + c[m, n]", Fusion(1, added="c", factors=("s",))),
        ("acc * scale[m]", None),
        ("acc * s * acc", None),
        ("acc * s + acc * t", None),
        ("(acc + bias[n]) * s", None),
        ("acc * alpha", None),
    ],
)
def test_values_that_multiply_sums_are_an_alpha(text: str, fusion: Fusion | None) -> None:
    for dtype in (DType.E4M3, DType.BF16, DType.F32):
        assert fusion_of(Epilogue(text), dtype) == fusion


def test_sums_of_8_bit_floats_may_stay_in_the_tensor_cores(library: Library) -> None:
    problem = Problem(16, 16, 32, Layout.NT, DType.E4M3)
    gpu: Any = Gpu()
    CublasLt(gpu).algorithms(problem, 3, adds_fast=True)
    # CUBLASLT_MATMUL_DESC_FAST_ACCUM, a byte.
    assert library.told("cublasLtMatmulDescSetAttribute")[-1] == (2, 25, 1, 1)


@pytest.mark.parametrize(("reduction", "mask"), [(ANY_REDUCTION, 7), (FP32_REDUCTION, 2)])
def test_proposals_may_use_the_workspace_and_only_the_sums_that_are_allowed(
    library: Library, reduction: int, mask: int
) -> None:
    gpu: Any = Gpu()
    CublasLt(gpu).algorithms(Problem(8, 8, 8), 3, reduction)
    (size,) = gpu.sizes.values()
    assert size == 64 * MIB
    # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, of 8 bytes, and REDUCTION_SCHEME_MASK, of 4.
    assert library.told("cublasLtMatmulPreferenceSetAttribute") == [
        (7, 1, size, 8),
        (7, 3, mask, 4),
    ]


def test_each_proposal_runs_its_own_algorithm_on_what_it_is_given(library: Library) -> None:
    library.proposals = [0, 15, 0]
    gpu: Any = Gpu()
    lt = CublasLt(gpu)
    for queue in lt.algorithms(Problem(5, 6, 7, Layout.NT), 10):
        queue(GEMM)
    ((address, size),) = gpu.sizes.items()
    calls = library.told("cublasLtMatmul")
    assert [one[-4] for one in calls] == [100, 102]
    matrices = (0xB000, 3, 0xA000, 4), (0xC000, 5, 0xC000, 6)
    for one in calls:
        assert one[:-4] == (1, 2, 0.25, *matrices[0], -2.0, *matrices[1])
        assert one[-3:] == (address, size, STREAM)


def test_a_library_is_found_by_the_name_that_this_process_has_loaded() -> None:
    path = loaded_library("libc.so") or loaded_library("libc-")
    assert path is not None
    assert ctypes.CDLL(path).abs(-3) == 3
    assert loaded_library("libnone.so") is None


def test_what_is_not_loaded_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas_lt, "loaded_library", lambda name: None)
    with pytest.raises(DeviceError, match="without libcublasLt"):
        cublas_lt.lt_library()

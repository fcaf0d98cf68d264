"""GEMMs of libraries, by the names of autogemm/catalogue/ladder.yaml, as contestants of a bench."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout
from autogemm.model.results.benchmark import baseline_of
from autogemm.targets.cuda.worker.gpu.cublas import Cublas
from autogemm.targets.cuda.worker.libraries.baselines import NotHereError, fastest_near, fastest_of
from autogemm.targets.cuda.worker.libraries.with_cutlass import fastest_cutlass
from autogemm.targets.cuda.worker.problem.prepared import Contestant, PreparedProblem


@dataclass(frozen=True, slots=True)
class LibraryKernel:
    """Makes a contestant and says which version of what it is; in which dtype it multiplies.

    ``make`` raises NotHereError.
    """

    dtype: DType
    make: Callable[[PreparedProblem, Cublas], tuple[Contestant, str]]


def cublas_contestant(prepared: PreparedProblem, cublas: Cublas) -> tuple[Contestant, str]:
    """The fastest of cuBLAS's own calls for the bench's dtype."""
    fastest = fastest_near(prepared)
    return fastest, f"{fastest.name} {cublas.version}"


def torch_contestant(prepared: PreparedProblem, cublas: Cublas) -> tuple[Contestant, str]:
    """PyTorch's matmul."""
    _require_one_product(prepared)
    version = _torch_version()
    from autogemm.targets.cuda.worker.libraries.with_torch import TorchContestant

    return TorchContestant(prepared), version


def scaled_torch_contestant(prepared: PreparedProblem, cublas: Cublas) -> tuple[Contestant, str]:
    """PyTorch's product of 8-bit floats, with fast accumulation or without: the faster here."""
    _require_one_product(prepared)
    problem = prepared.problem
    if problem.layout is not Layout.NT:
        raise NotHereError(f"8-bit floats need layout {Layout.NT}, got {problem.layout}")
    if problem.reads_c:
        raise NotHereError(f"torch._scaled_mm adds no C: leave out beta, got {problem.beta:g}")
    version = _torch_version()
    from autogemm.targets.cuda.worker.libraries.with_torch import ScaledTorchContestant

    both = [ScaledTorchContestant(prepared, adds_fast=one) for one in (False, True)]
    fastest = fastest_of(prepared, both)
    return both[fastest], f"{version}, {'with' if fastest else 'without'} fast accumulation"


def _torch_version() -> str:
    """PyTorch with its version. Raises NotHereError where it is not installed for CUDA."""
    try:
        import torch
    except ImportError as error:
        raise NotHereError("PyTorch is not installed: pip install torch") from error
    if torch.version.cuda is None:
        raise NotHereError(
            f"PyTorch {torch.__version__} is built without CUDA: install one with it"
        )
    return f"PyTorch {torch.__version__}"


def triton_contestant(
    prepared: PreparedProblem, cublas: Cublas, *, kind: str
) -> tuple[Contestant, str]:
    """A Triton kernel with products of that kind, the fastest of its tiles here."""
    _require_one_product(prepared)
    try:
        import torch  # noqa: F401  # Triton launches on PyTorch's stream
        import triton
    except ImportError as error:
        raise NotHereError("Triton is not installed: pip install torch triton") from error
    from autogemm.targets.cuda.worker.libraries.with_triton import fastest_triton

    contestant, tile = fastest_triton(prepared, kind)
    return contestant, f"Triton {triton.__version__}, tile {tile}"


def cutlass_contestant(prepared: PreparedProblem, cublas: Cublas) -> tuple[Contestant, str]:
    """CUTLASS's kernel for the dtype, the fastest of its tiles here."""
    _require_one_product(prepared)
    return fastest_cutlass(prepared)


def _require_one_product(prepared: PreparedProblem) -> None:
    if not prepared.problem.batch.is_one:
        raise NotHereError("it is called for one product here: leave out --batch")
    if not prepared.problem.groups.is_none:
        raise NotHereError("it is called for one product here: leave out --groups")


LIBRARIES = {
    **{baseline_of(dtype): LibraryKernel(dtype, cublas_contestant) for dtype in DType},
    "torch_f32": LibraryKernel(DType.F32, torch_contestant),
    "torch_bf16": LibraryKernel(DType.BF16, torch_contestant),
    "torch_f16": LibraryKernel(DType.F16, torch_contestant),
    "torch_e4m3": LibraryKernel(DType.E4M3, scaled_torch_contestant),
    "triton_f32": LibraryKernel(DType.F32, partial(triton_contestant, kind="ieee")),
    "triton_tf32x3": LibraryKernel(DType.F32, partial(triton_contestant, kind="tf32x3")),
    "triton_bf16": LibraryKernel(DType.BF16, partial(triton_contestant, kind="16 bits")),
    "triton_f16": LibraryKernel(DType.F16, partial(triton_contestant, kind="16 bits")),
    "cutlass_f32": LibraryKernel(DType.F32, cutlass_contestant),
    "cutlass_bf16": LibraryKernel(DType.BF16, cutlass_contestant),
    "cutlass_f16": LibraryKernel(DType.F16, cutlass_contestant),
}

"""Tuned kernels as a candidate of Inductor's ``max-autotune``."""

from typing import Any

import torch

from autogemm.runtime import gemm
from autogemm.support.errors import UsageError

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inductor_options() -> dict[str, Any]:
    """Return options of ``torch.compile`` with which Inductor times `autogemm.gemm` together with
    its own candidates for each product of two matrices, and uses the fastest.

    ``torch.compile(model, options=autogemm.inductor_options())``; more options may be added to the
    dictionary. Raises UsageError if this version of PyTorch has no such option.
    """
    from torch._inductor import config

    if not hasattr(config, "external_matmul"):
        raise UsageError(
            f"torch {torch.__version__} has no option external_matmul: Inductor takes no candidates"
        )
    return {"max_autotune": True, "external_matmul": [autogemm_mm]}


def autogemm_mm(a: Any, b: Any, *, out: Any) -> Any:
    """``a @ b`` into ``out`` by a tuned kernel, by torch where there is none for such matrices.

    Inductor knows a candidate by the name of its function, and emits calls of it.
    """
    if _has_kernels(a):
        try:
            return gemm(a, b, out=out)
        except UsageError:
            # Strides that no layout covers; a candidate that raises would end the compiler.
            pass
    return torch.mm(a, b, out=out)


def _has_kernels(a: Any) -> bool:
    return bool(a.is_cuda) and a.dtype in _DTYPES

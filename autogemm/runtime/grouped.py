"""``autogemm.grouped_gemm``: multiply the rows of each group by the group's own matrix."""

import sys
from typing import Any

from autogemm.model.epilogue import Epilogue
from autogemm.runtime.grouping import Rows, multiply, multiply_tn
from autogemm.support.errors import UsageError


def grouped_gemm(  # noqa: PLR0913, PLR0917  # as gemm: operands, result, factors
    x: Any,
    w: Any,
    offsets: Any = None,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    counts: Any = None,
    tune: bool | float = False,
    epilogue: str = "",
    **inputs: Any,
) -> Any:
    """``x[offsets[g] : offsets[g + 1]] @ w[g]`` for each group ``g``, in one launch.

    ``x`` is [rows, K], with the groups' rows one after the other, and ``w`` is [groups, K, N],
    contiguous or a transposed view of [groups, N, K]; float16 or bfloat16, from the libraries of
    `gemm`. ``offsets`` is an int32 array [groups + 1] on the same GPU: the first row of each group,
    then the end of the last group, in ascending order and none above the number of rows. A group
    may be empty. The kernel reads the offsets: the host does not wait for the GPU, and a captured
    graph may be replayed after the offsets have changed. An int64 array is converted on the GPU at
    each call.

    With ``counts``, an int32 array [groups], instead of offsets, each group has a capacity: ``x``
    is [groups, capacity, K], contiguous, and the first ``counts[g]`` rows of ``x[g]`` are
    multiplied.

    The result is [rows, N] or [groups, capacity, N]: ``out``, by default a new array; rows that
    belong to no group are not written. ``beta`` is the factor of the previous content of ``out``.
    An ``epilogue`` and its inputs are those of `gemm`, where ``m`` is a row of ``x`` (over all
    groups), and ``g`` its group, as in ``bias[g, n]``.

    The kernel is the fastest known one for this number of rows and groups, regardless of the
    offsets; ``tune`` searches first, with evenly distributed rows. PyTorch tensors support
    gradients if there is neither an epilogue nor an ``out``; rows of no group have gradients of 0.

    Raises UsageError for arrays that do not fit together, and what `gemm` raises.
    """
    rows = _rows_of(offsets, counts)
    if _needs_gradient(x, w, *inputs.values()):
        if epilogue or out is not None:
            raise UsageError(
                "grouped_gemm has no gradients with an epilogue or an out: call it under "
                "torch.no_grad()"
            )
        from autogemm.runtime.torch_rules import with_gradients

        return with_gradients(x, w, rows, alpha, tune)
    return multiply(x, w, rows, out, (alpha, beta), tune, Epilogue.parse(epilogue), inputs)


def grouped_gemm_tn(  # noqa: PLR0913, PLR0917  # as grouped_gemm
    x: Any,
    y: Any,
    offsets: Any = None,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    counts: Any = None,
    tune: bool | float = False,
) -> Any:
    """``x[offsets[g] : offsets[g + 1]].T @ y[offsets[g] : offsets[g + 1]]`` for each group ``g``,
    in one launch: the gradient of the weights of `grouped_gemm`.

    ``x`` is [rows, M] and ``y`` [rows, N], row-major; with ``counts`` they are [groups, capacity,
    M] and [groups, capacity, N], contiguous. The result is [groups, M, N]; for an empty group it is
    ``beta`` times the previous content of ``out``, or 0. Everything else is as in `grouped_gemm`;
    gradients are not supported.

    Raises UsageError for arrays that do not fit together, and what `gemm` raises.
    """
    rows = _rows_of(offsets, counts)
    if _needs_gradient(x, y):
        raise UsageError("grouped_gemm_tn has no gradients: call it under torch.no_grad()")
    return multiply_tn(x, y, rows, out, (alpha, beta), tune)


def _rows_of(offsets: Any, counts: Any) -> Rows:
    if (offsets is None) == (counts is None):
        raise UsageError("give offsets, or counts for groups of a fixed capacity, but not both")
    return Rows(counts, True) if offsets is None else Rows(offsets, False)


def _needs_gradient(*arrays: Any) -> bool:
    torch = sys.modules.get("torch")
    wanted = any(getattr(one, "requires_grad", False) for one in arrays)
    return wanted and torch is not None and bool(torch.is_grad_enabled())

"""``autogemm.grouped_gemm``: rows that belong to groups, each times a matrix of its own."""

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

    ``x`` is [rows, K], one group's rows behind the other's, ``w`` [groups, K, N] without a gap, or
    a transposed view of [groups, N, K]; float16 or bfloat16, of the libraries of `gemm`.
    ``offsets`` is an int32 array [groups + 1] on the same GPU: the first row of each group, then
    the one behind the last group's, none less than the one before and none above the number of
    rows. A group may have no rows. The kernel reads it: nothing waits for the GPU, and a captured
    graph may be replayed after the offsets have changed. An int64 array is converted on the GPU at
    each call.

    With ``counts``, an int32 array [groups], in place of offsets each group has a capacity:
    ``x`` is [groups, capacity, K] without a gap, and the first ``counts[g]`` rows of ``x[g]`` are
    multiplied.

    The result is [rows, N] or [groups, capacity, N]: ``out``, by default a new array, in which rows
    of no group are left as they are. ``beta`` is the factor of what ``out`` holds. An ``epilogue``
    and its inputs are those of `gemm`, with ``m`` a row of ``x`` (of all groups), and ``g`` its
    group, as in ``bias[g, n]``.

    The kernel is the one known to be the fastest for as many rows and groups, whatever the offsets
    are; ``tune`` searches first for rows that are spread evenly. Tensors of PyTorch have gradients
    where there is neither an epilogue nor an ``out``; those of rows of no group are 0.

    Raises UsageError for arrays that do not fit together, and what `gemm` raises.
    """
    rows = _rows_of(offsets, counts)
    if _needs_gradient(x, w, *inputs.values()):
        if epilogue or out is not None:
            raise UsageError(
                "grouped_gemm has no gradients with an epilogue, and none into out: call it under "
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

    ``x`` is [rows, M] and ``y`` [rows, N], by rows; with ``counts`` they are [groups, capacity, M]
    and [groups, capacity, N] without a gap. The result is [groups, M, N]; that of a group without
    rows is ``beta`` times what ``out`` holds, or 0. All else is as in `grouped_gemm`; there are no
    gradients.

    Raises UsageError for arrays that do not fit together, and what `gemm` raises.
    """
    rows = _rows_of(offsets, counts)
    if _needs_gradient(x, y):
        raise UsageError("grouped_gemm_tn has no gradients: call it under torch.no_grad()")
    return multiply_tn(x, y, rows, out, (alpha, beta), tune)


def _rows_of(offsets: Any, counts: Any) -> Rows:
    if (offsets is None) == (counts is None):
        raise UsageError("give offsets, or counts for groups of a fixed capacity: one of both")
    return Rows(counts, True) if offsets is None else Rows(offsets, False)


def _needs_gradient(*arrays: Any) -> bool:
    torch = sys.modules.get("torch")
    wanted = any(getattr(one, "requires_grad", False) for one in arrays)
    return wanted and torch is not None and bool(torch.is_grad_enabled())

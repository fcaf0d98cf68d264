"""Gradients of ``autogemm.grouped_gemm`` on tensors: by tuned kernels of groups, as the product."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from autogemm.model.epilogue import PLAIN
from autogemm.runtime.grouping import Rows, as_int32, multiply, multiply_tn


def with_gradients(x: Any, w: Any, rows: Rows, alpha: float, tune: bool | float) -> Any:
    """``alpha x[g] w[g]`` for each group, which torch differentiates by both operands."""
    # Converted once for the product and both gradients.
    array = as_int32(rows.array, rows.name)
    return _Grouped.apply(x, w, array, rows.masked, float(alpha), tune)


class _Grouped(torch.autograd.Function):  # type: ignore[misc]
    """grad w[g]^T for the rows of each group, and x[g]^T grad for its matrix."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917  # what the product is made of
        ctx: Any, x: Any, w: Any, array: Any, masked: bool, alpha: float, tune: bool | float
    ) -> Any:
        """The product. Raises what `multiply` raises."""
        ctx.save_for_backward(x, w, array)
        ctx.masked, ctx.alpha, ctx.tune = masked, alpha, tune
        return multiply(x, w, Rows(array, masked), None, (alpha, 0.0), tune, PLAIN, {})

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        """Gradients of x and w; 0 for rows of no group."""
        x, w, array = ctx.saved_tensors
        rows, factors = Rows(array, ctx.masked), (ctx.alpha, 0.0)
        grad = grad.contiguous()
        of_x, of_w = None, None
        if ctx.needs_input_grad[0]:
            # Rows of no group are not written.
            of_x = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
            multiply(grad, w.mT, rows, of_x, factors, ctx.tune, PLAIN, {})
        if ctx.needs_input_grad[1]:
            # As w is stored.
            is_transposed = w.stride(-1) != 1
            pair = (grad, x.contiguous()) if is_transposed else (x.contiguous(), grad)
            of_w = multiply_tn(*pair, rows, None, factors, ctx.tune)
            of_w = of_w.mT if is_transposed else of_w
        return of_x, of_w, None, None, None, None

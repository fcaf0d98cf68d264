"""Rules of torch for ``torch.ops.autogemm``: gradients, vmap, autocast; and gradients of
``autogemm.grouped_gemm``, by tuned kernels of groups as the product.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.runtime.grouping import Rows, as_int32, multiply, multiply_tn
from autogemm.runtime.torch_epilogue import result_of
from autogemm.runtime.torch_operator import LIBRARY, OPS
from autogemm.support.errors import UsageError


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, c, ctx.alpha, ctx.beta, *ctx.more = inputs
    ctx.save_for_backward(a, b)
    ctx.of_c = None if c is None else (c.shape, c.dtype)


def _gradients(ctx: Any, grad: Any) -> tuple[Any, ...]:
    """The gradients of ``alpha a b + beta c``, grad b^T and a^T grad, by tuned kernels for their
    own layouts."""
    a, b = ctx.saved_tensors
    of_a, of_b, of_c = None, None, None
    settings = (None, ctx.alpha, 0.0, *ctx.more)
    if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
        of_a, of_b = _of_operands(a, b, grad, settings, ctx.needs_input_grad)
    if ctx.of_c is not None and ctx.needs_input_grad[2]:
        shape, dtype = ctx.of_c
        of_c = (ctx.beta * grad).sum_to_size(shape).to(dtype)
    return of_a, of_b, of_c, None, None, None, None


def _of_operands(
    a: Any, b: Any, grad: Any, settings: tuple[Any, ...], needed: Sequence[bool]
) -> tuple[Any, Any]:
    of_a, of_b = gradient_operands(a, b, grad, needed)
    return (
        None if of_a is None else OPS.gemm(*of_a, *settings).sum_to_size(a.shape),
        None if of_b is None else OPS.gemm(*of_b, *settings).sum_to_size(b.shape),
    )


def gradient_operands(a: Any, b: Any, grad: Any, needed: Sequence[bool]) -> tuple[Any, Any]:
    """The two factors of the gradient of ``a @ b`` by ``a``, and those by ``b``, where the result's
    is ``grad``; None for one that is not needed.
    """
    of_a, of_b, grad = None, None, _covered(grad)
    if needed[0]:
        of_a = (grad, _covered(b.mT))
    if needed[1] and b.dim() == 2:
        # Batches that share b are more rows.
        rows = a.reshape(-1, a.shape[-1])
        of_b = (_covered(rows.mT), grad.reshape(-1, grad.shape[-1]))
    elif needed[1]:
        of_b = (_covered(a.mT), grad)
    return of_a, of_b


def _covered(tensor: Any) -> Any:
    """The tensor, or a copy where its matrices lie neither by rows nor by columns."""
    rows, columns = tensor.shape[-2:]
    for extents, (far, near) in (
        ((rows, columns), tensor.stride()[-2:]),
        ((columns, rows), tensor.stride()[-2:][::-1]),
    ):
        if (extents[1] == 1 or near == 1) and (extents[0] == 1 or far >= extents[1]):
            return tensor
    return tensor.contiguous()


def _keep_fused(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, arrays, ctx.numbers, ctx.epilogue, ctx.alpha, _, *ctx.more = inputs
    ctx.save_for_backward(a, b, *arrays)


def _fused_gradients(ctx: Any, grad: Any) -> tuple[Any, ...]:
    """The sums are computed again; torch differentiates the expression in FP32."""
    a, b, *arrays = ctx.saved_tensors
    settings = (None, 1.0, 0.0, *ctx.more)
    acc = OPS.gemm(a, b, *settings)
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [
            one if again and one.requires_grad else one.detach().requires_grad_()
            for one in (acc, *arrays)
        ]
        wide = [one.float() for one in leaves]
        epilogue = Epilogue.parse(ctx.epilogue)
        if epilogue.scales:
            raise UsageError(
                f"there are no gradients of {epilogue}, which has scales of blocks: call it under "
                "torch.no_grad()"
            )
        value = result_of(epilogue, wide[0], wide[1:], ctx.numbers, ctx.alpha)
    of_acc, *of_arrays = torch.autograd.grad(
        value, leaves, grad.float(), create_graph=again, allow_unused=True
    )
    of_a, of_b = _of_operands(a, b, of_acc, settings, ctx.needs_input_grad)
    # A list is a place of its own where it is empty.
    return of_a, of_b, of_arrays, None if ctx.numbers else [], None, None, None, None, None


# Batches of torch.vmap are leading dimensions.


def _vmapped(info: Any, in_dims: Sequence[Any], a: Any, b: Any, c: Any, *settings: Any) -> Any:
    rank = max(one.dim() - (dim is not None) for one, dim in zip((a, b), in_dims[:2], strict=True))
    a, b = _led(a, in_dims[0], rank), _led(b, in_dims[1], rank)
    if c is not None:
        c = _led(c, in_dims[2], rank)
    return OPS.gemm(_covered(a), _covered(b), c, *settings), 0


def _led(tensor: Any, dim: int | None, rank: int) -> Any:
    """The tensor with its batch in front, and as many dimensions behind it as ``rank``."""
    if dim is None:
        return tensor
    tensor = tensor.movedim(dim, 0)
    return tensor.reshape(tensor.shape[0], *(1,) * (rank + 1 - tensor.dim()), *tensor.shape[1:])


def _vmapped_fused(
    info: Any, in_dims: Sequence[Any], a: Any, b: Any, arrays: Sequence[Any], *settings: Any
) -> Any:
    """Batches of ``a`` alone are more rows, unless an input is read by row; others take turns."""
    dim_a, dim_b, dim_arrays = in_dims[:3]
    axes = [one.axes for one in Epilogue.parse(settings[1]).inputs if one.axes]
    if dim_b is None and not any(dim is not None for dim in dim_arrays) and set(axes) <= {"n"}:
        a = a.movedim(dim_a, 0)
        result = OPS.fused(_covered(a.reshape(-1, a.shape[-1])), b, arrays, *settings)
        return result.reshape(*a.shape[:-1], result.shape[-1]), 0

    def at(one: Any, dim: int | None, index: int) -> Any:
        return one if dim is None else one.select(dim, index)

    results = [
        OPS.fused(
            _covered(at(a, dim_a, index)),
            _covered(at(b, dim_b, index)),
            [at(one, dim, index).contiguous() for one, dim in zip(arrays, dim_arrays, strict=True)],
            *settings,
        )
        for index in range(info.batch_size)
    ]
    return torch.stack(results), 0


# Autocast: operands in its type, as torch does with its own products.


def _autocast(name: str, device: str) -> None:
    operator = getattr(OPS, name).default

    def cast(one: Any) -> Any:
        is_cast = isinstance(one, torch.Tensor) and one.is_floating_point()
        if not is_cast or one.dtype is torch.float64:
            return one
        return one.to(torch.get_autocast_dtype(device))

    def call(a: Any, b: Any, *more: Any) -> Any:
        if name == "fused":
            read = (one for one in Epilogue.parse(more[2]).inputs if one.axes)
            arrays = [
                cast(array) if one.declared is None else array
                for one, array in zip(read, more[0], strict=True)
            ]
            more = (arrays, *more[1:])
        with torch.autocast(device, enabled=False):
            return operator(cast(a), cast(b), *more)

    LIBRARY.impl(name, call, f"Autocast{device.upper()}")


def register() -> None:
    """Make the rules known to torch; once per process."""
    for name, gradients, keep, vmapped in (
        ("gemm", _gradients, _keep, _vmapped),
        ("fused", _fused_gradients, _keep_fused, _vmapped_fused),
    ):
        qualified = f"autogemm::{name}"
        torch.library.register_autograd(qualified, gradients, setup_context=keep, lib=LIBRARY)
        torch.library.register_vmap(qualified, vmapped, lib=LIBRARY)
        for device in ("cuda", "cpu"):
            _autocast(name, device)


# Groups of rows.


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

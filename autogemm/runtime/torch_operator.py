"""``torch.ops.autogemm``: the schemas of its operators, what each does, shapes of its results."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from autogemm.model.epilogue import Epilogue
from autogemm.runtime.calling import multiply
from autogemm.runtime.operands import Products
from autogemm.runtime.torch_epilogue import names_of, output_name
from autogemm.support.errors import UsageError

_SETTINGS = "float alpha=1.0, float beta=0.0, float tune=0.0, bool allow_emulation=False"
# Without defaults: torch cannot differentiate by lists of tensors where it leaves arguments out.
_FUSED = (
    "Tensor[] arrays, float[] numbers, str epilogue, float alpha, float beta, float tune, "
    "bool allow_emulation"
)
_SCHEMAS = (
    f"gemm(Tensor a, Tensor b, Tensor? c=None, {_SETTINGS}) -> Tensor",
    f"gemm_out(Tensor a, Tensor b, Tensor(z!) out, Tensor? c=None, {_SETTINGS}) -> ()",
    f"fused(Tensor a, Tensor b, {_FUSED}) -> Tensor",
    f"fused_out(Tensor a, Tensor b, Tensor(z!) out, {_FUSED}) -> ()",
    f"fused_second(Tensor a, Tensor b, Tensor(z!) second, {_FUSED}) -> Tensor",
    f"fused_outs(Tensor a, Tensor b, Tensor(z!) out, Tensor(y!) second, {_FUSED}) -> ()",
)
LIBRARY = torch.library.Library("autogemm", "DEF")
for _schema in _SCHEMAS:
    LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
OPS = torch.ops.autogemm
# As ``torch.backends.cuda.matmul.fp32_precision``, which takes fifteen times as long.
_precision = torch._C._get_fp32_precision_getter


def products_of(a: Any, allow_emulation: bool) -> Products:
    """Choose the products of float32: the caller's choice, or torch's flag for TF32."""
    if a.dtype is not torch.float32:
        return Products.EXACT
    if allow_emulation:
        return Products.EMULATED
    return Products.TF32 if _precision("cuda", "matmul") == "tf32" else Products.EXACT


# Implementations of the operators. CPU tensors are refused, as by `autogemm.gemm`.


def _gemm(a: Any, b: Any, c: Any = None, *settings: Any) -> Any:
    return _into(a, b, None, c, *settings)


def _into(  # noqa: PLR0913, PLR0917  # as the schema
    a: Any,
    b: Any,
    out: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    tune: float = 0.0,
    allow_emulation: bool = False,
) -> Any:
    products = products_of(a, allow_emulation)
    return multiply(a, b, out, alpha, beta, c, tune=tune, products=products)


def _fused(
    a: Any, b: Any, arrays: Sequence[Any], numbers: Sequence[float], epilogue: str, *settings: Any
) -> Any:
    return _fused_into(a, b, None, arrays, numbers, epilogue, *settings)


def _fused_into(  # noqa: PLR0913, PLR0917  # as the schema
    a: Any,
    b: Any,
    out: Any,
    arrays: Sequence[Any],
    numbers: Sequence[float],
    epilogue: str,
    alpha: float,
    beta: float,
    tune: float,
    allow_emulation: bool,
) -> Any:
    left, values = iter(arrays), iter(numbers)
    inputs = {name: next(left if is_array else values) for name, is_array in names_of(epilogue)}
    return multiply(
        *(a, b, out, alpha, beta),
        tune=tune,
        products=products_of(a, allow_emulation),
        epilogue=epilogue,
        inputs=inputs,
    )


def _fused_into_both(  # noqa: PLR0913, PLR0917  # as the schema
    a: Any,
    b: Any,
    out: Any,
    second: Any,
    arrays: Sequence[Any],
    numbers: Sequence[float],
    epilogue: str,
    alpha: float,
    beta: float,
    tune: float,
    allow_emulation: bool,
) -> Any:
    left, values = iter(arrays), iter(numbers)
    inputs = {name: next(left if is_array else values) for name, is_array in names_of(epilogue)}
    return multiply(
        *(a, b, out, alpha, beta),
        tune=tune,
        products=products_of(a, allow_emulation),
        epilogue=epilogue,
        inputs={**inputs, output_name(epilogue): second},
    )


def _fused_second(a: Any, b: Any, second: Any, *more: Any) -> Any:
    return _fused_into_both(a, b, None, second, *more)


def _without_result(function: Callable[..., Any]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        function(*args)

    return call


def _new(a: Any, b: Any, *_: Any) -> Any:
    """A tensor like the result, for shapes alone."""
    if a.dim() < 2 or b.dim() < 2 or a.dtype != b.dtype:
        raise UsageError(
            f"a and b must have 2 dimensions or more and one type, got {list(a.shape)} of "
            f"{a.dtype} and {list(b.shape)} of {b.dtype}"
        )
    torch._check(a.shape[-1] == b.shape[-2], lambda: "columns of a and rows of b must be equal")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]))


def _new_fused(
    a: Any, b: Any, arrays: Sequence[Any], numbers: Sequence[float], epilogue: str, *_: Any
) -> Any:
    result = _new(a, b)
    return result[..., : b.shape[-1] // Epilogue.parse(epilogue).num_columns].contiguous()


def _new_with_second(a: Any, b: Any, second: Any, *more: Any) -> Any:
    return _new_fused(a, b, *more)


def _register() -> None:
    for name, call in {
        "gemm": _gemm,
        "gemm_out": _without_result(_into),
        "fused": _fused,
        "fused_out": _without_result(_fused_into),
        "fused_second": _fused_second,
        "fused_outs": _without_result(_fused_into_both),
    }.items():
        LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    for name, fake in {"gemm": _new, "fused": _new_fused, "fused_second": _new_with_second}.items():
        torch.library.register_fake(f"autogemm::{name}", fake, lib=LIBRARY)
    for name in ("gemm_out", "fused_out", "fused_outs"):
        torch.library.register_fake(f"autogemm::{name}", lambda *args: None, lib=LIBRARY)


_register()

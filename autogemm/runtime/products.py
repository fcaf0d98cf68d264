"""``autogemm.gemm``: a product of arrays by the kernel that was tuned for it."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from autogemm.runtime.calling import multiply
from autogemm.runtime.operands import Products

# By the type of the first operand; `_product_of` fills it.
_PRODUCTS: dict[type, Callable[..., Any]] = {}


def gemm(  # noqa: PLR0913, PLR0917  # as it is known: operands, result, factors
    a: Any,
    b: Any,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    *,
    tune: bool | float = False,
    epilogue: str = "",
    allow_emulation: bool = False,
    **inputs: Any,
) -> Any:
    """``alpha * a @ b + beta * c``, by the fastest kernel known for these sizes on this GPU.

    ``a`` is [..., M, K] and ``b`` [..., K, N], float32, float16 or bfloat16, from CuPy, PyTorch, or
    any library with DLPack or ``__cuda_array_interface__``; for 16-bit types ``out`` may be
    float32. Products are accumulated in FP32. Leading dimensions are batches and broadcast.
    Matrices are row-major or column-major with any leading dimension (a transposed view costs
    nothing). The result is written to ``out``, by default a new array; ``beta * c`` is added to it,
    where ``c`` is by default the previous content of ``out``. The kernel runs on the library's
    current stream, on the arrays' device.

    An ``epilogue`` is an expression that is applied to ``a @ b`` (docs/epilogues.md):
    ``gemm(x, w.T, epilogue="gelu(acc + bias[n])", bias=b)``; its inputs are packed and passed by
    name. ``a`` and ``b`` are then single matrices, and ``out`` holds the old C if it is read. The
    result of a gated epilogue, ``silu(acc[n]) * acc[n + N]``, has half as many columns as ``b``.
    A second output, ``aux[m, n] = acc + bias[n]; gelu(aux)``, is written to the array of its name.

    PyTorch tensors support gradients, vmap, autocast and ``torch.compile`` (docs/torch.md), and
    float32 is multiplied in TF32 if PyTorch's own flag allows it. ``allow_emulation`` allows
    kernels that compute float32 products from products of lower precision.

    The first call for a shape chooses, compiles (or takes from the cache) and loads a kernel; later
    calls only launch it. ``tune`` searches first if these sizes have no result on this GPU: True
    for 10 seconds, or a number of seconds.

    Raises UsageError for arrays that do not fit together, are not on one GPU, or have strides that
    no layout covers; DeviceError when the driver refuses.
    """
    product = _PRODUCTS.get(type(a)) or _product_of(type(a))
    return product(a, b, out, alpha, beta, c, tune, epilogue, allow_emulation, inputs)


def _product_of(kind: type) -> Callable[..., Any]:
    """Find what multiplies arrays of that type: for torch its operator, which imports torch."""
    product: Callable[..., Any] = _multiplied
    if any(base.__module__.partition(".")[0] == "torch" for base in kind.__mro__):
        product = importlib.import_module("autogemm.runtime.torch_products").gemm
    _PRODUCTS[kind] = product
    return product


def _multiplied(  # noqa: PLR0913, PLR0917  # as gemm
    a: Any,
    b: Any,
    out: Any,
    alpha: float,
    beta: float,
    c: Any,
    tune: bool | float,
    epilogue: str,
    allow_emulation: bool,
    inputs: dict[str, Any],
) -> Any:
    products = Products.EMULATED if allow_emulation else Products.EXACT
    return multiply(
        *(a, b, out, alpha, beta, c),
        tune=tune,
        products=products,
        epilogue=epilogue,
        inputs=inputs,
    )


# A compiler of torch that meets the first call cannot trace into an import.
if "torch" in sys.modules:
    _product_of(sys.modules["torch"].Tensor)
    _product_of(sys.modules["torch"].nn.Parameter)

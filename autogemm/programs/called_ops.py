"""Operators of torch that multiply matrices, as problems; what a kernel may do behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Problem
from autogemm.runtime import Strided, call_for, packed
from autogemm.support.errors import UsageError

# Operator -> where its old C, A and B stand among the arguments.
PRODUCTS: Mapping[str, tuple[int | None, int, int]] = {
    "aten::mm": (None, 0, 1),
    "aten::bmm": (None, 0, 1),
    "aten::addmm": (0, 1, 2),
    "aten::_addmm_activation": (0, 1, 2),
    "aten::baddbmm": (0, 1, 2),
    "aten::_scaled_mm": (None, 0, 1),
    "aten::_int_mm": (None, 0, 1),
    "autogemm::gemm": (2, 0, 1),
    "autogemm::fused": (None, 0, 1),
}
# Seen where nothing records gradients; they are made of products and taken apart.
COMPOSITE = frozenset(("aten::linear", "aten::matmul", "aten::einsum", "aten::chain_matmul"))
_ELEMENTS = {"float32": DType.F32, "float16": DType.F16, "bfloat16": DType.BF16}
_ACTIVATIONS = frozenset(("relu", "gelu", "silu", "sigmoid", "tanh"))


def problem_of(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, tf32: bool
) -> tuple[Problem | None, str, int]:
    """Return the problem of a call, None with a label of it where there are no kernels; and the
    number of products in it.
    """
    of_c, of_a, of_b = PRODUCTS[name]
    a, b = args[of_a], args[of_b]
    shape = (*a.shape[:-1], b.shape[-1])
    dtype = _ELEMENTS.get(str(a.dtype).removeprefix("torch."))
    rows, columns, depth = (int(one) for one in (shape[-2], shape[-1], a.shape[-1]))
    label = f"{rows}x{columns}x{depth} {str(a.dtype).removeprefix('torch.')}"
    if dtype is None or "_scaled" in name or not (rows and columns and depth):
        return None, label, 1
    if dtype is DType.F32 and tf32:
        dtype = DType.TF32
    try:
        call = call_for(
            _strided("a", a), _strided("b", b), Strided("out", shape, packed(shape)), dtype
        )
        c = args[of_c] if of_c is not None and len(args) > of_c else None
        return (*_with_c(name, call.problem, c, args, kwargs), len(call.offsets))
    except UsageError as error:
        return None, f"{label}: {error}"[:300], 1


def _strided(name: str, tensor: Any) -> Strided:
    return Strided(name, tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())))


def _with_c(
    name: str, problem: Problem, c: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Problem, str]:
    epilogue = ""
    if name == "autogemm::fused":
        epilogue = args[4]
    elif c is not None and name == "autogemm::gemm":
        given = (*args[3:5], 1.0, 0.0)[:2] if len(args) > 4 else (1.0, 0.0)
        problem = replace(problem, alpha=float(given[0]), beta=float(given[1]))
    elif c is not None:
        alpha, beta = (float(kwargs.get(one, 1)) for one in ("alpha", "beta"))
        is_bias = c.numel() == c.shape[-1] == problem.n and alpha == beta == 1.0
        if is_bias and c.dim() <= 2:
            epilogue = "acc + bias[n]"
        else:
            problem = replace(problem, alpha=alpha, beta=beta)
        if name == "aten::_addmm_activation":
            activation = "gelu_tanh" if kwargs.get("use_gelu") else "relu"
            epilogue = f"{activation}({epilogue or 'alpha * acc + beta * c[m, n]'})"
    problem = replace(problem, epilogue=Epilogue.parse(epilogue))
    return problem, problem.label


def followed(
    problem: Problem, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Problem | None:
    """Return the problem with what an operator does to its result as well; None if no kernel does.

    ``args[0]`` is the result or a view of all of it.
    """
    name, inner = name.removeprefix("aten::").removesuffix("_"), str(problem.epilogue)
    if problem.alpha != 1.0 or problem.beta != 0.0 or (inner and problem.epilogue.functions):
        return None
    if name in _ACTIVATIONS:
        is_tanh = name == "gelu" and "tanh" in (*args[1:], kwargs.get("approximate"))
        text = f"{'gelu_tanh' if is_tanh else name}({inner or 'acc'})"
    elif name == "add" and not inner and _is_bias(problem, args, kwargs):
        text = "acc + bias[n]"
    else:
        return None
    return replace(problem, epilogue=Epilogue.parse(text))


def gated_expression(activation: str) -> str:
    """The epilogue of a product whose columns are those of the gate, then those that it gates."""
    return f"{activation}(acc[n]) * acc[n + N]"


def gated_problem(
    gate: Problem | None, activated: Problem | None, up: Problem | None
) -> Problem | None:
    """Return the problem that makes ``activation(gate) * up`` of two products of the same A; None
    if they are not of one kind, have more of an epilogue than the activation, or if one matrix
    cannot have both weights, one below the other.
    """
    if gate is None or activated is None or gate != up or not gate.layout.trans_b:
        return None
    (activation,) = activated.epilogue.functions or ("",)
    if not activation or activated.epilogue != Epilogue.parse(f"{activation}(acc)"):
        return None
    return gate.with_epilogue(Epilogue.parse(gated_expression(activation)))


def _is_bias(problem: Problem, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    result, other = args[:2]
    is_row = hasattr(other, "numel") and other.dim() > 0 and other.numel() == other.shape[-1]
    return bool(
        is_row
        and other.shape[-1] == problem.n
        and kwargs.get("alpha", 1) == 1
        and other.dtype == result.dtype
    )

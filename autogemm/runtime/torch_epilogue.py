"""Epilogues as operations of torch: what a kernel computes, and its derivative by autograd."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autogemm.model.bounded import SECOND
from autogemm.model.epilogue import Epilogue, Gate
from autogemm.model.formula import HALVES, INTERLEAVED, Apply, Node, Number
from autogemm.support.errors import UsageError

_VIEWS: Mapping[str, Callable[[Any], Any]] = {
    "m": lambda array: array[:, None],
    "n": lambda array: array[None, :],
    "m, n": lambda array: array,
}
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "neg": lambda x: -x,
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "abs": torch.abs,
    "min": lambda x, y: torch.fmin(*_both(x, y)),
    "max": lambda x, y: torch.fmax(*_both(x, y)),
    "clamp": lambda x, low, high: torch.minimum(*_both(torch.maximum(*_both(x, low)), high)),
}


def result_of(
    epilogue: Epilogue, acc: Any, arrays: Sequence[Any], numbers: Sequence[float], alpha: float
) -> Any:
    """Apply the epilogue to sums ``acc`` [M, N], in their type; it does not read the old C.
    With a gated one the sums are [M, 2 N].

    ``arrays`` and ``numbers`` are its inputs in the order of the text.
    """
    return results_of(epilogue, acc, arrays, numbers, alpha)[0]


def results_of(
    epilogue: Epilogue, acc: Any, arrays: Sequence[Any], numbers: Sequence[float], alpha: float
) -> tuple[Any, Any]:
    """The result of `result_of` and the second output, None where there is none."""
    left, values = iter(arrays), iter(numbers)
    given = {
        one.name: _VIEWS[one.axes](next(left)) if one.axes else next(values)
        for one in epilogue.inputs
    }
    first, other = _columns(epilogue, acc)
    given |= {"acc": first, SECOND: other, "alpha": alpha}

    def value_of(node: Node) -> Any:
        if isinstance(node, Number):
            return node.value
        if not isinstance(node, Apply):
            return given[SECOND if node.axes in (HALVES[1], INTERLEAVED[1]) else node.name]
        return _OPERATIONS[node.op](*_tensors(node.op, [value_of(arg) for arg in node.args], acc))

    if epilogue.output is None:
        return value_of(epilogue.root), None
    second = value_of(epilogue.output_root)
    given[epilogue.output.name] = second
    return value_of(epilogue.root), second


def _columns(epilogue: Epilogue, acc: Any) -> tuple[Any, Any]:
    """The columns of the product that make one of C; the same twice where it is one."""
    match epilogue.gate:
        case Gate.NONE:
            return acc, acc
        case Gate.HALVES:
            first, second = acc.chunk(2, -1)
            return first, second
        case Gate.INTERLEAVED:
            return acc[..., ::2], acc[..., 1::2]


def split_inputs(
    names: Sequence[tuple[str, bool]], inputs: Mapping[str, Any]
) -> tuple[list[Any], list[float]]:
    """Return the arrays and the numbers among the inputs, each in the order of the text.

    ``names`` is what `names_of` gives. Raises UsageError for an array that is no tensor.
    """
    arrays = [inputs[name] for name, is_array in names if is_array]
    for (name, _), array in zip((one for one in names if one[1]), arrays, strict=True):
        if not isinstance(array, torch.Tensor):
            raise UsageError(f"a is of torch and {name} is not a tensor: use one library")
    return arrays, [float(inputs[name]) for name, is_array in names if not is_array]


@functools.lru_cache(maxsize=256)
def names_of(text: str) -> tuple[tuple[str, bool], ...]:
    """Return the inputs of an epilogue by name, and whether each is an array."""
    return tuple((one.name, bool(one.axes)) for one in Epilogue.parse(text).inputs)


@functools.lru_cache(maxsize=256)
def output_name(text: str) -> str:
    """Return the name of an epilogue's second output; empty where there is none."""
    output = Epilogue.parse(text).output
    return output.name if output is not None else ""


def _tensors(op: str, args: list[Any], like: Any) -> list[Any]:
    """Numbers as tensors, for functions; operators take them as they are."""
    if op in "+-*/" or op == "neg":
        return args
    return [one if isinstance(one, torch.Tensor) else torch.full_like(like, one) for one in args]


def _both(x: Any, y: Any) -> tuple[Any, Any]:
    x, y = torch.broadcast_tensors(x, y)
    return x, y

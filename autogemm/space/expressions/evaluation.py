"""Evaluates an expression's tree over integers and texts, or over NumPy columns of them."""

from collections.abc import Callable
from functools import reduce
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, ne, sub
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autogemm.model.config import Value
from autogemm.space.expressions.nodes import Constant, Name, Node, Operation

Column = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Operand = Value | Column
"""One value, or one value per config: int64 or text."""

# Columns are int64; the range is symmetric so that negation and // cannot leave it.
MAX_INTEGER = 2**63 - 1


class Environment(Protocol):
    """Any mapping from names to values; the columns in it are equally long."""

    def __getitem__(self, name: str, /) -> Operand: ...


def evaluate(node: Node, env: Environment) -> Operand:
    """The tree's value; logical ones are bool, `integers` makes numbers of them.

    Raises ZeroDivisionError, and OverflowError for an integer beyond 64 bits.
    """
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Name):
        return env[node.name]
    if node.op in ("and", "or"):
        return _junction(node, env)
    if node.op == "if":
        return _choice(node, env)
    args = [integers(evaluate(arg, env)) for arg in node.args]
    result: Operand = _APPLY[node.op](*args)
    return result


def integers(value: Operand) -> Operand:
    """The value with logical ones as 0 and 1."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int64) if value.dtype == np.bool_ else value
    return int(value) if isinstance(value, bool) else value


def truth(value: Operand) -> bool | Mask:
    """Whether the number is not 0, row by row for a column."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == np.bool_ else value != 0
    return value != 0


class _Rows:
    """The rows of an environment where ``mask`` is set."""

    __slots__ = ("_env", "_mask")

    def __init__(self, env: Environment, mask: Mask) -> None:
        self._env = env
        self._mask = mask

    def __getitem__(self, name: str) -> Operand:
        value = self._env[name]
        return value[self._mask] if isinstance(value, np.ndarray) else value


def _junction(node: Operation, env: Environment) -> Operand:
    """``and``/``or`` from left to right, each operand only for rows that are still undecided."""
    decided_by = node.op == "or"
    result: bool | Mask = not decided_by
    for arg in node.args:
        if isinstance(result, bool):
            if result == decided_by:
                break
            result = truth(evaluate(arg, env))
            continue
        undecided = ~result if decided_by else result
        if undecided.all():
            result = truth(evaluate(arg, env))
        elif undecided.any():
            result = result.copy()
            result[undecided] = truth(evaluate(arg, _Rows(env, undecided)))
    return result


def _choice(node: Operation, env: Environment) -> Operand:
    condition, value, otherwise = node.args
    chosen = truth(evaluate(condition, env))
    if isinstance(chosen, bool):
        return evaluate(value if chosen else otherwise, env)
    if chosen.all():
        return evaluate(value, env)
    if not chosen.any():
        return evaluate(otherwise, env)
    first = np.asarray(integers(evaluate(value, _Rows(env, chosen))))
    second = np.asarray(integers(evaluate(otherwise, _Rows(env, ~chosen))))
    result = np.empty(chosen.shape, dtype=np.result_type(first, second))
    result[chosen] = first
    result[~chosen] = second
    return result


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operation with a check that no row leaves 64 bits."""

    def checked(a: Any, b: Any) -> Any:
        if type(a) is int and type(b) is int:
            result = operation(a, b)
            if abs(result) <= MAX_INTEGER:
                return result
        # + - * are largest in size where both operands are at an end of their range.
        ends = [abs(operation(x, y)) for x in _ends(a) for y in _ends(b)]
        if max(ends, default=0) <= MAX_INTEGER:
            return operation(a, b)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            # No single row need hold both extremes: ask Python's integers.
            exact = operation(np.asarray(a, dtype=object), np.asarray(b, dtype=object))
            if np.abs(exact).max() <= MAX_INTEGER:
                return exact.astype(np.int64)
        raise OverflowError("the integer does not fit 64 bits; compare smaller quantities")

    return checked


def _ends(value: int | Column) -> tuple[int, ...]:
    if isinstance(value, np.ndarray):
        return (int(value.min()), int(value.max())) if value.size else ()
    return (value,)


def _nonzero(divisor: Any) -> Any:
    if not divisor if type(divisor) is int else np.any(divisor == 0):
        raise ZeroDivisionError("division by zero; guard it: ... if divisor != 0 else ...")
    return divisor


def _extreme(scalars: Callable[..., Any], columns: Callable[[Any, Any], Any]) -> Any:
    def pick(*args: Any) -> Any:
        if any(isinstance(arg, np.ndarray) for arg in args):
            return reduce(columns, args)
        return scalars(args)

    return pick


_APPLY: dict[str, Callable[..., Any]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "+": _arithmetic(add),
    "-": _arithmetic(sub),
    "*": _arithmetic(mul),
    "//": lambda a, b: floordiv(a, _nonzero(b)),
    "%": lambda a, b: mod(a, _nonzero(b)),
    "neg": lambda a: -a,
    "not": lambda a: a == 0,
    "min": _extreme(min, np.minimum),
    "max": _extreme(max, np.maximum),
    "ceil_div": lambda a, b: -(-a // _nonzero(b)),
}

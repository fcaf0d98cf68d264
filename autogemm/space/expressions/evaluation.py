"""Evaluates an expression's tree over integers and texts, or over NumPy columns of them."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, ne, sub
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autogemm.model.config import Value
from autogemm.space.expressions.nodes import Constant, Name, Node

Column = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Operand = Value | Column
"""One value, or one value per config: int64 or text."""

# Columns are int64; the range is symmetric so that negation and // cannot leave it.
MAX_INTEGER = 2**63 - 1


class Environment(Protocol):
    """Any mapping from names to values; the columns in it are equally long."""

    def __getitem__(self, name: str, /) -> Operand: ...


Program = Callable[[Environment], Operand]
# By the identity of a tree, which is kept so that no other takes its place.
_programs: dict[int, tuple[Node, Program]] = {}
MOST_PROGRAMS = 20_000


def evaluate(node: Node, env: Environment) -> Operand:
    """The tree's value; logical ones are bool, `integers` makes numbers of them.

    Raises ZeroDivisionError, and OverflowError for an integer beyond 64 bits.
    """
    known = _programs.get(id(node))
    if known is None:
        if len(_programs) >= MOST_PROGRAMS:
            _programs.clear()
        known = _programs[id(node)] = (node, _program(node))
    return known[1](env)


def _program(node: Node) -> Program:
    """A function for the tree: to walk through it at each evaluation took thrice the time."""
    if isinstance(node, Constant):
        value = node.value
        return lambda env: value
    if isinstance(node, Name):
        name = node.name
        return lambda env: env[name]
    programs = tuple(_program(arg) for arg in node.args)
    if node.op in ("and", "or"):
        return _junction(node.op == "or", programs)
    if node.op == "if":
        return _choice(*programs)
    apply = _APPLY[node.op]
    if len(programs) == 2:
        first, second = programs
        return lambda env: apply(integers(first(env)), integers(second(env)))
    return lambda env: apply(*[integers(one(env)) for one in programs])


def integers(value: Operand) -> Operand:
    """The value with logical ones as 0 and 1."""
    if type(value) is int:
        return value
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


def _junction(decided_by: bool, programs: Sequence[Program]) -> Program:
    """``or`` if True decides, else ``and``: from left to right, each operand only for rows that are
    still undecided.
    """

    def junction(env: Environment) -> Operand:
        result: bool | Mask = not decided_by
        for program in programs:
            if isinstance(result, bool):
                if result == decided_by:
                    break
                result = truth(program(env))
                continue
            undecided = ~result if decided_by else result
            if undecided.all():
                result = truth(program(env))
            elif undecided.any():
                result = result.copy()
                result[undecided] = truth(program(_Rows(env, undecided)))
        return result

    return junction


def _choice(condition: Program, value: Program, otherwise: Program) -> Program:
    """The second where the first is not 0, else the third, each only for rows that ask for it."""

    def choice(env: Environment) -> Operand:
        chosen = truth(condition(env))
        if isinstance(chosen, bool):
            return value(env) if chosen else otherwise(env)
        if chosen.all():
            return value(env)
        if not chosen.any():
            return otherwise(env)
        first = np.asarray(integers(value(_Rows(env, chosen))))
        second = np.asarray(integers(otherwise(_Rows(env, ~chosen))))
        result = np.empty(chosen.shape, dtype=np.result_type(first, second))
        result[chosen] = first
        result[~chosen] = second
        return result

    return choice


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


# Without the checks of their methods.
_least, _most = np.minimum.reduce, np.maximum.reduce


def _ends(value: int | Column) -> tuple[int, ...]:
    if isinstance(value, np.ndarray):
        return (int(_least(value)), int(_most(value))) if value.size else ()
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

"""The tree of an expression: constants, names, operations; what it reads and what type it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autogemm.model.config import Value
from autogemm.support.errors import FamilyError

# They bound what evaluating one expression costs.
MAX_NODES = 4000
MAX_DEPTH = 64

FUNCTIONS = ("min", "max", "ceil_div")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Constant:
    """An integer or a text."""

    value: Value


@dataclass(frozen=True, slots=True)
class Name:
    """A parameter, a derived quantity, a size of the problem or ``device.<limit>``."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator or function and its operands. ``neg`` is the unary minus; ``if`` holds
    (condition, value, otherwise). ``num_nodes`` and ``depth`` bound what evaluating it costs;
    ``names`` are all that it reads.
    """

    op: str
    args: "tuple[Node, ...]"
    num_nodes: int = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)
    names: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = [arg for arg in self.args if isinstance(arg, Operation)]
        num_leaves = len(self.args) - len(inner)
        num_nodes = 1 + num_leaves + sum(arg.num_nodes for arg in inner)
        depth = 1 + max((arg.depth for arg in inner), default=0)
        if num_nodes > MAX_NODES or depth > MAX_DEPTH:
            raise FamilyError(
                f"an expression may have {MAX_NODES} operands and operators, nested {MAX_DEPTH} "
                "deep; split it into derived quantities"
            )
        object.__setattr__(self, "num_nodes", num_nodes)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "names", frozenset().union(*map(names_in, self.args)))


Node = Constant | Name | Operation


def names_in(node: Node) -> frozenset[str]:
    """Every name in the tree."""
    if isinstance(node, Operation):
        return node.names
    return frozenset([node.name]) if isinstance(node, Name) else frozenset()


def replaced(node: Node, values: Mapping[str, Node]) -> Node:
    """The tree with names replaced. Raises FamilyError if it grows too big."""
    if isinstance(node, Name):
        return values.get(node.name, node)
    if isinstance(node, Operation):
        return Operation(node.op, tuple(replaced(arg, values) for arg in node.args))
    return node


def kind_of(node: Node, kinds: Mapping[str, type]) -> type:
    """``int`` or ``str``. Raises TypeError where numbers and texts mix."""
    if isinstance(node, Constant):
        return type(node.value)
    if isinstance(node, Name):
        return kinds[node.name]
    found = [kind_of(arg, kinds) for arg in node.args]
    if node.op in ("==", "!="):
        if found[0] is not found[1]:
            raise TypeError(f"{node.op} compares a number with a text, which are never equal")
        return int
    if node.op == "if":
        if found[0] is not int or found[1] is not found[2]:
            raise TypeError("'a if c else b' takes a number as c, and two numbers or two texts")
        return found[1]
    if str in found:
        raise TypeError(f"{node.op} takes numbers, not a text; texts know == != and in")
    return int

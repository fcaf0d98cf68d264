"""The language of epilogues: text to a tree, and the tree to text again.

Numbers, names with or without an index (``acc``, ``bias[n]``), ``+ - * /``, and a few functions.
Nothing is ever handed to Python's own evaluation; length and depth are bounded. All arithmetic is
in FP32.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from autogemm.support.errors import EpilogueError, UsageError

MAX_LENGTH = 200
MAX_DEPTH = 32
# What functions take on a GPU, as instructions of the special function unit, of which an SM ends 16
# in a cycle; erff is arithmetic instead, which takes as long as three.
SPECIAL = {"exp": 1, "/": 1, "sigmoid": 2, "silu": 2, "gelu_tanh": 2, "tanh": 2, "gelu": 3}
# Functions and how many values they take.
FUNCTIONS = {
    **dict.fromkeys(("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "exp", "abs"), 1),
    **dict.fromkeys(("min", "max"), 2),
    "clamp": 3,
}
# Indices that an array may have, as they are written.
AXES = ("m", "n", "m, n", "g", "g, n")
INDICES = (
    "an index is [m], [n] or [m, n]; for groups [g] or [g, n]; for scales of blocks [k / 128, m] "
    "and [n / 128, k / 128] or, for groups, [g, n / 128, k / 128]"
)
# Those of an operand's scales: in each 128 of K, of each row of A and of each 128 columns of C, of
# which each group has its own.
BLOCK = 128
SCALES_OF_A, SCALES_OF_B = f"k / {BLOCK}, m", f"n / {BLOCK}, k / {BLOCK}"
SCALES_OF_GROUPS = f"g, {SCALES_OF_B}"
SCALED_PRODUCT = f"acc * a[{SCALES_OF_A}] * b[{SCALES_OF_B}]"
SCALE_AXES = (SCALES_OF_A, SCALES_OF_B, SCALES_OF_GROUPS)
# That of a second output.
OUTPUT_AXES = "m, n"
# Columns of a product that is twice as wide as C, of which an element of C takes two.
HALVES = ("n", "n + N")
INTERLEAVED = ("2 * n", "2 * n + 1")
_REDUCTIONS = frozenset(
    ("sum", "mean", "softmax", "log_softmax", "logsumexp", "norm", "layernorm", "rmsnorm", "argmax")
)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<symbol>[-+*/(),\[\];:=]))"
)
_SUM, _PRODUCT, _UNARY, _ATOM = range(1, 5)
_LEVELS = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}


@dataclass(frozen=True, slots=True)
class Number:
    """A number; FP32 arithmetic has the nearest of its own."""

    value: float


@dataclass(frozen=True, slots=True)
class Read:
    """A name, and its index as it is written: empty, one of AXES or SCALE_AXES, and of ``acc`` one
    of HALVES or INTERLEAVED.
    """

    name: str
    axes: str = ""


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or function and what it is applied to; ``neg`` is the unary minus."""

    op: str
    args: "tuple[Node, ...]"


Node = Number | Read | Apply
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed text: the tree of C, the type that was declared for each of some names, and the
    second output where there is one, its name and its tree. C's tree reads that by its name.
    """

    root: Node
    types: tuple[tuple[str, str], ...] = ()
    output: tuple[str, Node] | None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        """The inputs read beside the second output, each once, in the order of the text."""
        name = self.output[0] if self.output else ""
        return tuple(one for one in dict.fromkeys(self._all(reads_of)) if one.name != name)

    @property
    def functions(self) -> frozenset[str]:
        """Functions that are called."""
        return frozenset(one for one in self._all(_applied) if one in FUNCTIONS)

    @property
    def special_instructions(self) -> int:
        """The sum of `SPECIAL` over all that is called and divided, for each element of C."""
        return sum(SPECIAL.get(one, 0) for one in self._all(_applied))

    @property
    def text(self) -> str:
        """The canonical text: the same for all ways to write the same tree."""
        parts = [written(self.root), *(f"{name}: {kind}" for name, kind in self.types)]
        if self.output:
            parts.insert(0, f"{self.output[0]}[{OUTPUT_AXES}] = {written(self.output[1])}")
        return "; ".join(parts)

    def _all(self, found_in: Callable[[Node], list[Found]]) -> list[Found]:
        """Return what is found in the tree of the second output, then in that of C."""
        return [*(found_in(self.output[1]) if self.output else ()), *found_in(self.root)]


def parsed(text: str) -> Formula:
    """The formula that the text is.

    Raises UsageError, with the text and a caret under the place, for anything else.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"an epilogue has at most {MAX_LENGTH} characters, got {len(text)}")
    return _Parser(text).whole()


def mistake(text: str, position: int, rule: str) -> EpilogueError:
    """An error at a position of the text, counted from 0."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    where = f"epilogue, column {position + 1}"
    return EpilogueError(f"{where}: {rule}", f"\n    {shown}\n    {' ' * position}^")


def number_text(value: float) -> str:
    """``0.5``, ``2``, ``1e-05``: nine digits tell all FP32 numbers apart."""
    return f"{value:.9g}"


def written(
    root: Node,
    number: Callable[[float], str] = number_text,
    read: Callable[[Read], str] = lambda one: f"{one.name}[{one.axes}]" if one.axes else one.name,
    function: Callable[[str], str] = lambda name: name,
) -> str:
    """The tree as text, with as few parentheses as keep it; the three say how leaves look."""

    def text_of(node: Node, least: int) -> str:
        text, level = bare(node)
        return text if level >= least else f"({text})"

    def bare(node: Node) -> tuple[str, int]:
        if isinstance(node, Number):
            return number(node.value), _ATOM
        if isinstance(node, Read):
            return read(node), _ATOM
        if node.op == "neg":
            return f"-{text_of(node.args[0], _ATOM)}", _UNARY
        if node.op in _LEVELS:
            level = _LEVELS[node.op]
            left, right = node.args
            return f"{text_of(left, level)} {node.op} {text_of(right, level + 1)}", level
        args = ", ".join(text_of(arg, _SUM) for arg in node.args)
        return f"{function(node.op)}({args})", _ATOM

    return text_of(root, _SUM)


def without_scales(node: Node) -> Node:
    """The tree with ``acc`` in place of each ``acc * scale_a[k / 128, m] * scale_b[n / 128,
    k / 128]``: a kernel multiplies its sums of 128 products by these before it adds them up.
    """
    match node:
        case Apply("*", (Apply("*", (Read("acc", "") as acc, Read(axes=a))), Read(axes=b))) if (
            a == SCALES_OF_A and b in (SCALES_OF_B, SCALES_OF_GROUPS)
        ):
            return acc
        case Apply(op, args):
            return Apply(op, tuple(without_scales(arg) for arg in args))
    return node


def names_in(node: Node) -> frozenset[str]:
    """All names that a tree reads."""
    return frozenset(one.name for one in reads_of(node))


def reads_with_index(node: Node) -> frozenset[str]:
    """The names that a tree reads with an index."""
    return frozenset(one.name for one in reads_of(node) if one.axes)


def reads_of(node: Node) -> list[Read]:
    """All that a tree reads, in the order of the text."""
    if isinstance(node, Apply):
        return [one for arg in node.args for one in reads_of(arg)]
    return [node] if isinstance(node, Read) else []


def _applied(node: Node) -> list[str]:
    if isinstance(node, Apply):
        return [node.op, *(one for arg in node.args for one in _applied(arg))]
    return []


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


class _Parser:
    """A parser by precedence; each method reads what its name says."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._at = 0
        self._depth = 0

    def whole(self) -> Formula:
        if self._next.kind == "end":
            raise mistake(self._text, 0, "is empty; write for example relu(acc + bias[n])")
        output, root = None, self._sum()
        if self._next.text == "=":
            output = self._output(root)
            root = self._sum()
        if self._next.text == "=":
            raise self._refused("there is one second output, and it comes first")
        order = [one.name for one in Formula(root, output=output).reads]
        order = list(dict.fromkeys([output[0], *order] if output else order))
        types: dict[str, str] = {}
        while self._takes(";"):
            token = self._next
            name, kind = self._declared(order)
            if name in types:
                raise mistake(self._text, token.position, f"{name} has two types")
            types[name] = kind
        if self._next.kind != "end":
            raise self._refused("expected an operator or the end")
        pairs = sorted(types.items(), key=lambda one: order.index(one[0]))
        return Formula(root, tuple(pairs), output)

    def _output(self, target: Node) -> tuple[str, Node]:
        """The second output, whose target has been read: its name and its tree."""
        if not isinstance(target, Read) or target.axes != OUTPUT_AXES:
            raise self._refused(f"a second output is written NAME[{OUTPUT_AXES}] = ...")
        self._expect("=")
        root = self._sum()
        if not self._takes(";"):
            rule = f"expected ';' and the expression of C, as in ...; gelu({target.name})"
            raise self._refused(rule)
        return target.name, root

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise mistake(self._text, at, f"{self._text[at]!r} is not part of the language")
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _read(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, text: str) -> bool:
        taken = self._next.kind == "symbol" and self._next.text == text
        self._at += taken
        return taken

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._refused(f"expected {text!r}")

    def _refused(self, rule: str) -> EpilogueError:
        return mistake(self._text, self._next.position, rule)

    def _declared(self, read: list[str]) -> tuple[str, str]:
        name = self._read()
        if name.kind != "name" or name.text not in read:
            raise mistake(self._text, name.position, "expected a name that the expression reads")
        self._expect(":")
        kind = self._read()
        if kind.kind != "name":
            raise mistake(self._text, kind.position, "expected a type, as in bias: bf16")
        return name.text, kind.text

    def _sum(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._refused(f"nested deeper than {MAX_DEPTH}")
        left = self._product()
        while self._next.text in ("+", "-"):
            op = self._read().text
            left = Apply(op, (left, self._product()))
        self._depth -= 1
        return left

    def _product(self) -> Node:
        left = self._prefixed()
        while self._next.text in ("*", "/"):
            op = self._read().text
            left = Apply(op, (left, self._prefixed()))
        return left

    def _prefixed(self) -> Node:
        if not self._takes("-"):
            return self._atom()
        if self._next.text == "-":
            raise self._refused("one minus is enough")
        node = self._atom()
        return Number(-node.value) if isinstance(node, Number) else Apply("neg", (node,))

    def _atom(self) -> Node:
        if self._takes("("):
            node = self._sum()
            self._expect(")")
            return node
        token = self._next
        if token.kind == "number":
            value = float(self._read().text)
            if not math.isfinite(value) or abs(value) > 3.4e38:
                raise mistake(self._text, token.position, "the number does not fit FP32")
            return Number(float(number_text(value)))
        if token.kind != "name":
            raise self._refused("expected a value")
        self._read()
        if self._takes("("):
            return self._call(token)
        return self._indexed(token) if self._takes("[") else Read(token.text)

    def _call(self, name: _Token) -> Node:
        if name.text in _REDUCTIONS:
            rule = (
                f"{name.text} needs a whole row of C, and a block has a tile of it: "
                "an epilogue computes each element from its own accumulator"
            )
            raise mistake(self._text, name.position, rule)
        if name.text not in FUNCTIONS:
            known = " ".join(sorted(FUNCTIONS))
            rule = f"{name.text!r} is not a function; there are {known}"
            raise mistake(self._text, name.position, rule)
        args = [self._sum()]
        while self._takes(","):
            args.append(self._sum())
        self._expect(")")
        if len(args) != FUNCTIONS[name.text]:
            count = FUNCTIONS[name.text]
            rule = f"{name.text} takes {count} value{'s' * (count > 1)}, got {len(args)}"
            raise mistake(self._text, name.position, rule)
        return Apply(name.text, tuple(args))

    def _indexed(self, name: _Token) -> Node:
        first = self._next
        words = []
        while self._next.text != "]" and self._next.kind != "end":
            words.append(self._read().text)
        self._expect("]")
        axes = " ".join(words).replace(" ,", ",")
        if axes not in (*AXES, *SCALE_AXES, *HALVES, *INTERLEAVED):
            rule = INDICES
            if name.text == "acc":
                rule = (
                    "of two columns acc has the index [n] and [n + N], or [2 * n] and [2 * n + 1]"
                )
            raise mistake(self._text, first.position, rule)
        return Read(name.text, axes)

"""Text to `Expression`: a tokenizer and a parser by precedence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from autogemm.space.expressions.evaluation import MAX_INTEGER
from autogemm.space.expressions.expression import Expression
from autogemm.space.expressions.nodes import COMPARISONS, FUNCTIONS, Constant, Name, Node, Operation
from autogemm.support.errors import FamilyError

MAX_LENGTH = 1000
# More digits than any number that fits has, leading zeros not counted.
MAX_DIGITS = 40
# Parentheses and prefix operators within one another; each costs some Python stack.
MAX_NESTING = 64

KEYWORDS = frozenset({"and", "or", "not", "in", "if", "else"})

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>0(?![0-9])|[1-9][0-9]*)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?)
    | (?P<text>'[^'\\\n]*'|"[^"\\\n]*")
    | (?P<symbol>//|[=!<>]=|\*\*|[-+*%<>(),])
    )""",
    re.VERBOSE,
)

# Binary operators, loosest first; a chain of comparisons is one level.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT = range(1, 7)
_LEVELS = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "//": _PRODUCT}
_LEVELS |= {"%": _PRODUCT, "in": _COMPARE, "not": _COMPARE, **dict.fromkeys(COMPARISONS, _COMPARE)}

_INSTEAD = {
    "/": "divide with // (rounds down)",
    "**": "powers are not allowed, multiply instead",
    "=": "compare with ==",
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "[": "write in (1, 2)",
    "0": "numbers do not begin with 0",
    ".": "numbers are whole; only device has a dot, as in device.arch",
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse_expression(
    text: str, origin: str = "expression", max_length: int = MAX_LENGTH
) -> Expression:
    """The expression that ``text`` is; ``origin`` says where it stands, for messages.

    Raises FamilyError, with the position, for anything outside the language, and for a text
    longer than ``max_length`` characters or nested deeper than 64.
    """
    if len(text) > max_length:
        raise FamilyError(
            f"{origin}: an expression may have {max_length} characters, this one has {len(text)}; "
            "split it into derived quantities"
        )
    try:
        root = _Parser(_tokens(text)).whole()
    except FamilyError as error:
        raise FamilyError(f"{origin}: {text!r}: {error}") from None
    return Expression(text, root, origin)


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            hint = f"; {_INSTEAD[text[at]]}" if text[at] in _INSTEAD else ""
            raise FamilyError(f"{text[at]!r} at position {at + 1} is not allowed{hint}")
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*tokens, _Token("end", "the end", end + 1)]


class _Parser:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._nesting = 0

    def whole(self) -> Node:
        node = self._choice()
        if self._next.kind != "end":
            raise self._refused("an operator")
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _read(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1].text

    def _takes(self, text: str) -> bool:
        """Whether the next token is this one; if so it is read."""
        taken = self._next.text == text
        self._at += taken
        return taken

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._refused(repr(text))

    def _refused(self, expected: str) -> FamilyError:
        token = self._next
        found = token.text if token.kind == "end" else repr(token.text)
        hint = f"; {_INSTEAD[token.text]}" if token.text in _INSTEAD else ""
        return FamilyError(f"expected {expected} at position {token.position}, got {found}{hint}")

    def _deeper(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise FamilyError(f"nested deeper than {MAX_NESTING}; use derived quantities")

    def _choice(self) -> Node:
        """``a if c else b``, the loosest of all."""
        self._deeper()
        value = self._binary(_OR)
        if self._takes("if"):
            condition = self._binary(_OR)
            self._expect("else")
            value = Operation("if", (condition, value, self._choice()))
        self._nesting -= 1
        return value

    def _binary(self, level: int) -> Node:
        """All operands and operators that bind at least as tight as ``level``."""
        left = self._prefixed(level)
        while (found := _LEVELS.get(self._next.text, 0)) >= level:
            if found == _COMPARE:
                left = self._comparisons(left)
                continue
            op = self._read()
            right = self._binary(found + 1)
            if op in ("and", "or") and isinstance(left, Operation) and left.op == op:
                left = Operation(op, (*left.args, right))
            else:
                left = Operation(op, (left, right))
        return left

    def _comparisons(self, left: Node) -> Node:
        """``a < b <= c`` is ``a < b and b <= c``; ``x in (1, 2)`` is ``x == 1 or x == 2``."""
        parts: list[Node] = []
        while self._next.text in COMPARISONS:
            op = self._read()
            right = self._binary(_SUM)
            parts.append(Operation(op, (left, right)))
            left = right
        if self._takes("not"):
            self._expect("in")
            parts.append(Operation("not", (self._membership(left),)))
        elif self._takes("in"):
            parts.append(self._membership(left))
        if _LEVELS.get(self._next.text) == _COMPARE:
            raise self._refused("no further comparison")
        return parts[0] if len(parts) == 1 else Operation("and", tuple(parts))

    def _membership(self, value: Node) -> Node:
        self._expect("(")
        tests: list[Node] = [Operation("==", (value, member)) for member in self._list()]
        return tests[0] if len(tests) == 1 else Operation("or", tuple(tests))

    def _list(self) -> list[Node]:
        """Values up to the closing parenthesis; a comma may end the list."""
        values = [self._choice()]
        while self._takes(","):
            if self._next.text == ")":
                break
            values.append(self._choice())
        self._expect(")")
        return values

    def _prefixed(self, level: int) -> Node:
        self._deeper()
        node: Node
        if level <= _NOT and self._takes("not"):
            node = Operation("not", (self._binary(_NOT),))
        elif self._takes("-"):
            node = Operation("neg", (self._prefixed(_PRODUCT + 1),))
        else:
            node = self._atom()
        self._nesting -= 1
        return node

    def _atom(self) -> Node:
        if self._takes("("):
            node = self._choice()
            self._expect(")")
            return node
        token = self._next
        if token.kind in ("symbol", "end") or token.text in KEYWORDS:
            raise self._refused("a value")
        self._read()
        if token.kind == "text":
            return Constant(token.text[1:-1])
        if token.kind == "number":
            # Python refuses to read thousands of digits.
            if len(token.text) > MAX_DIGITS or int(token.text) > MAX_INTEGER:
                raise FamilyError(f"the number at position {token.position} does not fit 64 bits")
            return Constant(int(token.text))
        return self._call(token) if self._takes("(") else Name(token.text)

    def _call(self, function: _Token) -> Node:
        if function.text not in FUNCTIONS:
            raise FamilyError(
                f"{function.text!r} at position {function.position} is no function; "
                f"there are {', '.join(FUNCTIONS)}"
            )
        args = self._list()
        if len(args) < 2 or (function.text == "ceil_div" and len(args) > 2):
            count = "2 values" if function.text == "ceil_div" else "2 or more values"
            raise FamilyError(f"{function.text} takes {count}, got {len(args)}")
        return Operation(function.text, tuple(args))

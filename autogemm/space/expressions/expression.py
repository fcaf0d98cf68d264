"""Expressions of a search space: parsed once, evaluated over integers or NumPy columns.

The language is small on purpose: integers, texts, names, ``+ - * // %``, comparisons, ``and or
not``, ``in (...)``, ``a if c else b``, ``min max ceil_div``. Nothing is ever handed to Python's
own evaluation, so a search space from elsewhere cannot run code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autogemm.model.config import Value
from autogemm.space.expressions.evaluation import (
    Environment,
    Mask,
    Operand,
    evaluate,
    integers,
    truth,
)
from autogemm.space.expressions.nodes import Node, kind_of, names_in, replaced
from autogemm.space.expressions.printing import c_text
from autogemm.support.errors import FamilyError


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. ``origin`` says where it was written, for messages.

    ``text`` is what was written; ``root`` may be wider, with derived quantities put in place.
    """

    text: str
    root: Node
    origin: str = field(default="expression", compare=False)

    @property
    def names(self) -> frozenset[str]:
        """Every name that the expression reads."""
        return names_in(self.root)

    def evaluate(self, env: Environment) -> Operand:
        """The value: int or text if all names are, a column if any is.

        Comparisons and ``and or not`` give 0 or 1. As in Python, the branch that is not taken is
        not evaluated; over columns this holds row by row. Raises FamilyError on division by zero
        and for an integer beyond 64 bits.
        """
        return integers(self._guarded(env))

    def holds(self, env: Environment) -> "bool | Mask":
        """Whether the value is not 0, for one config or row by row. Raises as `evaluate` does."""
        return truth(self._guarded(env))

    def kind(self, kinds: Mapping[str, type]) -> type:
        """``int`` or ``str``, from the types of the names. Raises FamilyError for a mixture."""
        try:
            return kind_of(self.root, kinds)
        except TypeError as error:
            raise self.error(str(error)) from None

    def substitute(self, values: "Mapping[str, Expression]") -> "Expression":
        """With names replaced by what they stand for. Raises FamilyError if that grows too big."""
        try:
            root = replaced(self.root, {name: value.root for name, value in values.items()})
        except FamilyError as error:
            raise self.error(str(error)) from None
        return Expression(self.text, root, self.origin)

    def to_c(self, constants: Mapping[str, Value]) -> str:
        """The expression as C++ integer arithmetic, ``constants`` folded in.

        ``min``, ``max`` and ``ceil_div`` become calls of two arguments. C++ rounds a negative
        quotient toward zero and Python down: ``//`` and ``%`` need operands that are not negative.
        Raises FamilyError where a text is left over.
        """
        try:
            return c_text(self.root, constants)
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise self.error(str(error)) from None

    def error(self, rule: str) -> FamilyError:
        """An error that names the place and the expression."""
        return FamilyError(f"{self.origin}: {self.text!r}: {rule}")

    def _guarded(self, env: Environment) -> Operand:
        try:
            return evaluate(self.root, env)
        except (ZeroDivisionError, OverflowError) as error:
            raise self.error(str(error)) from None

    def __str__(self) -> str:
        return self.text

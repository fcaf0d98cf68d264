"""Types of columns that take back from a database only what they put there.

SQLite keeps a text in a column of numbers, and any JSON in a column of lists: a file that was
damaged or edited by hand is found here, where a row is read, and not where its values are used.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import JSON, Dialect, Double, TypeDecorator
from sqlalchemy.engine.processors import to_float

_NUMBERS = frozenset({int, float})
_SCALARS = frozenset({int, float, str})


class CellError(ValueError):
    """A cell holds what its column does not."""


class Number(Double[float]):
    """A number or NULL. ValueError for a text or bytes in its place."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return SQLAlchemy's own conversion, which is compiled: a million rows have many."""
        conversion: Callable[[Any], Any] = to_float
        return conversion


class Checked(TypeDecorator[Any]):
    """JSON of one kind, or NULL. CellError for JSON of another."""

    impl = JSON
    cache_ok = True
    kind = "JSON"

    def __init__(self) -> None:
        # None is SQL's NULL, not JSON's null.
        super().__init__(none_as_null=True)

    def holds(self, value: Any) -> bool:
        """Whether the value is of this kind."""
        raise NotImplementedError

    def result_processor(self, dialect: Dialect, coltype: Any) -> Callable[[Any], Any]:
        """Return what decodes a cell and checks the value."""
        decode = super().result_processor(dialect, coltype)

        def checked(cell: Any) -> Any:
            try:
                value = decode(cell) if decode is not None else cell
            except ValueError as error:
                raise CellError(f"no JSON: {error}") from error
            except RecursionError:
                raise CellError("JSON that is nested too deep") from None
            if value is not None and not self.holds(value):
                raise CellError(f"{str(value)[:60]!r} is not {self.kind}")
            return value

        return checked


class Facts(Checked):
    """An object whose values are numbers and texts: a config, a device, counters."""

    cache_ok = True
    kind = "a JSON object of numbers and texts"

    def holds(self, value: Any) -> bool:
        """Whether it is such an object."""
        return isinstance(value, dict) and set(map(type, value.values())) <= _SCALARS


class Numbers(Checked):
    """A list of numbers: samples."""

    cache_ok = True
    kind = "a JSON list of numbers"

    def holds(self, value: Any) -> bool:
        """Whether it is such a list."""
        return isinstance(value, list) and set(map(type, value)) <= _NUMBERS


class Objects(Checked):
    """A list of objects: the checks of a certificate."""

    cache_ok = True
    kind = "a JSON list of objects"

    def holds(self, value: Any) -> bool:
        """Whether it is such a list."""
        return isinstance(value, list) and set(map(type, value)) <= {dict}

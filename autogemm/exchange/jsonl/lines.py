"""One line of a results file: a value of the program as JSON, and back.

The fields declare their limits themselves (`autogemm.support.limits`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import ConfigDict, Field, TypeAdapter

from autogemm.store import Copy, RunCopy
from autogemm.support.errors import UsageError
from autogemm.support.limits import Line

FORMAT: Literal["autogemm-results"] = "autogemm-results"
SCHEMA_VERSION: Literal[2] = 2


@dataclass(frozen=True, slots=True)
class FileLine:
    """The first line."""

    record: Literal["file"] = field(default="file", kw_only=True)
    format: Literal["autogemm-results"] = FORMAT
    schema_version: Literal[2] = SCHEMA_VERSION
    autogemm: Line = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class EndLine:
    """The last line, without which a file was cut short. ``records`` counts those before it."""

    record: Literal["end"] = field(default="end", kw_only=True)
    records: Annotated[int, Ge(0)]


AnyLine = FileLine | Copy | EndLine

_LINES: TypeAdapter[AnyLine] = TypeAdapter(
    Annotated[AnyLine, Field(discriminator="record")],
    # Nothing unknown is let through, and nothing is taken for something else.
    config=ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="strings"),
)
# Fields that follow from others, or that are not stored.
_LEFT_OUT: Any = {"source": {"sha256"}, "finals": {"num_checks", "disqualified"}}


def line_of(value: AnyLine) -> str:
    """The line that a value becomes. Raises ValueError for what no line may hold."""
    line = _LINES.dump_json(value, exclude=_LEFT_OUT).decode()
    value_of(line)
    return line


def value_of(line: str) -> AnyLine:
    """The value that a line stands for. Raises ValueError naming the field and its fault."""
    return _checked(lambda: _LINES.validate_json(line))


def fields_of(value: AnyLine) -> dict[str, Any]:
    """The same as nested dictionaries, with Python's values. Raises ValueError as `line_of`."""
    line_of(value)
    found: dict[str, Any] = _LINES.dump_python(value, exclude=_LEFT_OUT)
    return found


def value_of_fields(fields: dict[str, Any]) -> AnyLine:
    """The value of nested dictionaries whose cells may be texts, as in CSV. Raises ValueError."""
    return _checked(lambda: _LINES.validate_python(fields, strict=False))


def _checked(validate: Callable[[], AnyLine]) -> AnyLine:
    try:
        value = validate()
    except UsageError as error:
        raise ValueError(f"not a problem: {error}") from error
    if isinstance(value, RunCopy) and value.started_at is None:
        raise ValueError("run.started_at: a run in a file has begun")
    return value

"""Converts arguments of the package's functions to values; raises UsageError for invalid ones."""

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from autogemm.model.batch import Batch
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError

# The tuner is imported where one is needed: it brings SciPy and Optuna along.
if TYPE_CHECKING:
    from autogemm.tuning import TuneOptions

# What ``tune=True`` searches for.
DEFAULT_BUDGET_S = 10.0

Size = Problem | str | int | Sequence[int]
Fix = Mapping[str, Value | Sequence[Value]] | Sequence[str]
Place = str | os.PathLike[str]
Choice = TypeVar("Choice", bound=StrEnum)


def problem_of(  # noqa: PLR0913, PLR0917  # what makes a problem
    size: Size,
    layout: str | Layout = Layout.NN,
    dtype: str | DType = DType.F32,
    epilogue: str | Epilogue = "",
    batch: str | int | Batch = "",
    groups: str | Groups = "",
    **more: float,
) -> Problem:
    """Return the problem that a size of any of its forms names; a `Problem` is itself.

    ``more`` are its leading dimensions, alpha and beta. Raises UsageError.
    """
    if isinstance(size, Problem):
        return size
    if not isinstance(epilogue, Epilogue):
        epilogue = Epilogue.parse(text("epilogue", epilogue))
    if not isinstance(batch, Batch):
        batch = Batch.parse(text("batch", str(batch) if isinstance(batch, int) else batch))
    if not isinstance(groups, Groups):
        groups = Groups.parse(text("groups", groups))
    plain = Problem(*_extents(size), choice("layout", Layout, layout), parsed_dtype(dtype))
    given: dict[str, Any] = {
        name: number(name, value) if name in ("alpha", "beta") else whole(name, value)
        for name, value in more.items()
    }
    return replace(plain, epilogue=epilogue, batch=batch, groups=groups, **given)


def parsed_dtype(dtype: object) -> DType:
    """Return the dtype, given or by its name. Raises UsageError for a name that is none."""
    return dtype if isinstance(dtype, DType) else DType.parse(text("dtype", dtype))


def options_of(values: Mapping[str, Any]) -> "TuneOptions":
    """Return the options that these keywords make. Raises UsageError for a value of another kind.

    Numbers of NumPy become Python's, one family a tuple, choices their enums, ``fix`` its texts.
    """
    from autogemm.tuning import TuneOptions

    given = {
        **values,
        "family": places("family", values["family"]),
        "fix": fix_texts(values["fix"]),
        "max_error": str(values["max_error"]),
    }
    if isinstance(given["gpu"], int):
        given["gpu"] = str(given["gpu"])
    kinds = get_type_hints(TuneOptions)
    return TuneOptions(
        **{
            one.name: _checked(one.name, kinds[one.name], given[one.name])
            for one in fields(TuneOptions)
        }
    )


def _checked(name: str, kind: Any, value: Any) -> Any:
    """The value of a field of that type."""
    kinds = get_args(kind)
    if NoneType in kinds:
        if value is None:
            return None
        (kind,) = (one for one in kinds if one is not NoneType)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return choice(name, kind, value)
    check = {bool: flag, int: whole, float: number, str: text}.get(kind)
    return value if check is None else check(name, value)


def choice(name: str, kind: type[Choice], value: Any) -> Choice:
    """Return the value of an enum. Raises UsageError for one that it does not have."""
    try:
        return kind(value)
    except ValueError as error:
        raise UsageError(f"{name} is one of {', '.join(kind)}, got {value!r}") from error


def flag(name: str, value: object) -> bool:
    """Return True or False. Raises UsageError for anything else."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is True or False, got {value!r}")
    return value


def whole(name: str, value: Any) -> int:
    """Return a whole number, of Python or NumPy. Raises UsageError for anything else."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} is a whole number, got {value!r}") from None


def number(name: str, value: Any) -> float:
    """Return a finite number. Raises UsageError for anything else, texts of numbers included."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        found = float(value)
        if not -float("inf") < found < float("inf"):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} is a finite number, got {value!r}") from None
    return found


def text(name: str, value: object) -> str:
    """Return a text. Raises UsageError for anything else."""
    if not isinstance(value, str) or "\0" in value:
        raise UsageError(f"{name} is a string without zero characters, got {value!r}")
    return value


def place(name: str, value: object) -> str | None:
    """Return a path or URL as a text, None for None. Raises UsageError for anything else."""
    if value is None:
        return None
    return text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def places(name: str, value: Any) -> tuple[str, ...]:
    """Return one or several paths or names as texts. Raises UsageError for anything else."""
    one = isinstance(value, str | os.PathLike)
    if not one and not isinstance(value, Sequence):
        raise UsageError(f"{name} is a name or path, or several, got {value!r}")
    return tuple(place(name, each) or "" for each in ((value,) if one else value))


def fix_texts(fix: Any) -> tuple[str, ...]:
    """Return the texts of ``--fix``. Raises UsageError for what is neither a dict nor a list."""
    if isinstance(fix, str) or not isinstance(fix, Mapping | Sequence):
        raise UsageError(f"fix takes a list of strings or a dict, got {fix!r}")
    if not isinstance(fix, Mapping):
        return tuple(text("fix", one) for one in fix)
    return tuple(f"{text('fix', name)}={_values_text(name, fix[name])}" for name in fix)


def _values_text(name: str, values: Any) -> str:
    listed = (values,) if isinstance(values, str | int) else values
    if not isinstance(listed, Sequence) or not all(isinstance(one, str | int) for one in listed):
        raise UsageError(f"fix: {name} takes a value or several, got {values!r}")
    return ",".join(map(str, listed))


def _extents(size: Any) -> tuple[int, int, int]:
    """M, N and K. Raises UsageError."""
    if isinstance(size, str):
        return Problem.parse_size(size)
    if not isinstance(size, Sequence):
        side = whole("size", size)
        return side, side, side
    if isinstance(size, bytes) or len(size) != 3:
        raise UsageError(f"a size has three extents, M, N and K, or is one number, got {size!r}")
    m, n, k = (whole(name, extent) for name, extent in zip("MNK", size, strict=True))
    return m, n, k

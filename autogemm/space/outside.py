"""Configs from files and databases of others, held against what their families declare."""

from collections.abc import Mapping
from functools import cache, lru_cache

from autogemm.model.config import Value
from autogemm.space.family import Family
from autogemm.space.loading import list_families, load_family
from autogemm.support.errors import UsageError
from autogemm.support.limits import MAX_INTEGER, WORD, WORD_RULE


def check_outside(family: str, values: object) -> None:
    """Refuse a config that no version of its family can have had. Raises UsageError.

    Every value is an integer or one word, and of a family that ships each has its parameter's type.
    Whether the family declares the value today is asked when it is rendered (`Family.declared`):
    results of former versions stay readable.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"a config of {family!r:.60} is not an object of names and values")
    for name, value in values.items():
        fault = _fault(family, name, value) if type(value) in (int, str) else WORD_RULE
        if fault:
            raise UsageError(
                f"a config of {family!r:.60} has {name!r:.60} = {value!r:.60}: {fault}"
            )


# A database has a million configs, and few values. Typed: JSON's true is no 1.
@lru_cache(maxsize=2**16, typed=True)
def _fault(family: str, name: str, value: Value) -> str:
    """Why no config of the family can have that value; empty where one can."""
    if isinstance(value, str) and not WORD.fullmatch(value):
        return WORD_RULE
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "an integer has at most 62 bits"
    known = _known(family)
    parameter = known.parameter(known.current_name(name)) if known else None
    if known is None or parameter is None or parameter.is_safe(known.current_value(name, value)):
        return ""
    return f"{parameter.name} is {parameter.kind}"


@cache
def _known(name: str) -> Family | None:
    """The family that ships under that name; None where none does."""
    return load_family(name) if name in list_families() else None

"""``--fix``: a family's parameters narrowed to some of their values."""

import re
from collections.abc import Mapping, Sequence

from autogemm.model.config import Value
from autogemm.space.family import Family, Parameter
from autogemm.support.errors import UsageError
from autogemm.support.naming import did_you_mean


def parse_fix(family: Family, texts: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """``["BM=128,256", "FMA_ORDER=snake"]`` as values by parameter, in the family's order.

    Raises UsageError for a text of another form, and for unknown names and values.
    """
    fix: dict[str, list[Value]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"--fix takes NAME=VALUE[,VALUE...], as in BM=128,256, got {text!r}")
        name = name.strip()
        if name in fix:
            raise UsageError(f"--fix {name} is given twice; give all its values at once")
        listed = [value.strip() for value in values.split(",")]
        fix[name] = [int(one) if re.fullmatch(r"-?[0-9]{1,10}", one) else one for one in listed]
        _check_names(family, name, fix[name])
    return {p.name: p.values for p in narrowed(family, fix) if p.name in fix}


def _check_names(family: Family, name: str, values: Sequence[Value]) -> None:
    """Raises UsageError, which says the new name, for what was renamed."""
    current = family.current_names([name])[name]
    new = [family.current_value(name, value) for value in values]
    if current != name or new != list(values):
        old = f"{name}={','.join(map(str, values))}"
        raise UsageError(
            f"{family.name}: {old} was renamed; write {current}={','.join(map(str, new))}"
        )


def narrowed(family: Family, fix: Mapping[str, Sequence[Value]]) -> tuple[Parameter, ...]:
    """The parameters, each with those of its values that ``fix`` leaves, in the family's order.

    Raises UsageError for unknown names and values, and for an empty choice.
    """
    names = [parameter.name for parameter in family.parameters]
    for name in fix:
        if name not in names:
            raise UsageError(
                f"{family.name} has no parameter {name!r}{did_you_mean(name, names)}; "
                f"its parameters: {' '.join(names)}"
            )
    return tuple(
        _chosen(parameter, fix[parameter.name]) if parameter.name in fix else parameter
        for parameter in family.parameters
    )


def _chosen(parameter: Parameter, wanted: Sequence[Value]) -> Parameter:
    listed = " ".join(parameter.texts)
    for value in wanted:
        if not parameter.allows(value):
            raise UsageError(f"{parameter.name} has no value {value!r}; its values: {listed}")
    if not wanted:
        raise UsageError(f"{parameter.name} needs at least one value; its values: {listed}")
    kept = [value for value in parameter.values if value in wanted]
    # On a GPU that is not known yet: legal on some.
    kept += sorted({value for value in wanted if isinstance(value, int)}.difference(kept))
    return Parameter(parameter.name, tuple(kept), parameter.doc)

"""Counts the configs of a recording whose kernels are others today."""

from collections.abc import Hashable

from autogemm.codegen import render
from autogemm.formats import Recording
from autogemm.model.config import Config, Value
from autogemm.space import Family

# To tell, hundreds of kernels are rendered, which takes a second; a sweep asks at each size. By the
# identity of the family, which is kept so that no other takes its place.
_known: dict[Hashable, tuple[Family, int]] = {}
MOST_KNOWN = 64


def num_changed(family: Family, recording: Recording) -> int:
    """The number of configs whose text differs from the one that was timed, if that is known: a
    recording without hashes counts as changed if its template has changed.
    """
    if recording.template_sha256 == family.template_sha256:
        return 0
    if recording.kernel_sha256 is None:
        return len(recording)
    columns = current_columns(family, recording)
    key = (
        *(id(family), recording.problem, tuple(recording.kernel_sha256)),
        *((name, tuple(column)) for name, column in columns.items()),
    )
    if key not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = (family, _counted(family, recording, columns))
    return _known[key][1]


def _counted(family: Family, recording: Recording, columns: dict[str, list[Value]]) -> int:
    assert recording.kernel_sha256 is not None
    configs = (
        family.completed(Config.of(family.name, dict(zip(columns, values, strict=True))))
        for values in zip(*columns.values(), strict=True)
    )
    return sum(
        not render(family, config, recording.problem).sha256.startswith(timed)
        for config, timed in zip(configs, recording.kernel_sha256, strict=True)
    )


def current_columns(family: Family, recording: Recording) -> dict[str, list[Value]]:
    """The recorded configs by the family's names of today, without what is retired."""
    names = family.current_names(recording.parameters)
    return {
        names[name]: [family.current_value(name, value) for value in column]
        for name, column in recording.parameters.items()
        if {*column} != {family.retired.get(name)}
    }

"""The ladder: named kernels from naive to the winner, and the libraries to compare with."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from autogemm.model.config import Config, Value, label
from autogemm.support.errors import NotFoundError
from autogemm.support.naming import did_you_mean

LADDER_PATH = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True, slots=True)
class Rung:
    """A config of a family with a name. ``values`` may leave parameters to the first seed.

    ``limit`` is what limits it on an H100, ``cure`` what helps. ``published`` is what its write-up
    reports for another GPU, ``published_percent`` that as percent of cuBLAS there. ``variant_of``
    is the rung of which this one changes some values.
    """

    name: str
    family: str
    values: tuple[tuple[str, Value], ...]
    summary: str
    limit: str
    cure: str
    published: str = ""
    published_percent: float | None = None
    variant_of: str = ""

    def config(self, seed: Config) -> Config:
        """The whole config, from the family's first seed."""
        return Config.of(self.family, seed.as_dict() | dict(self.values))


@dataclass(frozen=True, slots=True)
class Library:
    """A library's kernel, under the name that `autogemm bench` gives it."""

    name: str
    summary: str
    published: str = ""
    published_percent: float | None = None


def rungs(*, variants: bool = False) -> tuple[Rung, ...]:
    """The rungs from the lowest up, each followed by its variants if they are asked for."""
    return tuple(rung for rung in _ladder()[0] if variants or not rung.variant_of)


def libraries() -> tuple[Library, ...]:
    """The libraries, in the order of tables."""
    return _ladder()[1]


def find_rung(name: str) -> Rung:
    """A rung or variant. Raises NotFoundError, which lists the names."""
    for rung in _ladder()[0]:
        if rung.name == name:
            return rung
    near = did_you_mean(name, [rung.name for rung in _ladder()[0]])
    known = ", ".join(rung.name for rung in rungs())
    raise NotFoundError(f"no rung {name!r}{near}; the ladder has {known}")


def published_percent(name: str) -> float | None:
    """Percent of cuBLAS in the write-up of a rung or library; None if it has none."""
    found = (one for group in _ladder() for one in group if one.name == name)
    return next((one.published_percent for one in found), None)


@cache
def _ladder() -> tuple[tuple[Rung, ...], tuple[Library, ...]]:
    content = yaml.safe_load(LADDER_PATH.read_text(encoding="utf-8"))
    found: list[Rung] = []
    for name, form in content["rungs"].items():
        values, variants = form.pop("config"), form.pop("variants", {})
        rung = Rung(name, values=tuple(values.items()), **form)
        found += [rung, *(_variant(rung, *variant) for variant in variants.items())]
    return tuple(found), tuple(Library(name, **form) for name, form in content["libraries"].items())


def _variant(rung: Rung, name: str, changes: dict[str, Value]) -> Rung:
    return replace(
        rung,
        name=name,
        values=tuple((dict(rung.values) | changes).items()),
        summary=f"{rung.name} with {label(changes.items())}",
        published="",
        published_percent=None,
        variant_of=rung.name,
    )

"""Seeds of a family, from its YAML or from ``seeds/NAME.yaml`` beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autogemm.model.config import Config, Value
from autogemm.space.family import Family, Parameter
from autogemm.space.schema import MAX_SEEDS, FamilyForm, SeedsForm
from autogemm.support.errors import FamilyError, UsageError
from autogemm.support.naming import did_you_mean


@dataclass(frozen=True, slots=True)
class SeedsFile:
    """``seeds/NAME.yaml``, well formed."""

    path: Path
    form: SeedsForm


@dataclass(frozen=True, slots=True)
class _Seed:
    """One seed as written, where it stands, and where it was good."""

    place: str
    values: Mapping[str, Value]
    origin: str


def with_seeds(family: Family, form: FamilyForm, beside: SeedsFile | None) -> Family:
    """The family with its seeds, each of which names every parameter that has no default once, with
    one of its values. Raises FamilyError naming file and field.
    """
    seeds = list(_written(family, form, beside))
    if len(seeds) > MAX_SEEDS:
        path = beside.path if beside else family.yaml_path
        raise FamilyError(f"{path}: seeds: at most {MAX_SEEDS} are tried, there are {len(seeds)}")
    return replace(
        family,
        seeds=tuple(_config(family, seed) for seed in seeds),
        seed_origins=tuple(seed.origin for seed in seeds),
    )


def _written(family: Family, form: FamilyForm, beside: SeedsFile | None) -> Iterator[_Seed]:
    """In the order in which they are tried."""
    if beside is None:
        for i, values in enumerate(form.seeds, start=1):
            yield _Seed(f"{family.yaml_path}: seeds.{i}", values, "")
        return
    if form.seeds:
        raise FamilyError(
            f"{family.yaml_path}: seeds: there are some in {beside.path} too; keep them in one file"
        )
    if beside.form.family != family.name:
        raise FamilyError(
            f"{beside.path}: family: these are seeds of {family.name}, got {beside.form.family!r}"
        )
    for i, group in enumerate(beside.form.seeds, start=1):
        origin = "; ".join(filter(None, (group.gpu, group.problems, group.note)))
        for j, values in enumerate(group.configs, start=1):
            yield _Seed(f"{beside.path}: seeds.{i}.configs.{j}", values, origin)


def _config(family: Family, seed: _Seed) -> Config:
    try:
        values = family.current(seed.values)
    except UsageError as error:
        raise FamilyError(f"{seed.place}: {error}") from None
    names = [parameter.name for parameter in family.parameters]
    for name in values.keys() - set(names):
        hint = did_you_mean(name, names)
        raise FamilyError(f"{seed.place}: no parameter is named {name!r}{hint}")
    return Config.of(family.name, {p.name: _value(seed, values, p) for p in family.parameters})


def _value(seed: _Seed, values: Mapping[str, Value], parameter: Parameter) -> Value:
    place = f"{seed.place}.{parameter.name}"
    value = values.get(parameter.name, parameter.default)
    if value is None:
        raise FamilyError(f"{place}: a seed names every parameter, this one is missing")
    if not parameter.allows(value):
        listed = " ".join(parameter.texts)
        raise FamilyError(f"{place}: {value!r} is none of its values: {listed}")
    return value

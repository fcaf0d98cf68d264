"""One config, as options name it: a rung, a seed or JSON, changed by --fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.options import family_option, fix_option
from autogemm.model.config import Config
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.space import Family

Command = Callable[..., Any]


def config_options(command: Command) -> Command:
    """Adds ``--family --rung --fix --seed-index --config``, for `config_from`."""
    options = (
        family_option,
        rung_option,
        fix_option,
        click.option(
            "--seed-index",
            type=click.IntRange(min=0),
            help="Which of the family's seeds --fix changes; counted from 0, the default.",
        ),
        click.option(
            "--config", "config_json", metavar="JSON", help="Every parameter, instead of a seed."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def rung_option(command: Command) -> Command:
    """Adds ``--rung NAME``, passed on as ``rung`` for `family_and_rung`."""
    return click.option(
        "--rung",
        metavar="NAME",
        help="A rung of the ladder (`autogemm bench --list`), instead of a seed.",
    )(command)


def config_from(
    family: str,
    rung: str | None,
    fix: tuple[str, ...],
    seed_index: int | None,
    config_json: str | None,
) -> tuple[Family, Config]:
    """The config that `config_options` describe, and its family. Raises UsageError for none."""
    if sum(one is not None for one in (rung, seed_index, config_json)) > 1:
        raise UsageError("--rung, --seed-index and --config exclude each other: choose one")
    loaded, climbed = family_and_rung(family, rung)
    if climbed is not None:
        values = climbed.as_dict()
    elif config_json is not None:
        values = loaded.current(_given_values(config_json))
    else:
        values = _seed_values(loaded, seed_index or 0)
    return loaded, _checked_config(loaded, values | _fixed_values(loaded, fix))


def family_and_rung(family: str, rung: str | None) -> tuple[Family, Config | None]:
    """The family, which is the rung's if one is named, and the rung's config.

    Raises UsageError for a ``--family`` that is not the rung's.
    """
    from autogemm.catalogue.ladder import find_rung
    from autogemm.space import load_family

    if rung is None:
        return load_family(family), None
    found = find_rung(rung)
    source = click.get_current_context().get_parameter_source("family")
    if source is click.core.ParameterSource.COMMANDLINE and family != found.family:
        raise UsageError(
            f"{rung} is a rung of the family {found.family}, not {family}: leave --family out"
        )
    loaded = load_family(found.family)
    return loaded, found.config(loaded.seeds[0])


def _seed_values(family: Family, index: int) -> dict[str, Any]:
    """Parameter values of one of the family's seeds. Raises UsageError beyond the last."""
    if index >= len(family.seeds):
        raise UsageError(
            f"the family {family.name} has {len(family.seeds)} seeds, counted from 0: "
            f"there is no seed {index}"
        )
    return family.seeds[index].as_dict()


def _given_values(text: str) -> dict[str, Any]:
    """What ``--config`` holds. Raises UsageError unless it is a JSON object."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UsageError('--config must be a JSON object such as {"BM": 128, ...}')
    return values


def _fixed_values(family: Family, fix: tuple[str, ...]) -> dict[str, Any]:
    """One value for each parameter named by ``--fix``. Raises UsageError for several."""
    from autogemm.space import parse_fix

    fixed = parse_fix(family, fix)
    for name, values in fixed.items():
        if len(values) != 1:
            raise UsageError(f"one config is wanted: give --fix {name} one value")
    return {name: values[0] for name, values in fixed.items()}


def _checked_config(family: Family, values: dict[str, Any]) -> Config:
    """The config in the family's order. Raises UsageError that names everything wrong with it."""
    names = [parameter.name for parameter in family.parameters]
    wrong = [f"unknown {name}" for name in values if name not in names]
    for parameter in family.parameters:
        value: Any = values.get(parameter.name)
        # JSON's true is no 1, and its 128.0 no 128.
        if type(value) not in (int, str) or not parameter.allows(value):
            allowed = ", ".join(parameter.texts)
            found = "is missing" if value is None else f"cannot be {value!r}"
            wrong.append(f"{parameter.name} {found} (one of {allowed})")
    if wrong:
        raise UsageError(f"this is no config of {family.name}: {'; '.join(wrong)}")
    return Config.of(family.name, {name: values[name] for name in names})

"""``autogemm render``: the CUDA source of one config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.files import write_output
from autogemm.cli.options import (
    device_facts,
    family_option,
    fix_option,
    gpu_option,
    problem_from,
    problem_options,
)
from autogemm.config import Config
from autogemm.errors import UsageError

if TYPE_CHECKING:
    from autogemm.space import Family


@click.command()
@family_option
@fix_option
@click.option(
    "--seed-index",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which of the family's seeds --fix starts from.",
)
@click.option("--config", "config_json", metavar="JSON", help="Every parameter, instead of a seed.")
@problem_options
@gpu_option
@click.option(
    "-o", "--output", metavar="FILE", default="-", help="Write to a file, not standard output."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def render(  # noqa: PLR0913, PLR0917  # one parameter for each option
    family: str,
    fix: tuple[str, ...],
    seed_index: int,
    config_json: str | None,
    gpu: str,
    output: str,
    force: bool,
    **problem_values: Any,
) -> None:
    """Print the CUDA source of one config: a seed of the family, changed by --fix.

    The source depends on the problem by its layout, and by which edges and vector accesses its
    sizes and leading dimensions need. Every constraint that the config breaks is named.

    \b
    Examples:
      autogemm render --fix BM=128 --fix BN=128 --fix STAGES=2
      autogemm render --size 1000 --layout nt -o kernel.cu
      autogemm render --family ./mine --seed-index 1
    """
    from autogemm.codegen import render as render_source
    from autogemm.space import broken_constraints, load_family

    problem = problem_from(**problem_values)
    loaded = load_family(family)
    values = given_values(config_json) if config_json else seed_values(loaded, seed_index)
    config = checked_config(loaded, values | fixed_values(loaded, fix))
    broken = broken_constraints(loaded, config, problem, device_facts(gpu))
    if broken:
        raise UsageError(f"the config is not legal, it breaks: {'; '.join(broken)}")
    source = render_source(loaded, config, problem)
    write_output(output, source.text.encode(), force=force)


def seed_values(family: Family, index: int) -> dict[str, Any]:
    """Parameter values of one of the family's seeds. Raises UsageError beyond the last."""
    if index >= len(family.seeds):
        raise UsageError(
            f"the family {family.name} has {len(family.seeds)} seeds, counted from 0: "
            f"there is no seed {index}"
        )
    return family.seeds[index].as_dict()


def given_values(text: str) -> dict[str, Any]:
    """What ``--config`` holds. Raises UsageError unless it is a JSON object."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UsageError('--config must be a JSON object such as {"BM": 128, ...}')
    return values


def fixed_values(family: Family, fix: tuple[str, ...]) -> dict[str, Any]:
    """One value for each parameter named by ``--fix``. Raises UsageError for several."""
    from autogemm.space import parse_fix

    fixed = parse_fix(family, fix)
    for name, values in fixed.items():
        if len(values) != 1:
            raise UsageError(f"one config is wanted: give --fix {name} one value")
    return {name: values[0] for name, values in fixed.items()}


def checked_config(family: Family, values: dict[str, Any]) -> Config:
    """The config in the family's order. Raises UsageError that names everything wrong with it."""
    names = [parameter.name for parameter in family.parameters]
    wrong = [f"unknown {name}" for name in values if name not in names]
    for parameter in family.parameters:
        value = values.get(parameter.name)
        # JSON's true is no 1, and its 128.0 no 128.
        if type(value) not in (int, str) or value not in parameter.values:
            allowed = ", ".join(map(str, parameter.values))
            found = "is missing" if value is None else f"cannot be {value!r}"
            wrong.append(f"{parameter.name} {found} (one of {allowed})")
    if wrong:
        raise UsageError(f"this is no config of {family.name}: {'; '.join(wrong)}")
    return Config.of(family.name, {name: values[name] for name in names})

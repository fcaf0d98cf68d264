"""``autogemm render``: the CUDA source of one config."""

from autogemm.cli.files import write_output
from autogemm.cli.lookup import config_from, device_facts
from autogemm.cli.options import ConfigOptions, ProblemOptions
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space import Family, broken_constraints, nearest_legal
from autogemm.support.errors import UsageError


def run(
    config: ConfigOptions, problem: ProblemOptions, gpu: str, output: str, *, force: bool
) -> None:
    """Write the source. Raises UsageError for a config that is not legal.

    A seed that was not asked for is replaced by one that the problem allows.
    """
    family, chosen = config_from(config)
    device = device_facts(gpu)
    if not config.is_given:
        chosen = _legal_seed(family, problem.value, device) or chosen
    broken = broken_constraints(family, chosen, problem.value, device)
    if broken:
        raise UsageError(f"the config is not legal, it breaks: {'; '.join(broken)}")
    source = render(family, chosen, problem.value)
    write_output(output, source.text.encode(), force=force)


def _legal_seed(family: Family, problem: Problem, device: Device) -> Config | None:
    """Return the first of the family's seeds that has a legal form for the problem."""
    moved = (nearest_legal(family, seed, problem, device) for seed in family.seeds)
    return next((config for config in moved if config is not None), None)

"""``autogemm render``: the CUDA source of one config."""

from dataclasses import dataclass

from autogemm.cli.files import write_output
from autogemm.cli.lookup import config_from, device_facts
from autogemm.cli.options import ConfigOptions, ProblemOptions
from autogemm.codegen import render
from autogemm.space import broken_constraints
from autogemm.support.errors import UsageError


@dataclass(frozen=True, slots=True)
class RenderCommand:
    """One call of the command."""

    config: ConfigOptions
    problem: ProblemOptions
    gpu: str
    output: str
    force: bool


def run(command: RenderCommand) -> None:
    """Write the source. Raises UsageError for a config that is not legal."""
    problem = command.problem.value
    family, config = config_from(command.config)
    broken = broken_constraints(family, config, problem, device_facts(command.gpu))
    if broken:
        raise UsageError(f"the config is not legal, it breaks: {'; '.join(broken)}")
    source = render(family, config, problem)
    write_output(command.output, source.text.encode(), force=command.force)

"""``autogemm render``: the CUDA source of one config."""

from autogemm.cli.files import write_output
from autogemm.cli.lookup import config_from, device_facts
from autogemm.cli.options import ConfigOptions, ProblemOptions
from autogemm.codegen import render
from autogemm.space import broken_constraints
from autogemm.support.errors import UsageError


def run(
    config: ConfigOptions, problem: ProblemOptions, gpu: str, output: str, *, force: bool
) -> None:
    """Write the source. Raises UsageError for a config that is not legal."""
    family, chosen = config_from(config)
    broken = broken_constraints(family, chosen, problem.value, device_facts(gpu))
    if broken:
        raise UsageError(f"the config is not legal, it breaks: {'; '.join(broken)}")
    source = render(family, chosen, problem.value)
    write_output(output, source.text.encode(), force=force)

"""Makes a candidate of a config: render, plan, compile."""

from concurrent.futures import Future
from dataclasses import dataclass

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.space import Family, launch_plan


@dataclass(frozen=True, slots=True)
class Building:
    """A candidate on its way; ``compiling`` is None where no compiler is in play."""

    source: KernelSource
    plan: LaunchPlan
    compiling: Future[CompiledKernel] | None

    @property
    def is_ready(self) -> bool:
        """Whether `candidate` returns at once."""
        return self.compiling is None or self.compiling.done()

    def candidate(self) -> Candidate:
        """Waits for the compiler. Raises KernelCompileError."""
        compiled = self.compiling.result() if self.compiling is not None else None
        return Candidate(self.source, self.plan, compiled)


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes candidates of some families for one problem on one device."""

    families: tuple[Family, ...]
    problem: Problem
    device: Device
    compiler: Compiler | None

    def render(self, config: Config) -> KernelSource:
        """The source of a config. Raises FamilyError for a broken template.

        A family without a template has the config itself as its source, which tells candidates
        apart and is not kept.
        """
        family = self.family_of(config)
        if family.template_path is None:
            layout = self.problem.layout
            return KernelSource(family.name, family.template_sha256, config, layout, str(config))
        return render(family, config, self.problem)

    def plan(self, source: KernelSource) -> LaunchPlan:
        """The launches of a source."""
        return launch_plan(self.family_of(source.config), source.config, self.problem)

    def start(self, source: KernelSource, plan: LaunchPlan | None = None) -> Building:
        """Begin to compile, where there is a compiler. ``plan`` is the source's, if at hand."""
        plan = plan or self.plan(source)
        if self.compiler is None:
            return Building(source, plan, None)
        return Building(source, plan, self.compiler.submit(source, self.device.sm))

    def family_of(self, config: Config) -> Family:
        """The family of a config."""
        return next(family for family in self.families if family.name == config.family)

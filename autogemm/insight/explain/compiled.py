"""Facts from the compiler: registers, spills, code size, the main loop."""

from dataclasses import asdict, dataclass

from autogemm.compile import Compiler, InstructionMix, code_sizes, disassemble, main_loop
from autogemm.insight.explain.times import Missing, or_missing
from autogemm.model.kernel import CompiledKernel, KernelSource, LaunchPlan, Resources


@dataclass(frozen=True, slots=True)
class KernelFacts(Resources):
    """Resource use of one kernel, with the shared memory of its launch and the size of its code."""

    dynamic_smem_bytes: int
    code_bytes: int


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    """All kernels of one source. ``compile_seconds`` is None for one that was in the cache."""

    compiler: str
    arch: str
    compile_seconds: float | None
    kernels: tuple[KernelFacts, ...]


@dataclass(frozen=True, slots=True)
class MainLoop:
    """The main loop of one kernel; ``mix`` is None where no loop multiplies."""

    kernel: str
    mix: InstructionMix | None


def compiled_or_missing(
    compiler: Compiler | Missing, source: KernelSource, arch: str
) -> CompiledKernel | Missing:
    """The kernel, or why there is none: no compiler, an architecture that it does not know."""
    if isinstance(compiler, Missing):
        return compiler
    return or_missing(lambda: compiler.compile(source, arch))


def compiled_facts(compiled: CompiledKernel, plan: LaunchPlan) -> CompiledFacts:
    """Resource use of each kernel, with the shared memory that its launch asks for."""
    sizes = code_sizes(compiled.cubin)
    dynamic = {launch.kernel: launch.smem_bytes for launch in plan.launches}
    return CompiledFacts(
        compiler=compiled.compiler,
        arch=compiled.arch,
        compile_seconds=compiled.seconds or None,
        kernels=tuple(
            KernelFacts(
                **asdict(used),
                dynamic_smem_bytes=dynamic.get(used.kernel, 0),
                code_bytes=sizes.get(used.kernel, 0),
            )
            for used in compiled.resources
        ),
    )


def main_loops(compiled: CompiledKernel) -> tuple[MainLoop, ...] | Missing:
    """The main loop of each kernel, or why it cannot be told."""
    listing = or_missing(lambda: disassemble(compiled.cubin))
    if isinstance(listing, Missing):
        return listing
    return tuple(
        MainLoop(used.kernel, main_loop(listing, used.kernel)) for used in compiled.resources
    )

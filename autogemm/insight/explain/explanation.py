"""The whole explanation of one config on one problem and GPU."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from autogemm.catalogue.gpus import roof_of
from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.emulator import Emulator
from autogemm.insight.explain.accesses import Accesses, accesses
from autogemm.insight.explain.compiled import (
    CompiledFacts,
    MainLoop,
    compiled_facts,
    compiled_or_missing,
    main_loops,
)
from autogemm.insight.explain.intensity import Intensity, intensity
from autogemm.insight.explain.neighbours import CompileOne, Neighbours, Place, neighbours
from autogemm.insight.explain.residency import Residency, Waves, residency, waves
from autogemm.insight.explain.times import Missing, Times, or_missing
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import CompiledKernel, KernelSource, LaunchPlan, Resources
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance
from autogemm.model.splitting import splitting_of
from autogemm.space import Family, Searched, broken_constraints, launch_plan, tile_of
from autogemm.support.errors import UsageError
from autogemm.verify import reduced


@dataclass(frozen=True, slots=True)
class Request:
    """A config to explain. ``stored`` is the source that was timed, if the config comes from one.

    ``times`` are those of the config and its neighbours, or why there are none.
    """

    family: Family
    config: Config
    problem: Problem
    device: Device
    times: Times | Missing
    stored: KernelSource | None = None
    compile_neighbours: bool = False


@dataclass(frozen=True)
class Tools:
    """The compiler and the emulator of this machine, or why one is missing."""

    compiler: Compiler | Missing
    emulator: Emulator | Missing

    @classmethod
    def open(cls) -> Self:
        """Return the tools that this machine has. ``close`` when done."""
        return cls(or_missing(Compiler), or_missing(Emulator))

    def close(self) -> None:
        """End the compiler's threads."""
        if isinstance(self.compiler, Compiler):
            self.compiler.close()


@dataclass(frozen=True, slots=True)
class Timing:
    """The config's own time while searching, median of one run; ``of_peak`` of the most that there
    is of what it multiplies.
    """

    time_us: float
    tflops: float
    of_peak: float | None
    run_id: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Explanation:
    """All sections. `Missing` stands where one cannot be given on this machine."""

    config: Config
    problem: Problem
    device: Device
    kernel_sha256: str
    notes: tuple[str, ...]
    timing: Timing | Missing
    compiled: CompiledFacts | Missing
    main_loops: tuple[MainLoop, ...] | Missing
    residency: tuple[Residency, ...] | Missing
    waves: tuple[Waves, ...] | Missing
    accesses: Accesses | Missing
    intensity: Intensity
    neighbours: Neighbours

    def as_dict(self) -> dict[str, Any]:
        """Return an object for JSON: field names with units as keys."""
        values = {**asdict(self), "config": self.config.as_dict()}
        problem = asdict(self.problem) | {
            "layout": self.problem.layout.value,
            "dtype": self.problem.dtype.label,
            "epilogue": self.problem.epilogue.text,
            "batch": str(self.problem.batch),
            "groups": str(self.problem.groups),
            "label": self.problem.label,
        }
        splitting = splitting_of(self.config)
        return {
            "family": self.config.family,
            "splitting": splitting.label if splitting is not None else None,
            **values,
            "problem": problem,
            "device": device_facts(self.device),
        }


def device_facts(device: Device) -> dict[str, Any]:
    """The fields of a GPU, and its peaks."""
    return asdict(device) | {
        "peak_f32_tflops": device.peak_f32_tflops,
        "peak_bandwidth_gb_s": device.peak_bandwidth_gb_s,
    }


def explain(request: Request, tools: Tools) -> Explanation:
    """Explain one config. Raises UsageError when it is not legal for the problem and device.

    Sections that need a tool that is not installed are `Missing`; all others are given.
    """
    family, config = request.family, request.family.completed(request.config)
    problem, device = request.problem, request.device
    broken = broken_constraints(family, config, problem, device)
    if broken:
        raise UsageError(
            f"the config is not legal for {problem.label} on {device.name}, it breaks: "
            f"{'; '.join(broken)}"
        )
    source = render(family, config, problem)
    plan = launch_plan(family, config, problem)
    compiled = compiled_or_missing(tools.compiler, source, device.sm)
    resources = None if isinstance(compiled, Missing) else compiled.resources
    residencies = _residencies(device, plan, compiled)
    times = None if isinstance(request.times, Missing) else request.times
    return Explanation(
        config=config,
        problem=problem,
        device=device,
        kernel_sha256=source.sha256,
        notes=_notes(request, source),
        timing=_timing(request, config),
        compiled=compiled if isinstance(compiled, Missing) else compiled_facts(compiled, plan),
        main_loops=compiled if isinstance(compiled, Missing) else main_loops(compiled),
        residency=residencies,
        waves=_waves(device, plan, residencies),
        accesses=_accesses(request, config, tools.emulator, source),
        intensity=intensity(config, problem, device),
        neighbours=neighbours(
            Place(family, problem, device), config, resources, times, _compile_one(request, tools)
        ),
    )


def _notes(request: Request, source: KernelSource) -> tuple[str, ...]:
    """Return why the source explained is not the one that was timed, if they differ."""
    stored = request.stored
    if stored is None or stored.code == source.code:
        return ()
    if stored.template_sha256 == request.family.template_sha256:
        return ("this problem needs another source of the config than the one that was stored",)
    return ("the family has changed since this kernel was stored: this is what it emits today",)


def _timing(request: Request, config: Config) -> Timing | Missing:
    times = request.times
    if isinstance(times, Missing):
        return times
    tflops = request.problem.tflops(times.own_us)
    roof = roof_of(request.device, request.problem.dtype, config)
    return Timing(
        time_us=times.own_us,
        tflops=tflops,
        of_peak=tflops / roof.peak_tflops if roof is not None else None,
        run_id=times.run_id,
        provenance=times.provenance,
    )


def _residencies(
    device: Device, plan: LaunchPlan, compiled: CompiledKernel | Missing
) -> tuple[Residency, ...] | Missing:
    """Return the residency of each launch, in order."""
    if isinstance(compiled, Missing):
        return Missing(f"the registers are not known: {compiled.missing}")
    by_kernel = {used.kernel: used for used in compiled.resources}
    absent = [launch.kernel for launch in plan.launches if launch.kernel not in by_kernel]
    if absent:
        return Missing(f"the source has no kernel {', '.join(absent)}, which the family launches")
    return tuple(residency(device, each, by_kernel[each.kernel]) for each in plan.launches)


def _waves(
    device: Device, plan: LaunchPlan, residencies: tuple[Residency, ...] | Missing
) -> tuple[Waves, ...] | Missing:
    """Return the waves of each launch, in order."""
    if isinstance(residencies, Missing):
        return residencies
    if any(each.blocks_per_sm == 0 for each in residencies):
        return Missing(f"not even one block fits on an SM of {device.name}")
    return tuple(
        waves(device, launch, each.blocks_per_sm)
        for launch, each in zip(plan.launches, residencies, strict=True)
    )


def _accesses(
    request: Request, config: Config, emulator: Emulator | Missing, source: KernelSource
) -> Accesses | Missing:
    family, device = request.family, request.device
    # A few block tiles, ragged and aligned where the problem is: the same source serves both.
    tile = tile_of(family, config, device, request.problem.dtype)
    small = reduced(request.problem, tile)
    if broken_constraints(family, config, small, device):
        return Missing(f"the config is not legal for the small problem {small.label}")
    if render(family, config, small).sha256 != source.sha256:
        return Missing(f"the small problem {small.label} needs another source")
    plan, rate = launch_plan(family, config, small), fma_per_clock(family, config, small, device)
    return accesses(emulator, source, plan, small, rate)


def fma_per_clock(family: Family, config: Config, problem: Problem, device: Device) -> float | None:
    """Multiply-adds of one SM per clock, on tensor cores for dtypes that they multiply and where
    FP32 is split, each of them by several products.

    None where the GPU's rate is not known, and for emulated arithmetic that does not say how.
    """
    roof = roof_of(device, problem.dtype, config)
    if roof is None:
        return None
    if family.searched is Searched.WITH_EMULATION and splitting_of(config) is None:
        return None
    return roof.peak_tflops * 1e6 / (2 * device.num_sms * device.sm_clock_mhz)


def _compile_one(request: Request, tools: Tools) -> CompileOne:
    """Return a function that compiles a neighbour, if that was asked for and can be done."""

    def compile_one(config: Config) -> tuple[Resources, ...] | None:
        if not request.compile_neighbours:
            return None
        source = render(request.family, config, request.problem)
        compiled = compiled_or_missing(tools.compiler, source, request.device.sm)
        return None if isinstance(compiled, Missing) else compiled.resources

    return compile_one

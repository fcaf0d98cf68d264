"""What counters say of kernels that multiply on tensor cores, which have a pipe of their own."""

from collections.abc import Iterator

from autogemm.catalogue.gpus import roof_of
from autogemm.insight.profiling import counters as names
from autogemm.insight.profiling.finding import NEAR_PERCENT, Finding, memory_levels, own_parameters
from autogemm.model.results.stored import Profile
from autogemm.model.splitting import multiplied, splitting_of

# Less of the roof for the same use of the pipe: it works on what the result does not need, or
# below its rate.
WELL_USED = 0.8


def multiplied_on_tensor_cores(profile: Profile) -> bool:
    """FP32 is, too, where a family splits it."""
    return not profile.problem.dtype.has_fp32_products or splitting_of(profile.config) is not None


def tensor_pipe(profile: Profile) -> Iterator[Finding]:
    """How busy the pipe was, how much of the result came of it, and at which clock.

    Both shares are of cycles, of all SMs from begin to end, so that they hold at any clock.
    """
    counters = dict(profile.counters)
    pipe = counters.get(names.TENSOR)
    if pipe is None:
        return
    figure = f"tensor pipe {pipe:.0f} % of all cycles"
    roof, share = _share_of_roof(profile)
    if share is not None:
        figure += f", {share:.0f} % of the {roof} roof in them"
    memory = memory_levels(counters)
    nearest = max(memory, key=lambda level: memory[level], default="")
    if pipe >= NEAR_PERCENT and share is not None and share < WELL_USED * pipe:
        yield Finding(
            "compute",
            figure,
            "bound by the tensor pipe, of whose work the result needs only a part",
            "tiles that reach beyond the matrices, or instructions below the full rate (mma.sync "
            "on Hopper)",
            "tiles that divide the sizes; wgmma on Hopper",
            own_parameters(profile.config, "BM", "BN"),
        )
    elif pipe >= NEAR_PERCENT:
        yield Finding("compute", figure, "bound by the tensor pipe: this is how it should be")
    elif memory and memory[nearest] >= NEAR_PERCENT:
        yield Finding("compute", figure, f"bound by {nearest}: the tensor pipe waits for it")
    else:
        yield Finding("compute", figure, "the tensor pipe waits: see the stall reasons")
    if clock_hz := counters.get(names.CLOCK_HZ):
        yield Finding(
            "clock",
            f"{1e-9 * clock_hz:.2f} of {1e-3 * profile.device.sm_clock_mhz:.2f} GHz under the "
            "profiler",
            "the power limit may hold it elsewhere in a row of GEMMs: times follow the clock, the "
            "shares of cycles above do not",
        )


def _share_of_roof(profile: Profile) -> tuple[str, float | None]:
    """The roof's name, and how many percent of it the result's own products are; None where the
    cycles or the card's rate are not known.
    """
    problem, device = profile.problem, profile.device
    name = multiplied(problem.dtype, profile.config)
    cycles = dict(profile.counters).get(names.CYCLES)
    roof = roof_of(device, problem.dtype, profile.config)
    if not cycles or roof is None:
        return name, None
    flops_per_clock = 1e6 * roof.peak_tflops / device.sm_clock_mhz
    return name, 100 * problem.flops / (cycles * flops_per_clock)

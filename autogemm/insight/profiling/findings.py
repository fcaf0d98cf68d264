"""Counters in words, with the usual cause and cure, and the parameters to change.

Causes and cures are those of NVIDIA's Kernel Profiling Guide ("Warp Scheduler States", "Memory
Tables") and CUDA C++ Best Practices Guide, applied to GEMM.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autogemm.catalogue.gpus import roof_of
from autogemm.insight.profiling import counters as names
from autogemm.insight.profiling.counters import Counters, stalls
from autogemm.insight.profiling.reasons import STALLS, StallReason
from autogemm.model.config import Config
from autogemm.model.results.stored import Profile
from autogemm.model.splitting import multiplied, splitting_of

# Above this share of a limit a kernel is near it.
NEAR_PERCENT = 80.0
# Above this share of issue slots in use, few warps are enough.
BUSY_PERCENT = 80.0
# Below this occupancy latency may show.
LOW_OCCUPANCY_PERCENT = 50.0
# With fewer of the blocks that the GPU can hold at once, part of it is empty.
FULL_WAVE = 0.9
# A share of a warp's waiting, and one of all wavefronts of shared memory, that are worth a word.
STALL_OF_NOTE = 0.1
CONFLICTS_OF_NOTE = 0.05
# Sectors of 32 bytes that a warp's request takes if lanes read neighbouring floats.
SECTORS_PER_FLOAT = 4
MOST_STALLS = 3
# Less of the roof for the same use of the pipe: it works on what the result does not need, or
# below its rate.
WELL_USED = 0.8


@dataclass(frozen=True, slots=True)
class Finding:
    """One topic. ``cause`` and ``cure`` are empty where nothing is wrong.

    ``parameters`` bear on it; `findings` leaves those that the kernel's family has.
    """

    topic: str
    figure: str
    says: str
    cause: str = ""
    cure: str = ""
    parameters: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, str]:
        """The finding as cells of a table."""
        names = ("topic", "figure", "says", "usual_cause", "usual_cure", "turn")
        cells = (self.topic, self.figure, self.says, self.cause, self.cure)
        return dict(zip(names, (*cells, " ".join(self.parameters)), strict=True))


def memory_levels(counters: Counters) -> dict[str, float]:
    """Return each level's percentage of the most that it can deliver, as far as the page says."""
    levels = {
        "L1 and shared memory": counters.get(names.L1),
        "L2": counters.get(names.L2),
        "device memory": counters.get(names.DRAM),
    }
    return {level: percent for level, percent in levels.items() if percent is not None}


def findings(profile: Profile) -> tuple[Finding, ...]:
    """Return the findings of a profile; topics whose counters are missing are left out."""
    counters = dict(profile.counters)
    on_tensor_cores = multiplied_on_tensor_cores(profile)
    found = [
        *_occupancy(counters, on_tensor_cores=on_tensor_cores),
        *(tensor_pipe(profile) if on_tensor_cores else _compute(counters)),
        *_memory(counters),
        *_stalls(counters),
        *_bank_conflicts(counters),
        *_coalescing(counters, profile.config, on_tensor_cores=on_tensor_cores),
    ]
    has = profile.config.as_dict()
    return tuple(
        replace(one, parameters=tuple(name for name in one.parameters if name in has))
        for one in found
    )


def _occupancy(counters: Counters, *, on_tensor_cores: bool) -> Iterator[Finding]:
    # With tensor cores few warps are no fault: large tiles and k_tiles in flight hide latency.
    achieved = counters.get(names.OCCUPANCY)
    possible = counters.get(names.POSSIBLE_OCCUPANCY)
    if achieved is None or possible is None:
        return
    blocks = {what: counters[name] for what, name in names.LIMITS.items() if name in counters}
    fewest = min(blocks.values(), default=0.0)
    limit = " and ".join(what for what, count in blocks.items() if count == fewest)
    figure = f"{achieved:.0f} % of an SM's warps, {possible:.0f} % possible"
    says = f"{limit} limit it to {fewest:.0f} blocks per SM" if limit else ""
    waves = counters.get(names.WAVES, 1.0)
    if waves < FULL_WAVE:
        yield Finding(
            "occupancy",
            figure,
            f"{says}; the grid fills only {waves:.2f} of the GPU",
            "too few blocks: some SMs have none, or fewer than they could hold",
            "smaller block tiles, or blocks that share a tile's K",
            ("BM", "BN", "SPLIT_K", "STREAM_BLOCKS"),
        )
    elif (
        not on_tensor_cores
        and possible < LOW_OCCUPANCY_PERCENT
        and counters.get(names.ISSUE, 100.0) < BUSY_PERCENT
    ):
        yield Finding(
            "occupancy",
            figure,
            f"{says}, and issue slots are idle: too few warps to hide latency",
            "a block uses many registers or much shared memory",
            "smaller tiles or fewer stages, or launch bounds for more blocks",
            ("TM", "TN", "BM", "BN", "BK", "STAGES", "MIN_BLOCKS"),
        )
    else:
        yield Finding("occupancy", figure, says)


def _compute(counters: Counters) -> Iterator[Finding]:
    """Yield findings on kernels that multiply on CUDA cores."""
    issue, fma = counters.get(names.ISSUE), counters.get(names.FMA)
    if issue is None or fma is None:
        return
    alu, lsu = counters.get(names.ALU, 0.0), counters.get(names.LSU, 0.0)
    figure = f"{issue:.0f} % of issue slots, FMA pipe {fma:.0f} %"
    if max(alu, lsu) > fma:
        what, percent = ("integer", alu) if alu > lsu else ("load and store", lsu)
        yield Finding(
            "compute",
            figure,
            f"more {what} instructions ({percent:.0f} % of their pipe) than multiply-adds",
            "each float that is loaded serves few multiply-adds"
            if lsu >= alu
            else "addresses are recomputed for each access",
            "larger thread tiles, so that a loaded float serves more of them"
            if lsu >= alu
            else "deeper unrolled k_tiles, wider loads, fewer and larger copies",
            ("TM", "TN", "VEC", "VEC_LOAD", "LOAD", "BK"),
        )
    elif issue >= BUSY_PERCENT:
        yield Finding("compute", figure, "the cores are busy: only fewer instructions would help")
    else:
        yield Finding("compute", figure, "the cores wait: see the stall reasons")


def _memory(counters: Counters) -> Iterator[Finding]:
    known = memory_levels(counters)
    if not known:
        return
    figure = ", ".join(f"{level} {percent:.0f} %" for level, percent in known.items())
    nearest = max(known, key=lambda level: known[level])
    if known[nearest] < NEAR_PERCENT:
        yield Finding("memory", figure, "no level is near its limit")
        return
    cures = {
        "L1 and shared memory": (
            "too many accesses for the arithmetic that they feed",
            "tiles in registers; wider accesses; no bank conflicts, whole sectors",
            ("TM", "TN", "VEC", "VEC_LOAD", "WALK", "LOAD", "PAD", "PAD_A", "PAD_B", "LANE_MAP"),
        ),
        "L2": (
            "concurrent blocks share too little data",
            "larger block tiles, or blocks ordered in groups",
            ("BM", "BN", "GROUP_M"),
        ),
        "device memory": (
            "elements are fetched more than once, or the problem has little arithmetic",
            "larger block tiles, blocks ordered in groups",
            ("BM", "BN", "GROUP_M"),
        ),
    }
    cause, cure, parameters = cures[nearest]
    yield Finding("memory", figure, f"{nearest} is at its limit", cause, cure, parameters)


def _stalls(counters: Counters) -> Iterator[Finding]:
    latency = counters.get(names.LATENCY)
    for reason, share in list(stalls(counters).items())[:MOST_STALLS]:
        if share < STALL_OF_NOTE:
            return
        known = STALLS.get(reason, StallReason(""))
        cycles = f" of {latency:.1f} cycles per instruction" if latency is not None else ""
        figure = f"{reason}: {100 * share:.0f} %{cycles}"
        yield Finding("stall", figure, known.says, known.cause, known.cure, known.parameters)


def _bank_conflicts(counters: Counters) -> Iterator[Finding]:
    everything = sum(
        counters.get(name, 0.0) for name in (names.LOAD_WAVEFRONTS, names.STORE_WAVEFRONTS)
    )
    for what, instructions, wavefronts, conflicts in (
        ("loads", names.SHARED_LOADS, names.LOAD_WAVEFRONTS, names.LOAD_CONFLICTS),
        ("stores", names.SHARED_STORES, names.STORE_WAVEFRONTS, names.STORE_CONFLICTS),
    ):
        count, own, lost = (counters.get(one, 0.0) for one in (instructions, wavefronts, conflicts))
        if not count or not own:
            continue
        share = 100 * lost / own
        figure = f"shared {what}: {own / count:.1f} wavefronts each, {share:.0f} % are conflicts"
        if lost / everything < CONFLICTS_OF_NOTE:
            yield Finding("bank conflicts", figure, "few of all accesses to shared memory")
            continue
        yield Finding(
            "bank conflicts",
            figure,
            "lanes of a warp wait for each other's banks",
            "rows of a tile begin in the same bank, or the distance of lanes is a power of two",
            "pad the rows, transpose while storing, or arrange lanes in 2x2 squares",
            ("PAD", "PAD_A", "PAD_B", "ORDER_A", "LANE_MAP", "TM", "TN"),
        )


def _coalescing(counters: Counters, config: Config, *, on_tensor_cores: bool) -> Iterator[Finding]:
    # Kernels for tensor cores copy 16 bytes a lane, wherever rows allow it.
    values = config.as_dict()
    widths = [values[name] for name in ("VEC", "VEC_LOAD") if name in values]
    widest = 4 if on_tensor_cores else 1
    least = SECTORS_PER_FLOAT * max((one for one in widths if isinstance(one, int)), default=widest)
    for what, requests, sectors in (
        ("loads", names.GLOBAL_LOADS, names.LOAD_SECTORS),
        ("stores", names.GLOBAL_STORES, names.STORE_SECTORS),
    ):
        count = counters.get(requests)
        if not count:
            continue
        each = counters.get(sectors, 0.0) / count
        figure = f"global {what}: {each:.1f} sectors per request, {least} if lanes are neighbours"
        if each < 1.5 * least:
            yield Finding("coalescing", figure, "a warp reads or writes whole sectors")
            continue
        yield Finding(
            "coalescing",
            figure,
            "a warp touches more sectors than its bytes need",
            "lanes of a warp access a column, or are several floats apart",
            "let neighbouring threads access neighbouring columns; copy tiles row by row",
            ("WALK", "LOAD", "TN", "VEC", "VEC_LOAD", "VEC_STORE"),
        )


def multiplied_on_tensor_cores(profile: Profile) -> bool:
    """Return whether tensor cores multiply; they do for FP32 too, where a family splits it."""
    return not profile.problem.dtype.has_fp32_products or splitting_of(profile.config) is not None


def tensor_pipe(profile: Profile) -> Iterator[Finding]:
    """Yield how busy the pipe was, how much of the result came of it, and at which clock.

    Both shares are of cycles, of all SMs from begin to end, so that they hold at any clock.
    """
    counters = dict(profile.counters)
    pipe = counters.get(names.TENSOR)
    if pipe is None:
        return
    figure = f"tensor pipe {pipe:.0f} % of all cycles"
    roof, share = _share_of_roof(profile)
    if share is not None:
        figure += f", {share:.0f} % of the {roof} roof in these cycles"
    memory = memory_levels(counters)
    nearest = max(memory, key=lambda level: memory[level], default="")
    if pipe >= NEAR_PERCENT and share is not None and share < WELL_USED * pipe:
        yield Finding(
            "compute",
            figure,
            "bound by the tensor pipe, but the result needs only a part of its work",
            "tiles that reach beyond the matrices, or instructions below the full rate (mma.sync "
            "on Hopper)",
            "tiles that divide the sizes; wgmma on Hopper",
            ("BM", "BN"),
        )
    elif pipe >= NEAR_PERCENT:
        yield Finding("compute", figure, "bound by the tensor pipe, as intended")
    elif memory and memory[nearest] >= NEAR_PERCENT:
        yield Finding("compute", figure, f"bound by {nearest}: the tensor pipe waits for it")
    else:
        yield Finding("compute", figure, "the tensor pipe waits: see the stall reasons")
    if clock_hz := counters.get(names.CLOCK_HZ):
        yield Finding(
            "clock",
            f"{1e-9 * clock_hz:.2f} of {1e-3 * profile.device.sm_clock_mhz:.2f} GHz under the "
            "profiler",
            "in a series of GEMMs the power limit may lower the clock: times depend on it, the "
            "shares of cycles above do not",
        )


def _share_of_roof(profile: Profile) -> tuple[str, float | None]:
    """The roof's name, and how many percent of it the result's own products are; None where the
    cycles or the GPU's rate are not known.
    """
    problem, device = profile.problem, profile.device
    name = multiplied(problem.dtype, profile.config)
    cycles = dict(profile.counters).get(names.CYCLES)
    roof = roof_of(device, problem.dtype, profile.config)
    if not cycles or roof is None:
        return name, None
    flops_per_clock = 1e6 * roof.peak_tflops / device.sm_clock_mhz
    return name, 100 * problem.flops / (cycles * flops_per_clock)

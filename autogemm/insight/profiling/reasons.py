"""Why warps wait: the scheduler states of the Kernel Profiling Guide, in the terms of a GEMM."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StallReason:
    """The meaning of a reason, its usual cause and cure in a GEMM, and related parameters."""

    says: str
    cause: str = ""
    cure: str = ""
    parameters: tuple[str, ...] = ()


_FEWER_ACCESSES = ("TM", "TN", "VEC", "VEC_LOAD")

STALLS = {
    "long_scoreboard": StallReason(
        "warps wait for data from L1, L2 or device memory",
        "loads are used soon after they were issued, and too few warps or loads are in flight",
        "load the next k_tile while multiplying this one, by registers or cp.async stages",
        ("STAGES", "PREFETCH", "BK", "MIN_BLOCKS"),
    ),
    "short_scoreboard": StallReason(
        "warps wait for shared memory",
        "fragments are used soon after they were loaded",
        "load the next fragments while multiplying these; wider loads, no bank conflicts",
        ("REG_STAGES", "TM", "TN", "PAD", "PAD_A", "PAD_B", "ORDER_A", "LANE_MAP"),
    ),
    "mio_throttle": StallReason(
        "the queue to shared memory is full",
        "too many shared-memory instructions for the multiply-adds that they feed",
        "larger thread tiles, so that each loaded float serves more; vector loads",
        (*_FEWER_ACCESSES, "ORDER_A"),
    ),
    "lg_throttle": StallReason(
        "the queue to global memory is full",
        "too many global loads of few bytes each: every operand is read from memory each time",
        "tiles in shared memory and registers; vector loads; neighbouring addresses per warp",
        (*_FEWER_ACCESSES, "WALK", "LOAD"),
    ),
    "barrier": StallReason(
        "warps wait at a barrier for the slowest warp of their block",
        "there is a barrier for each k_tile, and k_tiles are small or the copy is slow",
        "deeper k_tiles, more stages, smaller blocks or more blocks per SM",
        ("BK", "STAGES", "MIN_BLOCKS", "BM", "BN"),
    ),
    "gmma": StallReason(
        "warps wait for the tensor cores to finish",
        "wgmma is asynchronous: this is as intended if the tensor pipe is busy",
    ),
    "math_pipe_throttle": StallReason(
        "the pipe of the next instruction is busy, usually with multiply-adds",
        "arithmetic is the limit, as intended",
    ),
    "not_selected": StallReason(
        "another warp was ready and was selected",
        "more warps are ready than can issue, which is harmless",
    ),
    "wait": StallReason(
        "warps wait for the fixed latency of their last instruction",
        "each instruction needs the result of the previous one",
        "more independent accumulators per thread",
        ("TM", "TN", "UNROLL"),
    ),
    "dispatch_stall": StallReason(
        "the dispatcher holds instructions back",
        "register bank conflicts, or a pipe that accepts one warp every two cycles",
        "another order of multiply-adds, which reuses operands",
        ("FMA_ORDER", "TM", "TN"),
    ),
    "no_instruction": StallReason(
        "warps wait for instructions",
        "the unrolled loop is larger than the instruction cache",
        "less unrolling, smaller k_tiles",
        ("UNROLL", "BK"),
    ),
}

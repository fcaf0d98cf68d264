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
        "a load is used soon after it was issued, and too few warps or loads are in flight",
        "load the next k_tile while multiplying this one: registers or cp.async stages",
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
        "too many global loads, each of few bytes: every operand comes from memory each time",
        "tiles in shared memory and registers; vector loads; neighbouring lanes on neighbours",
        (*_FEWER_ACCESSES, "WALK", "LOAD"),
    ),
    "barrier": StallReason(
        "warps wait for the slowest of their block",
        "there is a barrier for each k_tile, and k_tiles are small or the copy is slow",
        "deeper k_tiles, more stages, smaller blocks or several an SM",
        ("BK", "STAGES", "MIN_BLOCKS", "BM", "BN"),
    ),
    "gmma": StallReason(
        "warps wait for tensor cores to end what was handed to them",
        "wgmma works on its own: this is how it should be where the tensor pipe is busy",
    ),
    "math_pipe_throttle": StallReason(
        "the pipe of the next instruction is taken, multiply-adds as a rule",
        "arithmetic is what limits: this is how it should be",
    ),
    "not_selected": StallReason(
        "another warp was ready and went first",
        "more warps are ready than can issue: no harm",
    ),
    "wait": StallReason(
        "warps wait for a fixed latency of their last instruction",
        "each instruction needs the one before it",
        "more independent accumulators per thread",
        ("TM", "TN", "UNROLL"),
    ),
    "dispatch_stall": StallReason(
        "the dispatcher holds instructions back",
        "register bank conflicts, or a pipe that takes one warp in two cycles",
        "another order of multiply-adds, which reuses operands",
        ("FMA_ORDER", "TM", "TN"),
    ),
    "no_instruction": StallReason(
        "warps wait for code",
        "the unrolled loop is larger than the instruction cache",
        "less unrolling, smaller k_tiles",
        ("UNROLL", "BK"),
    ),
}

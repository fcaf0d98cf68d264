"""One warp that copies k_tiles in bulk, two that compute, mbarriers between them."""

from autogemm.model.kernel import Launch, LaunchPlan
from autogemm.model.problem import Problem
from handover.edits import Edit, Kernel

TEXT = """
constexpr int BN = 64, BK = 8, STAGES = 3, CONSUMERS = 2;
constexpr int K_TILE = BK + BK * BN;
extern "C" __global__ void gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda,
                                       const float* B, int ldb, float beta, float* C, int ldc) {
    extern __shared__ __align__(128) float smem[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    const int thread = threadIdx.x, warp = thread / 32, n = blockIdx.x * BN;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + stage, 1);
            mbarrier_init(empty + stage, CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();

    if (warp == CONSUMERS) {  // the producer
        if (thread % 32 == 0) {
            for (int k_tile = 0; k_tile < K / BK; ++k_tile) {
                const int stage = k_tile % STAGES, round = k_tile / STAGES;
                float* to = smem + stage * K_TILE;
                mbarrier_wait(empty + stage, (round & 1) ^ 1);
                mbarrier_arrive_expect(full + stage, 4 * K_TILE);
                copy_bulk(to, A + k_tile * BK, 4 * BK, full + stage);
                for (int k = 0; k < BK; ++k) {
                    copy_bulk(to + BK + k * BN, B + (k_tile * BK + k) * ldb + n, 4 * BN,
                              full + stage);
                }
            }
        }
        return;
    }
    float sum = 0.0f;
    for (int k_tile = 0; k_tile < K / BK; ++k_tile) {
        const int stage = k_tile % STAGES, round = k_tile / STAGES;
        const float* from = smem + stage * K_TILE;
        mbarrier_wait(full + stage, round & 1);
        for (int k = 0; k < BK; ++k) {
            sum = fmaf(from[k], from[BK + k * BN + thread], sum);
        }
        fence_before_bulk_copies();
        __syncwarp();
        if (thread % 32 == 0) {
            mbarrier_arrive(empty + stage);
        }
    }
    C[n + thread] = alpha * sum;
}
"""
PRODUCER_WAIT = "mbarrier_wait(empty + stage, (round & 1) ^ 1);"
CONSUMER_WAIT = "mbarrier_wait(full + stage, round & 1);"
EXPECT = "mbarrier_arrive_expect(full + stage, 4 * K_TILE);"
ARRIVE = "        if (thread % 32 == 0) {\n            mbarrier_arrive(empty + stage);\n        }\n"
FENCE = "        mbarrier_fence_init();\n"

# Both warps exchange their sums through shared memory, which the producer has nothing to do with.
EXCHANGE = (
    "__shared__ float sums[BN];\n    sums[thread] = sum;\n    BARRIER\n"
    "    sum = 0.5f * (sums[thread ^ 32] + 0.5f * sums[thread ^ 32]) + 0.25f * sums[thread ^ 32];\n"
    "    C[n + (thread ^ 32)] ="
)

RIGHT: dict[str, Edit] = {
    "a barrier of the consumers": Edit(
        "C[n + thread] =", EXCHANGE.replace("BARRIER", "named_barrier_sync(1, 32 * CONSUMERS);")
    ),
    "cleared before, behind a proxy fence": Edit(
        FENCE,
        FENCE.replace(
            "mbarrier",
            "smem[0] = smem[700] = 0.0f;\n        fence_before_bulk_copies();\n        mbarrier",
        ),
    ),
    "all clear before, each behind its proxy fence": Edit(
        "    __syncthreads();\n",
        "    smem[thread] = 0.0f;\n    fence_before_bulk_copies();\n    __syncthreads();\n",
    ),
    "expects behind the copies": Edit(
        f"{EXPECT}\n                copy_bulk(to, A + k_tile * BK, 4 * BK, full + stage);",
        f"copy_bulk(to, A + k_tile * BK, 4 * BK, full + stage);\n                {EXPECT}",
    ),
    "one stage": Edit("STAGES = 3", "STAGES = 1"),
    "two stages": Edit("STAGES = 3", "STAGES = 2"),
    "the consumers read once more behind a barrier of their warp": Edit(
        "        __syncwarp();\n", "        __syncwarp();\n        __syncwarp();\n"
    ),
}

WRONG: dict[str, Edit] = {
    "no barrier of the consumers": Edit(
        "C[n + thread] =", EXCHANGE.replace("BARRIER", ""), "static smem"
    ),
    "consumers arrive without waiting": Edit(
        "C[n + thread] =",
        EXCHANGE.replace("BARRIER", "named_barrier_arrive(1, 32 * CONSUMERS);"),
        "static smem",
    ),
    "a barrier of one warp": Edit(
        "C[n + thread] =", EXCHANGE.replace("BARRIER", "named_barrier_sync(1, 32);"), "static smem"
    ),
    "a barrier for more than come": Edit(
        "C[n + thread] =",
        EXCHANGE.replace("BARRIER", "named_barrier_sync(1, 32 * CONSUMERS + 32);"),
        "deadlock",
    ),
    "a barrier of another size": Edit(
        "C[n + thread] =",
        EXCHANGE.replace("BARRIER", "named_barrier_sync(1, 32 * (1 + (thread / 32)));"),
    ),
    "a barrier for half a warp": Edit(
        "C[n + thread] =", EXCHANGE.replace("BARRIER", "named_barrier_sync(1, 48);"), "multiple"
    ),
    "consumers do not wait": Edit(CONSUMER_WAIT, "", "smem float"),
    "one lane waits": Edit(CONSUMER_WAIT, f"if (thread % 32 == 0) {CONSUMER_WAIT}", "smem float"),
    "one warp waits": Edit(CONSUMER_WAIT, f"if (warp == 0) {CONSUMER_WAIT}", "smem float"),
    "consumers wait for the wrong parity": Edit(CONSUMER_WAIT, "mbarrier_wait(full + stage, 1);"),
    "consumers wait for another stage": Edit(
        CONSUMER_WAIT, "mbarrier_wait(full + (stage + 1) % STAGES, round & 1);"
    ),
    "the producer does not wait": Edit(PRODUCER_WAIT, "", "more arrivals than its phase has"),
    "the producer waits for the wrong parity": Edit(
        PRODUCER_WAIT, "mbarrier_wait(empty + stage, round & 1);", "deadlock"
    ),
    "consumers do not arrive": Edit(ARRIVE, "", "deadlock"),
    "one warp does not arrive": Edit(ARRIVE, f"if (warp == 0)\n{ARRIVE}", "deadlock"),
    "arrives for its own lane": Edit("        __syncwarp();\n", "", "data race"),
    "loads may be under way when they are copied over": Edit(
        "        fence_before_bulk_copies();\n        __syncwarp();\n",
        "        __syncwarp();\n",
        "stored or loaded",
    ),
    "arrives before it reads": Edit(
        CONSUMER_WAIT,
        f"{CONSUMER_WAIT}\n        if (thread % 32 == 0) mbarrier_arrive(empty + stage);",
    ),
    "more arrivals than there are": Edit(
        "if (thread % 32 == 0) {\n            mbarrier_arrive", "{\n            mbarrier_arrive"
    ),
    "one consumer is enough": Edit(
        "mbarrier_init(empty + stage, CONSUMERS)", "mbarrier_init(empty + stage, 1)"
    ),
    "expects too much": Edit("4 * K_TILE);", "4 * K_TILE + 16);", "deadlock"),
    "expects too little": Edit("4 * K_TILE);", "4 * K_TILE - 16);"),
    "expects nothing": Edit(EXPECT, "mbarrier_arrive(full + stage);"),
    "does not arrive for its copies": Edit(EXPECT, "", "deadlock"),
    "copies count for another stage": Edit(
        "4 * BN,\n                              full + stage",
        "4 * BN,\n                              full",
    ),
    "a copy of too few bytes": Edit("4 * BK, full + stage", "4 * BK - 4, full + stage", "bad asyn"),
    "a copy from an odd address": Edit(
        "A + k_tile * BK, 4", "A + k_tile * BK + 1, 4", "misaligned"
    ),
    "a copy to an odd address": Edit("copy_bulk(to, A", "copy_bulk(to + 1, A", "misaligned"),
    "a copy over the next row": Edit("to + BK + k * BN", "to + k * BN"),
    "a copy beyond B": Edit(
        "B + (k_tile * BK + k) * ldb + n", "B + (k_tile * BK + k + 1) * ldb + n", "out of bounds"
    ),
    "no barrier behind the initialisation": Edit("    __syncthreads();\n", "", "data race"),
    "no fence behind the initialisation": Edit(FENCE, "", "not fenced"),
    "barriers not initialised": Edit("mbarrier_init(full + stage, 1);", "", "initialised"),
    "the last k_tile is not waited for": Edit(
        "float sum = 0.0f;\n    for (int k_tile = 0; k_tile < K / BK;",
        "float sum = 0.0f;\n    for (int k_tile = 0; k_tile < K / BK - 1;",
    ),
    "a barrier's words as data": Edit(
        "C[n + thread] =", "if (empty[0] == 7) sum = 0;\n    C[n + thread] =", "used as data"
    ),
    "cleared before, behind the fence of the barriers only": Edit(
        FENCE, FENCE.replace("mbarrier", "smem[0] = smem[700] = 0.0f;\n        mbarrier"), "proxy"
    ),
    "cleared before, without a proxy fence": Edit(
        "    __syncthreads();\n", "    smem[thread] = 0.0f;\n    __syncthreads();\n", "proxy"
    ),
    "stage too small": Edit("smem + stage * K_TILE", "smem + stage * (K_TILE - 16)"),
}

PROBLEM = Problem(1, 128, 56)
BULK_PIPELINE = Kernel(
    TEXT,
    PROBLEM,
    LaunchPlan((Launch("gemm_kernel", (2, 1, 1), (96, 1, 1), 4 * 3 * (8 + 8 * 64)),)),
    RIGHT,
    WRONG,
    ("mbarrier", "bulk_copy", "named_barrier"),
)

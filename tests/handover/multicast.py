"""Two blocks of a cluster that share k_tiles of B: each copies half of every k_tile to both."""

from autogemm.model.kernel import Launch, LaunchPlan
from autogemm.model.problem import Problem
from handover.edits import Edit, Kernel

TEXT = """
constexpr int CLUSTER = 2, BN = 32, BK = 8, STAGES = 2;
constexpr int K_TILE = BK + BK * BN;
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(64)
    gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                float beta, float* C, int ldc) {
    extern __shared__ __align__(128) float smem[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    const unsigned rank = cluster_rank();
    const int thread = threadIdx.x, m = blockIdx.x, n = blockIdx.y * BN;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + stage, 1);
            mbarrier_init(empty + stage, CLUSTER);
        }
        mbarrier_fence_init();
    }
    cluster_sync();  // initialised

    if (thread == 32) {  // the producer
        for (int k_tile = 0; k_tile < K / BK; ++k_tile) {
            const int stage = k_tile % STAGES, round = k_tile / STAGES;
            float* to = smem + stage * K_TILE;
            mbarrier_wait(empty + stage, (round & 1) ^ 1);
            mbarrier_arrive_expect(full + stage, 4 * K_TILE);
            copy_bulk(to, A + m * lda + k_tile * BK, 4 * BK, full + stage);
            for (int k = rank; k < BK; k += CLUSTER) {
                copy_bulk_to_ranks(to + BK + k * BN, B + (k_tile * BK + k) * ldb + n, 4 * BN,
                                   full + stage, (1 << CLUSTER) - 1);
            }
        }
    }
    if (thread < 32) {
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
            if (thread < CLUSTER) {
                mbarrier_arrive_at_rank(empty + stage, thread);
            }
        }
        C[m * ldc + n + thread] = alpha * sum;
    }
    cluster_sync();  // nobody copies or arrives any more
}
"""
INIT, END = (
    "cluster_sync();  // initialised",
    "cluster_sync();  // nobody copies or arrives any more",
)
RELEASE = "mbarrier_arrive_at_rank(empty + stage, thread);"
RELAXED = "mbarrier_arrive_relaxed_at_rank(empty + stage, thread);"
CLUSTER_RELAXED = "cluster_arrive_relaxed();\n    cluster_wait_acquire();"
READ = "            __syncwarp();\n"
CLEARED = (
    f"{READ}            const_cast<float*>(from)[BK + thread] = 0.0f;\n"
    f"            fence_before_bulk_copies();\n{READ}"
)
PRODUCER_WAIT = "mbarrier_wait(empty + stage, (round & 1) ^ 1);"

RIGHT: dict[str, Edit] = {
    "relaxed where nothing was written": Edit(
        RELEASE, RELAXED, also=((INIT, CLUSTER_RELAXED), (END, CLUSTER_RELAXED))
    ),
    "clears what it has read": Edit(READ, CLEARED),
    "one stage": Edit("STAGES = 2", "STAGES = 1"),
    "one lane arrives at all": Edit(
        "if (thread < CLUSTER) {\n                mbarrier_arrive_at_rank(empty + stage, thread);",
        "for (int i = 0; thread == 0 && i < CLUSTER; ++i) {\n"
        "                mbarrier_arrive_at_rank(empty + stage, i);",
    ),
}

WRONG: dict[str, Edit] = {
    "barriers of the other block not awaited": Edit(INIT, "__syncthreads();"),
    "the other block may have ended": Edit(END, "", "ended block"),
    "the block's own barrier at the end": Edit(END, "__syncthreads();", "ended block"),
    "no fence behind the initialisation": Edit("mbarrier_fence_init();", "", "not fenced"),
    "arrives at its own only": Edit(
        "mbarrier_arrive_at_rank(empty + stage, thread)",
        "mbarrier_arrive_at_rank(empty + stage, rank)",
    ),
    "waits for its own consumers only": Edit(
        "mbarrier_init(empty + stage, CLUSTER)", "mbarrier_init(empty + stage, 1)"
    ),
    "the producer does not wait": Edit(PRODUCER_WAIT, ""),
    "lanes still read": Edit(READ, "", "data race"),
    "loads may be under way when they are copied over": Edit(
        f"            fence_before_bulk_copies();\n{READ}", READ, "stored or loaded"
    ),
    "clears what it has read, then lets go relaxed": Edit(
        READ, CLEARED, "data race", also=((RELEASE, RELAXED),)
    ),
    "copies to itself only": Edit("(1 << CLUSTER) - 1", "1 << rank", "deadlock"),
    "copies to a block too many": Edit("(1 << CLUSTER) - 1", "(2 << CLUSTER) - 1", "no such block"),
    "expects its own half": Edit(
        "mbarrier_arrive_expect(full + stage, 4 * K_TILE)",
        "mbarrier_arrive_expect(full + stage, 4 * (BK + BK * BN / 2))",
    ),
    "both copy the same half": Edit("for (int k = rank;", "for (int k = 0;"),
}

MULTICAST = Kernel(
    TEXT,
    Problem(2, 64, 48),
    LaunchPlan((Launch("gemm_kernel", (2, 2, 1), (64, 1, 1), 4 * 2 * (8 + 8 * 32)),)),
    RIGHT,
    WRONG,
    ("cluster", "mbarrier", "bulk_copy"),
)

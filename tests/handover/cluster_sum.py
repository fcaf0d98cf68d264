"""A cluster of blocks that each sum a part of K, and add up each other's shared memory."""

from autogemm.model.kernel import Launch, LaunchPlan
from autogemm.model.problem import Problem
from handover.edits import Edit, Kernel

TEXT = """
constexpr int CLUSTER = 4;
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(64)
    gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                float beta, float* C, int ldc) {
    constexpr int TILE = 64, PART = TILE / CLUSTER;
    __shared__ __align__(16) float partial[TILE];
    const unsigned rank = cluster_rank();
    const int thread = threadIdx.x, first = blockIdx.x / CLUSTER * TILE;

    float sum = 0.0f;
    for (int k = rank * K / CLUSTER; k < (rank + 1) * K / CLUSTER; ++k) {
        sum = fmaf(A[k], B[k * ldb + first + thread], sum);
    }
    partial[thread] = sum;
    cluster_sync();  // partials stored
    if (thread < PART / 4) {
        const int n = rank * PART + 4 * thread;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (unsigned i = 0; i < CLUSTER; ++i) {
            const float4 other = load_from_rank(partial + n, i);
            total = make_float4(total.x + other.x, total.y + other.y, total.z + other.z,
                                total.w + other.w);
        }
        float* to = C + first + n;
        to[0] = alpha * total.x, to[1] = alpha * total.y;
        to[2] = alpha * total.z, to[3] = alpha * total.w;
    }
    cluster_sync();  // partials read
}
"""
STORED, READ = "cluster_sync();  // partials stored", "cluster_sync();  // partials read"
OWN = "partial[thread] = sum;"
RELAXED = "cluster_arrive_relaxed();\n    cluster_wait_acquire();"
PUSHED = (
    "__shared__ __align__(16) float own[TILE];\n    own[thread] = sum;\n    cluster_sync();\n"
    "    if (thread < TILE / 4) {\n"
    "        store_to_rank(partial + 4 * thread, (rank + 1) % CLUSTER,\n"
    "                      *reinterpret_cast<const float4*>(own + 4 * thread));\n    }\n    "
)

RIGHT: dict[str, Edit] = {
    "arrive and wait apart": Edit(STORED, "cluster_arrive_release();\n    cluster_wait_acquire();"),
    "the last wait of a block needs no arrival of readers only": Edit(
        READ, "cluster_arrive_release();\n    cluster_wait_acquire();"
    ),
    "pushed instead of pulled": Edit(f"{OWN}\n    {STORED}", f"{PUSHED}cluster_sync();"),
    "relaxed where only readers arrive": Edit(READ, RELAXED),
    "a fence, then a relaxed arrival": Edit(STORED, f"__threadfence();\n    {RELAXED}"),
    "block barriers beside": Edit(STORED, "__syncthreads();\n    cluster_sync();"),
    "ranks by blockIdx": Edit("cluster_rank()", "blockIdx.x % CLUSTER"),
}

WRONG: dict[str, Edit] = {
    "no barrier before reading": Edit(STORED, "", "static smem float"),
    "the block's own barrier only": Edit(STORED, "__syncthreads();", "of the block of rank"),
    "no barrier before the end": Edit(READ, "", "ended block"),
    "block barrier before the end": Edit(READ, "__syncthreads();", "ended block"),
    "arrives without waiting": Edit(STORED, "cluster_arrive_release();", "static smem float"),
    "arrives before it reads": Edit(
        f"{STORED}\n", "cluster_sync();\n    cluster_arrive_release();\n"
    ),
    "stores after it arrived": Edit(
        f"{OWN}\n    {STORED}",
        f"cluster_arrive_release();\n    {OWN}\n    cluster_wait_acquire();",
        "of the block of rank",
    ),
    "stores, then arrives relaxed": Edit(STORED, RELAXED, "of the block of rank"),
    "pushes, then arrives relaxed": Edit(f"{OWN}\n    {STORED}", f"{PUSHED}{RELAXED}", "data race"),
    "overwrites what others read": Edit(
        READ, "partial[thread] = 0.0f;\n    cluster_sync();", "data race"
    ),
    "warps wait for each other": Edit(
        STORED,
        "if (thread < 32) { cluster_sync(); __syncthreads(); }\n"
        "    else { __syncthreads(); cluster_sync(); }",
        "deadlock",
    ),
    "one block does not arrive": Edit(STORED, "if (rank != 2) cluster_sync();"),
    "arrives twice": Edit(STORED, f"cluster_arrive_release();\n    {STORED}", "arrived at twice"),
    "waits without arriving": Edit(STORED, "cluster_wait_acquire();", "without an arrival"),
    "a rank too many": Edit("i < CLUSTER; ++i", "i <= CLUSTER; ++i", "no such block"),
    "a rank too few": Edit("i < CLUSTER; ++i", "i + 1 < CLUSTER; ++i", "must be"),
    "own part instead of the other's": Edit("partial + n, i", "partial + n, rank", "must be"),
    "beyond the other's shared memory": Edit("partial + n, i", "partial + n + 1000, i", "out of"),
    "unaligned": Edit("partial + n, i", "partial + n + 1, i", "misaligned"),
    "a warp has not written": Edit(OWN, "if (thread < 32) partial[thread] = sum;", "uninit"),
    "a local address": Edit("load_from_rank(partial + n, i)", "load_from_rank(A, i)"),
    "grid and cluster do not go together": Edit("CLUSTER = 4", "CLUSTER = 3", "multiples"),
}

PROBLEM = Problem(1, 128, 24)
CLUSTER_SUM = Kernel(
    TEXT,
    PROBLEM,
    LaunchPlan((Launch("gemm_kernel", (8, 1, 1), (64, 1, 1), 0),)),
    RIGHT,
    WRONG,
    ("cluster",),
)

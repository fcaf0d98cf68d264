"""A small split-K kernel whose blocks hand over partial sums, and slips of the pen in it."""

from autogemm.model.kernel import Launch, LaunchPlan
from autogemm.model.problem import Problem
from handover.edits import Edit, Kernel

TILE, PARTS, TILES = 64, 4, 3

# Each block sums a part of K for 64 columns of C (M = 1); the last to arrive adds all parts up.
TEXT = """
extern "C" __global__ void gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda,
                                       const float* B, int ldb, float beta, float* C, int ldc,
                                       float* workspace) {
    constexpr int TILE = 64;
    const int thread = threadIdx.x, tile = blockIdx.x, part = blockIdx.y, num_parts = gridDim.y;
    unsigned* counter = reinterpret_cast<unsigned*>(workspace);
    float* partials = workspace + 4 + tile * num_parts * TILE;
    const int n = tile * TILE + thread;
    __shared__ bool arrived_last;

    float sum = 0.0f;
    for (int k = part * K / num_parts; k < (part + 1) * K / num_parts; ++k) {
        sum = fmaf(A[k], B[k * ldb + n], sum);
    }
    partials[part * TILE + thread] = sum;
    __threadfence();  // publish
    __syncthreads();  // all
    if (thread == 0) {
        arrived_last = atomicAdd(counter + tile, 1u) == num_parts - 1;
    }
    __syncthreads();
    if (!arrived_last) {
        return;
    }
    __threadfence();  // receive
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = 0; thread < TILE / 4 && i < num_parts; ++i) {
        const float4 other = __ldcg(reinterpret_cast<const float4*>(partials + i * TILE) + thread);
        total = make_float4(total.x + other.x, total.y + other.y, total.z + other.z,
                            total.w + other.w);
    }
    if (thread < TILE / 4) {
        float* to = C + tile * TILE + 4 * thread;
        to[0] = alpha * total.x, to[1] = alpha * total.y;
        to[2] = alpha * total.z, to[3] = alpha * total.w;
    }
    if (thread == 0) {
        counter[tile] = 0;
    }
}
"""
PUBLISH, RECEIVE = "__threadfence();  // publish", "__threadfence();  // receive"
ALL = "__syncthreads();  // all"
ARRIVE = "atomicAdd(counter + tile, 1u)"

ADD_ACQ_REL = "atomic_add_acq_rel(counter + tile, 1u)"

PROBLEM = Problem(1, TILE * TILES, 16)
PLAN = LaunchPlan(
    (Launch("gemm_kernel", (TILES, PARTS, 1), (TILE, 1, 1), 0),),
    4 * (4 + PARTS * TILE * TILES),
)


# Edits that leave the kernel right.
RIGHT: dict[str, Edit] = {
    "an atomic that releases and acquires": Edit(
        ARRIVE, ADD_ACQ_REL, also=((PUBLISH, ""), (RECEIVE, ""))
    ),
    "one fence behind the barrier": Edit(
        f"{PUBLISH}\n    {ALL}\n    if (thread == 0) {{",
        "__syncthreads();\n    if (thread == 0) {\n        __threadfence();",
    ),
    "one fence before the last barrier": Edit(
        f"num_parts - 1;\n    }}\n    __syncthreads();\n    if (!arrived_last) {{\n"
        f"        return;\n    }}\n    {RECEIVE}",
        "num_parts - 1;\n        __threadfence();\n    }\n    __syncthreads();\n"
        "    if (!arrived_last) {\n        return;\n    }",
    ),
    "atomicInc wraps by itself": Edit(
        "atomicAdd(counter + tile, 1u)", "atomicInc(counter + tile, (unsigned)num_parts - 1)"
    ),
    "reset by an atomic": Edit("counter[tile] = 0;", "atomicExch(counter + tile, 0u);"),
    "stored past the caches": Edit(
        "partials[part * TILE + thread] = sum;", "__stcg(partials + part * TILE + thread, sum);"
    ),
    "counters are int": Edit(ARRIVE, "atomicAdd(reinterpret_cast<int*>(counter) + tile, 1)"),
    "each warp publishes for its lanes": Edit(
        f"{PUBLISH}\n    {ALL}\n    if (thread == 0) {{",
        "__syncwarp();\n    if (thread % 32 == 0) __threadfence();\n    __syncthreads();\n"
        "    if (thread == 0) {",
    ),
    "the received is read behind one more barrier": Edit(
        RECEIVE, "if (thread == 9) __threadfence();\n    __syncthreads();"
    ),
}

# Edits that make it wrong, most of them only on a GPU and only now and then.
WRONG: dict[str, Edit] = {
    "an atomic that orders, before all have stored": Edit(
        ARRIVE, ADD_ACQ_REL, "workspace float", ((PUBLISH, ""), (RECEIVE, ""), (ALL, ""))
    ),
    "nothing published": Edit(PUBLISH, "", "workspace float"),
    "nothing received": Edit(RECEIVE, "", "workspace float"),
    "no fence at all": Edit("__threadfence();", "", "workspace float"),
    "published to the block only": Edit(PUBLISH, "__threadfence_block();", "workspace float"),
    "one thread publishes its own": Edit(
        PUBLISH, "if (thread == 0) __threadfence();", "workspace float"
    ),
    "one warp publishes": Edit(PUBLISH, "if (thread < 32) __threadfence();", "workspace float"),
    "one thread receives": Edit(RECEIVE, "if (thread == 0) __threadfence();", "workspace float"),
    "not all have stored": Edit(ALL, "", "workspace float"),
    "a warp has stored": Edit(ALL, "__syncwarp();", "workspace float"),
    "fence before the stores": Edit(
        "partials[part * TILE + thread] = sum;\n    __threadfence();  // publish",
        "__threadfence();\n    partials[part * TILE + thread] = sum;",
        "workspace float",
    ),
    "fence before the arrival": Edit(
        f"        return;\n    }}\n    {RECEIVE}", "        return;\n    }", "workspace float"
    ),
    "arrival is no atomic": Edit(ARRIVE, "counter[tile]++", "workspace float"),
    "arrival is volatile": Edit(
        ARRIVE, "(*(volatile unsigned*)(counter + tile) += 1) - 1", "workspace float"
    ),
    "nothing waits to be last": Edit("if (!arrived_last)", "if (part != 0)", "workspace float"),
    "all add up": Edit("if (!arrived_last)", "if (false)"),
    "one part too early": Edit("num_parts - 1;", "num_parts - 2;", "workspace float"),
    "last but one too": Edit("== num_parts - 1;", ">= num_parts - 2;"),
    "the next tile's counter": Edit(ARRIVE, "atomicAdd(counter + (tile + 1) % 3, 1u)"),
    "one counter for all tiles": Edit(ARRIVE, "atomicAdd(counter, 1u)"),
    "a part is left out": Edit("i < num_parts; ++i", "i + 1 < num_parts; ++i", "must be"),
    "parts overlap": Edit("(partials + i * TILE)", "(partials + i / 2 * TILE)"),
    "counter not reset": Edit("counter[tile] = 0;", "", "second run"),
    "counter reset to one": Edit("counter[tile] = 0;", "counter[tile] = 1;", "second run"),
    "one counter reset": Edit("counter[tile] = 0;", "counter[0] = 0;"),
    "all reset the counter": Edit(
        "    if (!arrived_last) {",
        "    if (thread == 0) counter[tile] = 0;\n    if (!arrived_last) {",
    ),
    "reset by another thread": Edit(
        "    if (thread == 0) {\n        counter[tile] = 0;",
        "    if (thread == 1) {\n        counter[(tile + 1) % 3] = 0;",
    ),
    "counters cleared at the start": Edit(
        "    float sum = 0.0f;", "    if (thread == 0) counter[tile] = 0;\n    float sum = 0.0f;"
    ),
    "partials are taken for zero": Edit(
        "partials[part * TILE + thread] = sum;",
        "partials[part * TILE + thread] += sum;",
        "uninitialised",
    ),
    "workspace of the tiles overlaps": Edit("tile * num_parts * TILE", "tile * TILE"),
    "workspace too small": Edit("workspace + 4 +", "workspace + 8 +", "out of bounds"),
    "last reads what it has not received": Edit(
        "    if (!arrived_last) {",
        "    if (partials[thread] == 77.0f) C[n] = 0.0f;\n    if (!arrived_last) {",
        "workspace float",
    ),
}

SPLIT_K = Kernel(TEXT, PROBLEM, PLAN, RIGHT, WRONG, ("gpu_counter", "gpu_flag", "gpu_load"))

"""Tiles copied and written by TMA: swizzled, cut off at the edges, several tiles of C a block."""

from autogemm.model.dtypes import Element
from autogemm.model.kernel import Launch, LaunchPlan, TensorMap
from autogemm.model.problem import Problem
from handover.edits import Edit, Kernel

TEXT = """
constexpr int BM = 8, BN = 32, BK = 8, STAGES = 2;
// Chunks of 16 bytes change places: rows of B lie 128 bytes apart, those of A 32.
__device__ __forceinline__ int place_b(int k, int n) {
    return k * BN + (n / 4 ^ k % 8) * 4 + n % 4;
}
__device__ __forceinline__ int place_a(int m, int k) {
    return m * BK + (k / 4 ^ m / 4 % 2) * 4 + k % 4;
}
extern "C" __global__ void __launch_bounds__(64)
    gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                float beta, float* C, int ldc, const __grid_constant__ TensorMap map_a,
                const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_c) {
    extern __shared__ __align__(1024) float shared[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    float* const smem_b = shared;
    float* const tile_c = smem_b + STAGES * BK * BN;
    float* const smem_a = tile_c + BM * BN;
    const int thread = threadIdx.x, m = blockIdx.y * BM;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + stage, 1);
            mbarrier_init(empty + stage, 1);
        }
        mbarrier_fence_init();
    }
    __syncthreads();

    int k_tile = 0;  // counted over all tiles
    for (int n = blockIdx.x * BN; n < N; n += gridDim.x * BN) {
        if (thread == 32) {  // the producer
            for (int k = 0; k < K; k += BK, ++k_tile) {
                const int stage = k_tile % STAGES;
                mbarrier_wait(empty + stage, (k_tile / STAGES & 1) ^ 1);
                mbarrier_arrive_expect(full + stage, 4 * (BK * BN + BM * BK));
                copy_tile(smem_b + stage * BK * BN, map_b, n, k, full + stage);
                copy_tile(smem_a + stage * BM * BK, map_a, k, m, full + stage);
            }
        }
        if (thread < 32) {
            float sums[BM] = {};
            for (int k = 0; k < K; k += BK, ++k_tile) {
                const int stage = k_tile % STAGES;
                mbarrier_wait(full + stage, k_tile / STAGES & 1);
                for (int i = 0; i < BK; ++i) {
                    const float b = smem_b[stage * BK * BN + place_b(i, thread)];
                    for (int row = 0; row < BM; ++row) {
                        sums[row] = fmaf(smem_a[stage * BM * BK + place_a(row, i)], b, sums[row]);
                    }
                }
                fence_before_bulk_copies();
                __syncwarp();  // all have read
                if (thread == 0) {
                    mbarrier_arrive(empty + stage);
                }
            }
            if (thread == 0) {
                wait_for_tile_reads(0);  // of the tile before
            }
            __syncwarp();  // tile_c is free
            for (int row = 0; row < BM; ++row) {
                tile_c[row * BN + thread] = alpha * sums[row];
            }
            fence_before_bulk_copies();
            __syncwarp();  // tile_c is full
            if (thread == 0) {
                store_tile(tile_c, map_c, n, m);
                commit_tile_stores();
            }
        }
    }
    if (thread == 0) {
        wait_for_tile_reads(0);  // of the last tile
    }
}
"""

RIGHT: dict[str, Edit] = {
    "one stage": Edit("STAGES = 2", "STAGES = 1"),
    "C has it before the next tile": Edit(
        "wait_for_tile_reads(0);  // of the tile before", "wait_for_tile_stores(0);"
    ),
    "one group left": Edit(
        "wait_for_tile_reads(0);  // of the last tile",
        "wait_for_tile_reads(1);\n        wait_for_tile_reads(0);",
    ),
    "the next tile is tile_c's other half": Edit(
        "wait_for_tile_reads(0);  // of the tile before",
        "wait_for_tile_reads(1);",
        also=(
            ("float* const tile_c = smem_b", "float* tile_c = smem_b"),
            ("smem_a = tile_c + BM * BN", "smem_a = tile_c + 2 * BM * BN"),
            (
                "commit_tile_stores();\n            }",
                "commit_tile_stores();\n            }\n"
                "            tile_c = shared + STAGES * BK * BN + "
                "(tile_c == shared + STAGES * BK * BN ? BM * BN : 0);",
            ),
        ),
    ),
}

WRONG: dict[str, Edit] = {
    "a store may come after the copy out": Edit(
        "            fence_before_bulk_copies();\n            __syncwarp();  // tile_c is full\n",
        "            __syncwarp();  // tile_c is full\n",
        "no proxy fence",
    ),
    "other lanes still store": Edit(
        "            __syncwarp();  // tile_c is full\n", "", "data race"
    ),
    "the tile before is still being read": Edit(
        "            if (thread == 0) {\n"
        "                wait_for_tile_reads(0);  // of the tile before\n            }\n",
        "",
        "in flight",
    ),
    "the other lanes do not know that it was read": Edit(
        "            __syncwarp();  // tile_c is free\n", ""
    ),
    "leaves while it is read": Edit(
        "wait_for_tile_reads(0);  // of the last tile", ";", "nothing waits"
    ),
    "not committed": Edit("                commit_tile_stores();\n", "", "nothing waits"),
    "leaves one group": Edit(
        "wait_for_tile_reads(0);  // of the last tile", "wait_for_tile_reads(1);", "nothing waits"
    ),
    "expects the tile of B only": Edit("4 * (BK * BN + BM * BK)", "4 * (BK * BN)"),
    "expects too much": Edit("4 * (BK * BN + BM * BK)", "8 * (BK * BN + BM * BK)", "deadlock"),
    "rows and columns exchanged": Edit("map_b, n, k,", "map_b, k, n,"),
    "B is read as it were not swizzled": Edit("(n / 4 ^ k % 8)", "(n / 4)"),
    "A is read with the pattern of 64 bytes": Edit("(k / 4 ^ m / 4 % 2)", "(k / 4 ^ m / 2 % 2)"),
    "not aligned as TMA wants it": Edit("__align__(1024)", "__align__(16)", "misaligned"),
    "not aligned as the swizzle is": Edit("__align__(1024)", "__align__(128)"),
    "not fenced": Edit("        mbarrier_fence_init();\n", "", "not fenced"),
    "lanes still read": Edit("                __syncwarp();  // all have read\n", "", "data race"),
    "loads may be under way when they are copied over": Edit(
        "                fence_before_bulk_copies();\n", "", "stored or loaded"
    ),
    "copies over what is still read": Edit(
        "                mbarrier_wait(empty + stage, (k_tile / STAGES & 1) ^ 1);\n", ""
    ),
    "does not wait for the tiles": Edit(
        "                mbarrier_wait(full + stage, k_tile / STAGES & 1);\n", "", "in flight"
    ),
}

PROBLEM = Problem(20, 100, 36)
SMEM_BYTES = 4 * (2 * (8 * 32 + 8 * 8) + 2 * 8 * 32)

TILES = Kernel(
    TEXT,
    PROBLEM,
    LaunchPlan(
        (Launch("gemm_kernel", (2, 3, 1), (64, 1, 1), SMEM_BYTES),),
        tensor_maps=(
            TensorMap("map_a", "A", Element.F32, (36, 20), 36, (8, 8), 32),
            TensorMap("map_b", "B", Element.F32, (100, 36), 100, (32, 8), 128),
            TensorMap("map_c", "C", Element.F32, (100, 20), 100, (32, 8)),
        ),
    ),
    RIGHT,
    WRONG,
    ("mbarrier", "tensor_map_copy"),
)

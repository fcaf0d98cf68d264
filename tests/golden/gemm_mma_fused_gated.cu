// autogemm, family gemm_mma: BM=128 BN=128 BK=32 WM=64 WN=32 STAGES=4 REG_STAGES=2 SWIZZLE=1
// MMA_K=16 GROUP_M=8 MIN_BLOCKS=1

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on tensor cores, row-major.
// A and B bf16, C bf16, accumulators FP32.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 8
//   B: aligned to 16 bytes, ldb a multiple of 8
//   C: aligned to 4 bytes, ldc a multiple of 2

// The bits of a bf16.
using Element = unsigned short;
using Result = unsigned short;

// Tile of C owned by one thread block, depth of one k tile, tile owned by one warp.
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 32;
constexpr int WM = 64;
constexpr int WN = 32;
constexpr int WARPS_N = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * WARPS_N;

// Tensor cores multiply tiles of 16 x 8.
constexpr int TILES_M = WM / 16;
// Those of the first columns of the product, behind them as many of the second columns.
constexpr int TILES_N = 2 * (WN / 8);

// Elements move in vectors of 16 bytes; one load of fragments takes two vectors along k.
constexpr int VECTOR = 16 / (int)sizeof(Element);
constexpr int STEP = 2 * VECTOR;
constexpr int STEPS = BK / STEP;

// K tiles lie in shared memory as they are stored: rows of vectors, PITCH vectors apart.
constexpr int ROWS_A = BM;
constexpr int ROWS_B = BN;
constexpr int VECTORS_A = BK / VECTOR;
constexpr int VECTORS_B = BK / VECTOR;
constexpr int PITCH_A = VECTORS_A;
constexpr int PITCH_B = VECTORS_B;
constexpr int K_TILE_A = ROWS_A * PITCH_A * VECTOR;
// Two k tiles of B, of the first columns and of the second ones; half of the threads copy each.
constexpr int K_TILE_B = ROWS_B * PITCH_B * VECTOR;
constexpr int COPIERS_B = THREADS / 2;
static_assert(THREADS % VECTORS_A == 0 && COPIERS_B % VECTORS_B == 0, "a pass copies whole rows");
static_assert(ROWS_A * VECTORS_A % THREADS == 0 && ROWS_B * VECTORS_B % COPIERS_B == 0,
              "whole passes cover a k tile");

// Stages: k tiles in shared memory at a time, STAGES - 1 in flight or landed, one being read.
constexpr int STAGES = 4;
constexpr int STAGE = K_TILE_A + 2 * K_TILE_B;
constexpr int MAX_PENDING_COPIES = STAGES - 2;
static_assert(MAX_PENDING_COPIES >= 0, "a pipeline has two stages or more");

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// d += a * b on tensor cores: a is 16 x 16, b 16 x 8, d 16 x 8, as the lanes of a warp hold them
// (PTX ISA, mma.m16n8k16).
__device__ __forceinline__ void mma_bf16_k16(float (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of 16-bit elements from shared memory; lane i has the address of a row, and
// gets two neighbours of row i / 4 of each.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const void* row) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_matrices(unsigned (&first)[2], unsigned (&second)[2],
                                              const void* row) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(first[0]), "=r"(first[1]), "=r"(second[0]), "=r"(second[1])
                 : "r"(address));
}

// Rounded to nearest.
__device__ __forceinline__ unsigned short bf16_from_float(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Starts copying 16 bytes from global to shared memory.
__device__ __forceinline__ void copy_async_16(float* shared, const float* global) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global));
#else  // built for an older GPU: copied at once
    for (int i = 0; i < 4; ++i) {
        shared[i] = global[i];
    }
#endif
}

// Closes the group of copies started since the last call.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// Waits until at most MAX_PENDING_COPIES groups of this thread are still in flight.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(MAX_PENDING_COPIES));
#endif
}
#endif  // AUTOGEMM_EMULATOR

__device__ __forceinline__ float float_from_bf16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

// Where a vector of A's k tile lies, swizzled by row so that joint reads meet different banks.
__device__ __forceinline__ int place_a(int row, int vector) {
    return (row * PITCH_A + (vector ^ (row / 2 % 4))) * VECTOR;
}

// Starts copying a k tile of A to shared memory. `a` points to what this thread copies first.
__device__ __forceinline__ void copy_k_tile_a(Element* shared, const Element* a, int lda) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_A; pass += THREADS / VECTORS_A) {
        const Element* const from = a + (long long)pass * lda;
        Element* const to =
            shared + place_a((int)threadIdx.x / VECTORS_A + pass, (int)threadIdx.x % VECTORS_A);
        copy_async_16(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from));
    }
}

// Where a vector of B's k tile lies, swizzled by row so that joint reads meet different banks.
__device__ __forceinline__ int place_b(int row, int vector) {
    return (row * PITCH_B + (vector ^ (row / 2 % 4))) * VECTOR;
}

// Starts copying a k tile of B to shared memory. `b` points to what this thread copies first.
__device__ __forceinline__ void copy_k_tile_b(Element* shared, const Element* b, int ldb) {
    // Half of the threads copy the k tile of the first columns, the others that of the second.
    const int thread = (int)threadIdx.x % COPIERS_B;
    shared += (int)threadIdx.x / COPIERS_B * K_TILE_B;
    #pragma unroll
    for (int pass = 0; pass < ROWS_B; pass += COPIERS_B / VECTORS_B) {
        const Element* const from = b + (long long)pass * ldb;
        Element* const to = shared + place_b(thread / VECTORS_B + pass, thread % VECTORS_B);
        copy_async_16(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from));
    }
}

// A lane's registers with what a warp reads of a k tile, STEP deep, as tensor cores take it.
struct Fragments {
    unsigned a[TILES_M][4];
    unsigned b[TILES_N][2];
};

__device__ __forceinline__ void load_fragments(const Element* k_tile_a, const Element* k_tile_b,
                                               int step, Fragments& fragments) {
    const int lane = (int)threadIdx.x % 32;
    const int warp_m = (int)threadIdx.x / 32 / WARPS_N * WM;
    const int warp_n = (int)threadIdx.x / 32 % WARPS_N * WN;
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        const int m = warp_m + i * 16 + lane % 16;
        load_matrices(fragments.a[i], k_tile_a + place_a(m, step * 2 + lane / 16));
    }
    #pragma unroll
    for (int j = 0; j < TILES_N; j += 2) {
        // Second columns stand in a k tile of their own, where first ones stand in theirs.
        const int column = warp_n + j % (TILES_N / 2) * 8;
        const Element* const from = k_tile_b + j / (TILES_N / 2) * K_TILE_B;
        const int n = column + lane / 16 * 8 + lane % 8;
        load_matrices(fragments.b[j], fragments.b[j + 1],
                      from + place_b(n, step * 2 + lane / 8 % 2));
    }
}

// accum += the product of two fragments.
__device__ __forceinline__ void multiply_fragments(const Fragments& fragments,
                                                   float (&accum)[TILES_M][TILES_N][4]) {
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            mma_bf16_k16(accum[i][j], fragments.a[i], fragments.b[j]);
        }
    }
}

// A tile of C: its first row and column, where it and its operands begin.
struct Tile {
    int m0, n0;
    const Element *A, *B;
    Result* C;
    // Elements from a first column of the product, as B holds it, to the second one.
    long long to_second;
};

// accum += op(A) * op(B).
__device__ __forceinline__ void multiply_tile(Element* shared, const Tile& tile, int lda, int ldb,
                                              int K, float (&accum)[TILES_M][TILES_N][4]) {
    // What this thread copies first of each k tile; the pointers advance from k tile to k tile.
    const int row_a = (int)threadIdx.x / VECTORS_A;
    const int row_b = (int)threadIdx.x % COPIERS_B / VECTORS_B;
    const int column_a = (int)threadIdx.x % VECTORS_A * VECTOR;
    const int column_b = (int)threadIdx.x % VECTORS_B * VECTOR;
    const Element* A = tile.A + (long long)row_a * lda + column_a;
    const Element* B = tile.B + (long long)row_b * ldb + column_b;
    B += (int)threadIdx.x / COPIERS_B * tile.to_second;
    constexpr int advance_a = BK;
    constexpr int advance_b = BK;
    const int num_k_tiles = (K + BK - 1) / BK;

    // Start: STAGES - 1 k tiles in flight.
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < num_k_tiles) {
            copy_k_tile_a(shared + stage * STAGE, A, lda);
            copy_k_tile_b(shared + stage * STAGE + K_TILE_A, B, ldb);
        }
        A += advance_a;
        B += advance_b;
        commit_copies();
    }
    int read = 0;
    int write = (STAGES - 1) * STAGE;
    Fragments fragments[2];
    wait_for_copies();
    __syncthreads();
    load_fragments(shared, shared + K_TILE_A, 0, fragments[0]);

    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            // Load the k tile STAGES - 1 ahead to the stage that all warps left at the barrier.
            if (step == 0) {
                if (k_tile + STAGES - 1 < num_k_tiles) {
                    copy_k_tile_a(shared + write, A, lda);
                    copy_k_tile_b(shared + write + K_TILE_A, B, ldb);
                }
                A += advance_a;
                B += advance_b;
                commit_copies();
                write = write == (STAGES - 1) * STAGE ? 0 : write + STAGE;
            }
            // Wait: the last fragments of this k tile are in registers, the next one must be here.
            if (step == STEPS - 1) {
                wait_for_copies();
                __syncthreads();
                read = read == (STAGES - 1) * STAGE ? 0 : read + STAGE;
            }
            // Read the next fragments while multiplying these; the last k tile has none.
            if (step < STEPS - 1 || k_tile + 1 < num_k_tiles) {
                load_fragments(shared + read, shared + read + K_TILE_A, (step + 1) % STEPS,
                               fragments[(step + 1) % 2]);
            }
            multiply_fragments(fragments[step % 2], accum);
        }
    }
}

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// 2^x, off by a few units in the last place; results below 2^-126 become zero.
__device__ __forceinline__ float fast_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// 1 / x, off by a few units in the last place; results below 2^-126 become zero.
__device__ __forceinline__ float fast_reciprocal(float x) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}
#endif  // AUTOGEMM_EMULATOR

__device__ __forceinline__ float silu(float x) {
    return x * fast_reciprocal(1.0f + fast_exp2(-1.44269504f * x));
}

// What an element of C is made of beside its accumulator.
struct Epilogue {
    const unsigned short* bias;

    __device__ __forceinline__ bool reads_c() const {
        return false;
    }
};

// C[m][n] = silu(acc[n] + bias[n]) * acc[n + N]
// accum and second are elements of two columns of the product.
__device__ __forceinline__ float epilogue(float accum, float second, float old_c, int m, int n,
                                          const Epilogue& with) {
    const float bias = float_from_bf16(with.bias[n]);
    return silu(accum + bias) * second;
}

// Writes two neighbours of a row of C.
__device__ __forceinline__ void store_two(Result* c, const float* accum, const float* second, int m,
                                          int n, const Epilogue& with) {
    float old_c[2] = {};
    if (with.reads_c()) {
        const unsigned two = *reinterpret_cast<const unsigned*>(c);
        old_c[0] = float_from_bf16((unsigned short)two);
        old_c[1] = float_from_bf16((unsigned short)(two >> 16));
    }
    const unsigned low = bf16_from_float(epilogue(accum[0], second[0], old_c[0], m, n, with));
    const unsigned high = bf16_from_float(epilogue(accum[1], second[1], old_c[1], m, n + 1, with));
    *reinterpret_cast<unsigned*>(c) = low | high << 16;
}

// Writes the tile of C: of each tile of 16 x 8 a lane has two neighbours in two rows.
__device__ __forceinline__ void store_tile(const Tile& tile, int ldc, const Epilogue& with,
                                           const float (&accum)[TILES_M][TILES_N][4]) {
    const int lane = (int)threadIdx.x % 32;
    const int lane_m = (int)threadIdx.x / 32 / WARPS_N * WM + lane / 4;
    const int lane_n = (int)threadIdx.x / 32 % WARPS_N * WN + lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < 2 * TILES_M; ++i) {
        const int m = lane_m + i * 8;
        #pragma unroll
        for (int j = 0; j < TILES_N / 2; ++j) {
            const int n = lane_n + j * 8;
            Result* const c = tile.C + (long long)m * ldc + n;
            const float* const two = &accum[i / 2][j][i % 2 * 2];
            const float* const second = &accum[i / 2][j + TILES_N / 2][i % 2 * 2];
            store_two(c, two, second, tile.m0 + m, tile.n0 + n, with);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                const Result* __restrict__ epilogue_bias) {
    extern __shared__ __align__(128) Element shared[];
    const int blocks_n = (N + BN - 1) / BN;
    const int index = (int)blockIdx.x;
    // Where the tile is: down GROUP_M rows of tiles, then one column on, so that the blocks in
    // flight share rows of A and columns of B in L2.
    constexpr int GROUP_M = 8;
    const int blocks_m = (M + BM - 1) / BM;
    const int first_m = index / (GROUP_M * blocks_n) * GROUP_M;
    const int rows = min(GROUP_M, blocks_m - first_m);
    const int in_group = index % (GROUP_M * blocks_n);
    const int m0 = (first_m + in_group % rows) * BM;
    const int n0 = in_group / rows * BN;
    Tile tile;
    tile.m0 = m0;
    tile.n0 = n0;
    tile.A = A + (long long)m0 * lda;
    tile.B = B + (long long)n0 * ldb;
    tile.to_second = (long long)N * ldb;
    tile.C = C + (long long)m0 * ldc + n0;
    const Epilogue with = {epilogue_bias};
    float accum[TILES_M][TILES_N][4] = {};
    multiply_tile(shared, tile, lda, ldb, K, accum);
    store_tile(tile, ldc, with, accum);
}

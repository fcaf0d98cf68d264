// autogemm, family sgemm_emulated: SPLIT=tf32x3 CHUNK=8 BM=128 BN=128 BK=32 WM=64 WN=32 STAGES=3
// REG_STAGES=1 SWIZZLE=1 GROUP_M=8 MIN_BLOCKS=1

// A batch of such products in one launch. The next one's matrices begin batch_rows_a rows of A,
// batch_rows_b of B and batch_rows_c of C, as stored, behind those of the one before; 0: all share
// the operand.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], row-major, FP32 made of tensor-core
// products of lower precision.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Each number is split into two of TF32, which hold 22 of its 24 bits; of four products the three
// largest are added.
// Tensor cores cut off what they accumulate, so that they do so for CHUNK products only, which are
// then added in FP32. A block that meets a number which cannot be split (infinite, NaN, tiny), or
// a result that is not finite, computes its tile in plain FP32 instead.
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 4
//   B: aligned to 16 bytes, ldb a multiple of 4
//   C: aligned to 8 bytes, ldc a multiple of 2

using Element = float;
using Result = float;

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
constexpr int TILES_N = WN / 8;

// Elements move in vectors of 16 bytes; one load of fragments takes two vectors along k.
constexpr int VECTOR = 16 / (int)sizeof(Element);
constexpr int STEP = 2 * VECTOR;
constexpr int STEPS = BK / STEP;

// K tiles lie in shared memory as they are stored: rows of vectors, PITCH vectors apart.
constexpr int ROWS_A = BM;
constexpr int ROWS_B = BK;
constexpr int VECTORS_A = BK / VECTOR;
constexpr int VECTORS_B = BN / VECTOR;
constexpr int PITCH_A = VECTORS_A;
constexpr int PITCH_B = VECTORS_B;
constexpr int K_TILE_A = ROWS_A * PITCH_A * VECTOR;
static_assert(THREADS % VECTORS_A == 0 && THREADS % VECTORS_B == 0, "a pass copies whole rows");
static_assert(ROWS_A * VECTORS_A % THREADS == 0 && ROWS_B * VECTORS_B % THREADS == 0,
              "whole passes cover a k tile");

// Stages: k tiles in shared memory at a time, STAGES - 1 in flight or landed, one being read.
constexpr int STAGES = 3;
constexpr int STAGE = K_TILE_A + ROWS_B * PITCH_B * VECTOR;
constexpr int MAX_PENDING_COPIES = STAGES - 2;
static_assert(MAX_PENDING_COPIES >= 0, "a pipeline has two stages or more");

// Products that tensor cores add up before they are added in FP32.
constexpr int CHUNK = 8;
static_assert(CHUNK == STEP, "results are added in FP32 after each step");

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// d += a * b on tensor cores: a is 16 x 8, b 8 x 8, d 16 x 8, as the lanes of a warp hold them
// (PTX ISA, mma.m16n8k8).
__device__ __forceinline__ void mma_tf32_k8(float (&d)[4], const unsigned (&a)[4],
                                            const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
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

// Where a vector of A's k tile lies, swizzled by row so that joint reads meet different banks.
__device__ __forceinline__ int place_a(int row, int vector) {
    return (row * PITCH_A + (vector ^ (row % 8))) * VECTOR;
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
    return (row * PITCH_B + (vector ^ (2 * (row % 4)))) * VECTOR;
}

// Starts copying a k tile of B to shared memory. `b` points to what this thread copies first.
__device__ __forceinline__ void copy_k_tile_b(Element* shared, const Element* b, int ldb) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_B; pass += THREADS / VECTORS_B) {
        const Element* const from = b + (long long)pass * ldb;
        Element* const to =
            shared + place_b((int)threadIdx.x / VECTORS_B + pass, (int)threadIdx.x % VECTORS_B);
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
    for (int j = 0; j < TILES_N; j += 1) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int k = step * STEP + lane % 4 + e * 4;
            const int n = warp_n + j * 8 + lane / 4;
            fragments.b[j][e] = __float_as_uint(k_tile_b[place_b(k, n / VECTOR) + n % VECTOR]);
        }
    }
}

// The least size of a number that was split: below 2^-100 its lower part may have too few bits.
struct Hazard {
    // Twice the number's bits less 1: without sign, and the largest of all for zero.
    unsigned least = 0xffffffffu;

    __device__ bool is_there() const {
        return least < 2u * 0x0d800000u - 1u;
    }
};

// number = high + low. High is rounded to nearest, so that low has either sign and what tensor
// cores cut off of it does not add up.
__device__ __forceinline__ void split(unsigned number, unsigned& high, unsigned& low,
                                      Hazard& hazard) {
    hazard.least = min(hazard.least, 2u * number - 1u);
    high = (number + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(__uint_as_float(number) - __uint_as_float(high));
}

// accum += the product of two fragments, the small products first.
__device__ __forceinline__ void multiply_fragments(const Fragments& fragments,
                                                   float (&accum)[TILES_M][TILES_N][4],
                                                   Hazard& hazard) {
    unsigned high_a[TILES_M][4];
    unsigned low_a[TILES_M][4];
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            split(fragments.a[i][e], high_a[i][e], low_a[i][e], hazard);
        }
    }
    #pragma unroll
    for (int j = 0; j < TILES_N; ++j) {
        unsigned high_b[2];
        unsigned low_b[2];
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            split(fragments.b[j][e], high_b[e], low_b[e], hazard);
        }
        float fresh[TILES_M][4] = {};
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            mma_tf32_k8(fresh[i], low_a[i], high_b);
        }
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            mma_tf32_k8(fresh[i], high_a[i], low_b);
        }
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            mma_tf32_k8(fresh[i], high_a[i], high_b);
        }
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                accum[i][j][e] += fresh[i][e];
            }
        }
    }
}

// A tile of C: its first row and column, where it and its operands begin.
struct Tile {
    int m0, n0;
    const Element *A, *B;
    Result* C;
};

// accum += op(A) * op(B).
__device__ __forceinline__ void multiply_tile(Element* shared, const Tile& tile, int lda, int ldb,
                                              int K, float (&accum)[TILES_M][TILES_N][4],
                                              Hazard& hazard) {
    // What this thread copies first of each k tile; the pointers advance from k tile to k tile.
    const int row_a = (int)threadIdx.x / VECTORS_A;
    const int row_b = (int)threadIdx.x / VECTORS_B;
    const int column_a = (int)threadIdx.x % VECTORS_A * VECTOR;
    const int column_b = (int)threadIdx.x % VECTORS_B * VECTOR;
    const Element* A = tile.A + (long long)row_a * lda + column_a;
    const Element* B = tile.B + (long long)row_b * ldb + column_b;
    constexpr int advance_a = BK;
    const long long advance_b = (long long)BK * ldb;
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
    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        // Wait: this k tile is here, and all warps have left the stage that is loaded next.
        wait_for_copies();
        __syncthreads();
        // Load the k tile STAGES - 1 ahead.
        if (k_tile + STAGES - 1 < num_k_tiles) {
            copy_k_tile_a(shared + write, A, lda);
            copy_k_tile_b(shared + write + K_TILE_A, B, ldb);
        }
        A += advance_a;
        B += advance_b;
        commit_copies();
        write = write == (STAGES - 1) * STAGE ? 0 : write + STAGE;
        // Compute.
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            Fragments fragments;
            load_fragments(shared + read, shared + read + K_TILE_A, step, fragments);
            multiply_fragments(fragments, accum, hazard);
        }
        read = read == (STAGES - 1) * STAGE ? 0 : read + STAGE;
    }
}

// What an element of C is made of beside its accumulator.
struct Epilogue {
    float alpha;
    float beta;

    // With beta = 0 the old C is never read: it may hold anything.
    __device__ __forceinline__ bool reads_c() const {
        return beta != 0.0f;
    }
};

// C[m][n] from its accumulator, and from what C held (ignored where beta = 0).
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    return with.beta == 0.0f ? with.alpha * accum : fmaf(with.alpha, accum, with.beta * old_c);
}

// Writes one element of C.
__device__ __forceinline__ void store_one(Result* c, float accum, int m, int n,
                                          const Epilogue& with) {
    *c = epilogue(accum, with.reads_c() ? *c : 0.0f, m, n, with);
}

// Writes two neighbours of a row of C.
__device__ __forceinline__ void store_two(Result* c, const float* accum, int m, int n,
                                          const Epilogue& with) {
    float2 old_c = make_float2(0.0f, 0.0f);
    if (with.reads_c()) {
        old_c = *reinterpret_cast<const float2*>(c);
    }
    *reinterpret_cast<float2*>(c) = make_float2(epilogue(accum[0], old_c.x, m, n, with),
                                                epilogue(accum[1], old_c.y, m, n + 1, with));
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
        for (int j = 0; j < TILES_N; ++j) {
            const int n = lane_n + j * 8;
            Result* const c = tile.C + (long long)m * ldc + n;
            const float* const two = &accum[i / 2][j][i % 2 * 2];
            store_two(c, two, tile.m0 + m, tile.n0 + n, with);
        }
    }
}

// Whether all accumulators are finite.
__device__ __forceinline__ bool are_finite(const float (&accum)[TILES_M][TILES_N][4]) {
    bool all = true;
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                all = all && fabsf(accum[i][j][e]) <= 3.402823466e38f;
            }
        }
    }
    return all;
}

// The tile of C once more, in plain FP32: slow, and right whatever the numbers are.
__device__ __noinline__ void store_tile_in_fp32(const Tile& tile, int lda, int ldb, int ldc, int K,
                                                Epilogue with) {
    for (int at = (int)threadIdx.x; at < BM * BN; at += THREADS) {
        const int m = at / BN;
        const int n = at % BN;
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) {
            sum = fmaf(tile.A[(long long)m * lda + k], tile.B[(long long)k * ldb + n], sum);
        }
        store_one(tile.C + (long long)m * ldc + n, sum, tile.m0 + m, tile.n0 + n, with);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                int batch, int batch_rows_a, int batch_rows_b, int batch_rows_c) {
    // The product of this block, and where its matrices begin.
    const int product = (int)blockIdx.z;
    A += (long long)product * batch_rows_a * lda;
    B += (long long)product * batch_rows_b * ldb;
    C += (long long)product * batch_rows_c * ldc;
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
    tile.B = B + n0;
    tile.C = C + (long long)m0 * ldc + n0;
    const Epilogue with = {alpha, beta};
    float accum[TILES_M][TILES_N][4] = {};
    Hazard hazard;
    multiply_tile(shared, tile, lda, ldb, K, accum, hazard);
    if (__syncthreads_or(hazard.is_there() || !are_finite(accum))) {
        store_tile_in_fp32(tile, lda, ldb, ldc, K, with);
    } else {
        store_tile(tile, ldc, with, accum);
    }
}

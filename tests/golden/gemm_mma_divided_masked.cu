// autogemm, family gemm_mma: BM=128 BN=128 BK=32 WM=64 WN=64 STAGES=1 REG_STAGES=1 SWIZZLE=1
// MMA_K=8 GROUP_M=8 MIN_BLOCKS=1

// Rows of A and B, as stored, belong to groups: each has K / groups of them, of which the
// first counts[g] are multiplied.
// Each group has a product and a C of its own, one behind the other.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on tensor cores, row-major.
// A and B f16, C f16, accumulators FP32.
// Layout tn: op(A) = A^T, A stored [K,M]; op(B) = B, B stored [K,N].
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: any
//   A: aligned to 16 bytes, lda a multiple of 8
//   B: aligned to 16 bytes, ldb a multiple of 8
//   C: aligned to 4 bytes, ldc a multiple of 2

// The bits of a f16.
using Element = unsigned short;
using Result = unsigned short;

// Tile of C owned by one thread block, depth of one k tile, tile owned by one warp.
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 32;
constexpr int WM = 64;
constexpr int WN = 64;
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
constexpr int ROWS_A = BK;
constexpr int ROWS_B = BK;
constexpr int VECTORS_A = BM / VECTOR;
constexpr int VECTORS_B = BN / VECTOR;
constexpr int PITCH_A = VECTORS_A;
constexpr int PITCH_B = VECTORS_B;
constexpr int K_TILE_A = ROWS_A * PITCH_A * VECTOR;
static_assert(THREADS % VECTORS_A == 0 && THREADS % VECTORS_B == 0, "a pass copies whole rows");
static_assert(ROWS_A * VECTORS_A % THREADS == 0 && ROWS_B * VECTORS_B % THREADS == 0,
              "whole passes cover a k tile");
// Vectors of a k tile that one thread carries from global to shared memory.
constexpr int LOADS_A = ROWS_A * VECTORS_A / THREADS;
constexpr int LOADS_B = ROWS_B * VECTORS_B / THREADS;

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// d += a * b on tensor cores: a is 16 x 16, b 16 x 8, d 16 x 8, as the lanes of a warp hold them
// (PTX ISA, mma.m16n8k8): two instructions, half of the depth each.
__device__ __forceinline__ void mma_f16_k8_twice(float (&d)[4], const unsigned (&a)[4],
                                                 const unsigned (&b)[2]) {
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{ %0, %1, %2, %3 }, { %4, %5 }, { %6 }, { %0, %1, %2, %3 };"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
}

// Four 8 x 8 matrices of 16-bit elements from shared memory; lane i has the address of a row, and
// gets two neighbours of row i / 4 of each transposed matrix.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], const void* row) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_transposed(unsigned (&first)[2], unsigned (&second)[2],
                                                const void* row) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(first[0]), "=r"(first[1]), "=r"(second[0]), "=r"(second[1])
                 : "r"(address));
}

__device__ __forceinline__ float float_from_f16(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Rounded to nearest.
__device__ __forceinline__ unsigned short f16_from_float(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif  // AUTOGEMM_EMULATOR

// Where a vector of A's k tile lies, swizzled by row so that joint reads meet different banks.
__device__ __forceinline__ int place_a(int row, int vector) {
    return (row * PITCH_A + (vector ^ (row % 8))) * VECTOR;
}

// Loads a vector of A from global memory; elements past the edges become zero.
__device__ __forceinline__ uint4 load_vector_a(const Element* from, int num_valid) {
    if (num_valid == VECTOR) {
        return *reinterpret_cast<const uint4*>(from);
    }
    __align__(16) Element elements[VECTOR];
    #pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
        elements[i] = i < num_valid ? from[i] : Element(0);
    }
    return *reinterpret_cast<const uint4*>(elements);
}

// Loads this thread's vectors of a k tile of A from global memory; elements past the edges become
// zero.
__device__ __forceinline__ void load_k_tile_a(uint4 (&vectors)[LOADS_A], const Element* a, int lda,
                                              int k_left) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_A; pass += THREADS / VECTORS_A) {
        const Element* const from = a + (long long)pass * lda;
        const int num_valid = pass < k_left ? VECTOR : 0;
        vectors[pass / (THREADS / VECTORS_A)] = load_vector_a(from, num_valid);
    }
}

__device__ __forceinline__ void store_k_tile_a(Element* shared, const uint4 (&vectors)[LOADS_A]) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_A; pass += THREADS / VECTORS_A) {
        Element* const to =
            shared + place_a((int)threadIdx.x / VECTORS_A + pass, (int)threadIdx.x % VECTORS_A);
        *reinterpret_cast<uint4*>(to) = vectors[pass / (THREADS / VECTORS_A)];
    }
}

// Where a vector of B's k tile lies, swizzled by row so that joint reads meet different banks.
__device__ __forceinline__ int place_b(int row, int vector) {
    return (row * PITCH_B + (vector ^ (row % 8))) * VECTOR;
}

// Loads a vector of B from global memory; elements past the edges become zero.
__device__ __forceinline__ uint4 load_vector_b(const Element* from, int num_valid) {
    if (num_valid == VECTOR) {
        return *reinterpret_cast<const uint4*>(from);
    }
    __align__(16) Element elements[VECTOR];
    #pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
        elements[i] = i < num_valid ? from[i] : Element(0);
    }
    return *reinterpret_cast<const uint4*>(elements);
}

// Loads this thread's vectors of a k tile of B from global memory; elements past the edges become
// zero.
__device__ __forceinline__ void load_k_tile_b(uint4 (&vectors)[LOADS_B], const Element* b, int ldb,
                                              int k_left) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_B; pass += THREADS / VECTORS_B) {
        const Element* const from = b + (long long)pass * ldb;
        const int num_valid = pass < k_left ? VECTOR : 0;
        vectors[pass / (THREADS / VECTORS_B)] = load_vector_b(from, num_valid);
    }
}

__device__ __forceinline__ void store_k_tile_b(Element* shared, const uint4 (&vectors)[LOADS_B]) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_B; pass += THREADS / VECTORS_B) {
        Element* const to =
            shared + place_b((int)threadIdx.x / VECTORS_B + pass, (int)threadIdx.x % VECTORS_B);
        *reinterpret_cast<uint4*>(to) = vectors[pass / (THREADS / VECTORS_B)];
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
        const int k = step * STEP + lane / 16 * 8 + lane % 8;
        const int vector = warp_m / VECTOR + i * 2 + lane / 8 % 2;
        load_transposed(fragments.a[i], k_tile_a + place_a(k, vector));
    }
    #pragma unroll
    for (int j = 0; j < TILES_N; j += 2) {
        const int k = step * STEP + lane % 16;
        const int vector = warp_n / VECTOR + j + lane / 16;
        load_transposed(fragments.b[j], fragments.b[j + 1], k_tile_b + place_b(k, vector));
    }
}

// accum += the product of two fragments.
__device__ __forceinline__ void multiply_fragments(const Fragments& fragments,
                                                   float (&accum)[TILES_M][TILES_N][4]) {
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            mma_f16_k8_twice(accum[i][j], fragments.a[i], fragments.b[j]);
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
                                              int K, float (&accum)[TILES_M][TILES_N][4]) {
    // What this thread copies first of each k tile; the pointers advance from k tile to k tile.
    const int row_a = (int)threadIdx.x / VECTORS_A;
    const int row_b = (int)threadIdx.x / VECTORS_B;
    const int column_a = (int)threadIdx.x % VECTORS_A * VECTOR;
    const int column_b = (int)threadIdx.x % VECTORS_B * VECTOR;
    const Element* A = tile.A + (long long)row_a * lda + column_a;
    const Element* B = tile.B + (long long)row_b * ldb + column_b;
    const long long advance_a = (long long)BK * lda;
    const long long advance_b = (long long)BK * ldb;
    const int copy_ka = row_a;
    const int copy_kb = row_b;
    int k0 = 0;
    const int num_k_tiles = (K + BK - 1) / BK;
    uint4 vectors_a[LOADS_A];
    uint4 vectors_b[LOADS_B];
    load_k_tile_a(vectors_a, A, lda, K - k0 - copy_ka);
    load_k_tile_b(vectors_b, B, ldb, K - k0 - copy_kb);
    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        // Store, once all warps have left the k tile before.
        __syncthreads();
        store_k_tile_a(shared, vectors_a);
        store_k_tile_b(shared + K_TILE_A, vectors_b);
        __syncthreads();
        // Load the next k tile into registers; it arrives while this one is multiplied.
        if (k_tile + 1 < num_k_tiles) {
            A += advance_a;
            B += advance_b;
            k0 += BK;
            load_k_tile_a(vectors_a, A, lda, K - k0 - copy_ka);
            load_k_tile_b(vectors_b, B, ldb, K - k0 - copy_kb);
        }
        // Compute.
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            Fragments fragments;
            load_fragments(shared, shared + K_TILE_A, step, fragments);
            multiply_fragments(fragments, accum);
        }
    }
}

// What an element of C is made of beside its accumulator.
struct Epilogue {
    const unsigned short* scale;

    __device__ __forceinline__ bool reads_c() const {
        return true;
    }
};

// C[m][n] = acc * scale[m] + c[m, n]
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    const float scale = float_from_f16(with.scale[m]);
    return accum * scale + old_c;
}

// Writes two neighbours of a row of C.
__device__ __forceinline__ void store_two(Result* c, const float* accum, int m, int n,
                                          const Epilogue& with) {
    float old_c[2] = {};
    if (with.reads_c()) {
        const unsigned two = *reinterpret_cast<const unsigned*>(c);
        old_c[0] = float_from_f16((unsigned short)two);
        old_c[1] = float_from_f16((unsigned short)(two >> 16));
    }
    const unsigned low = f16_from_float(epilogue(accum[0], old_c[0], m, n, with));
    const unsigned high = f16_from_float(epilogue(accum[1], old_c[1], m, n + 1, with));
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
        for (int j = 0; j < TILES_N; ++j) {
            const int n = lane_n + j * 8;
            Result* const c = tile.C + (long long)m * ldc + n;
            const float* const two = &accum[i / 2][j][i % 2 * 2];
            store_two(c, two, tile.m0 + m, tile.n0 + n, with);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                int groups, const int* __restrict__ counts,
                const Result* __restrict__ epilogue_scale) {
    // The group of this block: K becomes the number of its rows of A and B, as stored.
    const int group = (int)blockIdx.z;
    const int first_k = group * (K / groups);
    K = counts[group];
    A += (long long)first_k * lda;
    B += (long long)first_k * ldb;
    C += (long long)group * M * ldc;
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
    tile.A = A + m0;
    tile.B = B + n0;
    tile.C = C + (long long)m0 * ldc + n0;
    const Epilogue with = {epilogue_scale};
    float accum[TILES_M][TILES_N][4] = {};
    // A group without rows has nothing to load.
    if (K > 0) {
        multiply_tile(shared, tile, lda, ldb, K, accum);
    }
    store_tile(tile, ldc, with, accum);
}

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on tensor cores, row-major.
// A and B f16, C f16, sums in FP32.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 8
//   B: aligned to 16 bytes, ldb a multiple of 8
//   C: aligned to 4 bytes, ldc a multiple of 2

// The bits of a f16.
using Element = unsigned short;
using Result = unsigned short;

// Tile of C owned by one thread block, depth of one shared-memory slab, tile owned by one warp.
constexpr int BM = 128;
constexpr int BN = 64;
constexpr int BK = 32;
constexpr int WM = 64;
constexpr int WN = 32;
constexpr int WARPS_N = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * WARPS_N;

// Tensor cores multiply tiles of 16 x 8.
constexpr int TILES_M = WM / 16;
constexpr int TILES_N = WN / 8;

// Elements move in pieces of 16 bytes; one load of fragments takes two pieces along k.
constexpr int PIECE = 16 / (int)sizeof(Element);
constexpr int STEP = 2 * PIECE;
constexpr int STEPS = BK / STEP;

// Slabs lie in shared memory as they are stored: rows of pieces, PITCH pieces apart.
constexpr int ROWS_A = BM;
constexpr int ROWS_B = BK;
constexpr int PIECES_A = BK / PIECE;
constexpr int PIECES_B = BN / PIECE;
constexpr int PITCH_A = PIECES_A;
constexpr int PITCH_B = PIECES_B;
constexpr int SLAB_A = ROWS_A * PITCH_A * PIECE;
static_assert(THREADS % PIECES_A == 0 && THREADS % PIECES_B == 0, "a pass copies whole rows");
static_assert(ROWS_A * PIECES_A % THREADS == 0 && ROWS_B * PIECES_B % THREADS == 0,
              "whole passes cover a slab");
// Pieces of a slab that one thread carries from global to shared memory.
constexpr int SHARE_A = ROWS_A * PIECES_A / THREADS;
constexpr int SHARE_B = ROWS_B * PIECES_B / THREADS;

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
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

#endif  // AUTOGEMM_EMULATOR

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
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

// Where a piece of A's slab lies: rows are turned so that joint reads meet different banks.
__device__ __forceinline__ int place_a(int row, int piece) {
    return (row * PITCH_A + (piece ^ (row / 2 % 4))) * PIECE;
}

// A piece of A from global memory.
__device__ __forceinline__ uint4 fetch_piece_a(const Element* from) {
    return *reinterpret_cast<const uint4*>(from);
}

// This thread's share of a slab of A, from global memory.
__device__ __forceinline__ void fetch_slab_a(uint4 (&share)[SHARE_A], const Element* a, int lda) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_A; pass += THREADS / PIECES_A) {
        const Element* const from = a + (long long)pass * lda;
        share[pass / (THREADS / PIECES_A)] = fetch_piece_a(from);
    }
}

__device__ __forceinline__ void store_slab_a(Element* shared, const uint4 (&share)[SHARE_A]) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_A; pass += THREADS / PIECES_A) {
        Element* const to =
            shared + place_a((int)threadIdx.x / PIECES_A + pass, (int)threadIdx.x % PIECES_A);
        *reinterpret_cast<uint4*>(to) = share[pass / (THREADS / PIECES_A)];
    }
}

// Where a piece of B's slab lies: rows are turned so that joint reads meet different banks.
__device__ __forceinline__ int place_b(int row, int piece) {
    return (row * PITCH_B + (piece ^ (row % 8))) * PIECE;
}

// A piece of B from global memory.
__device__ __forceinline__ uint4 fetch_piece_b(const Element* from) {
    return *reinterpret_cast<const uint4*>(from);
}

// This thread's share of a slab of B, from global memory.
__device__ __forceinline__ void fetch_slab_b(uint4 (&share)[SHARE_B], const Element* b, int ldb) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_B; pass += THREADS / PIECES_B) {
        const Element* const from = b + (long long)pass * ldb;
        share[pass / (THREADS / PIECES_B)] = fetch_piece_b(from);
    }
}

__device__ __forceinline__ void store_slab_b(Element* shared, const uint4 (&share)[SHARE_B]) {
    #pragma unroll
    for (int pass = 0; pass < ROWS_B; pass += THREADS / PIECES_B) {
        Element* const to =
            shared + place_b((int)threadIdx.x / PIECES_B + pass, (int)threadIdx.x % PIECES_B);
        *reinterpret_cast<uint4*>(to) = share[pass / (THREADS / PIECES_B)];
    }
}

// What a warp reads of a slab STEP deep, as the tensor cores want it: a lane's registers.
struct Fragments {
    unsigned a[TILES_M][4];
    unsigned b[TILES_N][2];
};

__device__ __forceinline__ void load_fragments(const Element* slab_a, const Element* slab_b,
                                               int step, Fragments& fragments) {
    const int lane = (int)threadIdx.x % 32;
    const int warp_m = (int)threadIdx.x / 32 / WARPS_N * WM;
    const int warp_n = (int)threadIdx.x / 32 % WARPS_N * WN;
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        const int m = warp_m + i * 16 + lane % 16;
        load_matrices(fragments.a[i], slab_a + place_a(m, step * 2 + lane / 16));
    }
    #pragma unroll
    for (int j = 0; j < TILES_N; j += 2) {
        const int k = step * STEP + lane % 16;
        const int piece = warp_n / PIECE + j + lane / 16;
        load_transposed(fragments.b[j], fragments.b[j + 1], slab_b + place_b(k, piece));
    }
}

// sums += the product of two fragments.
__device__ __forceinline__ void multiply_fragments(const Fragments& fragments,
                                                   float (&sums)[TILES_M][TILES_N][4]) {
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            mma_f16_k8_twice(sums[i][j], fragments.a[i], fragments.b[j]);
        }
    }
}

// One tile of C: where it and what it is computed from begin.
struct Tile {
    const Element *A, *B;
    Result* C;
};

// sums += op(A) * op(B).
__device__ __forceinline__ void multiply_tile(Element* shared, const Tile& tile, int lda, int ldb,
                                              int K, float (&sums)[TILES_M][TILES_N][4]) {
    // What this thread copies first of each slab; the pointers advance from slab to slab.
    const int row_a = (int)threadIdx.x / PIECES_A;
    const int row_b = (int)threadIdx.x / PIECES_B;
    const int column_a = (int)threadIdx.x % PIECES_A * PIECE;
    const int column_b = (int)threadIdx.x % PIECES_B * PIECE;
    const Element* A = tile.A + (long long)row_a * lda + column_a;
    const Element* B = tile.B + (long long)row_b * ldb + column_b;
    constexpr int advance_a = BK;
    const long long advance_b = (long long)BK * ldb;
    const int num_slabs = (K + BK - 1) / BK;
    uint4 share_a[SHARE_A];
    uint4 share_b[SHARE_B];
    fetch_slab_a(share_a, A, lda);
    fetch_slab_b(share_b, B, ldb);
    for (int slab = 0; slab < num_slabs; ++slab) {
        // Store, once everybody has left the slab before.
        __syncthreads();
        store_slab_a(shared, share_a);
        store_slab_b(shared + SLAB_A, share_b);
        __syncthreads();
        // Load the next slab into registers; it arrives while this one is multiplied.
        if (slab + 1 < num_slabs) {
            A += advance_a;
            B += advance_b;
            fetch_slab_a(share_a, A, lda);
            fetch_slab_b(share_b, B, ldb);
        }
        // Compute.
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            Fragments fragments;
            load_fragments(shared, shared + SLAB_A, step, fragments);
            multiply_fragments(fragments, sums);
        }
    }
}

// One element: c = alpha * sum + beta * c. beta = 0 never reads C.
__device__ __forceinline__ void store_one(Result* c, float sum, float alpha, float beta) {
    const float result = beta == 0.0f ? alpha * sum : fmaf(alpha, sum, beta * float_from_f16(*c));
    *c = f16_from_float(result);
}

// Two neighbours of a row.
__device__ __forceinline__ void store_two(Result* c, const float* sums, float alpha, float beta) {
    float results[2] = {alpha * sums[0], alpha * sums[1]};
    if (beta != 0.0f) {
        const unsigned old = *reinterpret_cast<const unsigned*>(c);
        results[0] = fmaf(alpha, sums[0], beta * float_from_f16((unsigned short)old));
        results[1] = fmaf(alpha, sums[1], beta * float_from_f16((unsigned short)(old >> 16)));
    }
    *reinterpret_cast<unsigned*>(c) =
        f16_from_float(results[0]) | (unsigned)f16_from_float(results[1]) << 16;
}

// The tile of C from its sums: of each tile of 16 x 8 a lane has two neighbours in two rows.
__device__ __forceinline__ void store_tile(const Tile& tile, int ldc, float alpha, float beta,
                                           const float (&sums)[TILES_M][TILES_N][4]) {
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
            const float* const two = &sums[i / 2][j][i % 2 * 2];
            store_two(c, two, alpha, beta);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C,
                int ldc) {
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
    tile.A = A + (long long)m0 * lda;
    tile.B = B + n0;
    tile.C = C + (long long)m0 * ldc + n0;
    float sums[TILES_M][TILES_N][4] = {};
    multiply_tile(shared, tile, lda, ldb, K, sums);
    store_tile(tile, ldc, alpha, beta, sums);
}

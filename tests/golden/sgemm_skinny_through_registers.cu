// autogemm, family sgemm_skinny: BM=32 BN=32 BK=128 TM=8 TN=4 SLICE_K=16 SPLIT_K=1 STAGES=1
// CHAIN_K=0 MIN_BLOCKS=1

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout tt: op(A) = A^T, A stored [K,M]; op(B) = B^T, B stored [N,K].
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 4
//   B: aligned to 16 bytes, ldb a multiple of 4
//   C: aligned to 16 bytes, ldc a multiple of 4
//
// For few rows. Each warp has its own slice of every k_tile: it alone copies it to shared memory
// and multiplies it, so that the loop has no barrier. In the end the accumulators of the warps
// are added in fixed order.

// Tile of C owned by one thread block, and the depth of one k_tile.
constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 128;
constexpr int TILE = BM * BN;

// Part of the tile owned by one lane of each warp.
constexpr int TM = 8;
constexpr int TN = 4;
constexpr int LANES_M = BM / TM;
constexpr int LANES_N = BN / TN;
static_assert(LANES_M * LANES_N == 32, "the lanes of a warp cover the tile once");

// Warps of a block; each multiplies its DEPTH of a k_tile.
constexpr int SLICE_K = 16;
constexpr int DEPTH = BK / SLICE_K;
constexpr int THREADS = 32 * SLICE_K;

// Neighbouring rows and columns of a lane: vectors where a slice has them side by side, else one
// at a time. The vectors of the lanes interleave.
constexpr int VEC_M = 4;
constexpr int VEC_N = 1;

// A slice is kept as it is stored: A as [k][m], B as [n][k]. Floats from one row to the next.
constexpr int STRIDE_A = BM;
constexpr int STRIDE_B = DEPTH + 4;
constexpr int SLICE_A = DEPTH * STRIDE_A;
constexpr int SLICE = SLICE_A + BN * STRIDE_B;

// One slice of a warp in shared memory; the next is in registers.
constexpr int PIPELINE = SLICE;

// Floats per access to global memory. The lanes of a warp stand LANES side by side along a stored
// row, and cover ROWS stored rows in one pass.
constexpr int VEC_A = 4;
constexpr int VEC_B = 4;
constexpr int VEC_C = 4;
constexpr int LANES_A = 8;
constexpr int LANES_B = 2;
constexpr int ROWS_A = 32 / LANES_A;
constexpr int ROWS_B = 32 / LANES_B;
static_assert(DEPTH % ROWS_A == 0 && BN % ROWS_B == 0, "whole passes cover a slice");
// Floats of a slice that one lane carries from global to shared memory.
constexpr int CARRIED_A = BM * DEPTH / 32;
constexpr int CARRIED_B = BN * DEPTH / 32;
using VectorA = float4;
using VectorB = float4;
using VectorC = float4;

__device__ __forceinline__ void unpack(float4 from, float* to) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
}

__device__ __forceinline__ void pack(const float* from, float4& to) {
    to = make_float4(from[0], from[1], from[2], from[3]);
}

// Loads the floats of this lane from the slice of op(A).
// `a` points to what it loads first.
__device__ __forceinline__ void load_slice_a(float* regs, const float* a, int lda) {
    #pragma unroll
    for (int k = 0; k < DEPTH; k += ROWS_A) {
        #pragma unroll
        for (int m = 0; m < BM; m += LANES_A * VEC_A) {
            const float* source = a + (long long)k * lda + m;
            unpack(*reinterpret_cast<const VectorA*>(source), regs);
            regs += VEC_A;
        }
    }
}

// Stores what load_slice_a loaded to shared memory.
__device__ __forceinline__ void store_slice_a(float* shared, const float* regs) {
    #pragma unroll
    for (int k = 0; k < DEPTH; k += ROWS_A) {
        #pragma unroll
        for (int m = 0; m < BM; m += LANES_A * VEC_A) {
            pack(regs, *reinterpret_cast<VectorA*>(shared + k * STRIDE_A + m));
            regs += VEC_A;
        }
    }
}

// Loads the floats of this lane from the slice of op(B).
// `b` points to what it loads first.
__device__ __forceinline__ void load_slice_b(float* regs, const float* b, int ldb) {
    #pragma unroll
    for (int n = 0; n < BN; n += ROWS_B) {
        #pragma unroll
        for (int k = 0; k < DEPTH; k += LANES_B * VEC_B) {
            const float* source = b + (long long)n * ldb + k;
            unpack(*reinterpret_cast<const VectorB*>(source), regs);
            regs += VEC_B;
        }
    }
}

// Stores what load_slice_b loaded to shared memory.
__device__ __forceinline__ void store_slice_b(float* shared, const float* regs) {
    #pragma unroll
    for (int n = 0; n < BN; n += ROWS_B) {
        #pragma unroll
        for (int k = 0; k < DEPTH; k += LANES_B * VEC_B) {
            pack(regs, *reinterpret_cast<VectorB*>(shared + n * STRIDE_B + k));
            regs += VEC_B;
        }
    }
}

// accum += the product of one slice. The pointers are to this lane's first row and column.
__device__ __forceinline__ void multiply_slice(const float* shared_a, const float* shared_b,
                                               float (&accum)[TM][TN]) {
    #pragma unroll
    for (int k = 0; k < DEPTH; k += 4) {
        // Four k's of B.
        float frag_b[4][TN];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            float vector[4];
            unpack(*reinterpret_cast<const float4*>(shared_b + j * LANES_N * STRIDE_B + k), vector);
            #pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                frag_b[kk][j] = vector[kk];
            }
        }
        // Each step takes one k and four rows of A.
        #pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
            #pragma unroll
            for (int i0 = 0; i0 < TM; i0 += 4) {
                float frag_a[4];
                const float* vector = shared_a + (k + kk) * STRIDE_A + i0 * LANES_M;
                unpack(*reinterpret_cast<const float4*>(vector), frag_a);
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        accum[i0 + i][j] = fmaf(frag_a[i], frag_b[kk][j], accum[i0 + i][j]);
                    }
                }
            }
        }
    }
}

// The tile's floats are dealt out to the threads of the block in vectors of four: a thread owns
// those at owned(0), at owned(1) and so on, as far as they lie below TILE.
constexpr int VECTORS = (TILE + 4 * THREADS - 1) / (4 * THREADS);
__device__ __forceinline__ int owned(int vector) {
    return 4 * (vector * THREADS + (int)threadIdx.x);
}

// totals += four floats.
__device__ __forceinline__ void add(float4 from, float (&totals)[4]) {
    totals[0] += from.x;
    totals[1] += from.y;
    totals[2] += from.z;
    totals[3] += from.w;
}

// Adds up `count` tiles in shared memory, as far as this thread owns their floats.
__device__ __forceinline__ void add_tiles(const float* shared, int count,
                                          float (&totals)[VECTORS][4]) {
    #pragma unroll
    for (int vector = 0; vector < VECTORS; ++vector) {
        float sum[4] = {};
        if (owned(vector) < TILE) {
            #pragma unroll
            for (int tile = 0; tile < count; ++tile) {
                const float* place = shared + tile * TILE + owned(vector);
                add(*reinterpret_cast<const float4*>(place), sum);
            }
        }
        pack(sum, *reinterpret_cast<float4*>(totals[vector]));
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

// A tile of C: its first element and where in C that is, and how much of C there is from there on.
struct Tile {
    float* C;
    int m0, n0, rows, columns;
};

// All of C as one tile, whose rows and columns are those of C.
__device__ __forceinline__ Tile whole_c(float* C, int M, int N) {
    return {C, 0, 0, M, N};
}

// Stores VEC_C neighbours, from C[m][n] on, to which c points.
__device__ __forceinline__ void store_whole_vector(float* c, int m, int n, const float* accum,
                                                   const Epilogue& with) {
    float result[VEC_C] = {};
    if (with.beta != 0.0f) {
        unpack(*reinterpret_cast<const VectorC*>(c), result);
    }
    #pragma unroll
    for (int e = 0; e < VEC_C; ++e) {
        result[e] = epilogue(accum[e], result[e], m, n + e, with);
    }
    pack(result, *reinterpret_cast<VectorC*>(c));
}

// Stores VEC_C neighbours of the tile's row m, from its column n on.
__device__ __forceinline__ void store_vector(const Tile& tile, int ldc, int m, int n,
                                             const float* accum, const Epilogue& with) {
    float* const c = tile.C + (long long)m * ldc + n;
    store_whole_vector(c, tile.m0 + m, tile.n0 + n, accum, with);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc) {
    extern __shared__ __align__(16) float shared[];

    // Which tile of C.
    const int tiles_m = (M + BM - 1) / BM;
    const int tile_idx = (int)blockIdx.x;
    const int m0 = tile_idx % tiles_m * BM;
    const int n0 = tile_idx / tiles_m * BN;

    // Which k_tiles of K, and which slice of each.
    const int thread = (int)threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int num_k_tiles = (K + BK - 1) / BK;
    constexpr int first_k_tile = 0;
    const int end_k_tile = num_k_tiles;
    const int first_k = first_k_tile * BK + warp * DEPTH;
    float* const pipeline = shared + warp * PIPELINE;

    // Where this lane's part of the tile begins.
    // Lanes in 2x2 neighbours: a 128-bit read of either fragment takes two wavefronts.
    const int lane_m = lane / (2 * LANES_N) * 2 + lane / 2 % 2;
    const int lane_n = lane / 4 % (LANES_N / 2) * 2 + lane % 2;
    const int lane_row = lane_m * VEC_M;
    const int lane_column = lane_n * VEC_N;

    // What this lane copies first of each slice; the pointers advance from k_tile to k_tile.
    const int copy_m = lane % LANES_A * VEC_A;
    const int copy_ka = lane / LANES_A;
    A += (long long)(first_k + copy_ka) * lda + m0 + copy_m;
    const long long advance_a = (long long)BK * lda;
    float* const copy_to_a = pipeline + copy_ka * STRIDE_A + copy_m;
    const int copy_n = lane / LANES_B;
    const int copy_kb = lane % LANES_B * VEC_B;
    B += (long long)(n0 + copy_n) * ldb + first_k + copy_kb;
    constexpr int advance_b = BK;
    float* const copy_to_b = pipeline + SLICE_A + copy_n * STRIDE_B + copy_kb;
    const float* const read_from_a = pipeline + lane_row;
    const float* const read_from_b = pipeline + SLICE_A + lane_column * STRIDE_B;

    float accum[TM][TN] = {};
    float from_a[CARRIED_A];
    float from_b[CARRIED_B];
    int k_tile = first_k_tile;
    if (k_tile < end_k_tile) {
        load_slice_a(from_a, A, lda);
        load_slice_b(from_b, B, ldb);
    }
    while (k_tile < end_k_tile) {
        // Store, once no lane reads the slice before.
        __syncwarp();
        store_slice_a(copy_to_a, from_a);
        store_slice_b(copy_to_b, from_b);
        __syncwarp();
        // Load the next slice into registers; it arrives while this one is multiplied.
        ++k_tile;
        if (k_tile < end_k_tile) {
            A += advance_a;
            B += advance_b;
            load_slice_a(from_a, A, lda);
            load_slice_b(from_b, B, ldb);
        }
        // Compute.
        multiply_slice(read_from_a, read_from_b, accum);
    }

    // Add up the warps: each puts its tile into shared memory, then each thread adds what it owns.
    __syncthreads();
    float* const warp_tile = shared + warp * TILE + lane_row * BN + lane_column;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; j += VEC_N) {
            const int row = i / VEC_M * VEC_M * LANES_M + i % VEC_M;
            float* place = warp_tile + row * BN + j * LANES_N;
            *place = accum[i][j];
        }
    }
    __syncthreads();
    float totals[VECTORS][4];
    add_tiles(shared, SLICE_K, totals);

    // Store.
    const Epilogue with = {alpha, beta};
    #pragma unroll
    for (int vector = 0; vector < VECTORS; ++vector) {
        const int m = m0 + owned(vector) / BN;
        if (owned(vector) >= TILE) {
            break;
        }
        #pragma unroll
        for (int j = 0; j < 4; j += VEC_C) {
            const int n = n0 + owned(vector) % BN + j;
            store_vector(whole_c(C, M, N), ldc, m, n, &totals[vector][j], with);
        }
    }
}

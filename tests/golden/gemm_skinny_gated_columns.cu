// autogemm, family gemm_skinny: BM=16 BN=64 BK=256 WN=64 SLICE_K=4 SPLIT_K=1 STAGES=1 PREFETCH_A=0
// L2_PREFETCH=128 MIN_BLOCKS=1

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on tensor cores, row-major.
// A and B bf16, C f32, accumulators FP32.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for:
//   M: any, N: multiples of 8, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 8
//   B: aligned to 16 bytes, ldb a multiple of 8
//   C: any leading dimension; accessed element by element
//
// For few rows: B is read once, from global memory straight into the registers that an instruction
// multiplies, and all that matters is how many of its bytes are on their way at once. The 16 rows
// of an instruction are columns of C. Each warp has its own slice of every k_tile; in the end the
// accumulators of the warps are added in fixed order.

// The bits of a bf16.
using Element = unsigned short;
using Result = float;

// Tile of C owned by one thread block, and the depth of one k_tile.
constexpr int BM = 16;
constexpr int BN = 64;
constexpr int BK = 256;
// Floats of a block: two for each element of C.
constexpr int TILE = 2 * BM * BN;

// Columns of one warp, which has all rows of the tile; warps side by side read the same of A.
constexpr int WN = 64;
constexpr int WARPS_N = BN / WN;
constexpr int TILES_M = BM / 8;
constexpr int TILES_N = WN / 16;

// Warps that share their columns: each multiplies its DEPTH of a k_tile, in steps of 32.
constexpr int SLICE_K = 4;
constexpr int DEPTH = BK / SLICE_K;
constexpr int STEPS = DEPTH / 32;
constexpr int THREADS = 32 * WARPS_N * SLICE_K;

// Slices of a warp that are on their way, in registers; what a lane holds of one: of each 32 k's
// eight neighbours in rows of A, and in as many rows of B its columns, two in a word.
constexpr int STAGES = 1;
using SliceA = unsigned[STEPS][TILES_M][4];
using SliceB = unsigned[STEPS][8][TILES_N];

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

// Loads 16 bytes, aligned to as many, that stay out of the L1 cache; L2 gets 128 bytes around them.
__device__ __forceinline__ void load_streamed_16(const void* from, unsigned (&to)[4]) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}
#endif  // AUTOGEMM_EMULATOR

__device__ __forceinline__ void unpack(float4 from, float* to) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
}

__device__ __forceinline__ void pack(const float* from, float4& to) {
    to = make_float4(from[0], from[1], from[2], from[3]);
}

// Loads 16 bytes that the other warps of the SM read, too.
__device__ __forceinline__ void load_cached_16(const void* from, unsigned (&to)[4]) {
    const uint4 vector = __ldg(reinterpret_cast<const uint4*>(from));
    to[0] = vector.x;
    to[1] = vector.y;
    to[2] = vector.z;
    to[3] = vector.w;
}

// Loads this lane's fragments of a slice of A, whose first k is `k`.
__device__ __forceinline__ void load_slice_a(const Element* const (&rows)[TILES_M], int k,
                                             SliceA& fragments) {
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        #pragma unroll
        for (int row = 0; row < TILES_M; ++row) {
            load_cached_16(rows[row] + k + step * 32, fragments[step][row]);
        }
    }
}

// Loads this lane's columns of a slice of B, whose first k is `k`.
__device__ __forceinline__ void load_slice_b(const Element* B, int k, int ldb, SliceB& rows) {
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        #pragma unroll
        for (int row = 0; row < 8; ++row) {
            const Element* const from = B + (long long)(k + step * 32 + row) * ldb;
            load_streamed_16(from, rows[step][row]);
        }
    }
}

// accum += the products of a slice. Each half of a lane's eight k's is one instruction's depth.
__device__ __forceinline__ void multiply_slice(const SliceA& a, const SliceB& b,
                                               float (&accum)[TILES_N][TILES_M][4]) {
    #pragma unroll
    for (int half = 0; half < 2 * STEPS; ++half) {
        const int step = half / 2;
        const int word = half % 2 * 2;
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            // The rows of four k's: a word has two columns of one k, and is to have two k's of one
            // column, the even ones of which come from the lower halves.
            unsigned columns[4];
            #pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                const unsigned first = b[step][2 * (word + pair)][j];
                const unsigned second = b[step][2 * (word + pair) + 1][j];
                columns[2 * pair] = __byte_perm(first, second, 0x5410);
                columns[2 * pair + 1] = __byte_perm(first, second, 0x7632);
            }
            #pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
                const unsigned rows[2] = {a[step][i][word], a[step][i][word + 1]};
                mma_bf16_k16(accum[j][i], columns, rows);
            }
        }
    }
}

// A tile lies by groups of eight rows of C: all columns of the first eight rows, eight floats each,
// then those of the next; so far the first columns of the product, behind them the second ones. Its
// floats are dealt out to the threads of the block in vectors of four: a thread owns those at
// owned(0), at owned(1) and so on, as far as they lie below TILE, and both columns of an element.
constexpr int ELEMENTS = BM * BN;
constexpr int VECTORS_OF_C = (ELEMENTS + 4 * THREADS - 1) / (4 * THREADS);
constexpr int VECTORS = 2 * VECTORS_OF_C;
__device__ __forceinline__ int owned(int vector) {
    const int place = 4 * (vector % VECTORS_OF_C * THREADS + (int)threadIdx.x);
    return place < ELEMENTS ? vector / VECTORS_OF_C * ELEMENTS + place : TILE;
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

__device__ __forceinline__ float sigmoid(float x) {
    return fast_reciprocal(1.0f + fast_exp2(-1.44269504f * x));
}

// What an element of C is made of beside its accumulator.
struct Epilogue {
    __device__ __forceinline__ bool reads_c() const {
        return false;
    }
};

// C[m][n] = acc[n] * sigmoid(acc[n + N])
// accum and second are elements of two columns of the product.
__device__ __forceinline__ float epilogue(float accum, float second, float old_c, int m, int n,
                                          const Epilogue& with) {
    return accum * sigmoid(second);
}

// Writes one element of C.
__device__ __forceinline__ void store_one(Result* c, float accum, float second, int m, int n,
                                          const Epilogue& with) {
    *c = epilogue(accum, second, with.reads_c() ? *c : 0.0f, m, n, with);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C,
                int ldc) {
    extern __shared__ __align__(16) float shared[];

    // Which tile of C.
    const int m0 = (int)blockIdx.y * BM;
    const int n0 = (int)blockIdx.x * BN;

    // Which k_tiles of K, and which k's of each: four lanes share a row.
    const int thread = (int)threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int num_k_tiles = K / BK;
    constexpr int first_k_tile = 0;
    const int end_k_tile = num_k_tiles;
    const int lane_k = warp / WARPS_N * DEPTH + lane % 4 * 8;

    // Which columns of the tile, and which rows of A. Those past the edges are the last one: what
    // is made of them is not stored.
    const int warp_n = warp % WARPS_N * WN;
    const Element* rows_a[TILES_M];
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        const int m = min(m0 + i * 8 + lane / 4, M - 1);
        rows_a[i] = A + (long long)m * lda;
    }
    B += min(n0 + warp_n + lane / 4 * (2 * TILES_N), N - 2 * TILES_N);
    const Element* const second_b = B + N;

    // Start: all stages on their way.
    SliceA a[1];
    SliceB b[STAGES], second[STAGES];
    #pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
        if (first_k_tile + stage < end_k_tile) {
            const int k = (first_k_tile + stage) * BK + lane_k;
            load_slice_b(B, k, ldb, b[stage]);
            load_slice_b(second_b, k, ldb, second[stage]);
        }
    }
    float accum[TILES_N][TILES_M][4] = {};
    float second_accum[TILES_N][TILES_M][4] = {};

    // Compute the slice that came first, and load another in its stead.
    for (int k_tile = first_k_tile; k_tile < end_k_tile; k_tile += STAGES) {
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            if (k_tile + stage < end_k_tile) {
                const int k = (k_tile + stage) * BK + lane_k;
                load_slice_a(rows_a, k, a[0]);
                multiply_slice(a[0], b[stage], accum);
                multiply_slice(a[0], second[stage], second_accum);
                if (k_tile + stage + STAGES < end_k_tile) {
                    load_slice_b(B, k + STAGES * BK, ldb, b[stage]);
                    load_slice_b(second_b, k + STAGES * BK, ldb, second[stage]);
                }
            }
        }
    }

    // Add up the warps: each puts its tile into shared memory, then each thread adds what it owns.
    float* const warp_tile = shared + warp / WARPS_N * TILE + warp_n * 8 + lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        #pragma unroll
        for (int j = 0; j < 2 * TILES_N; ++j) {
            const int column = lane / 4 * (2 * TILES_N) + j;
            *reinterpret_cast<float2*>(warp_tile + (i * BN + column) * 8) =
                make_float2(accum[j / 2][i][j % 2 * 2], accum[j / 2][i][j % 2 * 2 + 1]);
            const float* const two = &second_accum[j / 2][i][j % 2 * 2];
            *reinterpret_cast<float2*>(warp_tile + ELEMENTS + (i * BN + column) * 8) =
                make_float2(two[0], two[1]);
        }
    }
    __syncthreads();
    float totals[VECTORS][4];
    add_tiles(shared, SLICE_K, totals);

    // Store.
    const Epilogue with = {};
    #pragma unroll
    for (int vector = 0; vector < VECTORS_OF_C; ++vector) {
        const int column = owned(vector) / 8;
        const int n = n0 + column % BN;
        if (owned(vector) >= TILE || n >= N) {
            continue;
        }
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int m = m0 + column / BN * 8 + owned(vector) % 8 + e;
            if (m < M) {
                const float total = totals[vector][e];
                const float second_total = totals[vector + VECTORS_OF_C][e];
                store_one(C + (long long)m * ldc + n, total, second_total, m, n, with);
            }
        }
    }
}

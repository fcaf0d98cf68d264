// autogemm, family gemm_skinny: BM=8 BN=16 BK=512 WN=16 SLICE_K=8 SPLIT_K=2 PARTIALS=workspace
// STAGES=1 PREFETCH_A=1 L2_PREFETCH=128 MIN_BLOCKS=2

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on tensor cores, row-major.
// A and B bf16, C bf16, accumulators FP32.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
//
// Valid for:
//   M: any, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 8
//   B: aligned to 16 bytes, ldb a multiple of 8
//   C: any leading dimension; accessed element by element
//
// For few rows: B is read once, from global memory straight into the registers that an instruction
// multiplies, and all that matters is how many of its bytes are on their way at once. The 16 rows
// of an instruction are columns of C. Each warp has its own slice of every k_tile; in the end the
// accumulators of the warps, then those of the blocks that share a tile, are added in fixed order.

// The bits of a bf16.
using Element = unsigned short;
using Result = unsigned short;

// Tile of C owned by one thread block, and the depth of one k_tile.
constexpr int BM = 8;
constexpr int BN = 16;
constexpr int BK = 512;
// Floats of a block: two for each element of C.
constexpr int TILE = 2 * BM * BN;

// Columns of one warp, which has all rows of the tile; warps side by side read the same of A.
constexpr int WN = 16;
constexpr int WARPS_N = BN / WN;
constexpr int TILES_M = BM / 8;
constexpr int TILES_N = WN / 16;

// Warps that share their columns: each multiplies its DEPTH of a k_tile, in steps of 32.
constexpr int SLICE_K = 8;
constexpr int DEPTH = BK / SLICE_K;
constexpr int STEPS = DEPTH / 32;
constexpr int THREADS = 32 * WARPS_N * SLICE_K;

// Slices of a warp that are on their way, in registers; what a lane holds of one: of each 32 k's
// eight neighbours.
constexpr int STAGES = 1;
using SliceA = unsigned[STEPS][TILES_M][4];
using SliceB = unsigned[STEPS][2 * TILES_N][4];

// Blocks that share a tile of C, each with a range of k; a block adds up FAN_IN partial sums at a
// time.
constexpr int SPLIT_K = 2;
constexpr int FAN_IN = 2;
// Threads that add up the same floats, each of some partial sums.
constexpr int ADDERS = 4;
static_assert(ADDERS * TILE == 4 * THREADS, "every thread adds up four floats");

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

// Rounded to nearest.
__device__ __forceinline__ unsigned short bf16_from_float(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Adds with acquire and release: what this thread stored, or was ordered behind by a barrier of its
// block, is seen by threads that find it counted; what threads counted before stored is seen here.
__device__ __forceinline__ unsigned atomic_add_acq_rel(unsigned* counter, unsigned value) {
    unsigned before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(value)
                 : "memory");
    return before;
}
#endif  // AUTOGEMM_EMULATOR

__device__ __forceinline__ float float_from_bf16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

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

// Loads this lane's fragments of a slice of B, whose first k is `k`.
__device__ __forceinline__ void load_slice_b(const Element* const (&rows)[2 * TILES_N], int k,
                                             SliceB& fragments) {
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        #pragma unroll
        for (int row = 0; row < 2 * TILES_N; ++row) {
            load_streamed_16(rows[row] + k + step * 32, fragments[step][row]);
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
            const unsigned columns[4] = {b[step][2 * j][word], b[step][2 * j + 1][word],
                                         b[step][2 * j][word + 1], b[step][2 * j + 1][word + 1]};
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

__device__ __forceinline__ float silu(float x) {
    return x * fast_reciprocal(1.0f + fast_exp2(-1.44269504f * x));
}

// What an element of C is made of beside its accumulator.
struct Epilogue {
    __device__ __forceinline__ bool reads_c() const {
        return false;
    }
};

// C[m][n] = silu(acc[n]) * acc[n + N]
// accum and second are elements of two columns of the product.
__device__ __forceinline__ float epilogue(float accum, float second, float old_c, int m, int n,
                                          const Epilogue& with) {
    return silu(accum) * second;
}

// Writes one element of C.
__device__ __forceinline__ void store_one(Result* c, float accum, float second, int m, int n,
                                          const Epilogue& with) {
    const float old_c = with.reads_c() ? float_from_bf16(*c) : 0.0f;
    *c = bf16_from_float(epilogue(accum, second, old_c, m, n, with));
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                float* workspace) {
    extern __shared__ __align__(16) float shared[];

    // Which tile of C, and which range of K.
    const int m0 = (int)blockIdx.y * BM;
    const int n0 = (int)blockIdx.x * BN;
    const int num_tiles = (int)(gridDim.x * gridDim.y);
    const int tile_idx = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    const int partial = (int)blockIdx.z;

    // Which k_tiles of K, and which k's of each: four lanes share a row.
    const int thread = (int)threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int num_k_tiles = K / BK;
    const int first_k_tile = (int)((long long)num_k_tiles * partial / SPLIT_K);
    const int end_k_tile = (int)((long long)num_k_tiles * (partial + 1) / SPLIT_K);
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
    const Element* rows_b[2 * TILES_N];
    #pragma unroll
    for (int j = 0; j < 2 * TILES_N; ++j) {
        const int n = n0 + warp_n + j * 8 + lane / 4;
        rows_b[j] = B + (long long)n * ldb;
    }
    const Element* second_rows[2 * TILES_N];
    #pragma unroll
    for (int j = 0; j < 2 * TILES_N; ++j) {
        second_rows[j] = rows_b[j] + (long long)N * ldb;
    }

    // Start: all stages on their way.
    SliceA a[STAGES];
    SliceB b[STAGES], second[STAGES];
    #pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
        if (first_k_tile + stage < end_k_tile) {
            const int k = (first_k_tile + stage) * BK + lane_k;
            load_slice_b(rows_b, k, b[stage]);
            load_slice_b(second_rows, k, second[stage]);
            load_slice_a(rows_a, k, a[stage]);
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
                multiply_slice(a[stage], b[stage], accum);
                multiply_slice(a[stage], second[stage], second_accum);
                if (k_tile + stage + STAGES < end_k_tile) {
                    load_slice_b(rows_b, k + STAGES * BK, b[stage]);
                    load_slice_b(second_rows, k + STAGES * BK, second[stage]);
                    load_slice_a(rows_a, k + STAGES * BK, a[stage]);
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
            const int column = j * 8 + lane / 4;
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

    // Add up the partial sums, level by level: FAN_IN neighbours form a group, and the block of the
    // group that arrives last adds up all of it, always in the same order. The result replaces the
    // group's first partial sum and joins the next level, whose members lie `stride` apart.
    float* const partials = workspace + (long long)tile_idx * SPLIT_K * TILE;
    unsigned* const counters =
        reinterpret_cast<unsigned*>(workspace + (long long)num_tiles * SPLIT_K * TILE) +
        tile_idx * SPLIT_K;
    int first = partial;
    for (int stride = 1; stride < SPLIT_K; stride *= FAN_IN) {
        float* const own = partials + first * TILE;
        first = first / (stride * FAN_IN) * (stride * FAN_IN);
        const int members = min((SPLIT_K - first + stride - 1) / stride, FAN_IN);
        if (members == 1) {
            continue;
        }
        // Publish.
        #pragma unroll
        for (int vector = 0; vector < VECTORS; ++vector) {
            if (owned(vector) < TILE) {
                const float* from = totals[vector];
                __stcg(reinterpret_cast<float4*>(own + owned(vector)),
                       make_float4(from[0], from[1], from[2], from[3]));
            }
        }
        __syncthreads();
        // Arrive, at the counter that belongs to the group's second partial sum: no two groups, of
        // whatever level, have the same one.
        unsigned* const counter = counters + first + stride;
        bool is_last = false;
        if (thread == 0) {
            is_last = atomic_add_acq_rel(counter, 1) == members - 1u;
        }
        if (!__syncthreads_or(is_last)) {
            return;
        }
        // Add. Missing members are read as the last one and left out, so that no read waits for a
        // comparison.
        const int quad = thread % (TILE / 4) * 4;
        const int adder = thread / (TILE / 4);
        float sum[4] = {};
        #pragma unroll
        for (int first_member = 0; first_member < FAN_IN; first_member += ADDERS) {
            const int member = first_member + adder;
            const float* place = partials + (first + min(member, members - 1) * stride) * TILE;
            const float4 given = __ldcg(reinterpret_cast<const float4*>(place + quad));
            if (member < members) {
                add(given, sum);
            }
        }
        pack(sum, *reinterpret_cast<float4*>(shared + adder * TILE + quad));
        __syncthreads();
        add_tiles(shared, ADDERS, totals);
        // Leave the counter as it was found.
        if (thread == 0) {
            *counter = 0;
        }
    }

    // Store.
    const Epilogue with = {};
    #pragma unroll
    for (int vector = 0; vector < VECTORS_OF_C; ++vector) {
        const int column = owned(vector) / 8;
        const int n = n0 + column % BN;
        if (owned(vector) >= TILE) {
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

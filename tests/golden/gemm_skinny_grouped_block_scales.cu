// autogemm, family gemm_skinny: BM=8 BN=64 BK=256 WN=64 SLICE_K=4 SPLIT_K=1 STAGES=1 PREFETCH_A=0
// L2_PREFETCH=128 MIN_BLOCKS=1

// Rows of A and C belong to groups: offsets[g] is the first of group g, offsets[g + 1] the one
// behind its last. Each group has a B of its own, one behind the other. Rows of no group are left
// as they are.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on tensor cores, row-major.
// A and B e4m3, C bf16, accumulators FP32.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
//
// Valid for:
//   M: any, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 16
//   B: aligned to 16 bytes, ldb a multiple of 16
//   C: any leading dimension; accessed element by element
//
// For few rows: B is read once, from global memory straight into the registers that an instruction
// multiplies, and all that matters is how many of its bytes are on their way at once. The 16 rows
// of an instruction are columns of C. Each warp has its own slice of every k_tile; in the end the
// accumulators of the warps are added in fixed order.

// The bits of an e4m3.
using Element = unsigned char;
using Result = unsigned short;

// Tile of C owned by one thread block, and the depth of one k_tile.
constexpr int BM = 8;
constexpr int BN = 64;
constexpr int BK = 256;
constexpr int TILE = BM * BN;

// Columns of one warp, which has all rows of the tile; warps side by side read the same of A.
constexpr int WN = 64;
constexpr int WARPS_N = BN / WN;
constexpr int TILES_M = BM / 8;
constexpr int TILES_N = WN / 16;

// Warps that share their columns: each multiplies its DEPTH of a k_tile, in steps of 64.
constexpr int SLICE_K = 4;
constexpr int DEPTH = BK / SLICE_K;
constexpr int STEPS = DEPTH / 64;
constexpr int THREADS = 32 * WARPS_N * SLICE_K;

// Slices of a warp that are on their way, in registers; what a lane holds of one: of each 64 k's
// sixteen neighbours.
constexpr int STAGES = 1;
using SliceA = unsigned[STEPS][TILES_M][4];
using SliceB = unsigned[STEPS][2 * TILES_N][4];

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// d += a * b on tensor cores: a is 16 x 16, b 16 x 8, d 16 x 8, as the lanes of a warp hold them
// (PTX ISA, mma.m16n8k16).
__device__ __forceinline__ void mma_f16_k16(float (&d)[4], const unsigned (&a)[4],
                                            const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four e4m3 of a word as two words of two f16 each: every e4m3 is an f16, too.
__device__ __forceinline__ void half_pairs_from_e4m3(unsigned four, unsigned& first,
                                                     unsigned& second) {
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 { low, high }, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}"
        : "=r"(first), "=r"(second)
        : "r"(four));
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
            load_cached_16(rows[row] + k + step * 64, fragments[step][row]);
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
            load_streamed_16(rows[row] + k + step * 64, fragments[step][row]);
        }
    }
}

// Blocks along k, 128 deep, of which a slice has a part or some, and a block's steps in a slice.
constexpr int BLOCKS_K = DEPTH < 128 ? 1 : DEPTH / 128;
constexpr int BLOCK_STEPS = STEPS / BLOCKS_K;

// Scales of a slice's blocks: of the warp's columns, all of which lie in one block of 128, and of
// the tile's rows, each of which a lane has for all lanes.
constexpr int ROWS_OF_LANE = (BM + 31) / 32;
struct Scales {
    float a[BLOCKS_K][ROWS_OF_LANE];
    float b[BLOCKS_K];
};

// accum += the products of a block of a slice, whose first step is `first`. Each of the four words
// that a lane has of a row is one instruction's depth.
__device__ __forceinline__ void multiply_steps(const SliceA& a, const SliceB& b, int first,
                                               float (&accum)[TILES_N][TILES_M][4]) {
    #pragma unroll
    for (int quarter = 0; quarter < 4 * BLOCK_STEPS; ++quarter) {
        const int step = first + quarter / 4;
        const int word = quarter % 4;
        unsigned rows[TILES_M][2];
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            half_pairs_from_e4m3(a[step][i][word], rows[i][0], rows[i][1]);
        }
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            unsigned columns[4];
            half_pairs_from_e4m3(b[step][2 * j][word], columns[0], columns[2]);
            half_pairs_from_e4m3(b[step][2 * j + 1][word], columns[1], columns[3]);
            #pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
                mma_f16_k16(accum[j][i], columns, rows[i]);
            }
        }
    }
}

// accum += the products of a slice, each sum of a block times the block's scales.
__device__ __forceinline__ void multiply_slice(const SliceA& a, const SliceB& b,
                                               const Scales& scales,
                                               float (&accum)[TILES_N][TILES_M][4]) {
    const int row = (int)threadIdx.x % 4 * 2;
    #pragma unroll
    for (int block = 0; block < BLOCKS_K; ++block) {
        float partial[TILES_N][TILES_M][4] = {};
        multiply_steps(a, b, block * BLOCK_STEPS, partial);
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            // Of the lane's two rows of C.
            const float own = scales.a[block][i / 4] * scales.b[block];
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float scale = __shfl_sync(0xffffffffu, own, i % 4 * 8 + row + e);
                #pragma unroll
                for (int j = 0; j < TILES_N; ++j) {
                    accum[j][i][e] = fmaf(partial[j][i][e], scale, accum[j][i][e]);
                    accum[j][i][e + 2] = fmaf(partial[j][i][e + 2], scale, accum[j][i][e + 2]);
                }
            }
        }
    }
}

// A tile lies by groups of eight rows of C: all columns of the first eight rows, eight floats each,
// then those of the next. Its floats are dealt out to the threads of the block in vectors of four:
// a thread owns those at owned(0), at owned(1) and so on, as far as they lie below TILE.
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
    const float* sa;
    const float* sb;

    __device__ __forceinline__ bool reads_c() const {
        return false;
    }
};

// C[m][n] = acc * sa[k / 128, m] * sb[g, n / 128, k / 128]
// accum is a sum of products of blocks times their scales.
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    return accum;
}

// All scales of a warp's tile, of which a lane has row m and those 32 apart, and whose first column
// is n: sa[k / 128, m] for each row of A, sb[g, n / 128, k / 128] for each 128 rows of B. Outside
// of A and B they are those of the last row and block.
struct BlockScales {
    const Epilogue& with;
    int M, K;
    int m, n;
    // Rows of A of all groups, and blocks of rows of B of the groups before.
    int all_m, blocks_before;

    // Those of a slice with the lane's first k.
    __device__ __forceinline__ Scales load(int k) const {
        const int num_blocks = (K + 127) / 128;
        Scales scales;
        #pragma unroll
        for (int at = 0; at < BLOCKS_K; ++at) {
            const int block = min(k / 128 + at, num_blocks - 1);
            #pragma unroll
            for (int i = 0; i < ROWS_OF_LANE; ++i) {
                const int row = min(m + i * 32, M - 1);
                scales.a[at][i] = with.sa[(long long)block * all_m + row];
            }
            const long long block_b = blocks_before + n / 128;
            scales.b[at] = with.sb[block_b * num_blocks + block];
        }
        return scales;
    }
};

// Writes one element of C.
__device__ __forceinline__ void store_one(Result* c, float accum, int m, int n,
                                          const Epilogue& with) {
    const float old_c = with.reads_c() ? float_from_bf16(*c) : 0.0f;
    *c = bf16_from_float(epilogue(accum, old_c, m, n, with));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                int groups, const int* __restrict__ offsets, const float* __restrict__ epilogue_sa,
                const float* __restrict__ epilogue_sb) {
    extern __shared__ __align__(16) float shared[];

    // Which tile of C.
    const int all_m = M;
    // The group of this block's row of tiles. Groups are dealt out to the lanes of a warp, none to
    // the last; a lane counts the rows of tiles of its groups. There are as many blocks as there
    // may be tiles, so that some have none.
    int index = (int)blockIdx.y;
    const int own = (int)threadIdx.x % 32;
    const int groups_of_lane = groups / 31 + 1;
    int group = own * groups_of_lane;
    const int end_group = min(group + groups_of_lane, groups);
    int tiles = 0;
    int m0 = offsets[min(group, groups)];
    for (; group < end_group; ++group) {
        M = offsets[group + 1];
        tiles += (M - m0 + BM - 1) / BM;
        m0 = M;
    }
    int through = tiles;
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int others = __shfl_up_sync(0xffffffffu, through, step);
        through += own >= step ? others : 0;
    }
    // The last lane with no more tiles before its groups has the tile's; lane 31 has no groups.
    const int lane_of_group = __popc(__ballot_sync(0xffffffffu, through - tiles <= index)) - 1;
    group = lane_of_group * groups_of_lane;
    if (group >= groups) {
        return;
    }
    index -= __shfl_sync(0xffffffffu, through - tiles, lane_of_group);
    m0 = offsets[group];
    M = offsets[group + 1];
    while (index >= (M - m0 + BM - 1) / BM) {
        index -= (M - m0 + BM - 1) / BM;
        group += 1;
        m0 = M;
        M = offsets[group + 1];
    }
    m0 += index * BM;
    B += (long long)group * N * ldb;
    const int n0 = (int)blockIdx.x * BN;

    // Which k_tiles of K, and which k's of each: four lanes share a row.
    const int thread = (int)threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int num_k_tiles = K / BK;
    constexpr int first_k_tile = 0;
    const int end_k_tile = num_k_tiles;
    const int lane_k = warp / WARPS_N * DEPTH + lane % 4 * 16;

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

    // Scales of the warp's rows and columns, a row of them or two for each lane.
    const Epilogue with = {epilogue_sa, epilogue_sb};
    const int lane_m = m0 + lane % BM;
    const int blocks_before = group * ((N + 127) / 128);
    const int warp_first_n = min(n0 + warp_n, N - 1);
    const BlockScales block_scales = {with, M, K, lane_m, warp_first_n, all_m, blocks_before};
    Scales scales[STAGES];

    // Start: all stages on their way.
    SliceA a[1];
    SliceB b[STAGES];
    #pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
        if (first_k_tile + stage < end_k_tile) {
            const int k = (first_k_tile + stage) * BK + lane_k;
            load_slice_b(rows_b, k, b[stage]);
            scales[stage] = block_scales.load(k);
        }
    }
    float accum[TILES_N][TILES_M][4] = {};

    // Compute the slice that came first, and load another in its stead.
    for (int k_tile = first_k_tile; k_tile < end_k_tile; k_tile += STAGES) {
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            if (k_tile + stage < end_k_tile) {
                const int k = (k_tile + stage) * BK + lane_k;
                load_slice_a(rows_a, k, a[0]);
                multiply_slice(a[0], b[stage], scales[stage], accum);
                if (k_tile + stage + STAGES < end_k_tile) {
                    load_slice_b(rows_b, k + STAGES * BK, b[stage]);
                    scales[stage] = block_scales.load(k + STAGES * BK);
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
        }
    }
    __syncthreads();
    float totals[VECTORS][4];
    add_tiles(shared, SLICE_K, totals);

    // Store.
    #pragma unroll
    for (int vector = 0; vector < VECTORS; ++vector) {
        const int column = owned(vector) / 8;
        const int n = n0 + column % BN;
        if (owned(vector) >= TILE) {
            continue;
        }
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int m = m0 + column / BN * 8 + owned(vector) % 8 + e;
            if (m < M) {
                store_one(C + (long long)m * ldc + n, totals[vector][e], m, n, with);
            }
        }
    }
}

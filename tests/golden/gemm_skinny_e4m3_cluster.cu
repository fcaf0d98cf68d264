// autogemm, family gemm_skinny: BM=16 BN=16 BK=1792 WN=16 SLICE_K=7 SPLIT_K=2 PARTIALS=cluster
// STAGES=1 PREFETCH_A=1 L2_PREFETCH=128 MIN_BLOCKS=1 PDL=early L2_AHEAD=1

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
// accumulators of the warps, then those of the blocks that share a tile, are added in fixed order.

// The bits of an e4m3.
using Element = unsigned char;
using Result = unsigned short;

// Tile of C owned by one thread block, and the depth of one k_tile.
constexpr int BM = 16;
constexpr int BN = 16;
constexpr int BK = 1792;
constexpr int TILE = BM * BN;

// Columns of one warp, which has all rows of the tile; warps side by side read the same of A.
constexpr int WN = 16;
constexpr int WARPS_N = BN / WN;
constexpr int TILES_M = BM / 8;
constexpr int TILES_N = WN / 16;

// Warps that share their columns: each multiplies its DEPTH of a k_tile, in steps of 64.
constexpr int SLICE_K = 7;
constexpr int DEPTH = BK / SLICE_K;
constexpr int STEPS = DEPTH / 64;
constexpr int THREADS = 32 * WARPS_N * SLICE_K;

// Slices of a warp that are on their way, in registers; what a lane holds of one: of each 64 k's
// sixteen neighbours.
constexpr int STAGES = 1;
using SliceA = unsigned[STEPS][TILES_M][4];
using SliceB = unsigned[STEPS][2 * TILES_N][4];

// Blocks of a cluster that share a tile of C, each with a range of k.
constexpr int SPLIT_K = 2;

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

// Lets the next kernel of the stream begin, if it may overlap this one, once all blocks were here.
__device__ __forceinline__ void let_next_kernel_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernels before have ended, and what they wrote is seen. Nothing to wait for where
// this kernel was launched without overlap.
__device__ __forceinline__ void wait_for_kernels_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Asks L2 for 128 bytes, which the kernel before may still write: nothing is read yet.
__device__ __forceinline__ void prefetch_into_l2(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}
// Loads 16 bytes, aligned to as many, that stay out of the L1 cache; L2 gets 128 bytes around them.
__device__ __forceinline__ void load_streamed_16(const void* from, unsigned (&to)[4]) {
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 { %0, %1, %2, %3 }, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}

// Rounded to nearest.
__device__ __forceinline__ unsigned short bf16_from_float(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// The rank of this block among the blocks of its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of the cluster arrive, then wait: what came before the arrivals is seen behind the
// wait. A block whose shared memory others read must not exit before they have arrived behind that.
__device__ __forceinline__ void cluster_arrive_release() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

// Arrives without ordering what this thread wrote: nothing of it may be read behind the wait.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait_acquire() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void cluster_sync() {
    cluster_arrive_release();
    cluster_wait_acquire();
}

// The address that `shared` has in the shared memory of the block of that rank.
__device__ __forceinline__ unsigned address_in_rank(const void* shared, unsigned rank) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"((unsigned)__cvta_generic_to_shared(shared)), "r"(rank));
    return address;
}

// Loads four floats from there, or stores them there; aligned to 16 bytes.
__device__ __forceinline__ float4 load_from_rank(const float* shared, unsigned rank) {
    float4 value;
    asm volatile("ld.shared::cluster.v4.f32 { %0, %1, %2, %3 }, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address_in_rank(shared, rank))
                 : "memory");
    return value;
}

__device__ __forceinline__ void store_to_rank(float* shared, unsigned rank, float4 value) {
    asm volatile(
        "st.shared::cluster.v4.f32 [%0], { %1, %2, %3, %4 };" ::"r"(address_in_rank(shared, rank)),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
        : "memory");
}

// A barrier in shared memory, for num_arrivals arrivals in each phase.
__device__ __forceinline__ void mbarrier_init(unsigned long long* mbarrier, unsigned num_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(mbarrier)),
                 "r"(num_arrivals)
                 : "memory");
}

// Called by the thread that initialised, before a barrier: bulk copies and other blocks see it.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders what this thread and those before it stored or read before bulk copies that follow.
__device__ __forceinline__ void fence_before_bulk_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives: threads that wait for this phase see what came before.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* mbarrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(
                     (unsigned)__cvta_generic_to_shared(mbarrier))
                 : "memory");
}

// Arrives, and keeps the phase from ending before bulk copies have brought num_bytes.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned long long* mbarrier,
                                                       unsigned num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(mbarrier)),
                 "r"(num_bytes)
                 : "memory");
}

// Waits for the end of the phase of that parity; the first phase has parity 0.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* mbarrier, unsigned parity) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(mbarrier);
    unsigned done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n"
            "selp.u32 %0, 1, 0, done;\n"
            "}"
            : "=r"(done)
            : "r"(address), "r"(parity)
            : "memory");
    } while (done == 0);
}

// Starts to store four floats, aligned to 16 bytes, in the shared memory of the block of that rank,
// at the place of `shared` there. The phase of its mbarrier, which was told to expect 16 bytes for
// this, ends when they are there.
__device__ __forceinline__ void store_async_to_rank(float* shared, unsigned rank, float4 value,
                                                    unsigned long long* mbarrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
        "[%0], { %1, %2, %3, %4 }, [%5];" ::"r"(address_in_rank(shared, rank)),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(address_in_rank(mbarrier, rank))
        : "memory");
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
    const uint4 vector = *reinterpret_cast<const uint4*>(from);
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

// Each block of the cluster adds up SHARE vectors of the tile, which lie side by side.
constexpr int SHARE = TILE / 4 / SPLIT_K;
constexpr int SHARE_VECTORS = (SHARE + THREADS - 1) / THREADS;
__device__ __forceinline__ int own_share(int partial, int vector) {
    const int at = vector * THREADS + (int)threadIdx.x;
    return at < SHARE ? 4 * (partial * SHARE + at) : TILE;
}

// Sends what this thread owns to the blocks that add it up, where it lies by its sender.
__device__ __forceinline__ void send_partials(float4* received, unsigned long long* arrived,
                                              int partial, const float (&totals)[VECTORS][4]) {
    #pragma unroll
    for (int vector = 0; vector < VECTORS; ++vector) {
        if (owned(vector) < TILE) {
            const float* const from = totals[vector];
            const int at = owned(vector) / 4;
            float4* const to = received + partial * SHARE + at % SHARE;
            store_async_to_rank(reinterpret_cast<float*>(to), at / SHARE,
                                make_float4(from[0], from[1], from[2], from[3]), arrived);
        }
    }
}

// Adds up what came for this thread's vectors, in the order of the blocks.
__device__ __forceinline__ void add_received(const float4* received,
                                             float (&share)[SHARE_VECTORS][4]) {
    #pragma unroll
    for (int vector = 0; vector < SHARE_VECTORS; ++vector) {
        const int at = vector * THREADS + (int)threadIdx.x;
        if (at < SHARE) {
            #pragma unroll
            for (int partial = 0; partial < SPLIT_K; ++partial) {
                add(received[partial * SHARE + at], share[vector]);
            }
        }
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

// C[m][n] = acc * sa[k / 128, m] * sb[n / 128, k / 128]
// accum is a sum of products of blocks times their scales.
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    return accum;
}

// All scales of a warp's tile, of which a lane has row m and those 32 apart, and whose first column
// is n: sa[k / 128, m] for each row of A, sb[n / 128, k / 128] for each 128 rows of B. Outside of A
// and B they are those of the last row and block.
struct BlockScales {
    const Epilogue& with;
    int M, K;
    int m, n;

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
                scales.a[at][i] = with.sa[(long long)block * M + row];
            }
            scales.b[at] = with.sb[(long long)(n / 128) * num_blocks + block];
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

extern "C" __global__ void __cluster_dims__(1, 1, SPLIT_K) __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* A, int lda, const Element* B,
                int ldb, float beta, Result* C, int ldc, const float* epilogue_sa,
                const float* epilogue_sb) {
    extern __shared__ __align__(16) float shared[];
    // What the blocks of the cluster send lies behind the tiles of the warps; the phase of its
    // barrier ends when all of it is there.
    float4* const received = reinterpret_cast<float4*>(shared + SLICE_K * TILE);
    unsigned long long* const arrived = reinterpret_cast<unsigned long long*>(received + TILE / 4);
    if (threadIdx.x == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(arrived, TILE * (int)sizeof(float));
    }
    cluster_arrive_relaxed();
    let_next_kernel_begin();

    // Which tile of C, and which range of K.
    const int m0 = (int)blockIdx.y * BM;
    const int n0 = (int)blockIdx.x * BN;
    const int partial = (int)blockIdx.z;

    // While the kernel before ends, L2 is asked for the block's first k_tiles of B.
    constexpr int LINES = 1 * BK * 1 / 128;
    const int ahead_k = (int)((long long)(K / BK) * partial / SPLIT_K) * BK;
    for (int line = (int)threadIdx.x; line < BN * LINES; line += THREADS) {
        const int n = n0 + line / LINES;
        const int k = ahead_k + line % LINES * 128;
        if (n < N && k < K) {
            prefetch_into_l2(B + (long long)n * ldb + k);
        }
    }
    wait_for_kernels_before();

    // Which k_tiles of K, and which k's of each: four lanes share a row.
    const int thread = (int)threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int num_k_tiles = K / BK;
    const int first_k_tile = (int)((long long)num_k_tiles * partial / SPLIT_K);
    const int end_k_tile = (int)((long long)num_k_tiles * (partial + 1) / SPLIT_K);
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
    const BlockScales block_scales = {with, M, K, lane_m, min(n0 + warp_n, N - 1)};
    Scales scales[STAGES];

    // Start: all stages on their way.
    SliceA a[STAGES];
    SliceB b[STAGES];
    #pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
        if (first_k_tile + stage < end_k_tile) {
            const int k = (first_k_tile + stage) * BK + lane_k;
            load_slice_b(rows_b, k, b[stage]);
            scales[stage] = block_scales.load(k);
            load_slice_a(rows_a, k, a[stage]);
        }
    }
    float accum[TILES_N][TILES_M][4] = {};

    // Compute the slice that came first, and load another in its stead.
    for (int k_tile = first_k_tile; k_tile < end_k_tile; k_tile += STAGES) {
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            if (k_tile + stage < end_k_tile) {
                const int k = (k_tile + stage) * BK + lane_k;
                multiply_slice(a[stage], b[stage], scales[stage], accum);
                if (k_tile + stage + STAGES < end_k_tile) {
                    load_slice_b(rows_b, k + STAGES * BK, b[stage]);
                    scales[stage] = block_scales.load(k + STAGES * BK);
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
        }
    }
    __syncthreads();
    float totals[VECTORS][4];
    add_tiles(shared, SLICE_K, totals);

    // Add up the blocks, once all of them have initialised their barriers.
    cluster_wait_acquire();
    send_partials(received, arrived, partial, totals);
    mbarrier_wait(arrived, 0);
    float share[SHARE_VECTORS][4] = {};
    add_received(received, share);

    // Store.
    #pragma unroll
    for (int vector = 0; vector < SHARE_VECTORS; ++vector) {
        const int column = own_share(partial, vector) / 8;
        const int n = n0 + column % BN;
        if (own_share(partial, vector) >= TILE) {
            continue;
        }
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int m = m0 + column / BN * 8 + own_share(partial, vector) % 8 + e;
            if (m < M) {
                store_one(C + (long long)m * ldc + n, share[vector][e], m, n, with);
            }
        }
    }
}

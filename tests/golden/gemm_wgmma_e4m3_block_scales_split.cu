// autogemm, family gemm_wgmma: BM=64 BN=128 WM=64 WN=128 STAGES=8 SCHEDULE=cooperative CLUSTER_M=1
// CLUSTER_N=1 SPLIT_K=4 PARTIALS=apart BOX_M=64 C_BUFFERS=1 GROUP_M=1 BLOCKS=0 SWAP_AB=0 PACK=none
// PROMOTE=128 PROMOTION=after

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on Hopper's tensor cores, row-major.
// A and B e4m3, C bf16, accumulators FP32 in registers, of fewer bits in tensor cores.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
//
// TMA loads k tiles of A and B into stages in shared memory; warpgroups multiply them.
//
// Valid for:
//   M, N, K: any
//   A, B: aligned to 16 bytes, lda and ldb multiples of 16
//   C: any leading dimension

// Instructions of Hopper alone, which the plain target sm_90 does not have.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "this kernel is for compute capability 9.0 alone: use -gencode arch=compute_90a,code=sm_90a"
#endif

// The bits of an e4m3.
using Element = unsigned char;
using Result = unsigned short;

// Tile of C owned by one thread block, and by one warpgroup (four warps).
constexpr int BM = 64;
constexpr int BN = 128;
constexpr int WM = 64;
constexpr int WN = 128;
// Stages: k tiles of A and B that are in flight or in use.
constexpr int STAGES = 8;
// Blocks of a cluster that share a tile: each multiplies a range of K, then adds up some of C.
constexpr int SPLIT_K = 4;

constexpr int WARPGROUP = 128;
constexpr int CONSUMERS = (BM / WM) * (BN / WN);
constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
// Depth of a k tile: 128 bytes of a stored row, or as many rows of an operand stored across k.
constexpr int BK = 128 / sizeof(Element);
// Depth of one instruction.
constexpr int STEP = 32 / sizeof(Element);
constexpr int A_BYTES = BM * 128;
constexpr int STAGE_BYTES = (BM + BN) * 128;
// An instruction makes 64 rows and all columns of a warpgroup, a thread NUM_ACCUM elements of them.
constexpr int ROW_TILES = WM / 64;
constexpr int NUM_ACCUM = WN / 2;
// Partial sums that the other blocks of the cluster send to one.
constexpr int PARTIALS_BYTES = BM * BN * (int)sizeof(float) / SPLIT_K * (SPLIT_K - 1);

// The number of this thread's warp. A shuffle tells the compiler that it is the same in all lanes:
// what is computed from it, such as addresses of products and copies, stays in uniform registers,
// from which their instructions take it.
__device__ __forceinline__ int warp_number() {
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
}

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// True in one thread of a warp, always the same; executed by all of them. If a comparison of thread
// numbers chose the thread that copies, the compiler would make a loop over threads of each copy.
__device__ __forceinline__ bool is_elected() {
    unsigned elected;
    asm volatile(
        "{\n"
        ".reg .pred elected;\n"
        "elect.sync _|elected, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, elected;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
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

// Arrives at the barrier in the shared memory of another block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_at_rank(unsigned long long* mbarrier,
                                                        unsigned rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     address_in_rank(mbarrier, rank))
                 : "memory");
}

// The same where nothing was written for that block, as when it may fill shared memory again: this
// waits for no write of this thread.
__device__ __forceinline__ void mbarrier_arrive_relaxed_at_rank(unsigned long long* mbarrier,
                                                                unsigned rank) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     address_in_rank(mbarrier, rank))
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

// A matrix as the driver describes it to TMA; passed as `const __grid_constant__ TensorMap`.
struct __align__(64) TensorMap {
    unsigned long long words[16];
};

// Prefetches the map before its first use.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts a copy of the map's box, its first element in that column and row; what lies outside the
// matrix becomes zero. The phase of the mbarrier, which was told to expect the bytes of a whole
// box, ends when they have come.
__device__ __forceinline__ void copy_tile(void* shared, const TensorMap& map, int column, int row,
                                          unsigned long long* mbarrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, { %2, %3 }], [%4];" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
        "l"(&map), "r"(column), "r"(row), "r"((unsigned)__cvta_generic_to_shared(mbarrier))
        : "memory");
}

// Where an operand begins in shared memory: rows of 128 bytes, their 16-byte chunks swizzled by
// row % 8 as TMA does it, the first row at a multiple of 1024. Stored along k, eight rows are
// stride_bytes apart from the next eight; stored across k, rows are 64 elements (of 16 bits) at one
// k, eight k are stride_bytes apart, the next 64 elements leading_bytes. Add bytes >> 4 to move it.
__device__ __forceinline__ unsigned long long matrix_descriptor_128(const void* shared,
                                                                    unsigned leading_bytes,
                                                                    unsigned stride_bytes) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    return (unsigned long long)(address >> 4 & 0x3fffu) |
           (unsigned long long)(leading_bytes >> 4) << 16 |
           (unsigned long long)(stride_bytes >> 4) << 32 | 1ull << 62;
}

// Called before the first product that reads registers which this thread wrote.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Products started since the last call are one group.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until all groups are done, or all but the last.
__device__ __forceinline__ void wgmma_wait_0() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ void wgmma_wait_1() {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

// Called behind a wait: the compiler must not read these accumulators earlier.
__device__ __forceinline__ void keep_in_place(float (&accum)[64]) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) {
        asm volatile("" : "+f"(accum[i])::"memory");
    }
}

// The compiler computes these descriptors here and not where they are used, so that products do not
// wait for it.
__device__ __forceinline__ void compute_now(unsigned long long& a, unsigned long long& b) {
    asm volatile("" : "+l"(a), "+l"(b));
}

// Starts d = a * b (+ d if accumulate) for the 128 threads of a warpgroup.
//   a: 64 x 32, stored along k
//   b: 32 x 128, stored along k
//   d: of each 8 columns two neighbours in row lane / 4 of a warp's 16, and two in row lane / 4 + 8
__device__ __forceinline__ void wgmma_e4m3_kk(float (&d)[64], unsigned long long a,
                                              unsigned long long b, unsigned accumulate) {
    // clang-format off
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
        "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
        "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63 }, "
        "%64, %65, accumulate, 1, 1;\n"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
          "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
          "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
          "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
          "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
          "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(accumulate));
    // clang-format on
}

// Rounded to nearest.
__device__ __forceinline__ unsigned short bf16_from_float(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Two of them in one word.
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#endif  // AUTOGEMM_EMULATOR

__device__ __forceinline__ float float_from_bf16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

// Stages in shared memory, each with room for a k tile of A and one of B. A stage is full when TMA
// has brought their bytes, and empty when all warps that multiply have released it.
struct Pipeline {
    unsigned char* stages;
    unsigned long long* full;
    unsigned long long* empty;
    // The next stage, and the parity of its phase: how often all stages have been used.
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ unsigned char* k_tile_a() const {
        return stages + stage * STAGE_BYTES;
    }

    __device__ __forceinline__ unsigned char* k_tile_b() const {
        return k_tile_a() + A_BYTES;
    }

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    // Called by each warp when its products with that stage are done.
    __device__ __forceinline__ void release(int used) const {
        // Each lane has read its scales, and they are written again behind its arrival.
        mbarrier_arrive(empty + used);
    }
};

// A block's tile: where in C it begins.
struct Place {
    int m0, n0;
};

// The tiles of C, by their number.
struct Tiles {
    unsigned rows, columns;

    __device__ __forceinline__ int count() const {
        return (int)(rows * columns);
    }

    // Row by row. The first loads wait for this: there is no division for a single row.
    __device__ __forceinline__ Place place(unsigned index) const {
        const int row = rows > 1 ? index / columns : 0;
        const int column = index - row * columns;
        const int m0 = row * BM;
        const int n0 = column * BN;
        return {m0, n0};
    }
};

// Loads rows m0 to m0 + BM of A, 128 bytes wide.
__device__ __forceinline__ void load_a(unsigned char* k_tile, const TensorMap& map, int m0, int k0,
                                       unsigned long long* full) {
    copy_tile(k_tile, map, k0, m0, full);
}

// Loads rows n0 to n0 + BN of B, 128 bytes wide.
__device__ __forceinline__ void load_b(unsigned char* k_tile, const TensorMap& map, int n0, int k0,
                                       unsigned long long* full) {
    copy_tile(k_tile, map, k0, n0, full);
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

// C, of which M x N elements exist.
struct Output {
    int M, N;
    Result* C;
    int ldc;
    Epilogue with;

    // The element of C that an accumulator becomes. Outside C, where nothing is written, it may be
    // any value, and the epilogue still gets a row and a column of C.
    __device__ __forceinline__ float element(float accum, int m, int n) const {
        float old_c = 0.0f;
        if (with.reads_c() && m < M && n < N) {
            old_c = float_from_bf16(C[(long long)m * ldc + n]);
        }
        return epilogue(accum, old_c, min(m, M - 1), min(n, N - 1), with);
    }

    __device__ __forceinline__ void store(float accum, int m, int n) const {
        const float value = element(accum, m, n);
        if (m < M && n < N) {
            C[(long long)m * ldc + n] = bf16_from_float(value);
        }
    }

    // Whether C is not read, all columns of the warpgroup's tile exist, and any two neighbours from
    // an even column on can be stored together.
    __device__ __forceinline__ bool is_plain(int n0) const {
        return !with.reads_c() && N - n0 >= WN && ldc % 2 == 0 &&
               (unsigned long long)C % (2 * sizeof(Result)) == 0;
    }

    __device__ __forceinline__ void store_two(float accum, float next, int m, int n) const {
        if (m < M) {
            Result* const two = C + (long long)m * ldc + n;
            const float low = epilogue(accum, 0.0f, m, n, with);
            const float high = epilogue(next, 0.0f, m, n + 1, with);
            *(unsigned*)two = bf16_pair(low, high);
        }
    }
};

// Float4s of a thread's accumulators in one row tile, and how many of all row tiles each block of
// the cluster adds up and writes: its own ones.
constexpr int FOURS = NUM_ACCUM / 4;
constexpr int OWN_FOURS = ROW_TILES * FOURS / SPLIT_K;

// Exchanges accumulators until those of rank ^ i are number i, and so a block's own the first: from
// here on all blocks run the same code, on the same registers.
__device__ __forceinline__ void put_own_first(unsigned rank, float (&accum)[ROW_TILES][NUM_ACCUM]) {
    #pragma unroll
    for (int bit = 1; bit < SPLIT_K; bit *= 2) {
        const bool is_set = (rank & bit) != 0;
        #pragma unroll
        for (int at = 0; at < ROW_TILES * NUM_ACCUM; ++at) {
            if (at / (4 * OWN_FOURS) & bit) {
                continue;
            }
            const int there = at + bit * 4 * OWN_FOURS;
            float& low = accum[at / NUM_ACCUM][at % NUM_ACCUM];
            float& high = accum[there / NUM_ACCUM][there % NUM_ACCUM];
            const float first = is_set ? high : low;
            high = is_set ? low : high;
            low = first;
        }
    }
}

// Where a block keeps what the one of rank ^ other sent, and that one what this one sent.
__device__ __forceinline__ int place_of_partial(int other, int warpgroup, int at) {
    return (((other - 1) * CONSUMERS + warpgroup) * OWN_FOURS + at) * WARPGROUP +
           threadIdx.x % WARPGROUP;
}

// Sends all accumulators but a block's own to the blocks that add them up.
__device__ __forceinline__ void send_partials(float4* partials, unsigned long long* arrived,
                                              unsigned rank, int warpgroup,
                                              const float (&accum)[ROW_TILES][NUM_ACCUM]) {
    #pragma unroll
    for (int other = 1; other < SPLIT_K; ++other) {
        #pragma unroll
        for (int at = 0; at < OWN_FOURS; ++at) {
            const int first = (other * OWN_FOURS + at) * 4;
            const float* const four = &accum[first / NUM_ACCUM][first % NUM_ACCUM];
            store_async_to_rank((float*)(partials + place_of_partial(other, warpgroup, at)),
                                rank ^ other, make_float4(four[0], four[1], four[2], four[3]),
                                arrived);
        }
    }
}

// own = the block's own partial sums + those of rank ^ 1 + those of rank ^ 2 and so on.
__device__ __forceinline__ void add_partials(const float4* partials, int warpgroup,
                                             const float (&accum)[ROW_TILES][NUM_ACCUM],
                                             float (&own)[OWN_FOURS][4]) {
    #pragma unroll
    for (int at = 0; at < OWN_FOURS; ++at) {
        const float* const first = &accum[4 * at / NUM_ACCUM][4 * at % NUM_ACCUM];
        float4 sum = make_float4(first[0], first[1], first[2], first[3]);
        #pragma unroll
        for (int other = 1; other < SPLIT_K; ++other) {
            const float4 partial = partials[place_of_partial(other, warpgroup, at)];
            sum = make_float4(sum.x + partial.x, sum.y + partial.y, sum.z + partial.z,
                              sum.w + partial.w);
        }
        own[at][0] = sum.x;
        own[at][1] = sum.y;
        own[at][2] = sum.z;
        own[at][3] = sum.w;
    }
}

// Row and column of C, of one of the four accumulators that a thread has from each 8 columns of an
// instruction.
struct Position {
    int m, n;
};

__device__ __forceinline__ Position position_of(int m0, int n0, unsigned rank, int at, int i) {
    const int warp = threadIdx.x % WARPGROUP / 32;
    const int lane = threadIdx.x % 32;
    // A block's own ones are whole row tiles, or a fraction of one.
    const int tile = (int)(rank * OWN_FOURS / FOURS) + at / FOURS;
    const int four = (int)(rank * OWN_FOURS % FOURS) + at % FOURS;
    const int second = four * 8 + lane % 4 * 2 + i % 2;
    return {m0 + 64 * tile + 16 * warp + lane / 4 + i / 2 * 8, n0 + second};
}

// Writes a block's own elements of the tile at row m0 and column n0.
__device__ __forceinline__ void store_own(unsigned rank, int m0, int n0, const Output& output,
                                          float (&own)[OWN_FOURS][4]) {
    if (output.is_plain(n0)) {
        #pragma unroll
        for (int at = 0; at < OWN_FOURS; ++at) {
            #pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const Position to = position_of(m0, n0, rank, at, i);
                output.store_two(own[at][i], own[at][i + 1], to.m, to.n);
            }
        }
        return;
    }
    // Always the first four: behind them the others move down, so that this code is there once.
    #pragma unroll 1
    for (int at = 0; at < OWN_FOURS; ++at) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Position to = position_of(m0, n0, rank, at, i);
            output.store(own[0][i], to.m, to.n);
        }
        #pragma unroll
        for (int next = 0; next + 1 < OWN_FOURS; ++next) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                own[next][i] = own[next + 1][i];
            }
        }
    }
}

// Columns of a warpgroup's tile that lie in one block of 128.
constexpr int SCALE_COLUMNS = WN % 128 == 0 ? 128 : 64;
// Scales of a stage: of each row of A's k tile, then of SCALE_COLUMNS columns each of B's.
constexpr int STAGE_SCALES = BM + BN / SCALE_COLUMNS;

// Those of one block of 128 along k that a thread needs: of its rows of A, and of its columns of B.
struct Scales {
    float a[ROW_TILES][2];
    float b[WN / SCALE_COLUMNS];

    // The factor of the sum that is a thread's accumulator j of row tile i.
    __device__ __forceinline__ float of(int i, int j) const {
        return a[i][j / 2 % 2] * b[j / 4 * 8 / SCALE_COLUMNS];
    }
};

// A thread's scales from those of a stage, where its warpgroup's tile begins at row and column.
__device__ __forceinline__ Scales scales_of(const float* stage_scales, int row, int column) {
    const int lane = threadIdx.x % 32;
    const int thread_row = row + threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    Scales scales;
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            scales.a[i][half] = stage_scales[thread_row + 64 * i + 8 * half];
        }
    }
    #pragma unroll
    for (int j = 0; j < WN / SCALE_COLUMNS; ++j) {
        scales.b[j] = stage_scales[BM + column / SCALE_COLUMNS + j];
    }
    return scales;
}

// All scales of a problem: sa[k / 128, m] for each row of A,
// sb[n / 128, k / 128] for each 128 rows of B.
struct BlockScales {
    const float* of_a;
    const float* of_b;
    int M, N;
    int num_blocks;
    float* stages;

    // A warp reads those of a block along k, waits for the stage to be empty and fills it. They are
    // zeros outside of C.
    __device__ __forceinline__ void fill(const Pipeline& pipeline, int m0, int n0,
                                         int block) const {
        const int lane = threadIdx.x % 32;
        const float* const rows = of_a + (long long)block * M + (m0 + lane);
        const int n = n0 + lane * SCALE_COLUMNS;
        float values[BM / 32];
        float value_b = 0.0f;
        #pragma unroll
        for (int i = 0; i < BM / 32; ++i) {
            values[i] = m0 + lane + 32 * i < M ? rows[32 * i] : 0.0f;
        }
        if (lane < BN / SCALE_COLUMNS && n < N) {
            value_b = of_b[(long long)(n / 128) * num_blocks + block];
        }
        mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);
        float* const to = stages + pipeline.stage * STAGE_SCALES + lane;
        #pragma unroll
        for (int i = 0; i < BM / 32; ++i) {
            to[32 * i] = values[i];
        }
        if (lane < BN / SCALE_COLUMNS) {
            to[BM] = value_b;
        }
        mbarrier_arrive(pipeline.full + pipeline.stage);
    }
};

// accum = the products of a warpgroup's rows of A and columns of B, over num_k_tiles k tiles, those
// of each times its scales.
__device__ __forceinline__ void multiply_tile(Pipeline& pipeline, int num_k_tiles, int row,
                                              int column, const float* scales,
                                              float (&accum)[ROW_TILES][NUM_ACCUM]) {
    static_assert(BK == 128, "a k tile is a block along k");
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        #pragma unroll
        for (int j = 0; j < NUM_ACCUM; ++j) {
            accum[i][j] = 0.0f;
        }
    }
    mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);
    Scales scale = scales_of(scales + pipeline.stage * STAGE_SCALES, row, column);
    unsigned long long a = matrix_descriptor_128(pipeline.k_tile_a() + row * 128, BK * 128, 1024);
    unsigned long long b =
        matrix_descriptor_128(pipeline.k_tile_b() + column * 128, BK * 128, 1024);
    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        const int used = pipeline.stage;
        Scales next = scale;
        // One row tile after the other, so that sums in tensor cores take the registers of one.
        #pragma unroll
        for (int i = 0; i < ROW_TILES; ++i) {
            float partial[NUM_ACCUM];
            wgmma_fence();
            #pragma unroll
            for (int step = 0; step < BK / STEP; ++step) {
                const int in_a = i * 64 * 128 + step * 32;
                const int in_b = step * 32;
                wgmma_e4m3_kk(partial, a + (in_a >> 4), b + (in_b >> 4), step > 0);
            }
            wgmma_commit();
            if (i + 1 == ROW_TILES) {
                // Products are under way while the next k tile is waited for.
                pipeline.advance();
                if (k_tile + 1 < num_k_tiles) {
                    mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);
                    next = scales_of(scales + pipeline.stage * STAGE_SCALES, row, column);
                }
                a = matrix_descriptor_128(pipeline.k_tile_a() + row * 128, BK * 128, 1024);
                b = matrix_descriptor_128(pipeline.k_tile_b() + column * 128, BK * 128, 1024);
                compute_now(a, b);
            }
            wgmma_wait_0();
            if (i + 1 == ROW_TILES && k_tile + 1 < num_k_tiles) {
                pipeline.release(used);
            }
            keep_in_place(partial);
            #pragma unroll
            for (int j = 0; j < NUM_ACCUM; ++j) {
                accum[i][j] += partial[j] * scale.of(i, j);
            }
        }
        scale = next;
    }
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                const float* __restrict__ epilogue_sa, const float* __restrict__ epilogue_sb,
                const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b) {
    extern __shared__ __align__(1024) unsigned char shared[];
    float4* const partials = (float4*)(shared + STAGES * STAGE_BYTES);
    unsigned long long* const barriers = (unsigned long long*)((char*)partials + PARTIALS_BYTES);
    // Its phase ends when the partial sums of all others are there.
    unsigned long long* const arrived = barriers + 2 * STAGES;
    float* const scales = (float*)(arrived + 1);
    Pipeline pipeline = {shared, barriers, barriers + STAGES};
    const int warp = warp_number();
    const int warpgroup = warp / 4;

    if (threadIdx.x == CONSUMERS * WARPGROUP) {
        prefetch_tensor_map(map_a);
        prefetch_tensor_map(map_b);
        for (int stage = 0; stage < STAGES; ++stage) {
            // The thread that starts copies arrives, and each lane that brings scales.
            mbarrier_init(pipeline.full + stage, 1 + 32);
            // One arrival for each lane that has read scales.
            mbarrier_init(pipeline.empty + stage, 4 * CONSUMERS * 32);
        }
        mbarrier_init(arrived, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(arrived, PARTIALS_BYTES);
    }
    cluster_arrive_relaxed();
    __syncthreads();

    Tiles tiles;
    tiles.rows = (M + BM - 1) / BM;
    tiles.columns = (N + BN - 1) / BN;
    const Place place = tiles.place(blockIdx.x / SPLIT_K);
    const unsigned all_k_tiles = (K + BK - 1) / BK;
    const unsigned rank = cluster_rank();
    const int first_k_tile = (int)(all_k_tiles * rank / SPLIT_K);
    const int num_k_tiles = (int)(all_k_tiles * (rank + 1) / SPLIT_K) - first_k_tile;

    const Epilogue with = {epilogue_sa, epilogue_sb};
    if (warpgroup == CONSUMERS) {
        // Load: one thread keeps the stages full.
        if (warp % 4 == 0 && is_elected()) {
            for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
                const int k0 = (first_k_tile + k_tile) * BK;
                unsigned long long* const full = pipeline.full + pipeline.stage;
                mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);
                mbarrier_arrive_expect(full, STAGE_BYTES);
                load_a(pipeline.k_tile_a(), map_a, place.m0, k0, full);
                load_b(pipeline.k_tile_b(), map_b, place.n0, k0, full);
                pipeline.advance();
            }
        }
        if (warp % 4 > 0) {
            // Load scales: each of three warps those of every third k tile.
            const BlockScales block_scales = {with.sa, with.sb, M, N, (int)all_k_tiles, scales};
            for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
                if (k_tile % 3 == warp % 4 - 1) {
                    block_scales.fill(pipeline, place.m0, place.n0, first_k_tile + k_tile);
                }
                pipeline.advance();
            }
        }
        cluster_wait_acquire();
    } else {
        float accum[ROW_TILES][NUM_ACCUM];
        // Multiply, add up and store.
        const int row = warpgroup / (BN / WN) * WM;
        const int column = warpgroup % (BN / WN) * WN;
        multiply_tile(pipeline, num_k_tiles, row, column, scales, accum);
        put_own_first(rank, accum);
        // All barriers have long been initialised.
        cluster_wait_acquire();
        send_partials(partials, arrived, rank, warpgroup, accum);
        mbarrier_wait(arrived, 0);
        float own[OWN_FOURS][4];
        add_partials(partials, warpgroup, accum, own);
        store_own(rank, place.m0 + row, place.n0 + column, {M, N, C, ldc, with}, own);
    }
}

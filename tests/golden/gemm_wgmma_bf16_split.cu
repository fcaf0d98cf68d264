// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on Hopper's tensor cores, row-major.
// A and B bf16, C bf16, sums in FP32.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// TMA brings slabs of A and B into a ring in shared memory; warpgroups multiply them.
//
// Valid for:
//   M, N, K: any
//   A, B: aligned to 16 bytes, lda and ldb multiples of 8
//   C: any leading dimension

// Instructions of Hopper alone, which the plain target sm_90 does not have.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "this kernel is for compute capability 9.0 alone: use -gencode arch=compute_90a,code=sm_90a"
#endif

// The bits of a bf16.
using Element = unsigned short;
using Result = unsigned short;

// Tile of C owned by one thread block, and by one warpgroup (four warps).
constexpr int BM = 64;
constexpr int BN = 64;
constexpr int WM = 64;
constexpr int WN = 64;
// Slabs of A and B that are on their way or in use.
constexpr int STAGES = 12;
// Blocks of a cluster that share a tile: each multiplies its part of K, then adds up its part of C.
constexpr int SPLIT_K = 2;

constexpr int WARPGROUP = 128;
constexpr int CONSUMERS = (BM / WM) * (BN / WN);
constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
// Depth of a slab: 128 bytes of a stored row, or as many rows of an operand stored across k.
constexpr int BK = 128 / sizeof(Element);
// Depth of one instruction.
constexpr int STEP = 32 / sizeof(Element);
constexpr int A_BYTES = BM * 128;
constexpr int SLOT_BYTES = (BM + BN) * 128;
// An instruction makes 64 rows and all columns of a warpgroup; a thread has so many of their sums.
constexpr int ROW_TILES = WM / 64;
constexpr int SUMS = WN / 2;

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
// The rank of this block among the blocks of its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of the cluster arrive, then wait: what came before the arrivals is seen behind the
// wait. A block whose shared memory others read does not leave before they arrived behind that.
__device__ __forceinline__ void cluster_arrive_release() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

// Without waiting for what this thread wrote: where nothing of it is read behind the wait.
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

// Four floats from there, or to there; aligned to 16 bytes.
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
#endif  // AUTOGEMM_EMULATOR

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
// A barrier in shared memory, for num_arrivals arrivals in each phase.
__device__ __forceinline__ void mbarrier_init(unsigned long long* mbarrier, unsigned num_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(mbarrier)),
                 "r"(num_arrivals)
                 : "memory");
}

// By the thread that initialised: for bulk copies and other blocks to see it. A barrier follows.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// What this thread and those ordered before it stored, before bulk copies that overwrite it.
__device__ __forceinline__ void fence_before_bulk_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// What came before is seen by who waits for this phase.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* mbarrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(
                     (unsigned)__cvta_generic_to_shared(mbarrier))
                 : "memory");
}

// The same, and the phase does not end before bulk copies have brought num_bytes.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned long long* mbarrier,
                                                       unsigned num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(mbarrier)),
                 "r"(num_bytes)
                 : "memory");
}

// At the barrier in the shared memory of another block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_at_rank(unsigned long long* mbarrier,
                                                        unsigned rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     address_in_rank(mbarrier, rank))
                 : "memory");
}

// The same where nothing was written for that block, as when it may fill shared memory again: waits
// for no write of this thread to get anywhere.
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
#endif  // AUTOGEMM_EMULATOR

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
// A barrier for some warps of the block: num_threads, a multiple of 32, at the number 1 to 15.
__device__ __forceinline__ void named_barrier_sync(unsigned number, unsigned num_threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(num_threads) : "memory");
}

// Counts as one of the threads that the others wait for, and goes on.
__device__ __forceinline__ void named_barrier_arrive(unsigned number, unsigned num_threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(number), "r"(num_threads) : "memory");
}
#endif  // AUTOGEMM_EMULATOR

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
// What the driver told TMA of a matrix; a kernel's argument: `const __grid_constant__ TensorMap`.
struct __align__(64) TensorMap {
    unsigned long long words[16];
};

// Brings the map nearer before its first use.
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
#endif  // AUTOGEMM_EMULATOR

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
// Where an operand begins in shared memory: rows of 128 bytes, their 16-byte pieces turned by
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

// Starts d = a * b (+ d if accumulate) for the 128 threads of a warpgroup.
//   a: 64 x 16, stored along k
//   b: 16 x 64, stored across k
//   d: of each 8 columns two neighbours in row lane / 4 of a warp's 16, and two in row lane / 4 + 8
__device__ __forceinline__ void wgmma_bf16_km(float (&d)[32], unsigned long long a,
                                              unsigned long long b, unsigned accumulate) {
    // clang-format off
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31 }, "
        "%32, %33, accumulate, 1, 1, 0, 1;\n"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
          "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
          "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
          "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
    // clang-format on
}

// Before the first product that reads registers which this thread wrote.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// The products started since the last call are one group.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all groups are done, or all but the last.
__device__ __forceinline__ void wgmma_wait_0() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ void wgmma_wait_1() {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

// Behind a wait: the compiler must not read these sums earlier.
__device__ __forceinline__ void keep_in_place(float (&sums)[32]) {
    #pragma unroll
    for (int i = 0; i < 32; ++i) {
        asm volatile("" : "+f"(sums[i])::"memory");
    }
}

#endif  // AUTOGEMM_EMULATOR

__device__ __forceinline__ float float_from_bf16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
// Rounded to nearest.
__device__ __forceinline__ unsigned short bf16_from_float(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif  // AUTOGEMM_EMULATOR

// A ring of slots in shared memory, for a slab of A and one of B each. A slot is full when TMA has
// brought their bytes, and empty when all who multiply have let go of it.
struct Ring {
    unsigned char* slots;
    unsigned long long* full;
    unsigned long long* empty;
    // The slot that comes next, and the parity of its phase: how often the ring went round.
    int next = 0;
    unsigned parity = 0;

    __device__ __forceinline__ unsigned char* slab_a() const {
        return slots + next * SLOT_BYTES;
    }

    __device__ __forceinline__ unsigned char* slab_b() const {
        return slab_a() + A_BYTES;
    }

    __device__ __forceinline__ void advance() {
        if (++next == STAGES) {
            next = 0;
            parity ^= 1;
        }
    }

    // By each warp, whose products with that slot are done.
    __device__ __forceinline__ void let_go(int slot) const {
        const int lane = threadIdx.x % 32;
        if (lane == 0) {
            mbarrier_arrive(empty + slot);
        }
    }
};

// Tiles, and where in C they begin.
struct Tiles {
    int rows, columns;

    __device__ __forceinline__ int count() const {
        return rows * columns;
    }

    // Row by row.
    __device__ __forceinline__ int row(int index) const {
        return index / columns * BM;
    }

    __device__ __forceinline__ int column(int index) const {
        return index % columns * BN;
    }
};

// Rows m0 to m0 + BM of A, 128 bytes wide.
__device__ __forceinline__ void fetch_a(unsigned char* slab, const TensorMap& map, int m0, int k0,
                                        unsigned long long* full) {
    copy_tile(slab, map, k0, m0, full);
}

// Rows k0 to k0 + BK of B, 128 bytes wide, one such stripe behind the other.
__device__ __forceinline__ void fetch_b(unsigned char* slab, const TensorMap& map, int n0, int k0,
                                        unsigned long long* full) {
    #pragma unroll
    for (int stripe = 0; stripe < BN / BK; ++stripe) {
        copy_tile(slab + stripe * BK * 128, map, n0 + stripe * BK, k0, full);
    }
}

// sums = the products of a warpgroup's rows of A and columns of B, over num_slabs slabs.
__device__ __forceinline__ void multiply_tile(Ring& ring, int num_slabs, int row, int column,
                                              float (&sums)[ROW_TILES][SUMS]) {
    int before = 0;
    for (int slab = 0; slab < num_slabs; ++slab) {
        mbarrier_wait(ring.full + ring.next, ring.parity);
        const unsigned long long a =
            matrix_descriptor_128(ring.slab_a() + row * 128, BK * 128, 1024);
        const unsigned long long b =
            matrix_descriptor_128(ring.slab_b() + column * 128, BK * 128, 1024);
        wgmma_fence();
        #pragma unroll
        for (int step = 0; step < BK / STEP; ++step) {
            #pragma unroll
            for (int i = 0; i < ROW_TILES; ++i) {
                const int in_a = i * 64 * 128 + step * 32;
                const int in_b = step * STEP * 128;
                wgmma_bf16_km(sums[i], a + (in_a >> 4), b + (in_b >> 4), slab > 0 || step > 0);
            }
        }
        wgmma_commit();
        // Products with this slab are under way while the next one is waited for.
        if (slab > 0) {
            wgmma_wait_1();
            ring.let_go(before);
        }
        before = ring.next;
        ring.advance();
    }
    wgmma_wait_0();
    ring.let_go(before);
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        keep_in_place(sums[i]);
    }
}

// Leaves a warpgroup's sums in shared memory, where its slabs were, four of a thread together.
__device__ __forceinline__ void leave_sums(float4* parts, int warpgroup, int thread,
                                           float (&sums)[ROW_TILES][SUMS]) {
    // Until all warps have done with the slabs.
    named_barrier_sync(1, CONSUMERS * WARPGROUP);
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        #pragma unroll
        for (int at = 0; at < SUMS; at += 4) {
            const int place = (warpgroup * ROW_TILES + i) * (SUMS / 4) + at / 4;
            parts[place * WARPGROUP + thread] =
                make_float4(sums[i][at], sums[i][at + 1], sums[i][at + 2], sums[i][at + 3]);
        }
    }
}

// C = alpha * sum + beta * C for one element, if it is there.
__device__ __forceinline__ void store_sum(float sum, int row, int column, int M, int N, float alpha,
                                          float beta, Result* C, int ldc) {
    if (row >= M || column >= N) {
        return;
    }
    Result* const to = C + (long long)row * ldc + column;
    float value = alpha * sum;
    if (beta != 0.0f) {
        value += beta * float_from_bf16(*to);
    }
    *to = bf16_from_float(value);
}

// Adds up this block's share of the tile at row m0 and column n0, always in the order of k.
__device__ __forceinline__ void add_parts(const float4* parts, int rank, int warpgroup, int m0,
                                          int n0, int M, int N, float alpha, float beta, Result* C,
                                          int ldc) {
    constexpr int SHARE = ROW_TILES * SUMS / 4 / SPLIT_K;
    const int thread = threadIdx.x % WARPGROUP;
    const int warp = thread / 32;
    const int lane = thread % 32;
    #pragma unroll
    for (int own = 0; own < SHARE; ++own) {
        const int at = rank * SHARE + own;
        const int place = warpgroup * (ROW_TILES * SUMS / 4) + at;
        float sum[4] = {};
        #pragma unroll
        for (int block = 0; block < SPLIT_K; ++block) {
            const float4 part =
                load_from_rank((const float*)(parts + place * WARPGROUP + thread), block);
            sum[0] += part.x;
            sum[1] += part.y;
            sum[2] += part.z;
            sum[3] += part.w;
        }
        const int first = at / (SUMS / 4) * 64 + 16 * warp + lane / 4;
        const int second = at % (SUMS / 4) * 8 + lane % 4 * 2;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = m0 + first + i / 2 * 8;
            const int column = n0 + second + i % 2;
            store_sum(sum[i], row, column, M, N, alpha, beta, C, ldc);
        }
    }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b) {
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned long long* const barriers = (unsigned long long*)(shared + STAGES * SLOT_BYTES);
    Ring ring = {shared, barriers, barriers + STAGES};
    const int warpgroup = threadIdx.x / WARPGROUP;
    const int thread = threadIdx.x % WARPGROUP;

    if (threadIdx.x == CONSUMERS * WARPGROUP) {
        prefetch_tensor_map(map_a);
        prefetch_tensor_map(map_b);
        for (int slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(ring.full + slot, 1);
            // The warps that let go of it.
            mbarrier_init(ring.empty + slot, 4 * CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();

    Tiles tiles;
    tiles.rows = (M + BM - 1) / BM;
    tiles.columns = (N + BN - 1) / BN;
    const int first_tile = (int)blockIdx.x / 2;
    const int stride = (int)gridDim.x / 2;
    const int all_slabs = (K + BK - 1) / BK;
    const int rank = (int)cluster_rank();
    const int first_slab = (int)((long long)all_slabs * rank / SPLIT_K);
    const int num_slabs = (int)((long long)all_slabs * (rank + 1) / SPLIT_K) - first_slab;

    if (warpgroup == CONSUMERS) {
        // Fetch: one thread keeps the ring full, across the ends of tiles.
        if (thread == 0) {
            for (int tile = first_tile; tile < tiles.count(); tile += stride) {
                const int m0 = tiles.row(tile);
                const int n0 = tiles.column(tile);
                for (int slab = 0; slab < num_slabs; ++slab) {
                    const int k0 = (first_slab + slab) * BK;
                    unsigned long long* const full = ring.full + ring.next;
                    mbarrier_wait(ring.empty + ring.next, ring.parity ^ 1);
                    mbarrier_arrive_expect(full, SLOT_BYTES);
                    fetch_a(ring.slab_a(), map_a, m0, k0, full);
                    fetch_b(ring.slab_b(), map_b, n0, k0, full);
                    ring.advance();
                }
            }
        }
    } else {
        float sums[ROW_TILES][SUMS];
        // Multiply and store.
        const int row = warpgroup / (BN / WN) * WM;
        const int column = warpgroup % (BN / WN) * WN;
        for (int tile = first_tile; tile < tiles.count(); tile += stride) {
            multiply_tile(ring, num_slabs, row, column, sums);
            leave_sums((float4*)shared, warpgroup, thread, sums);
        }
    }

    // Add: each block its share of the tile, from the parts of all.
    cluster_sync();
    if (warpgroup < CONSUMERS) {
        const int m0 = tiles.row(first_tile) + warpgroup / (BN / WN) * WM;
        const int n0 = tiles.column(first_tile) + warpgroup % (BN / WN) * WN;
        add_parts((const float4*)shared, rank, warpgroup, m0, n0, M, N, alpha, beta, C, ldc);
    }

    // No block leaves while others read its parts.
    cluster_arrive_relaxed();
    cluster_wait_acquire();
}

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on Hopper's tensor cores, row-major.
// A and B bf16, C f32, sums in FP32.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
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
using Result = float;

// Tile of C owned by one thread block, and by one warpgroup (four warps).
constexpr int BM = 64;
constexpr int BN = 256;
constexpr int WM = 64;
constexpr int WN = 128;
// Slabs of A and B that are on their way or in use.
constexpr int STAGES = 4;
// Blocks of a cluster that share a tile: each multiplies its part of K, then adds up its part of C.
constexpr int SPLIT_K = 8;

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
// What the other blocks of a cluster send of their sums: as many as a block has of each other.
constexpr int PARTS_BYTES = BM * BN * (int)sizeof(float) / SPLIT_K * (SPLIT_K - 1);

// The number of this thread's warp, the same in all lanes. From a shuffle the compiler knows that,
// and what follows from it, such as where products and copies find their operands, lies in the
// warp's own registers, from where their instructions take it.
__device__ __forceinline__ int warp_number() {
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
}

#ifndef AUTOGEMM_EMULATOR  // the CPU emulator supplies its own twins of these functions
// True in one thread of a warp, always the same; by all of them. Where a comparison of threads
// says who copies, the compiler makes a loop over threads of each copy.
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
#endif  // AUTOGEMM_EMULATOR

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
//   b: 16 x 128, stored along k
//   d: of each 8 columns two neighbours in row lane / 4 of a warp's 16, and two in row lane / 4 + 8
__device__ __forceinline__ void wgmma_bf16_kk(float (&d)[64], unsigned long long a,
                                              unsigned long long b, unsigned accumulate) {
    // clang-format off
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
        "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63 }, "
        "%64, %65, accumulate, 1, 1, 0, 0;\n"
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
__device__ __forceinline__ void keep_in_place(float (&sums)[64]) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) {
        asm volatile("" : "+f"(sums[i])::"memory");
    }
}

// A warpgroup leaves registers to others, or takes what they left; by all of its threads.
__device__ __forceinline__ void give_up_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}

__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
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

// Where in C a block's tile begins.
struct Place {
    int m0, n0;
};

// Tiles, by their number.
struct Tiles {
    unsigned rows, columns;

    __device__ __forceinline__ int count() const {
        return (int)(rows * columns);
    }

    // Row by row. The first slabs wait for this: without a division where there is one row.
    __device__ __forceinline__ Place place(unsigned index) const {
        const int row = rows > 1 ? index / columns : 0;
        const int column = index - row * columns;
        const int m0 = row * BM;
        const int n0 = column * BN;
        return {m0, n0};
    }
};

// Rows m0 to m0 + BM of A, 128 bytes wide.
__device__ __forceinline__ void fetch_a(unsigned char* slab, const TensorMap& map, int m0, int k0,
                                        unsigned long long* full) {
    copy_tile(slab, map, k0, m0, full);
}

// Rows n0 to n0 + BN of B, 128 bytes wide.
__device__ __forceinline__ void fetch_b(unsigned char* slab, const TensorMap& map, int n0, int k0,
                                        unsigned long long* full) {
    copy_tile(slab, map, k0, n0, full);
}

// What becomes of sums: C = alpha * sums + beta * C, of which M x N elements are there.
struct Update {
    int M, N;
    float alpha, beta;
    Result* C;
    int ldc;

    // beta * C, if that element is there.
    __device__ __forceinline__ float kept(int row, int column) const {
        if (row >= M || column >= N) {
            return 0.0f;
        }
        const Result old = C[(long long)row * ldc + column];
        return beta * old;
    }

    __device__ __forceinline__ void store(float value, int row, int column) const {
        if (beta != 0.0f) {
            value += kept(row, column);
        }
        if (row < M && column < N) {
            C[(long long)row * ldc + column] = value;
        }
    }

    // Whether nothing of C is kept, all columns of the warpgroup's tile are there, and any two
    // neighbours from an even column on can be stored together.
    __device__ __forceinline__ bool is_plain(int n0) const {
        return beta == 0.0f && N - n0 >= WN && ldc % 2 == 0 &&
               (unsigned long long)C % (2 * sizeof(Result)) == 0;
    }

    __device__ __forceinline__ void store_two(float value, float next, int row, int column) const {
        if (row < M) {
            Result* const two = C + (long long)row * ldc + column;
            *(float2*)two = make_float2(value, next);
        }
    }
};

// A thread's sums, in fours: so many of each of its row tiles, of which each block of the cluster
// adds up so many.
constexpr int FOURS = SUMS / 4;
constexpr int SHARE = ROW_TILES * FOURS / SPLIT_K;

// Exchanges shares until that of rank ^ i is number i, and so a block's own the first: from here on
// all blocks run the same code, on the same registers.
__device__ __forceinline__ void put_own_first(unsigned rank, float (&sums)[ROW_TILES][SUMS]) {
    #pragma unroll
    for (int bit = 1; bit < SPLIT_K; bit *= 2) {
        const bool is_set = (rank & bit) != 0;
        #pragma unroll
        for (int at = 0; at < ROW_TILES * SUMS; ++at) {
            if (at / (4 * SHARE) & bit) {
                continue;
            }
            const int there = at + bit * 4 * SHARE;
            float& low = sums[at / SUMS][at % SUMS];
            float& high = sums[there / SUMS][there % SUMS];
            const float first = is_set ? high : low;
            high = is_set ? low : high;
            low = first;
        }
    }
}

// Where a block keeps what the one of rank ^ other sent, and that one what this one sent.
__device__ __forceinline__ int place_of_part(int other, int warpgroup, int at) {
    return (((other - 1) * CONSUMERS + warpgroup) * SHARE + at) * WARPGROUP +
           threadIdx.x % WARPGROUP;
}

// Sends all but the own share to those who add them up.
__device__ __forceinline__ void send_sums(float4* parts, unsigned long long* arrived, unsigned rank,
                                          int warpgroup, const float (&sums)[ROW_TILES][SUMS]) {
    #pragma unroll
    for (int other = 1; other < SPLIT_K; ++other) {
        #pragma unroll
        for (int at = 0; at < SHARE; ++at) {
            const int first = (other * SHARE + at) * 4;
            const float* const four = &sums[first / SUMS][first % SUMS];
            store_async_to_rank((float*)(parts + place_of_part(other, warpgroup, at)), rank ^ other,
                                make_float4(four[0], four[1], four[2], four[3]), arrived);
        }
    }
}

// share = alpha * (the own part + that of rank ^ 1 + that of rank ^ 2 and so on).
__device__ __forceinline__ void add_parts(const float4* parts, int warpgroup, float alpha,
                                          const float (&sums)[ROW_TILES][SUMS],
                                          float (&share)[SHARE][4]) {
    #pragma unroll
    for (int at = 0; at < SHARE; ++at) {
        const float* const own = &sums[4 * at / SUMS][4 * at % SUMS];
        float4 sum = make_float4(own[0], own[1], own[2], own[3]);
        #pragma unroll
        for (int other = 1; other < SPLIT_K; ++other) {
            const float4 part = parts[place_of_part(other, warpgroup, at)];
            sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
        }
        share[at][0] = alpha * sum.x;
        share[at][1] = alpha * sum.y;
        share[at][2] = alpha * sum.z;
        share[at][3] = alpha * sum.w;
    }
}

// The place in C of one of the four sums that a thread has from each 8 columns of an instruction.
struct Position {
    int row, column;
};

__device__ __forceinline__ Position position_of(int m0, int n0, unsigned rank, int at, int i) {
    const int warp = threadIdx.x % WARPGROUP / 32;
    const int lane = threadIdx.x % 32;
    // A share is whole row tiles, or a part of one.
    const int tile = (int)(rank * SHARE / FOURS) + at / FOURS;
    const int second = ((int)(rank * SHARE % FOURS) + at % FOURS) * 8 + lane % 4 * 2 + i % 2;
    return {m0 + 64 * tile + 16 * warp + lane / 4 + i / 2 * 8, n0 + second};
}

// Writes a block's share of the tile at row m0 and column n0.
__device__ __forceinline__ void store_share(unsigned rank, int m0, int n0, const Update& update,
                                            float (&share)[SHARE][4]) {
    if (update.is_plain(n0)) {
        #pragma unroll
        for (int at = 0; at < SHARE; ++at) {
            #pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const Position to = position_of(m0, n0, rank, at, i);
                update.store_two(share[at][i], share[at][i + 1], to.row, to.column);
            }
        }
        return;
    }
    // Always the first four: behind them the others move down, so that this code is there once.
    #pragma unroll 1
    for (int at = 0; at < SHARE; ++at) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Position to = position_of(m0, n0, rank, at, i);
            update.store(share[0][i], to.row, to.column);
        }
        #pragma unroll
        for (int next = 0; next + 1 < SHARE; ++next) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                share[next][i] = share[next + 1][i];
            }
        }
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
                const int in_b = step * 32;
                wgmma_bf16_kk(sums[i], a + (in_a >> 4), b + (in_b >> 4), slab > 0 || step > 0);
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
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        keep_in_place(sums[i]);
    }
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b) {
    extern __shared__ __align__(1024) unsigned char shared[];
    float4* const parts = (float4*)(shared + STAGES * SLOT_BYTES);
    unsigned long long* const barriers = (unsigned long long*)((char*)parts + PARTS_BYTES);
    // When the parts of all others are there.
    unsigned long long* const arrived = barriers + 2 * STAGES;
    Ring ring = {shared, barriers, barriers + STAGES};
    const int warp = warp_number();
    const int warpgroup = warp / 4;

    if (threadIdx.x == CONSUMERS * WARPGROUP) {
        prefetch_tensor_map(map_a);
        prefetch_tensor_map(map_b);
        for (int slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(ring.full + slot, 1);
            // The warps that let go of it.
            mbarrier_init(ring.empty + slot, 4 * CONSUMERS);
        }
        mbarrier_init(arrived, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(arrived, PARTS_BYTES);
    }
    cluster_arrive_relaxed();
    __syncthreads();

    Tiles tiles;
    tiles.rows = (M + BM - 1) / BM;
    tiles.columns = (N + BN - 1) / BN;
    const Place place = tiles.place(blockIdx.x / SPLIT_K);
    const unsigned all_slabs = (K + BK - 1) / BK;
    const unsigned rank = cluster_rank();
    const int first_slab = (int)(all_slabs * rank / SPLIT_K);
    const int num_slabs = (int)(all_slabs * (rank + 1) / SPLIT_K) - first_slab;

    if (warpgroup == CONSUMERS) {
        // Fetch: one thread keeps the ring full.
        give_up_registers();
        if (warp % 4 == 0 && is_elected()) {
            for (int slab = 0; slab < num_slabs; ++slab) {
                const int k0 = (first_slab + slab) * BK;
                unsigned long long* const full = ring.full + ring.next;
                mbarrier_wait(ring.empty + ring.next, ring.parity ^ 1);
                mbarrier_arrive_expect(full, SLOT_BYTES);
                fetch_a(ring.slab_a(), map_a, place.m0, k0, full);
                fetch_b(ring.slab_b(), map_b, place.n0, k0, full);
                ring.advance();
            }
        }
        cluster_wait_acquire();
    } else {
        take_registers();
        float sums[ROW_TILES][SUMS];
        // Multiply and add up.
        const int row = warpgroup / (BN / WN) * WM;
        const int column = warpgroup % (BN / WN) * WN;
        multiply_tile(ring, num_slabs, row, column, sums);
        put_own_first(rank, sums);
        // Long since: all barriers are there.
        cluster_wait_acquire();
        send_sums(parts, arrived, rank, warpgroup, sums);
        mbarrier_wait(arrived, 0);
        float share[SHARE][4];
        add_parts(parts, warpgroup, alpha, sums, share);
        store_share(rank, place.m0 + row, place.n0 + column, {M, N, alpha, beta, C, ldc}, share);
    }
}

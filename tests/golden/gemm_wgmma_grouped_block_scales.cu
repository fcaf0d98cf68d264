// autogemm, family gemm_wgmma: BM=128 BN=128 WM=64 WN=128 STAGES=6 SCHEDULE=cooperative CLUSTER_M=1
// CLUSTER_N=1 SPLIT_K=1 BOX_M=16 C_BUFFERS=1 GROUP_M=8 BLOCKS=132 EPILOGUE=after K_ORDER=forward
// SWAP_AB=0 SHORT_BY=0 PACK=none PROMOTE=128 PROMOTION=alternating STORE_C=tma

// Rows of A and C belong to groups: offsets[g] is the first of group g, offsets[g + 1] the one
// behind its last. Each group has a B of its own, one behind the other. Rows of no group are left
// as they are.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on Hopper's tensor cores, row-major.
// A and B e4m3, C bf16, accumulators FP32 in registers, of fewer bits in tensor cores.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
//
// TMA loads k tiles of A and B into stages in shared memory; warpgroups multiply them.
//
// Valid for:
//   M, K: any; N: multiples of 8, since TMA writes C in chunks of 16 bytes
//   A, B: aligned to 16 bytes, lda and ldb multiples of 16
//   C: aligned to 16 bytes, ldc a multiple of 8

// Instructions of Hopper alone, which the plain target sm_90 does not have.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "this kernel is for compute capability 9.0 alone: use -gencode arch=compute_90a,code=sm_90a"
#endif

// The bits of an e4m3.
using Element = unsigned char;
using Result = unsigned short;

// Tile of C owned by one thread block, and by one warpgroup (four warps).
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int WM = 64;
constexpr int WN = 128;
// Stages: k tiles of A and B that are in flight or in use.
constexpr int STAGES = 6;
// Boxes of C, 16 rows of 128 bytes, that a warp fills while TMA writes others.
constexpr int BOX_M = 16;
constexpr int C_BUFFERS = 1;

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
constexpr int BOX_N = 128 / sizeof(Result);
constexpr int BOX_BYTES = BOX_M * 128;
// All boxes of a warpgroup.
constexpr int C_BYTES = C_BUFFERS * 64 * 128;

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

// A barrier for num_threads of the block, a multiple of 32. Numbers go from 1 to 15.
__device__ __forceinline__ void named_barrier_sync(unsigned number, unsigned num_threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(num_threads) : "memory");
}

// Counts this thread as arrived without waiting for the others.
__device__ __forceinline__ void named_barrier_arrive(unsigned number, unsigned num_threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(number), "r"(num_threads) : "memory");
}

// A matrix as the driver describes it to TMA; passed as `const __grid_constant__ TensorMap`.
struct __align__(64) TensorMap {
    unsigned long long words[16];
};

// One of the matrices that a map describes.
struct MatrixMap {
    const TensorMap* map;
    int matrix;
};

// A matrix whose rows belong to groups, up to the row behind a group's last. Two dimensions of its
// map are rows: the first ends at LAST_ROW, and the second moves that to the end of the group.
struct GroupMap {
    static constexpr int LAST_ROW = 1 << 30;

    const TensorMap* map;
    int end;
};

// Prefetches the map before its first use.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts a copy of the map's box, its first element in that column and row; what lies outside the
// matrix or behind the group becomes zero. The phase of the mbarrier, which was told to expect the
// bytes of a whole box, ends when they have come.
__device__ __forceinline__ void copy_tile(void* shared, const GroupMap& map, int column, int row,
                                          unsigned long long* mbarrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, { %2, %3, %4, %5 }], [%6];" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
        "l"(map.map), "r"(column), "r"(GroupMap::LAST_ROW + row - map.end), "r"(map.end),
        "r"(GroupMap::LAST_ROW), "r"((unsigned)__cvta_generic_to_shared(mbarrier))
        : "memory");
}

__device__ __forceinline__ void copy_tile(void* shared, const MatrixMap& map, int column, int row,
                                          unsigned long long* mbarrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, { %2, %3, %4 }], [%5];" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
        "l"(map.map), "r"(column), "r"(row), "r"(map.matrix),
        "r"((unsigned)__cvta_generic_to_shared(mbarrier))
        : "memory");
}

// Starts to write a box from shared memory, without what lies outside the matrix or behind the
// group. Threads that filled it have called fence_before_bulk_copies() and a barrier before.
__device__ __forceinline__ void store_tile(const void* shared, const GroupMap& map, int column,
                                           int row) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
        "[%0, { %1, %2, %3, %4 }], [%5];" ::"l"(map.map),
        "r"(column), "r"(GroupMap::LAST_ROW + row - map.end), "r"(map.end), "r"(GroupMap::LAST_ROW),
        "r"((unsigned)__cvta_generic_to_shared(shared))
        : "memory");
}

// Called by the thread that started them: stores since the last call are one group.
__device__ __forceinline__ void commit_tile_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the last `num_left` groups of this thread (a constant) have read shared
// memory, which may then be filled again.
#define wait_for_tile_reads(num_left) \
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(num_left) : "memory")

// Waits until they have written C as well.
#define wait_for_tile_stores(num_left) \
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(num_left) : "memory")

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

// Release registers to other warpgroups, or take what they released (setmaxnreg); executed by all
// threads of a warpgroup.
__device__ __forceinline__ void give_up_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}

__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}

// Four 8 x 8 matrices of 16-bit elements to shared memory: lane i has the address of a row, and two
// neighbours of row i / 4 of each matrix.
__device__ __forceinline__ void store_matrices(void* row, const unsigned (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], { %1, %2, %3, %4 };" ::"r"(
                     (unsigned)__cvta_generic_to_shared(row)),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
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

// A block's tile: where in C it begins, the group whose B it takes, and the row behind that group's
// last, from which on rows are others'.
struct Place {
    int m0, n0;
    int group, end_m;
};

// The tiles of C, by their number.
struct Tiles {
    const int* offsets;
    int groups;
    unsigned columns;
    // The group of the last tile found: its number, its rows, its rows of tiles, its first tile.
    int group, first_m, end_m;
    unsigned rows, first_tile;
    // Groups are dealt out to the lanes of a warp, as many to each, none to the last; this lane's
    // have so many tiles before them.
    unsigned tiles_before;

    __device__ __forceinline__ int groups_of_lane() const {
        return groups / 31 + 1;
    }

    __device__ __forceinline__ unsigned rows_of_tiles(int rows) const {
        return (rows + BM - 1) / BM;
    }

    // Counts the tiles before each lane's groups; executed by whole warps, as is `reach`.
    __device__ __forceinline__ void count_tiles() {
        const int lane = threadIdx.x % 32;
        const int first = lane * groups_of_lane();
        const int end = min(first + groups_of_lane(), groups);
        unsigned own = 0;
        int begin_m = offsets[min(first, groups)];
        for (int one = first; one < end; ++one) {
            const int behind_m = offsets[one + 1];
            own += rows_of_tiles(behind_m - begin_m);
            begin_m = behind_m;
        }
        unsigned through = own;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const unsigned others = __shfl_up_sync(0xffffffffu, through, step);
            through += lane >= step ? others : 0;
        }
        tiles_before = (through - own) * columns;
    }

    // Goes on to the group of that tile, which comes after those found before. False if there is no
    // such tile.
    __device__ __forceinline__ bool reach(unsigned index) {
        if (index - first_tile < rows * columns) {
            return true;
        }
        // The last lane with no more tiles before its groups has the tile's; lane 31 has no groups.
        const int lane = __popc(__ballot_sync(0xffffffffu, tiles_before <= index)) - 1;
        const int first = lane * groups_of_lane();
        if (first > group) {
            if (first >= groups) {
                return false;
            }
            first_tile = __shfl_sync(0xffffffffu, tiles_before, lane);
            rows = 0;
            group = first - 1;
            end_m = offsets[first];
        }
        while (index - first_tile >= rows * columns) {
            first_tile += rows * columns;
            group += 1;
            first_m = end_m;
            end_m = offsets[group + 1];
            rows = rows_of_tiles(end_m - first_m);
        }
        return true;
    }

    // Down GROUP_M rows of tiles of the group that was reached, then one column on, so that tiles
    // in flight share rows of A and columns of B in L2.
    static constexpr int GROUP_M = 8;

    __device__ __forceinline__ Place place(unsigned index) const {
        const unsigned in_group = index - first_tile;
        const unsigned in_rows = in_group % (GROUP_M * columns);
        const int first = in_group / (GROUP_M * columns) * GROUP_M;
        // The last rows may be fewer; a constant is divided by faster.
        const int height = min(GROUP_M, (int)rows - first);
        const int column = height == GROUP_M ? in_rows / GROUP_M : in_rows / height;
        const int row = first + in_rows - column * height;
        const int m0 = first_m + row * BM;
        const int n0 = column * BN;
        return {m0, n0, group, end_m};
    }
};

// Loads rows m0 to m0 + BM of A, 128 bytes wide.
__device__ __forceinline__ void load_a(unsigned char* k_tile, const GroupMap& map, int m0, int k0,
                                       unsigned long long* full) {
    copy_tile(k_tile, map, k0, m0, full);
}

// Loads rows n0 to n0 + BN of B, 128 bytes wide.
__device__ __forceinline__ void load_b(unsigned char* k_tile, const MatrixMap& map, int n0, int k0,
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

    // Whether C is made of accumulators as they are.
    __device__ __forceinline__ bool is_identity() const {
        return false;
    }
};

// C[m][n] = acc * sa[k / 128, m] * sb[g, n / 128, k / 128]
// accum is a sum of products of blocks times their scales.
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    return accum;
}

// C, of which M x N elements exist. TMA writes it; old values are read from here.
struct Output {
    int M, N;
    const Result* C;
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
};

// Accumulators become elements of C where they are. The four of a thread in each 8 columns of an
// instruction are two neighbours in two rows. All row tiles take theirs at the same time,
// so that what they read in common is loaded once.
__device__ __forceinline__ void apply_epilogue(const Output& output, int m0, int n0,
                                               float (&accum)[ROW_TILES][NUM_ACCUM]) {
    const int warp = threadIdx.x % WARPGROUP / 32;
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int four = 0; four < NUM_ACCUM; four += 4) {
        #pragma unroll
        for (int i = 0; i < ROW_TILES; ++i) {
            #pragma unroll
            for (int at = 0; at < 4; ++at) {
                const int m = m0 + 64 * i + 16 * warp + lane / 4 + at / 2 * 8;
                const int n = n0 + four / 4 * 8 + lane % 4 * 2 + at % 2;
                float& element = accum[i][four + at];
                element = output.element(element, m, n);
            }
        }
    }
}

// What a thread has of a box: its elements of C, two in a word.
constexpr int IN_BOX = BOX_N / 4;

// Writes a box of a warpgroup. TMA undoes the swizzle of a box's 16-byte chunks as it writes them,
// and leaves out what is outside C.
__device__ __forceinline__ void store_box(unsigned char* boxes, int buffer, const GroupMap& map_c,
                                          int warpgroup, int m0, int n0, const unsigned* words) {
    const int thread = threadIdx.x % WARPGROUP;
    const int warp = thread / 32;
    const int lane = thread % 32;
    if (lane == 0) {
        wait_for_tile_reads(C_BUFFERS - 1);
    }
    __syncwarp();
    unsigned char* const box = boxes + (warp * C_BUFFERS + buffer) * BOX_BYTES;
    #pragma unroll
    for (int at = 0; at < IN_BOX; at += 4) {
        const unsigned four[4] = {words[at], words[at + 1], words[at + 2], words[at + 3]};
        const int row = lane % 16;
        const int chunk = (at / 2 + lane / 16) ^ lane % 8;
        store_matrices(box + row * 128 + chunk * 16, four);
    }
    fence_before_bulk_copies();
    __syncwarp();
    if (lane == 0) {
        store_tile(box, map_c, n0, m0 + 16 * warp);
        commit_tile_stores();
    }
}

// Writes a warpgroup's tile, box by box.
__device__ __forceinline__ void store_accum(unsigned char* boxes, const GroupMap& map_c,
                                            int warpgroup, int m0, int n0, const Output& output,
                                            float (&accum)[ROW_TILES][NUM_ACCUM]) {
    if (!output.with.is_identity()) {
        apply_epilogue(output, m0, n0, accum);
    }
    int buffer = 0;
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        #pragma unroll
        for (int n = 0; n < WN; n += BOX_N) {
            const float* const elements = &accum[i][n / 2];
            unsigned words[IN_BOX];
            #pragma unroll
            for (int at = 0; at < IN_BOX; ++at) {
                words[at] = bf16_pair(elements[2 * at], elements[2 * at + 1]);
            }
            store_box(boxes, buffer, map_c, warpgroup, m0 + 64 * i, n0 + n, words);
            buffer = buffer + 1 == C_BUFFERS ? 0 : buffer + 1;
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
// sb[g, n / 128, k / 128] for each 128 rows of B.
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

// A thread's sums over one k tile, and the scales that belong to them.
struct Partial {
    float sums[NUM_ACCUM];
    Scales scales;
    int stage;

    // Waits for a k tile and starts its products.
    __device__ __forceinline__ void start(Pipeline& pipeline, int row, int column,
                                          const float* stage_scales) {
        stage = pipeline.stage;
        mbarrier_wait(pipeline.full + stage, pipeline.parity);
        scales = scales_of(stage_scales + stage * STAGE_SCALES, row, column);
        const unsigned long long a =
            matrix_descriptor_128(pipeline.k_tile_a() + row * 128, BK * 128, 1024);
        const unsigned long long b =
            matrix_descriptor_128(pipeline.k_tile_b() + column * 128, BK * 128, 1024);
        wgmma_fence();
        #pragma unroll
        for (int step = 0; step < BK / STEP; ++step) {
            wgmma_e4m3_kk(sums, a + (step * 32 >> 4), b + (step * 32 >> 4), step > 0);
        }
        wgmma_commit();
        pipeline.advance();
    }

    // Called when they are done.
    __device__ __forceinline__ void add_to(float (&accum)[NUM_ACCUM]) {
        keep_in_place(sums);
        #pragma unroll
        for (int j = 0; j < NUM_ACCUM; ++j) {
            accum[j] += sums[j] * scales.of(0, j);
        }
    }
};

// Starts the products of one k tile, and adds the sums of the one before.
__device__ __forceinline__ void start_and_add(Partial& next, Partial& before, Pipeline& pipeline,
                                              int row, int column, const float* stage_scales,
                                              float (&accum)[NUM_ACCUM]) {
    next.start(pipeline, row, column, stage_scales);
    wgmma_wait_1();
    pipeline.release(before.stage);
    before.add_to(accum);
}

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
    Partial even;
    Partial odd;
    even.start(pipeline, row, column, scales);
    int k_tile = 1;
    for (; k_tile + 1 < num_k_tiles; k_tile += 2) {
        start_and_add(odd, even, pipeline, row, column, scales, accum[0]);
        start_and_add(even, odd, pipeline, row, column, scales, accum[0]);
    }
    if (k_tile < num_k_tiles) {
        start_and_add(odd, even, pipeline, row, column, scales, accum[0]);
        wgmma_wait_0();
        pipeline.release(odd.stage);
        odd.add_to(accum[0]);
    } else {
        wgmma_wait_0();
        pipeline.release(even.stage);
        even.add_to(accum[0]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                int groups, const int* __restrict__ offsets, const float* __restrict__ epilogue_sa,
                const float* __restrict__ epilogue_sb, const __grid_constant__ TensorMap map_a,
                const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_c) {
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char* const boxes = shared + STAGES * STAGE_BYTES;
    unsigned long long* const barriers = (unsigned long long*)(boxes + CONSUMERS * C_BYTES);
    Pipeline pipeline = {shared, barriers, barriers + STAGES};
    float* const scales = (float*)(barriers + 2 * STAGES);
    const int warp = warp_number();
    const int warpgroup = warp / 4;

    if (threadIdx.x == CONSUMERS * WARPGROUP) {
        prefetch_tensor_map(map_a);
        prefetch_tensor_map(map_b);
        prefetch_tensor_map(map_c);
        for (int stage = 0; stage < STAGES; ++stage) {
            // The thread that starts copies arrives, and each lane that brings scales.
            mbarrier_init(pipeline.full + stage, 1 + 32);
            // One arrival for each lane that has read scales.
            mbarrier_init(pipeline.empty + stage, 4 * CONSUMERS * 32);
        }
        mbarrier_fence_init();
    }
    Tiles tiles;
    tiles.offsets = offsets;
    tiles.groups = groups;
    tiles.columns = (N + BN - 1) / BN;
    tiles.group = -1;
    tiles.rows = 0;
    tiles.first_tile = 0;
    tiles.count_tiles();
    __syncthreads();
    const int first_tile = (int)blockIdx.x;
    const int stride = (int)gridDim.x;
    const int num_k_tiles = (K + BK - 1) / BK;

    const Epilogue with = {epilogue_sa, epilogue_sb};
    if (warpgroup == CONSUMERS) {
        // Load: one thread keeps the stages full, across the ends of tiles.
        give_up_registers();
        if (warp % 4 == 0) {
            for (int tile = first_tile; tiles.reach(tile); tile += stride) {
                const Place place = tiles.place(tile);
                // All threads of the warp look for the tile's group; one loads.
                if (!is_elected()) {
                    continue;
                }
                for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
                    const int k0 = k_tile * BK;
                    unsigned long long* const full = pipeline.full + pipeline.stage;
                    mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);
                    mbarrier_arrive_expect(full, STAGE_BYTES);
                    load_a(pipeline.k_tile_a(), {&map_a, place.end_m}, place.m0, k0, full);
                    load_b(pipeline.k_tile_b(), {&map_b, place.group}, place.n0, k0, full);
                    pipeline.advance();
                }
            }
        }
        if (warp % 4 > 0) {
            // Load scales: each of three warps those of every third k tile.
            const long long scales_of_group = (long long)((N + 127) / 128) * num_k_tiles;
            int turn = warp % 4;
            for (int tile = first_tile; tiles.reach(tile); tile += stride) {
                const Place place = tiles.place(tile);
                const float* const of_b = with.sb + place.group * scales_of_group;
                const BlockScales block_scales = {with.sa, of_b, M, N, num_k_tiles, scales};
                for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
                    if (--turn == 0) {
                        block_scales.fill(pipeline, place.m0, place.n0, k_tile);
                        turn = 3;
                    }
                    pipeline.advance();
                }
            }
        }
    } else {
        take_registers();
        float accum[ROW_TILES][NUM_ACCUM];
        // Multiply and store.
        const int row = warpgroup / (BN / WN) * WM;
        const int column = warpgroup % (BN / WN) * WN;
        for (int tile = first_tile; tiles.reach(tile); tile += stride) {
            const Place place = tiles.place(tile);
            const Output output = {place.end_m, N, C, ldc, with};
            multiply_tile(pipeline, num_k_tiles, row, column, scales, accum);
            store_accum(boxes + warpgroup * C_BYTES, {&map_c, place.end_m}, warpgroup,
                        place.m0 + row, place.n0 + column, output, accum);
        }
        if (threadIdx.x % 32 == 0) {
            wait_for_tile_reads(0);
        }
    }
}

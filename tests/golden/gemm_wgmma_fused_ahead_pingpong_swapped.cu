// autogemm, family gemm_wgmma: BM=200 BN=128 WM=200 WN=128 STAGES=5 SCHEDULE=pingpong CLUSTER_M=1
// CLUSTER_N=1 SPLIT_K=1 BOX_M=40 C_BUFFERS=2 GROUP_M=8 BLOCKS=132 EPILOGUE=after K_ORDER=forward
// SWAP_AB=1 SHORT_BY=0 PACK=none STORE_C=tma INPUTS=ahead

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N] on Hopper's tensor cores, row-major.
// A and B bf16, C bf16, accumulators FP32.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
//
// TMA loads k tiles of A and B into stages in shared memory; warpgroups multiply them.
//
// Valid for:
//   M, K: any; N: multiples of 8, since TMA writes C in chunks of 16 bytes
//   A, B: aligned to 16 bytes, lda and ldb multiples of 8
//   C: aligned to 16 bytes, ldc a multiple of 8

// Instructions of Hopper alone, which the plain target sm_90 does not have.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "this kernel is for compute capability 9.0 alone: use -gencode arch=compute_90a,code=sm_90a"
#endif

// The bits of a bf16.
using Element = unsigned short;
using Result = unsigned short;

// Tile of C owned by one thread block, and by one warpgroup (four warps): all of it, in turns.
constexpr int BM = 200;
constexpr int BN = 128;
constexpr int WM = 200;
constexpr int WN = 128;
// Stages: k tiles of A and B that are in flight or in use.
constexpr int STAGES = 5;
// Boxes of C, 40 rows of 128 bytes, that a warpgroup fills while TMA writes others.
constexpr int BOX_M = 40;
constexpr int C_BUFFERS = 2;

constexpr int WARPGROUP = 128;
constexpr int CONSUMERS = 2;
constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
// Depth of a k tile: 128 bytes of a stored row, or as many rows of an operand stored across k.
constexpr int BK = 128 / sizeof(Element);
// Depth of one instruction.
constexpr int STEP = 32 / sizeof(Element);
constexpr int A_BYTES = BM * 128;
constexpr int STAGE_BYTES = (BM + BN) * 128;
// Tensor cores make C^T: an instruction takes 64 rows from B and its columns from A; a thread makes
// NUM_ACCUM elements of them.
constexpr int ROW_TILES = WN / 64;
constexpr int NUM_ACCUM = WM / 2;
constexpr int BOX_BYTES = BOX_M * 128;
// All boxes of a warpgroup.
constexpr int C_BYTES = C_BUFFERS * BOX_BYTES;

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

// Starts to write a box from shared memory, without what lies outside the matrix. Threads that
// filled it have called fence_before_bulk_copies() and a barrier before.
__device__ __forceinline__ void store_tile(const void* shared, const TensorMap& map, int column,
                                           int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, { %1, %2 }], [%3];" ::"l"(
            &map),
        "r"(column), "r"(row), "r"((unsigned)__cvta_generic_to_shared(shared))
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
__device__ __forceinline__ void keep_in_place(float (&accum)[100]) {
    #pragma unroll
    for (int i = 0; i < 100; ++i) {
        asm volatile("" : "+f"(accum[i])::"memory");
    }
}

// Starts d = a * b (+ d if accumulate) for the 128 threads of a warpgroup.
//   a: 64 x 16, stored along k
//   b: 16 x 200, stored along k
//   d: of each 8 columns two neighbours in row lane / 4 of a warp's 16, and two in row lane / 4 + 8
__device__ __forceinline__ void wgmma_bf16_kk(float (&d)[100], unsigned long long a,
                                              unsigned long long b, unsigned accumulate) {
    // clang-format off
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %102, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n200k16.f32.bf16.bf16 "
        "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
        "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
        "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
        "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "
        "%98, %99 }, "
        "%100, %101, accumulate, 1, 1, 0, 0;\n"
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
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]),
          "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
          "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
          "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]),
          "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
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

// Four 8 x 8 matrices of 16-bit elements to shared memory, transposed: lane i has the address where
// a column goes, and two neighbours of row i / 4 of each matrix.
__device__ __forceinline__ void store_matrices_transposed(void* column, const unsigned (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], { %1, %2, %3, %4 };" ::"r"(
                     (unsigned)__cvta_generic_to_shared(column)),
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

    __device__ __forceinline__ void skip(int num_k_tiles) {
        parity ^= (stage + num_k_tiles) / STAGES % 2;
        stage = (stage + num_k_tiles) % STAGES;
    }

    // Called by each warp when its products with that stage are done.
    __device__ __forceinline__ void release(int used) const {
        const int lane = threadIdx.x % 32;
        if (lane == 0) {
            mbarrier_arrive(empty + used);
        }
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

    // Down GROUP_M rows of tiles, then one column on, so that tiles in flight share rows of A and
    // columns of B in L2.
    static constexpr int GROUP_M = 8;

    __device__ __forceinline__ Place place(unsigned index) const {
        const unsigned in_group = index % (GROUP_M * columns);
        const int first = index / (GROUP_M * columns) * GROUP_M;
        // The last group may have fewer rows; a constant is divided by faster.
        const int height = min(GROUP_M, (int)rows - first);
        const int column = height == GROUP_M ? in_group / GROUP_M : in_group / height;
        const int row = first + in_group - column * height;
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
    const unsigned short* rest;
    int columns;

    __device__ __forceinline__ bool reads_c() const {
        return false;
    }

    // Whether C is made of accumulators as they are.
    __device__ __forceinline__ bool is_identity() const {
        return false;
    }
};

// C[m][n] = acc + rest[m, n]
// rest is an element of its tile.
__device__ __forceinline__ float epilogue(float accum, float rest, float old_c, int m, int n,
                                          const Epilogue& with) {
    return accum + rest;
}

// As it, from memory: for what computes the same without tiles.
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    const long long place = (long long)m * with.columns + n;
    const float rest = float_from_bf16(with.rest[place]);
    return epilogue(accum, rest, old_c, m, n, with);
}

// C, of which M x N elements exist. TMA writes it; old values are read from here.
struct Output {
    int M, N;
    const Result* C;
    int ldc;
    Epilogue with;

    // The element of C that an accumulator becomes. Outside C, where nothing is written, it may be
    // any value, and the epilogue still gets a row and a column of C.
    __device__ __forceinline__ float element(float accum, float rest, int m, int n) const {
        float old_c = 0.0f;
        if (with.reads_c() && m < M && n < N) {
            old_c = float_from_bf16(C[(long long)m * ldc + n]);
        }
        return epilogue(accum, rest, old_c, min(m, M - 1), min(n, N - 1), with);
    }
};

// The tile of rest, in boxes of BM rows and 64 columns: as many in a stage as it has room for.
constexpr int INPUT_BYTES = BM * 128;
constexpr int NUM_INPUT_BOXES = BN / 64;
constexpr int INPUT_BOXES = STAGE_BYTES / INPUT_BYTES;
constexpr int INPUT_STAGES = (NUM_INPUT_BOXES + INPUT_BOXES - 1) / INPUT_BOXES;
static_assert(INPUT_STAGES <= STAGES, "the stages hold the input's tile as a whole");

// Loads the tile as soon as stages are empty, while the last k tiles are multiplied.
__device__ __forceinline__ void load_input(Pipeline& pipeline, const TensorMap& map, int m0,
                                           int n0) {
    for (int first = 0; first < NUM_INPUT_BOXES; first += INPUT_BOXES) {
        const int num_boxes = min(INPUT_BOXES, NUM_INPUT_BOXES - first);
        unsigned long long* const full = pipeline.full + pipeline.stage;
        mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);
        mbarrier_arrive_expect(full, num_boxes * INPUT_BYTES);
        for (int i = 0; i < num_boxes; ++i) {
            copy_tile(pipeline.k_tile_a() + i * INPUT_BYTES, map, n0 + (first + i) * 64, m0, full);
        }
        pipeline.advance();
    }
}

// A box of the tile, whose first one is in that stage.
__device__ __forceinline__ const unsigned char* input_box(const Pipeline& pipeline, int first_stage,
                                                          int box) {
    const int stage = (first_stage + box / INPUT_BOXES) % STAGES;
    return pipeline.stages + stage * STAGE_BYTES + box % INPUT_BOXES * INPUT_BYTES;
}

// Accumulators become elements of C where they are, with those of rest, whose tile is in the stages
// that follow. A load takes 16 rows and 16 columns of it, transposed as C^T is: of each 8 columns
// two neighbours in two rows of C^T to a thread, as it has accumulators.
__device__ __forceinline__ void apply_epilogue(Pipeline& pipeline, const Output& output, int m0,
                                               int n0, int row, int column,
                                               float (&accum)[ROW_TILES][NUM_ACCUM]) {
    const int warp = threadIdx.x % WARPGROUP / 32;
    const int lane = threadIdx.x % 32;
    const int first_stage = pipeline.stage;
    for (int i = 0; i < INPUT_STAGES; ++i) {
        mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);
        pipeline.advance();
    }
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        const unsigned char* const box = input_box(pipeline, first_stage, column / 64 + i);
        const int chunk = (2 * warp + lane / 8 % 2) ^ lane % 8;
        #pragma unroll
        for (int first = 0; first < NUM_ACCUM; first += 8) {
            // The last 8 rows may have none behind them.
            const int in_tile = min(2 * first + lane / 16 * 8, WM - 8) + lane % 8;
            unsigned words[4];
            load_transposed(words, box + (row + in_tile) * 128 + chunk * 16);
            #pragma unroll
            for (int at = 0; at < 8 && first + at < NUM_ACCUM; ++at) {
                const int m = m0 + row + 2 * first + at / 4 * 8 + lane % 4 * 2 + at % 2;
                const int n = n0 + column + 64 * i + 16 * warp + lane / 4 + at / 2 % 2 * 8;
                const unsigned bits = words[at / 2] >> at % 2 * 16;
                const float rest = float_from_bf16((unsigned short)bits);
                float& element = accum[i][first + at];
                element = output.element(element, rest, m, n);
            }
        }
    }
    // All lanes have theirs before TMA fills the stages anew: an arrival alone does not wait for
    // loads that are under way.
    fence_before_bulk_copies();
    __syncwarp();
    for (int i = 0; i < INPUT_STAGES; ++i) {
        pipeline.release((first_stage + i) % STAGES);
    }
}

// Writes a warpgroup's tile of C^T, two boxes side by side at a time, each with 64 columns of C, 16
// of each warp. TMA undoes the swizzle of a box's 16-byte chunks as it writes them, and leaves out
// what is outside C.
__device__ __forceinline__ void store_accum(unsigned char* boxes, const TensorMap& map_c,
                                            int warpgroup, int m0, int n0, const Output& output,
                                            float (&accum)[ROW_TILES][NUM_ACCUM]) {
    const int thread = threadIdx.x % WARPGROUP;
    const int warp = thread / 32;
    const int lane = thread % 32;
    int buffer = 0;
    #pragma unroll
    for (int i = 0; i < ROW_TILES; i += 2) {
        #pragma unroll
        for (int block = 0; block < WM / BOX_M; ++block) {
            if (thread == 0) {
                wait_for_tile_reads(C_BUFFERS - 2);
            }
            named_barrier_sync(1 + warpgroup, WARPGROUP);
            unsigned char* const box = boxes + buffer * BOX_BYTES;
            #pragma unroll
            for (int at = block * BOX_M / 2; at < (block + 1) * BOX_M / 2; at += 4) {
                unsigned four[4];
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float* const two = &accum[i + j / 2][at + j % 2 * 2];
                    four[j] = bf16_pair(two[0], two[1]);
                }
                const int row = (at - block * BOX_M / 2) * 2 + lane % 8;
                const int chunk = (2 * warp + lane / 8 % 2) ^ lane % 8;
                store_matrices_transposed(box + lane / 16 * BOX_BYTES + row * 128 + chunk * 16,
                                          four);
            }
            fence_before_bulk_copies();
            named_barrier_sync(1 + warpgroup, WARPGROUP);
            if (thread == 0) {
                store_tile(box, map_c, n0 + 64 * i, m0 + BOX_M * block);
                commit_tile_stores();
                store_tile(box + BOX_BYTES, map_c, n0 + 64 * i + 64, m0 + BOX_M * block);
                commit_tile_stores();
            }
            buffer = buffer + 2 == C_BUFFERS ? 0 : buffer + 2;
        }
    }
}

// accum = the products of a warpgroup's rows of A and columns of B, over num_k_tiles k tiles.
__device__ __forceinline__ void multiply_tile(Pipeline& pipeline, int num_k_tiles, int row,
                                              int column, unsigned long long* next_turn,
                                              float (&accum)[ROW_TILES][NUM_ACCUM]) {
    int before = 0;
    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);
        const unsigned long long a =
            matrix_descriptor_128(pipeline.k_tile_a() + row * 128, BK * 128, 1024);
        const unsigned long long b =
            matrix_descriptor_128(pipeline.k_tile_b() + column * 128, BK * 128, 1024);
        wgmma_fence();
        #pragma unroll
        for (int step = 0; step < BK / STEP; ++step) {
            #pragma unroll
            for (int i = 0; i < ROW_TILES; ++i) {
                const int in_b = i * 64 * 128 + step * 32;
                const int in_a = step * 32;
                wgmma_bf16_kk(accum[i], b + (in_b >> 4), a + (in_a >> 4), k_tile > 0 || step > 0);
            }
        }
        wgmma_commit();
        // Products with this k tile are under way while the next one is waited for.
        if (k_tile > 0) {
            wgmma_wait_1();
            pipeline.release(before);
        }
        before = pipeline.stage;
        pipeline.advance();
    }
    mbarrier_arrive(next_turn);
    wgmma_wait_0();
    pipeline.release(before);
    #pragma unroll
    for (int i = 0; i < ROW_TILES; ++i) {
        keep_in_place(accum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const Element* __restrict__ A, int lda,
                const Element* __restrict__ B, int ldb, float beta, Result* __restrict__ C, int ldc,
                const Result* __restrict__ epilogue_rest, const __grid_constant__ TensorMap map_a,
                const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_c,
                const __grid_constant__ TensorMap map_input) {
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char* const boxes = shared + STAGES * STAGE_BYTES;
    unsigned long long* const barriers = (unsigned long long*)(boxes + CONSUMERS * C_BYTES);
    Pipeline pipeline = {shared, barriers, barriers + STAGES};
    unsigned long long* const turns = barriers + 2 * STAGES;
    const int warp = warp_number();
    const int warpgroup = warp / 4;

    if (threadIdx.x == CONSUMERS * WARPGROUP) {
        prefetch_tensor_map(map_a);
        prefetch_tensor_map(map_b);
        prefetch_tensor_map(map_c);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(pipeline.full + stage, 1);
            // One arrival for each warp that releases it.
            mbarrier_init(pipeline.empty + stage, 4);
        }
        mbarrier_init(turns, WARPGROUP);
        mbarrier_init(turns + 1, WARPGROUP);
        mbarrier_fence_init();
    }
    __syncthreads();

    Tiles tiles;
    tiles.rows = (M + BM - 1) / BM;
    tiles.columns = (N + BN - 1) / BN;
    const int first_tile = (int)blockIdx.x;
    const int stride = (int)gridDim.x;
    const int num_k_tiles = (K + BK - 1) / BK;

    const Epilogue with = {epilogue_rest, N};
    if (warpgroup == CONSUMERS) {
        // Load: one thread keeps the stages full, across the ends of tiles.
        give_up_registers();
        if (warp % 4 == 0 && is_elected()) {
            for (int tile = first_tile; tile < tiles.count(); tile += stride) {
                const Place place = tiles.place(tile);
                for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
                    const int k0 = k_tile * BK;
                    unsigned long long* const full = pipeline.full + pipeline.stage;
                    mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);
                    mbarrier_arrive_expect(full, STAGE_BYTES);
                    load_a(pipeline.k_tile_a(), map_a, place.m0, k0, full);
                    load_b(pipeline.k_tile_b(), map_b, place.n0, k0, full);
                    pipeline.advance();
                }
                load_input(pipeline, map_input, place.m0, place.n0);
            }
        }
    } else {
        take_registers();
        float accum[ROW_TILES][NUM_ACCUM];
        // Multiply, then store while the other warpgroup multiplies the next tile.
        if (warpgroup == 1) {
            pipeline.skip(num_k_tiles + INPUT_STAGES);
        }
        unsigned turn = 1 - warpgroup;
        for (int tile = first_tile + warpgroup * stride; tile < tiles.count(); tile += 2 * stride) {
            const Place place = tiles.place(tile);
            const Output output = {M, N, C, ldc, with};
            mbarrier_wait(turns + warpgroup, turn);
            turn ^= 1;
            multiply_tile(pipeline, num_k_tiles, 0, 0, turns + 1 - warpgroup, accum);
            apply_epilogue(pipeline, output, place.m0, place.n0, 0, 0, accum);
            pipeline.skip(num_k_tiles + INPUT_STAGES);
            store_accum(boxes + warpgroup * C_BYTES, map_c, warpgroup, place.m0, place.n0, output,
                        accum);
        }
        if (threadIdx.x % WARPGROUP == 0) {
            wait_for_tile_reads(0);
        }
    }
}

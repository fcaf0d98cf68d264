// autogemm, family sgemm_emulated_wgmma: CHUNK=64 BM=128 BN=128 BK=32 CLUSTER=1 STAGES=6 GROUP_M=8
// BLOCKS=132

// A batch of such products in one launch. The next one's matrices begin batch_rows_a rows of A,
// batch_rows_b of B and batch_rows_c of C, as stored, behind those of the one before; 0: all share
// the operand.
//
// Instructions of Hopper alone, which the plain target sm_90 does not have.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "this kernel is for compute capability 9.0 alone: use -gencode arch=compute_90a,code=sm_90a"
#endif

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], row-major, FP32 made of tensor-core
// products of lower precision.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// A line is a row of op(A) or a column of op(B). Its numbers are brought near 2^14 by a power of
// two, and split into two of F16: the upper 11 bits, and the next 11 times 2^11. Of four products
// the three largest are added: the upper ones in one accumulator, the two mixed ones in another.
// Tensor cores cut off what they accumulate, so that the upper one takes CHUNK products only and is
// then added in FP32.
//
// What is lost by splitting is below 2^-20 of |A||B|, in every element of C. Where that is not
// certain, since numbers are too far below their line's largest, and where numbers are infinite or
// NaN, a tile is computed in plain FP32 instead.
//
// Three launches: measure_kernel, split_kernel, gemm_kernel.
//
// Valid for:
//   M: multiples of BM * CLUSTER, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 4
//   B: any leading dimension; accessed element by element
//   C: aligned to 8 bytes, ldc a multiple of 2

// The element type of C.
using Result = float;

// Tile of C owned by one thread block: two warpgroups with 64 rows each.
constexpr int BM = 128;
constexpr int BN = 128;
// Numbers of a line in one k tile. Their upper parts, then their lower parts, make a row of 128
// bytes, whose 16-byte chunks are swizzled by row as wgmma reads them.
constexpr int BK = 32;
// Floats that take as much room as a row.
constexpr int ROW = 32;
constexpr int STAGES = 6;
constexpr int STAGE = (BM + BN) * ROW;
// Blocks below each other in C that share B's k tiles.
constexpr int CLUSTER = 1;
// Products that tensor cores add up before they are added in FP32.
constexpr int CHUNK = 64;
constexpr int CHUNK_K_TILES = CHUNK / BK;
static_assert(CHUNK % BK == 0, "a chunk is a whole number of k tiles");
// Rows of clusters walked together, so that the blocks in flight share operands in L2.
constexpr int GROUP_M = 8;
// Accumulators of one thread.
constexpr int NUM_ACCUM = BN / 2;
// A warpgroup of which one thread loads, then two that multiply.
constexpr int PRODUCERS = 128;
constexpr int THREADS = PRODUCERS + 256;
// Distances in descriptors, which count in 16 bytes: to the next 16 of K, and to the lower parts.
constexpr int NEXT_K = 2;
constexpr int LOWER = 4;

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

// Starts one copy of num_bytes, a multiple of 16, between addresses that are multiples of 16. The
// phase of the mbarrier, which was told to expect as many bytes, ends when they have come.
__device__ __forceinline__ void copy_bulk(float* shared, const float* global, unsigned num_bytes,
                                          unsigned long long* mbarrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"((unsigned)__cvta_generic_to_shared(shared)),
        "l"(global), "r"(num_bytes), "r"((unsigned)__cvta_generic_to_shared(mbarrier))
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

// Starts d = a * b (+ d if accumulate) for the 128 threads of a warpgroup.
//   a: 64 x 16, stored along k
//   b: 16 x 128, stored along k
//   d: of each 8 columns two neighbours in row lane / 4 of a warp's 16, and two in row lane / 4 + 8
__device__ __forceinline__ void wgmma_f16_kk(float (&d)[64], unsigned long long a,
                                             unsigned long long b, unsigned accumulate) {
    // clang-format off
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
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

// Release registers to other warpgroups, or take what they released (setmaxnreg); executed by all
// threads of a warpgroup.
__device__ __forceinline__ void give_up_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}

__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}

__device__ __forceinline__ float float_from_f16(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Rounded to nearest.
__device__ __forceinline__ unsigned short f16_from_float(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif  // AUTOGEMM_EMULATOR

// op(A)[m][k].
__device__ __forceinline__ float element_a(const float* A, int lda, int m, int k, int M, int K) {
    return A[(long long)m * lda + k];
}

// op(B)[k][n].
__device__ __forceinline__ float element_b(const float* B, int ldb, int k, int n, int K, int N) {
    return B[(long long)k * ldb + n];
}

// What is measured of 32 lines: the largest value of any of them.
struct __align__(16) Facts {
    // Numbers that are zero or subnormal.
    float zeros;
    // Sum of log2(largest / |number|) over the others.
    float spread;
    // Sum of |number| / largest.
    float size;
    // 1 if there is a number that may lose more than 2^-22 of itself, else 0.
    float loses;
};

__device__ __forceinline__ Facts largest_of(const Facts& one, const Facts& other) {
    return {fmaxf(one.zeros, other.zeros), fmaxf(one.spread, other.spread),
            fmaxf(one.size, other.size), fmaxf(one.loses, other.loses)};
}

// The workspace, through which the launches hand over. Lines are those of A, then those of B, each
// padded to whole tiles.
struct Workspace {
    int num_k_tiles;
    int lines_a;
    int lines_b;
    // Rows of all lines, k tile by k tile.
    float* parts_a;
    float* parts_b;
    // Numbers of a line were multiplied by two to the power of its exponent.
    int* exponents;
    Facts* facts;

    __device__ Workspace(int M, int N, int K, float* workspace, int product) {
        num_k_tiles = (K + BK - 1) / BK;
        lines_a = (M + BM * CLUSTER - 1) / (BM * CLUSTER) * (BM * CLUSTER);
        lines_b = (N + BN - 1) / BN * BN;
        // Each product has its own: rows, exponents, and facts of each 32 lines.
        const long long lines = lines_a + lines_b;
        workspace += product * (lines * (num_k_tiles * ROW + 1) + lines / 32 * 4);
        parts_a = workspace;
        parts_b = parts_a + (long long)num_k_tiles * lines_a * ROW;
        float* const behind = parts_b + (long long)num_k_tiles * lines_b * ROW;
        exponents = reinterpret_cast<int*>(behind);
        facts = reinterpret_cast<Facts*>(exponents + lines_a + lines_b);
    }
};

// What is measured of one line. Sizes are FP32 numbers without sign, as bits.
struct Line {
    unsigned most;
    // The least number but zero: twice its bits, less 1.
    unsigned least;
    // The count of numbers that are neither zero nor subnormal, and the sum of their logarithms in
    // units of 2^-7. The upper bits of a number are at most 2^7 * (127 + log2 of it), and less than
    // 13 below that.
    int count;
    unsigned logarithms;
    float sum;

    __device__ __forceinline__ void add(float number) {
        const unsigned bits = __float_as_uint(number) & 0x7fffffffu;
        const bool is_normal = bits >= 0x00800000u;
        most = max(most, bits);
        least = min(least, 2u * bits - 1u);
        count += is_normal ? 1 : 0;
        logarithms += is_normal ? bits >> 16 : 0u;
        sum += fabsf(number);
    }
};

constexpr float LARGEST = 3.402823466e38f;
constexpr int MEASURE_THREADS = 1024;
constexpr int SPLIT_THREADS = 256;
// K tiles of 32 lines that a block splits.
constexpr int SPLIT_K_TILES = 8;
// Vectors of 16 bytes in a row.
constexpr int VECTORS = 8;

// The power of two that brings a line's largest number into 2^14 to 2^15, or, where that is tiny,
// as near as FP32 has it.
__device__ __forceinline__ int exponent_for(unsigned most) {
    return most == 0 ? 0 : min(14 + 127 - (int)(most >> 23), 126);
}

__device__ __forceinline__ float power_of_two(int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

// number / 2^exponent; the power may be larger than FP32 has.
__device__ __forceinline__ float divided(float number, int exponent) {
    const int half = -exponent / 2;
    return number * power_of_two(half) * power_of_two(-exponent - half);
}

// The facts of a line, from what the 32 lanes of a warp measured in it, and its largest number.
__device__ __forceinline__ Facts facts_of_line(Line line, unsigned most, int K) {
    // log2 of the largest exceeds its upper bits by less than 13 units.
    float spread = (float)((unsigned)line.count * ((most >> 16) + 13u) - line.logarithms);
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        line.least = min(line.least, __shfl_xor_sync(0xffffffffu, line.least, offset));
        line.count += __shfl_xor_sync(0xffffffffu, line.count, offset);
        line.sum += __shfl_xor_sync(0xffffffffu, line.sum, offset);
        spread += __shfl_xor_sync(0xffffffffu, spread, offset);
    }
    if (most == 0) {
        return {0.0f, 0.0f, 0.0f, 0.0f};
    }
    if (most >= 0x7f800000u) {
        return {0.0f, LARGEST, (float)K, 1.0f};
    }
    const bool loses = (int)(line.least >> 24) <= (int)(most >> 23) - 28;
    const float size = fminf(line.sum / __uint_as_float(most), (float)K);
    return {(float)(K - line.count), spread / 128.0f, size, loses ? 1.0f : 0.0f};
}

// Splits eight numbers times a power of two: upper parts, and what is left of each times 2^11.
__device__ __forceinline__ void split_eight(const float (&numbers)[8], float power, uint4& upper,
                                            uint4& lower) {
    unsigned uppers[4];
    unsigned lowers[4];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float number = numbers[i] * power;
        const unsigned half = f16_from_float(number);
        const float left = number - float_from_f16((unsigned short)half);
        const unsigned other_half = f16_from_float(left * 2048.0f);
        uppers[i / 2] = i % 2 == 0 ? half : uppers[i / 2] | half << 16;
        lowers[i / 2] = i % 2 == 0 ? other_half : lowers[i / 2] | other_half << 16;
    }
    upper = make_uint4(uppers[0], uppers[1], uppers[2], uppers[3]);
    lower = make_uint4(lowers[0], lowers[1], lowers[2], lowers[3]);
}

// Measures this thread's numbers of 32 rows of op(A), from `first` on.
// Each warp has one.
__device__ __forceinline__ Line measure_a(const float* A, int lda, int M, int K, int first) {
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32;
    const int m = first + warp;
    Line line = {0u, 0xffffffffu, 0, 0u, 0.0f};
    #pragma unroll 8
    for (int k = lane * 4; k < K; k += 128) {
        const float4 four = *reinterpret_cast<const float4*>(A + (long long)m * lda + k);
        line.add(four.x);
        line.add(four.y);
        line.add(four.z);
        line.add(four.w);
    }
    return line;
}

// Reads eight neighbours along k; those past the edges are zero.
__device__ __forceinline__ void read_eight_a(const float* A, int lda, int M, int K, int m, int k,
                                             float (&numbers)[8]) {
    #pragma unroll
    for (int i = 0; i < 8; i += 4, k += 4) {
        const float4 four = *reinterpret_cast<const float4*>(A + (long long)m * lda + k);
        numbers[i] = four.x;
        numbers[i + 1] = four.y;
        numbers[i + 2] = four.z;
        numbers[i + 3] = four.w;
    }
}

// Splits 32 rows of op(A), from `first` on, in SPLIT_K_TILES k tiles: vectors of 16 bytes in shared
// memory, as they lie in the workspace.
__device__ __forceinline__ void split_a(const float* A, int lda, int M, int K, int first,
                                        int first_k_tile, int num_k_tiles, const int* exponents,
                                        uint4* vectors) {
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32;
    const int line = warp % 4 * 8 + lane / 4;
    const int vector = lane % 4;
    const float power = power_of_two(exponents[line]);
    float numbers[SPLIT_K_TILES / 2][8];
    #pragma unroll
    for (int i = 0; i < SPLIT_K_TILES / 2; ++i) {
        const int k_tile = first_k_tile + 2 * i + warp / 4;
        if (k_tile < num_k_tiles) {
            read_eight_a(A, lda, M, K, first + line, k_tile * BK + vector * 8, numbers[i]);
        }
    }
    #pragma unroll
    for (int i = 0; i < SPLIT_K_TILES / 2; ++i) {
        if (first_k_tile + 2 * i + warp / 4 < num_k_tiles) {
            uint4* const row = vectors + ((2 * i + warp / 4) * 32 + line) * VECTORS;
            split_eight(numbers[i], power, row[vector ^ line % 8], row[(vector + 4) ^ line % 8]);
        }
    }
}

// Measures this thread's numbers of 32 columns of op(B), from `first` on.
// Each lane has one, and the warps take turns along k.
__device__ __forceinline__ Line measure_b(const float* B, int ldb, int N, int K, int first) {
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32;
    const int n = first + lane;
    Line line = {0u, 0xffffffffu, 0, 0u, 0.0f};
    #pragma unroll 8
    for (int k = warp; k < K; k += 32) {
        line.add(element_b(B, ldb, k, n, K, N));
    }
    return line;
}

// Reads eight neighbours along k; those past the edges are zero.
__device__ __forceinline__ void read_eight_b(const float* B, int ldb, int N, int K, int n, int k,
                                             float (&numbers)[8]) {
    #pragma unroll
    for (int i = 0; i < 8; ++i, ++k) {
        numbers[i] = element_b(B, ldb, k, n, K, N);
    }
}

// Splits 32 columns of op(B), from `first` on, in SPLIT_K_TILES k tiles: vectors of 16 bytes in
// shared memory, as they lie in the workspace.
__device__ __forceinline__ void split_b(const float* B, int ldb, int N, int K, int first,
                                        int first_k_tile, int num_k_tiles, const int* exponents,
                                        uint4* vectors) {
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32;
    const int line = lane;
    const int vector = warp % 4;
    const float power = power_of_two(exponents[line]);
    float numbers[SPLIT_K_TILES / 2][8];
    #pragma unroll
    for (int i = 0; i < SPLIT_K_TILES / 2; ++i) {
        const int k_tile = first_k_tile + 2 * i + warp / 4;
        if (k_tile < num_k_tiles) {
            read_eight_b(B, ldb, N, K, first + line, k_tile * BK + vector * 8, numbers[i]);
        }
    }
    #pragma unroll
    for (int i = 0; i < SPLIT_K_TILES / 2; ++i) {
        if (first_k_tile + 2 * i + warp / 4 < num_k_tiles) {
            uint4* const row = vectors + ((2 * i + warp / 4) * 32 + line) * VECTORS;
            split_eight(numbers[i], power, row[vector ^ line % 8], row[(vector + 4) ^ line % 8]);
        }
    }
}

// Transposes lines: warp i gets what the lanes i of all warps measured, which is of line i.
__device__ __forceinline__ Line transpose_lines(const Line& line) {
    __shared__ Line all[32][33];
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32;
    all[warp][lane] = line;
    __syncthreads();
    return all[lane][warp];
}

// Measures 32 lines: the power of two for each, and facts that say how well they can be split.
extern "C" __global__ void __launch_bounds__(MEASURE_THREADS)
    measure_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                   const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc,
                   int batch, int batch_rows_a, int batch_rows_b, int batch_rows_c,
                   float* __restrict__ workspace) {
    __shared__ Facts of_lines[32];
    // The product of this block, and where its operands begin.
    const int product = (int)blockIdx.z;
    A += (long long)product * batch_rows_a * lda;
    B += (long long)product * batch_rows_b * ldb;
    const Workspace space(M, N, K, workspace, product);
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32;
    const int first = (int)blockIdx.x * 32;
    Line line;
    if (first < space.lines_a) {
        line = measure_a(A, lda, M, K, first);
    } else {
        line = measure_b(B, ldb, N, K, first - space.lines_a);
        line = transpose_lines(line);
    }
    unsigned most = line.most;
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
    }
    const Facts facts = facts_of_line(line, most, K);
    if (lane == 0) {
        space.exponents[first + warp] = exponent_for(most);
        of_lines[warp] = facts;
    }
    __syncthreads();
    if (warp == 0) {
        Facts all = of_lines[lane];
        #pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
            const Facts other = {__shfl_xor_sync(0xffffffffu, all.zeros, offset),
                                 __shfl_xor_sync(0xffffffffu, all.spread, offset),
                                 __shfl_xor_sync(0xffffffffu, all.size, offset),
                                 __shfl_xor_sync(0xffffffffu, all.loses, offset)};
            all = largest_of(all, other);
        }
        if (lane == 0) {
            space.facts[blockIdx.x] = all;
        }
    }
}

// Splits SPLIT_K_TILES k tiles of 32 lines. What was measured last comes first: it is still in L2.
extern "C" __global__ void __launch_bounds__(SPLIT_THREADS)
    split_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                 const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc,
                 int batch, int batch_rows_a, int batch_rows_b, int batch_rows_c,
                 float* __restrict__ workspace) {
    __shared__ uint4 vectors[SPLIT_K_TILES][32 * VECTORS];
    // The product of this block, and where its operands begin.
    const int product = (int)blockIdx.z;
    A += (long long)product * batch_rows_a * lda;
    B += (long long)product * batch_rows_b * ldb;
    const Workspace space(M, N, K, workspace, product);
    const int groups = (space.lines_a + space.lines_b) / 32;
    const int first = (int)blockIdx.x % groups * 32;
    const int first_k_tile = ((int)gridDim.x - 1 - (int)blockIdx.x) / groups * SPLIT_K_TILES;
    const bool is_a = first < space.lines_a;
    const int lines = is_a ? space.lines_a : space.lines_b;
    const int first_line = is_a ? first : first - space.lines_a;
    if (is_a) {
        split_a(A, lda, M, K, first_line, first_k_tile, space.num_k_tiles, space.exponents + first,
                vectors[0]);
    } else {
        split_b(B, ldb, N, K, first_line, first_k_tile, space.num_k_tiles, space.exponents + first,
                vectors[0]);
    }
    __syncthreads();
    const int num_k_tiles = min(SPLIT_K_TILES, space.num_k_tiles - first_k_tile);
    float* const parts = is_a ? space.parts_a : space.parts_b;
    for (int i = 0; i < num_k_tiles; ++i) {
        float* const rows = parts + ((long long)(first_k_tile + i) * lines + first_line) * ROW;
        reinterpret_cast<uint4*>(rows)[threadIdx.x] = vectors[i][threadIdx.x];
    }
}

// A block's tile of C, by the number of its cluster's tiles.
struct Place {
    int m;
    int n;

    __device__ Place(int index, int M, int N, int rank) {
        const int tiles_m = (M + BM * CLUSTER - 1) / (BM * CLUSTER);
        const int tiles_n = (N + BN - 1) / BN;
        const int first_m = index / (GROUP_M * tiles_n) * GROUP_M;
        const int rows = min(GROUP_M, tiles_m - first_m);
        const int in_group = index % (GROUP_M * tiles_n);
        m = ((first_m + in_group % rows) * CLUSTER + rank) * BM;
        n = in_group / rows * BN;
    }
};

// Stages in shared memory: the next one, and the parity of how often all have been used.
struct Pipeline {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1u;
        }
    }
};

// Executed by one thread: loads the k tiles of one tile to stages as they become empty.
__device__ __forceinline__ void load_k_tiles(float* shared, unsigned long long* full,
                                             unsigned long long* empty, const Workspace& space,
                                             const Place& place, int rank, Pipeline& pipeline) {
    const float* a = space.parts_a + (long long)place.m * ROW;
    const float* b = space.parts_b + (long long)(place.n + rank * (BN / CLUSTER)) * ROW;
    for (int k_tile = 0; k_tile < space.num_k_tiles; ++k_tile) {
        mbarrier_wait(empty + pipeline.stage, pipeline.parity ^ 1u);
        float* const stage = shared + pipeline.stage * STAGE;
        mbarrier_arrive_expect(full + pipeline.stage, STAGE * 4);
        copy_bulk(stage, a, BM * ROW * 4, full + pipeline.stage);
        copy_bulk(stage + BM * ROW, b, BN * ROW * 4, full + pipeline.stage);
        a += (long long)space.lines_a * ROW;
        b += (long long)space.lines_b * ROW;
        pipeline.advance();
    }
}

// Called by each warp when it reads a stage no more, so that the producer may load to it.
__device__ __forceinline__ void release(unsigned long long* empty, int stage) {
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(empty + stage);
    }
}

// accum += the products of a warpgroup's 64 rows of a tile, times two to the power of the lines'
// exponents.
__device__ __forceinline__ void multiply_tile(const float* shared, unsigned long long* full,
                                              unsigned long long* empty, int num_k_tiles,
                                              int first_row, Pipeline& pipeline,
                                              float (&accum)[NUM_ACCUM]) {
    float uppers[NUM_ACCUM];
    float mixed[NUM_ACCUM];
    #pragma unroll
    for (int i = 0; i < NUM_ACCUM; ++i) {
        mixed[i] = 0.0f;
    }
    int stage = 0;
    for (int k_tile = 0; k_tile < num_k_tiles; k_tile += CHUNK_K_TILES) {
        const int in_chunk = min(CHUNK_K_TILES, num_k_tiles - k_tile);
        for (int i = 0; i < in_chunk; ++i) {
            mbarrier_wait(full + pipeline.stage, pipeline.parity);
            const float* const at = shared + pipeline.stage * STAGE;
            const unsigned long long a = matrix_descriptor_128(at + first_row * ROW, 16, 1024);
            const unsigned long long b = matrix_descriptor_128(at + BM * ROW, 16, 1024);
            wgmma_fence();
            wgmma_f16_kk(uppers, a, b, i > 0);
            wgmma_f16_kk(uppers, a + NEXT_K, b + NEXT_K, 1);
            wgmma_commit();
            wgmma_f16_kk(mixed, a, b + LOWER, 1);
            wgmma_f16_kk(mixed, a + NEXT_K, b + LOWER + NEXT_K, 1);
            wgmma_f16_kk(mixed, a + LOWER, b, 1);
            wgmma_f16_kk(mixed, a + LOWER + NEXT_K, b + NEXT_K, 1);
            wgmma_commit();
            // All but the mixed products of this k tile are done: the one before is read no more.
            wgmma_wait_1();
            if (k_tile + i > 0) {
                release(empty, stage);
            }
            stage = pipeline.stage;
            pipeline.advance();
        }
        // The tensor cores work on the mixed products meanwhile.
        keep_in_place(uppers);
        #pragma unroll
        for (int i = 0; i < NUM_ACCUM; ++i) {
            accum[i] += uppers[i];
        }
    }
    wgmma_wait_0();
    release(empty, stage);
    keep_in_place(mixed);
    #pragma unroll
    for (int i = 0; i < NUM_ACCUM; ++i) {
        accum[i] = fmaf(mixed[i], 1.0f / 2048.0f, accum[i]);
    }
}

// Whether numbers far below their line's largest lost no more than 2^-22 of |A||B|.
//
// Each loses at most 2^-50 of its line's largest, which in an element of C makes at most
// 2^-50 * largest * largest * size, with the size of the other line. And |A||B| is at least, by the
// inequality of arithmetic and geometric means over the k where neither number is zero,
// largest * largest * (how many) * 2^-(mean of both spreads over them).
__device__ __forceinline__ bool is_exact(const Facts& a, const Facts& b, int K) {
    const float lost = a.loses * b.size + b.loses * a.size;
    const float spread = a.spread + b.spread;
    const float many = (float)K - a.zeros - b.zeros;
    const bool is_small = many > 0.0f && lost * exp2f(spread / many) <= 268435456.0f * many;
    return spread < LARGEST && (lost == 0.0f || is_small);
}

// The same for a tile's rows of A and columns of B.
__device__ __forceinline__ bool is_exact(const Workspace& space, const Place& place, int K) {
    const Facts* const facts_a = space.facts + place.m / 32;
    const Facts* const facts_b = space.facts + (space.lines_a + place.n) / 32;
    Facts a = facts_a[0];
    #pragma unroll
    for (int i = 1; i < BM / 32; ++i) {
        a = largest_of(a, facts_a[i]);
    }
    Facts b = facts_b[0];
    #pragma unroll
    for (int i = 1; i < BN / 32; ++i) {
        b = largest_of(b, facts_b[i]);
    }
    return is_exact(a, b, K);
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

// Writes one element of C.
__device__ __forceinline__ void store_one(Result* c, float accum, int m, int n,
                                          const Epilogue& with) {
    *c = epilogue(accum, with.reads_c() ? *c : 0.0f, m, n, with);
}

// Writes two neighbours of a row of C.
__device__ __forceinline__ void store_two(Result* c, const float* accum, int m, int n,
                                          const Epilogue& with) {
    float2 old_c = make_float2(0.0f, 0.0f);
    if (with.reads_c()) {
        old_c = *reinterpret_cast<const float2*>(c);
    }
    *reinterpret_cast<float2*>(c) = make_float2(epilogue(accum[0], old_c.x, m, n, with),
                                                epilogue(accum[1], old_c.y, m, n + 1, with));
}

// Writes the tile of C: of each 8 columns a lane has two neighbours in two rows.
__device__ __forceinline__ void store_tile(const Workspace& space, const Place& place, int M, int N,
                                           const Epilogue& with, float* C, int ldc,
                                           const float (&accum)[NUM_ACCUM]) {
    const int lane = (int)threadIdx.x % 32;
    const int first_m = place.m + ((int)threadIdx.x - PRODUCERS) / 32 * 16 + lane / 4;
    const int first_n = place.n + lane % 4 * 2;
    const int* const exponents_b = space.exponents + space.lines_a;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int m = first_m + half * 8;
        const int exponent_a = space.exponents[m];
        float* const row = C + (long long)m * ldc;
        #pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            const int n = first_n + j * 8;
            float two[2];
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                two[e] = divided(accum[4 * j + 2 * half + e], exponent_a + exponents_b[n + e]);
            }
            store_two(row + n, two, m, n, with);
        }
    }
}

// Computes the tile of C from the matrices themselves, in plain FP32, which is right whatever the
// numbers are. Errors grow with the length of a chain of additions: PLAIN_CHUNK products are added
// at a time, then their sums.
constexpr int PLAIN_CHUNK = 128;

__device__ __forceinline__ void store_tile_in_fp32(const float* A, int lda, const float* B, int ldb,
                                                   const Place& place, int M, int N, int K,
                                                   const Epilogue& with, float* C, int ldc) {
    constexpr int SIDE = 16;
    static_assert(SIDE * SIDE == THREADS - PRODUCERS, "the consumers stand in a square");
    const int first_m = place.m + ((int)threadIdx.x - PRODUCERS) / SIDE;
    const int first_n = place.n + (int)threadIdx.x % SIDE;
    float accum[BM / SIDE][BN / SIDE] = {};
    for (int chunk = 0; chunk < K; chunk += PLAIN_CHUNK) {
        float partial[BM / SIDE][BN / SIDE] = {};
        for (int k = chunk; k < min(chunk + PLAIN_CHUNK, K); ++k) {
            float b[BN / SIDE];
            #pragma unroll
            for (int j = 0; j < BN / SIDE; ++j) {
                b[j] = element_b(B, ldb, k, first_n + j * SIDE, K, N);
            }
            #pragma unroll
            for (int i = 0; i < BM / SIDE; ++i) {
                const float a = element_a(A, lda, first_m + i * SIDE, k, M, K);
                #pragma unroll
                for (int j = 0; j < BN / SIDE; ++j) {
                    partial[i][j] = fmaf(a, b[j], partial[i][j]);
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < BM / SIDE; ++i) {
            #pragma unroll
            for (int j = 0; j < BN / SIDE; ++j) {
                accum[i][j] += partial[i][j];
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < BM / SIDE; ++i) {
        const int m = first_m + i * SIDE;
        #pragma unroll
        for (int j = 0; j < BN / SIDE; ++j) {
            const int n = first_n + j * SIDE;
            if (m < M && n < N) {
                store_one(C + (long long)m * ldc + n, accum[i][j], m, n, with);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc,
                int batch, int batch_rows_a, int batch_rows_b, int batch_rows_c,
                float* __restrict__ workspace) {
    extern __shared__ __align__(1024) float shared[];
    auto* const full = reinterpret_cast<unsigned long long*>(shared + STAGES * STAGE);
    unsigned long long* const empty = full + STAGES;
    const int product_tiles = (M + BM * CLUSTER - 1) / (BM * CLUSTER) * ((N + BN - 1) / BN);
    const int num_tiles = product_tiles * batch;
    const int clusters = (int)gridDim.x / CLUSTER;
    const int cluster = (int)blockIdx.x / CLUSTER;
    const int rank = 0;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + stage, 1);
            // One arrival for each consumer warp of each block.
            mbarrier_init(empty + stage, (THREADS - PRODUCERS) / 32 * CLUSTER);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    Pipeline pipeline;
    const Epilogue with = {alpha, beta};
    const int warp = warp_number();
    if (warp < PRODUCERS / 32) {
        give_up_registers();
        if (warp == 0 && is_elected()) {
            for (int tile = cluster; tile < num_tiles; tile += clusters) {
                const Workspace space(M, N, K, workspace, tile / product_tiles);
                const Place place(tile % product_tiles, M, N, rank);
                load_k_tiles(shared, full, empty, space, place, rank, pipeline);
            }
        }
    } else {
        take_registers();
        const int first_row = (warp - PRODUCERS / 32) / 4 * 64;
        for (int tile = cluster; tile < num_tiles; tile += clusters) {
            const int product = tile / product_tiles;
            const Workspace space(M, N, K, workspace, product);
            const Place place(tile % product_tiles, M, N, rank);
            const float* const product_a = A + (long long)product * batch_rows_a * lda;
            const float* const product_b = B + (long long)product * batch_rows_b * ldb;
            float* const product_c = C + (long long)product * batch_rows_c * ldc;
            float accum[NUM_ACCUM] = {};
            multiply_tile(shared, full, empty, space.num_k_tiles, first_row, pipeline, accum);
            if (is_exact(space, place, K)) {
                store_tile(space, place, M, N, with, product_c, ldc, accum);
            } else {
                store_tile_in_fp32(product_a, lda, product_b, ldb, place, M, N, K, with, product_c,
                                   ldc);
            }
        }
    }
}

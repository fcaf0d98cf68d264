// autogemm, family sgemm_skinny: BM=16 BN=128 BK=64 TM=16 TN=4 SLICE_K=8 SPLIT_K=4 FAN_IN=4
// STAGES=4 CHAIN_K=0 MIN_BLOCKS=1 PDL=late

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nt: op(A) = A, A stored [M,K]; op(B) = B^T, B stored [N,K].
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 4
//   B: aligned to 16 bytes, ldb a multiple of 4
//   C: aligned to 16 bytes, ldc a multiple of 4
//
// For few rows. Each warp has its own slice of every k_tile: it alone copies it to shared memory
// and multiplies it, so that the loop has no barrier. In the end the accumulators of the warps,
// then those of the blocks that share a tile, are added in fixed order.

// Tile of C owned by one thread block, and the depth of one k_tile.
constexpr int BM = 16;
constexpr int BN = 128;
constexpr int BK = 64;
constexpr int TILE = BM * BN;

// Part of the tile owned by one lane of each warp.
constexpr int TM = 16;
constexpr int TN = 4;
constexpr int LANES_M = BM / TM;
constexpr int LANES_N = BN / TN;
static_assert(LANES_M * LANES_N == 32, "the lanes of a warp cover the tile once");

// Warps of a block; each multiplies its DEPTH of a k_tile.
constexpr int SLICE_K = 8;
constexpr int DEPTH = BK / SLICE_K;
constexpr int THREADS = 32 * SLICE_K;

// Blocks that share a tile of C, each with a range of k; a block adds up FAN_IN partial sums at a
// time.
constexpr int SPLIT_K = 4;
constexpr int FAN_IN = 4;

// Neighbouring rows and columns of a lane: vectors where a slice has them side by side, else one
// at a time. The vectors of the lanes interleave.
constexpr int VEC_M = 1;
constexpr int VEC_N = 1;

// A slice is kept as it is stored: A as [m][k], B as [n][k]. Floats from one row to the next.
constexpr int STRIDE_A = DEPTH + 4;
constexpr int STRIDE_B = DEPTH + 4;
constexpr int SLICE_A = BM * STRIDE_A;
constexpr int SLICE = SLICE_A + BN * STRIDE_B;

// Slices of a warp in shared memory: STAGES - 1 in flight or landed, one being read.
constexpr int STAGES = 4;
constexpr int PIPELINE = STAGES * SLICE;
constexpr int MAX_PENDING_COPIES = STAGES - 2;
static_assert(MAX_PENDING_COPIES >= 0, "a pipeline has two stages or more");

// Floats per access to global memory. The lanes of a warp stand LANES side by side along a stored
// row, and cover ROWS stored rows in one pass.
constexpr int VEC_A = 4;
constexpr int VEC_B = 4;
constexpr int VEC_C = 4;
constexpr int LANES_A = 2;
constexpr int LANES_B = 2;
constexpr int ROWS_A = 32 / LANES_A;
constexpr int ROWS_B = 32 / LANES_B;
static_assert(BM % ROWS_A == 0 && BN % ROWS_B == 0, "whole passes cover a slice");
using VectorC = float4;

__device__ __forceinline__ void unpack(float4 from, float* to) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
}

__device__ __forceinline__ void pack(const float* from, float4& to) {
    to = make_float4(from[0], from[1], from[2], from[3]);
}

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// Lets the next kernel of the stream begin, if it may overlap this one, once all blocks were here.
__device__ __forceinline__ void let_next_kernel_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernels before have ended, and what they wrote is seen. Nothing to wait for where
// this kernel was launched without overlap.
__device__ __forceinline__ void wait_for_kernels_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
// Starts copying 16 bytes from global to shared memory.
__device__ __forceinline__ void copy_async_16(float* shared, const float* global) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global));
#else  // built for an older GPU: copied at once
    for (int i = 0; i < 4; ++i) {
        shared[i] = global[i];
    }
#endif
}

// Closes the group of copies started since the last call.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// Waits until at most MAX_PENDING_COPIES groups of this thread are still in flight.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(MAX_PENDING_COPIES));
#endif
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

// Starts copying this warp's slice of op(A) to shared memory.
// `a` and `shared` point to what this lane copies first.
__device__ __forceinline__ void copy_slice_a(float* shared, const float* a, int lda) {
    #pragma unroll
    for (int m = 0; m < BM; m += ROWS_A) {
        #pragma unroll
        for (int k = 0; k < DEPTH; k += LANES_A * VEC_A) {
            copy_async_16(shared + m * STRIDE_A + k, a + (long long)m * lda + k);
        }
    }
}

// Starts copying this warp's slice of op(B) to shared memory.
// `b` and `shared` point to what this lane copies first.
__device__ __forceinline__ void copy_slice_b(float* shared, const float* b, int ldb) {
    #pragma unroll
    for (int n = 0; n < BN; n += ROWS_B) {
        #pragma unroll
        for (int k = 0; k < DEPTH; k += LANES_B * VEC_B) {
            copy_async_16(shared + n * STRIDE_B + k, b + (long long)n * ldb + k);
        }
    }
}

// accum += the product of one slice. The pointers are to this lane's first row and column.
__device__ __forceinline__ void multiply_slice(const float* shared_a, const float* shared_b,
                                               float (&accum)[TM][TN]) {
    #pragma unroll
    for (int k = 0; k < DEPTH; k += 4) {
        // Four k's of B.
        float frag_b[4][TN];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            float vector[4];
            unpack(*reinterpret_cast<const float4*>(shared_b + j * LANES_N * STRIDE_B + k), vector);
            #pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                frag_b[kk][j] = vector[kk];
            }
        }
        // Each step takes one row and four k's of A.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            float frag_a[4];
            unpack(*reinterpret_cast<const float4*>(shared_a + i * LANES_M * STRIDE_A + k), frag_a);
            #pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    accum[i][j] = fmaf(frag_a[kk], frag_b[kk][j], accum[i][j]);
                }
            }
        }
    }
}

// The tile's floats are dealt out to the threads of the block in vectors of four: a thread owns
// those at owned(0), at owned(1) and so on, as far as they lie below TILE.
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

// A tile of C: its first element and where in C that is, and how much of C there is from there on.
struct Tile {
    float* C;
    int m0, n0, rows, columns;
};

// All of C as one tile, whose rows and columns are those of C.
__device__ __forceinline__ Tile whole_c(float* C, int M, int N) {
    return {C, 0, 0, M, N};
}

// Stores VEC_C neighbours, from C[m][n] on, to which c points.
__device__ __forceinline__ void store_whole_vector(float* c, int m, int n, const float* accum,
                                                   const Epilogue& with) {
    float result[VEC_C] = {};
    if (with.beta != 0.0f) {
        unpack(*reinterpret_cast<const VectorC*>(c), result);
    }
    #pragma unroll
    for (int e = 0; e < VEC_C; ++e) {
        result[e] = epilogue(accum[e], result[e], m, n + e, with);
    }
    pack(result, *reinterpret_cast<VectorC*>(c));
}

// Stores VEC_C neighbours of the tile's row m, from its column n on.
__device__ __forceinline__ void store_vector(const Tile& tile, int ldc, int m, int n,
                                             const float* accum, const Epilogue& with) {
    float* const c = tile.C + (long long)m * ldc + n;
    store_whole_vector(c, tile.m0 + m, tile.n0 + n, accum, with);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                float beta, float* C, int ldc, float* workspace) {
    extern __shared__ __align__(16) float shared[];
    wait_for_kernels_before();

    // Which tile of C, and which range of K. Blocks in flight together read B side by side.
    const int tiles_m = (M + BM - 1) / BM;
    const int num_tiles = tiles_m * ((N + BN - 1) / BN);
    const int tile_idx = (int)blockIdx.x % num_tiles;
    const int partial = (int)blockIdx.x / num_tiles;
    const int m0 = tile_idx % tiles_m * BM;
    const int n0 = tile_idx / tiles_m * BN;

    // Which k_tiles of K, and which slice of each.
    const int thread = (int)threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int num_k_tiles = (K + BK - 1) / BK;
    const int first_k_tile = (int)((long long)num_k_tiles * partial / SPLIT_K);
    const int end_k_tile = (int)((long long)num_k_tiles * (partial + 1) / SPLIT_K);
    const int first_k = first_k_tile * BK + warp * DEPTH;
    float* const pipeline = shared + warp * PIPELINE;

    // Where this lane's part of the tile begins.
    const int lane_m = lane / LANES_N;
    const int lane_n = lane % LANES_N;
    const int lane_row = lane_m * VEC_M;
    const int lane_column = lane_n * VEC_N;

    // What this lane copies first of each slice; the pointers advance from k_tile to k_tile.
    const int copy_m = lane / LANES_A;
    const int copy_ka = lane % LANES_A * VEC_A;
    A += (long long)(m0 + copy_m) * lda + first_k + copy_ka;
    constexpr int advance_a = BK;
    float* const copy_to_a = pipeline + copy_m * STRIDE_A + copy_ka;
    const int copy_n = lane / LANES_B;
    const int copy_kb = lane % LANES_B * VEC_B;
    B += (long long)(n0 + copy_n) * ldb + first_k + copy_kb;
    constexpr int advance_b = BK;
    float* const copy_to_b = pipeline + SLICE_A + copy_n * STRIDE_B + copy_kb;
    const float* const read_from_a = pipeline + lane_row * STRIDE_A;
    const float* const read_from_b = pipeline + SLICE_A + lane_column * STRIDE_B;

    float accum[TM][TN] = {};

    // Start: all stages but one in flight, one group of copies each.
    int k_tile = first_k_tile;
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (k_tile < end_k_tile) {
            copy_slice_a(copy_to_a + stage * SLICE, A, lda);
            copy_slice_b(copy_to_b + stage * SLICE, B, ldb);
            A += advance_a;
            B += advance_b;
        }
        commit_copies();
        ++k_tile;
    }
    int read = 0;
    int write = (STAGES - 1) * SLICE;
    for (int left = end_k_tile - first_k_tile; left > 0; --left) {
        // Wait: the next slice is here, and no lane reads the stage that is copied to below.
        wait_for_copies();
        __syncwarp();
        // Copy.
        if (k_tile < end_k_tile) {
            copy_slice_a(copy_to_a + write, A, lda);
            copy_slice_b(copy_to_b + write, B, ldb);
            A += advance_a;
            B += advance_b;
        }
        commit_copies();
        ++k_tile;
        write = write == (STAGES - 1) * SLICE ? 0 : write + SLICE;
        // Compute.
        multiply_slice(read_from_a + read, read_from_b + read, accum);
        read = read == (STAGES - 1) * SLICE ? 0 : read + SLICE;
    }
    // All that this block loads is on its way: the next kernel may ask for more.
    let_next_kernel_begin();

    // Add up the warps: each puts its tile into shared memory, then each thread adds what it owns.
    __syncthreads();
    float* const warp_tile = shared + warp * TILE + lane_row * BN + lane_column;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; j += VEC_N) {
            const int row = i / VEC_M * VEC_M * LANES_M + i % VEC_M;
            float* place = warp_tile + row * BN + j * LANES_N;
            *place = accum[i][j];
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
        #pragma unroll
        for (int vector = 0; vector < VECTORS; ++vector) {
            float sum[4] = {};
            if (owned(vector) < TILE) {
                #pragma unroll
                for (int member = 0; member < FAN_IN; ++member) {
                    const float* place =
                        partials + (first + min(member, members - 1) * stride) * TILE;
                    const float4 given =
                        __ldcg(reinterpret_cast<const float4*>(place + owned(vector)));
                    if (member < members) {
                        add(given, sum);
                    }
                }
            }
            pack(sum, *reinterpret_cast<float4*>(totals[vector]));
        }
        // Leave the counter as it was found.
        if (thread == 0) {
            *counter = 0;
        }
    }

    // Store.
    const Epilogue with = {alpha, beta};
    #pragma unroll
    for (int vector = 0; vector < VECTORS; ++vector) {
        const int m = m0 + owned(vector) / BN;
        if (owned(vector) >= TILE) {
            break;
        }
        #pragma unroll
        for (int j = 0; j < 4; j += VEC_C) {
            const int n = n0 + owned(vector) % BN + j;
            store_vector(whole_c(C, M, N), ldc, m, n, &totals[vector][j], with);
        }
    }
}

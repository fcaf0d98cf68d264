// autogemm, family sgemm_simt: BM=64 BN=64 BK=8 WM=32 WN=32 TM=8 TN=4 SLICE_K=1 SLICES=shared
// SPLIT_K=8 STREAM_BLOCKS=0 PAD_A=4 PAD_B=0 VEC_LOAD=4 VEC_STORE=4 STAGES=2 REG_STAGES=2 HANDOVER=5
// POINTERS=derived CHAIN_K=0 GROUP_M=1 MIN_BLOCKS=1 FMA_ORDER=snake EDGES=guarded PACK=0
// LANE_MAP=rows PDL=early

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: multiples of BK
//   A: aligned to 16 bytes, lda a multiple of 4
//   B: aligned to 16 bytes, ldb a multiple of 4
//   C: aligned to 16 bytes, ldc a multiple of 4

// Tile of C owned by one thread block, and the depth of one shared-memory k_tile.
constexpr int BM = 64;
constexpr int BN = 64;
constexpr int BK = 8;

// Blocks that share a tile of C, each with its range of k.
constexpr int SPLIT_K = 8;

// Tile of C owned by one warp, and by one thread.
constexpr int WM = 32;
constexpr int WN = 32;
constexpr int TM = 8;
constexpr int TN = 4;

// Warps across the block tile, lanes across the warp tile.
constexpr int WARPS_N = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * WARPS_N;
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
static_assert(LANES_M * LANES_N == 32, "the lanes of a warp cover its tile once");

// A thread's rows and columns come in vectors of neighbours; the vectors of the lanes interleave,
// so that a warp's read is contiguous.
constexpr int VEC_M = 4;
constexpr int VEC_N = 4;
using VectorM = float4;
using VectorN = float4;

// A k_tile of A is kept as [k][m], one of B as [k][n]: floats from one k to the next.
constexpr int STRIDE_A = BM + 4;
constexpr int STRIDE_B = BN + 0;
constexpr int K_TILE_A = BK * STRIDE_A;
constexpr int K_TILE_B = BK * STRIDE_B;
static_assert(STRIDE_A % VEC_M == 0 && STRIDE_B % VEC_N == 0, "vectors are aligned");

// Two stages of shared memory: one being read, one being stored.
constexpr int STAGE = K_TILE_A + K_TILE_B;

// The k within a k_tile at which the next one is stored.
constexpr int HANDOVER = BK * 5 / 8;

// Floats per access to global memory. The threads of a block stand LANES side by side along a
// stored row, and cover ROWS stored rows in one pass.
constexpr int VEC_A = 4;
constexpr int VEC_B = 4;
constexpr int VEC_C = 4;
constexpr int LANES_A = 2;
constexpr int LANES_B = 16;
constexpr int ROWS_A = THREADS / LANES_A;
constexpr int ROWS_B = THREADS / LANES_B;
static_assert(BM % ROWS_A == 0 && BK % ROWS_B == 0, "whole passes cover a k_tile");
// Floats of a k_tile that one thread carries from global to shared memory.
constexpr int CARRIED_A = BM * BK / THREADS;
constexpr int CARRIED_B = BN * BK / THREADS;
using VectorA = float4;
using VectorB = float4;
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

// Reads a value, and with it all that was stored before the value was released.
__device__ __forceinline__ unsigned load_acquire(const unsigned* counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}
#endif  // AUTOGEMM_EMULATOR

// Loads the floats of this thread from the k_tile of op(A).
// `a` points to what it loads first.
__device__ __forceinline__ void load_k_tile_a(float* regs, const float* a, int lda) {
    #pragma unroll
    for (int m = 0; m < BM; m += ROWS_A) {
        #pragma unroll
        for (int k = 0; k < BK; k += LANES_A * VEC_A) {
            const float* source = a + (long long)m * lda + k;
            unpack(*reinterpret_cast<const VectorA*>(source), regs);
            regs += VEC_A;
        }
    }
}

// Stores what load_k_tile_a loaded to shared memory, transposed.
__device__ __forceinline__ void store_k_tile_a(float* shared, const float* regs) {
    #pragma unroll
    for (int m = 0; m < BM; m += ROWS_A) {
        #pragma unroll
        for (int k = 0; k < BK; k += LANES_A * VEC_A) {
            #pragma unroll
            for (int i = 0; i < VEC_A; ++i) {
                shared[(k + i) * STRIDE_A + m] = regs[i];
            }
            regs += VEC_A;
        }
    }
}

// Loads the floats of this thread from the k_tile of op(B).
// `b` points to what it loads first.
__device__ __forceinline__ void load_k_tile_b(float* regs, const float* b, int ldb) {
    #pragma unroll
    for (int k = 0; k < BK; k += ROWS_B) {
        const float* source = b + (long long)k * ldb;
        unpack(*reinterpret_cast<const VectorB*>(source), regs);
        regs += VEC_B;
    }
}

// Stores what load_k_tile_b loaded to shared memory.
__device__ __forceinline__ void store_k_tile_b(float* shared, const float* regs) {
    #pragma unroll
    for (int k = 0; k < BK; k += ROWS_B) {
        pack(regs, *reinterpret_cast<VectorB*>(shared + k * STRIDE_B));
        regs += VEC_B;
    }
}

// Loads TM values of A and TN values of B, of one k, from shared memory into registers.
__device__ __forceinline__ void load_fragments(const float* shared_a, const float* shared_b, int k,
                                               float (&frag_a)[TM], float (&frag_b)[TN]) {
    #pragma unroll
    for (int i = 0; i < TM; i += VEC_M) {
        const float* source = shared_a + k * STRIDE_A + i * LANES_M;
        unpack(*reinterpret_cast<const VectorM*>(source), frag_a + i);
    }
    #pragma unroll
    for (int j = 0; j < TN; j += VEC_N) {
        const float* source = shared_b + k * STRIDE_B + j * LANES_N;
        unpack(*reinterpret_cast<const VectorN*>(source), frag_b + j);
    }
}

// accum += frag_a * frag_b^T.
__device__ __forceinline__ void multiply_fragments(const float (&frag_a)[TM],
                                                   const float (&frag_b)[TN],
                                                   float (&accum)[TM][TN]) {
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int step = 0; step < TN; ++step) {
            // Serpentine: each row begins with the operand that the row before used last.
            const int j = i % 2 == 0 ? step : TN - 1 - step;
            accum[i][j] = fmaf(frag_a[i], frag_b[j], accum[i][j]);
        }
    }
}

// Floats of one partial sum of a tile, as a block leaves it in the workspace.
constexpr int PARTIAL = BM * BN;

// One tile of C: where it begins, where its operands begin.
struct Tile {
    const float *A, *B;
    float* C;
    int m0, n0;
};

// Where this thread's part of a tile begins.
struct Place {
    int m, n;
};

__device__ __forceinline__ Place place_of_thread() {
    const int warp = (int)threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    const int lane_m = lane / LANES_N;
    const int lane_n = lane % LANES_N;
    Place place;
    place.m = warp / WARPS_N * WM + lane_m * VEC_M;
    place.n = warp % WARPS_N * WN + lane_n * VEC_N;
    return place;
}

// accum += the product of k_extent columns of op(A) and as many rows of op(B).
__device__ __forceinline__ void multiply_tile(float* shared, const Tile& tile, int lda, int ldb,
                                              int k_extent, float (&accum)[TM][TN]) {
    // What this thread copies first of each k_tile; the pointers advance from k_tile to k_tile.
    const int thread = (int)threadIdx.x;
    const int copy_m = thread / LANES_A;
    const int copy_ka = thread % LANES_A * VEC_A;
    const float* A = tile.A + (long long)copy_m * lda + copy_ka;
    constexpr int advance_a = BK;
    const int copy_n = thread % LANES_B * VEC_B;
    const int copy_kb = thread / LANES_B;
    const float* B = tile.B + (long long)copy_kb * ldb + copy_n;
    const long long advance_b = (long long)BK * ldb;
    float* const copy_to_a = shared + copy_ka * STRIDE_A + copy_m;
    float* const copy_to_b = shared + K_TILE_A + copy_kb * STRIDE_B + copy_n;
    const Place place = place_of_thread();
    const float* const read_from_a = shared + place.m;
    const float* const read_from_b = shared + K_TILE_A + place.n;
    const int num_k_tiles = (k_extent + BK - 1) / BK;
    float from_a[CARRIED_A];
    float from_b[CARRIED_B];

    // Start: the first k_tile goes to stage 0, the second is on its way to registers.
    load_k_tile_a(from_a, A, lda);
    load_k_tile_b(from_b, B, ldb);
    store_k_tile_a(copy_to_a, from_a);
    store_k_tile_b(copy_to_b, from_b);
    if (num_k_tiles > 1) {
        A += advance_a;
        B += advance_b;
    }
    load_k_tile_a(from_a, A, lda);
    load_k_tile_b(from_b, B, ldb);
    __syncthreads();
    float frag_a[2][TM];
    float frag_b[2][TN];
    load_fragments(read_from_a, read_from_b, 0, frag_a[0], frag_b[0]);

    int read = 0;
    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            // Hand over: the next k_tile goes to the other stage, which all warps left at the last
            // barrier, and the one after it is loaded.
            if (k == HANDOVER) {
                store_k_tile_a(copy_to_a + STAGE - read, from_a);
                store_k_tile_b(copy_to_b + STAGE - read, from_b);
                if (k_tile + 2 < num_k_tiles) {
                    A += advance_a;
                    B += advance_b;
                    load_k_tile_a(from_a, A, lda);
                    load_k_tile_b(from_b, B, ldb);
                }
            }
            // Wait: the last fragments of this k_tile are in registers, the next k_tile must be
            // here.
            if (k == BK - 1) {
                __syncthreads();
                read = STAGE - read;
            }
            // Read the next fragments while multiplying these.
            load_fragments(read_from_a + read, read_from_b + read, (k + 1) % BK,
                           frag_a[(k + 1) % 2], frag_b[(k + 1) % 2]);
            multiply_fragments(frag_a[k % 2], frag_b[k % 2], accum);
        }
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

// Stores this block's accumulators to the workspace: a whole tile, wherever the edges of C are.
__device__ __forceinline__ void store_partial(float* to, const float (&accum)[TM][TN]) {
    const Place place = place_of_thread();
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int m = place.m + i / VEC_M * VEC_M * LANES_M + i % VEC_M;
        #pragma unroll
        for (int j = 0; j < TN; j += VEC_C) {
            const int n = place.n + j / VEC_N * VEC_N * LANES_N + j % VEC_N;
            pack(&accum[i][j], *reinterpret_cast<VectorC*>(to + (long long)m * BN + n));
        }
    }
}

// Partial sums, and vectors of four floats of each, that a thread reads at once.
constexpr int PARTIALS_AT_ONCE = 4;
constexpr int VECTORS_AT_ONCE = 1;

// Adds up the vectors from `begin` to `end` of a tile's partial sums, in the order of the partial
// sums, and stores them to C.
__device__ __forceinline__ void add_partials(const Tile& tile, int ldc, const float* partials,
                                             int num_partials, int begin, int end,
                                             const Epilogue& with) {
    for (int first = begin + (int)threadIdx.x; first < end; first += VECTORS_AT_ONCE * THREADS) {
        float totals[VECTORS_AT_ONCE][4] = {};
        for (int partial = 0; partial < num_partials; partial += PARTIALS_AT_ONCE) {
            // Zero where there is no such vector or partial sum, so that no load waits for another.
            float4 given[PARTIALS_AT_ONCE][VECTORS_AT_ONCE] = {};
            #pragma unroll
            for (int p = 0; p < PARTIALS_AT_ONCE; ++p) {
                const float* const from = partials + (long long)(partial + p) * PARTIAL;
                #pragma unroll
                for (int i = 0; i < VECTORS_AT_ONCE; ++i) {
                    const int vector = first + i * THREADS;
                    if (partial + p < num_partials && vector < end) {
                        given[p][i] = __ldcg(reinterpret_cast<const float4*>(from) + vector);
                    }
                }
            }
            #pragma unroll
            for (int p = 0; p < PARTIALS_AT_ONCE; ++p) {
                #pragma unroll
                for (int i = 0; i < VECTORS_AT_ONCE; ++i) {
                    totals[i][0] += given[p][i].x;
                    totals[i][1] += given[p][i].y;
                    totals[i][2] += given[p][i].z;
                    totals[i][3] += given[p][i].w;
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < VECTORS_AT_ONCE; ++i) {
            const int vector = first + i * THREADS;
            const int m = vector / (BN / 4);
            const int n = vector % (BN / 4) * 4;
            if (vector >= end) {
                continue;
            }
            #pragma unroll
            for (int j = 0; j < 4; j += VEC_C) {
                store_vector(tile, ldc, m, n + j, &totals[i][j], with);
            }
        }
    }
}

// What a block of a tile has to add up once all partial sums are there.
enum Duty { NOTHING, OWN_SHARE, EVERYTHING };

// The counter of a tile. Low bits: partial sums that arrived. Above them: blocks that have stopped
// waiting. Highest bit: one of these left before all partial sums were there.
constexpr unsigned ARRIVED = 0xffff;
constexpr unsigned DEPARTED = 1u << 16;
constexpr unsigned LEFT = 1u << 31;
// How often a block looks whether all partial sums are there before it leaves: about 0.1 ms. Not
// for ever, since a partial sum may be that of a block which has no place on the GPU yet.
constexpr int PATIENCE = 200;

// Whether this block is the last to stop waiting, which sets the counter back for the next launch.
__device__ __forceinline__ bool departs_last(unsigned* counter, int num_partials) {
    const unsigned before = atomicAdd(counter, DEPARTED) & ~LEFT;
    return before / DEPARTED == (unsigned)num_partials - 1;
}

// Counts this block's partial sum and waits for the others, not for ever; executed by one thread.
__device__ __forceinline__ Duty wait_for_partials(unsigned* counter, int num_partials) {
    unsigned seen = atomic_add_acq_rel(counter, 1) + 1;
    const bool is_last = (seen & ARRIVED) == (unsigned)num_partials;
    for (int look = 0; (seen & ARRIVED) < (unsigned)num_partials; ++look) {
        // Out of patience: leave, unless another partial sum has arrived meanwhile.
        if (look >= PATIENCE && atomicCAS(counter, seen, (seen + DEPARTED) | LEFT) == seen) {
            return NOTHING;
        }
        seen = load_acquire(counter);
    }
    if (!(seen & LEFT)) {
        return OWN_SHARE;
    }
    if (departs_last(counter, num_partials)) {
        atomicExch(counter, 0);
    }
    return is_last ? EVERYTHING : NOTHING;
}

// Leaves this block's accumulators among the partial sums of its tile and waits for the others;
// then each block adds up a range of the tile. If one of them did not wait so long, the block that
// arrived last adds up all of it. Partial sums are always added in the same order, so that the same
// call gives the same bits.
__device__ __forceinline__ void join_partials(float* shared, const Tile& tile, int ldc,
                                              float* partials, unsigned* counter, int partial,
                                              int num_partials, const float (&accum)[TM][TN],
                                              const Epilogue& with) {
    store_partial(partials + (long long)partial * PARTIAL, accum);
    // All threads of the block must have stored before it counts as arrived.
    __syncthreads();
    Duty* const duty = reinterpret_cast<Duty*>(shared);
    if (threadIdx.x == 0) {
        *duty = wait_for_partials(counter, num_partials);
    }
    __syncthreads();
    constexpr int ALL_VECTORS = PARTIAL / 4;
    if (*duty == EVERYTHING) {
        add_partials(tile, ldc, partials, num_partials, 0, ALL_VECTORS, with);
    } else if (*duty == OWN_SHARE) {
        const bool resets = threadIdx.x == 0 && departs_last(counter, num_partials);
        add_partials(tile, ldc, partials, num_partials, ALL_VECTORS * partial / num_partials,
                     ALL_VECTORS * (partial + 1) / num_partials, with);
        if (resets) {
            atomicExch(counter, 0);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                float beta, float* C, int ldc, float* workspace) {
    extern __shared__ __align__(16) float shared[];
    let_next_kernel_begin();
    wait_for_kernels_before();
    const Epilogue with = {alpha, beta};
    const int blocks_n = (N + BN - 1) / BN;
    const int blocks_m = (M + BM - 1) / BM;
    const int num_tiles = blocks_m * blocks_n;
    const int num_k_tiles = (K + BK - 1) / BK;
    // The workspace: counters of arrivals, then the partial sums.
    unsigned* const arrived = reinterpret_cast<unsigned*>(workspace);
    float* const partials = workspace + (num_tiles + 3) / 4 * 4;

    // Which partial sum of which tile: SPLIT_K blocks share a tile, each has its range of k.
    const int num_partials = min(SPLIT_K, num_k_tiles);
    const int index = (int)blockIdx.x % num_tiles;
    const int partial = (int)blockIdx.x / num_tiles;
    if (partial >= num_partials) {
        return;
    }
    const int k_begin = (int)((long long)num_k_tiles * partial / num_partials) * BK;
    const int k_end = min(K, (int)((long long)num_k_tiles * (partial + 1) / num_partials) * BK);
    // Where the tile is: row by row.
    const int m0 = index / blocks_n * BM;
    const int n0 = index % blocks_n * BN;
    Tile tile;
    tile.A = A + (long long)m0 * lda + k_begin;
    tile.B = B + (long long)k_begin * ldb + n0;
    tile.C = C + (long long)m0 * ldc + n0;
    tile.m0 = m0;
    tile.n0 = n0;
    float accum[TM][TN] = {};
    multiply_tile(shared, tile, lda, ldb, k_end - k_begin, accum);
    join_partials(shared, tile, ldc, partials + (long long)index * SPLIT_K * PARTIAL,
                  arrived + index, partial, num_partials, accum, with);
}

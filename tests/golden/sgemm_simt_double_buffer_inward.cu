// autogemm, family sgemm_simt: BM=128 BN=128 BK=8 WM=32 WN=128 TM=16 TN=8 SLICE_K=1 SLICES=shared
// SPLIT_K=1 STREAM_BLOCKS=264 PAD_A=4 PAD_B=0 VEC_LOAD=1 VEC_STORE=1 STAGES=2 REG_STAGES=2
// HANDOVER=5 POINTERS=derived CHAIN_K=0 GROUP_M=1 MIN_BLOCKS=1 FMA_ORDER=snake EDGES=inward PACK=0
// LANE_MAP=rows

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for:
//   M: BM or more, N: BN or more, K: any
//   A: any leading dimension; accessed float by float
//   B: any leading dimension; accessed float by float
//   C: any leading dimension; accessed float by float

// Tile of C owned by one thread block, and the depth of one shared-memory k_tile.
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 8;

// Blocks that share the tiles which are too few to fill the GPU once more.
constexpr int STREAM_BLOCKS = 264;

// Tile of C owned by one warp, and by one thread.
constexpr int WM = 32;
constexpr int WN = 128;
constexpr int TM = 16;
constexpr int TN = 8;

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
constexpr int VEC_A = 1;
constexpr int VEC_B = 1;
constexpr int VEC_C = 1;
constexpr int LANES_A = 8;
constexpr int LANES_B = 32;
constexpr int ROWS_A = THREADS / LANES_A;
constexpr int ROWS_B = THREADS / LANES_B;
static_assert(BM % ROWS_A == 0 && BK % ROWS_B == 0, "whole passes cover a k_tile");
// Floats of a k_tile that one thread carries from global to shared memory.
constexpr int CARRIED_A = BM * BK / THREADS;
constexpr int CARRIED_B = BN * BK / THREADS;
using VectorA = float;
using VectorB = float;
using VectorC = float;

__device__ __forceinline__ void unpack(float from, float* to) {
    to[0] = from;
}

__device__ __forceinline__ void pack(const float* from, float& to) {
    to = from[0];
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

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
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
        #pragma unroll
        for (int n = 0; n < BN; n += LANES_B * VEC_B) {
            const float* source = b + (long long)k * ldb + n;
            unpack(*reinterpret_cast<const VectorB*>(source), regs);
            regs += VEC_B;
        }
    }
}

// Stores what load_k_tile_b loaded to shared memory.
__device__ __forceinline__ void store_k_tile_b(float* shared, const float* regs) {
    #pragma unroll
    for (int k = 0; k < BK; k += ROWS_B) {
        #pragma unroll
        for (int n = 0; n < BN; n += LANES_B * VEC_B) {
            pack(regs, *reinterpret_cast<VectorB*>(shared + k * STRIDE_B + n));
            regs += VEC_B;
        }
    }
}

// Loads the floats of this thread from the k_tile of op(A); past the edges comes zero.
// `a` points to what it loads first.
__device__ __forceinline__ void load_first_k_tile_a(float* regs, const float* a, int lda,
                                                    int k_left) {
    #pragma unroll
    for (int m = 0; m < BM; m += ROWS_A) {
        #pragma unroll
        for (int k = 0; k < BK; k += LANES_A * VEC_A) {
            const float* source = a + (long long)m * lda + k;
            const int num_valid = k_left - k;
            if (num_valid >= VEC_A) {
                unpack(*reinterpret_cast<const VectorA*>(source), regs);
            } else {
                #pragma unroll
                for (int i = 0; i < VEC_A; ++i) {
                    regs[i] = i < num_valid ? source[i] : 0.0f;
                }
            }
            regs += VEC_A;
        }
    }
}

// Loads the floats of this thread from the k_tile of op(B); past the edges comes zero.
// `b` points to what it loads first.
__device__ __forceinline__ void load_first_k_tile_b(float* regs, const float* b, int ldb,
                                                    int k_left) {
    #pragma unroll
    for (int k = 0; k < BK; k += ROWS_B) {
        #pragma unroll
        for (int n = 0; n < BN; n += LANES_B * VEC_B) {
            const float* source = b + (long long)k * ldb + n;
            const int num_valid = k < k_left ? VEC_B : 0;
            if (num_valid >= VEC_B) {
                unpack(*reinterpret_cast<const VectorB*>(source), regs);
            } else {
                #pragma unroll
                for (int i = 0; i < VEC_B; ++i) {
                    regs[i] = i < num_valid ? source[i] : 0.0f;
                }
            }
            regs += VEC_B;
        }
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

// One tile of C: where it begins, where its operands begin, and which part of it is stored.
struct Tile {
    const float *A, *B;
    float* C;
    int m0, n0;
    int first_row;
    int first_column;
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
    // The first k_tile is the short one, so that no other one need be checked.
    const int first_depth = k_extent - (num_k_tiles - 1) * BK;
    float from_a[CARRIED_A];
    float from_b[CARRIED_B];

    // Start: the first k_tile goes to stage 0, the second is on its way to registers.
    load_first_k_tile_a(from_a, A, lda, first_depth - copy_ka);
    load_first_k_tile_b(from_b, B, ldb, first_depth - copy_kb);
    store_k_tile_a(copy_to_a, from_a);
    store_k_tile_b(copy_to_b, from_b);
    if (num_k_tiles > 1) {
        A += first_depth;
        B += (long long)first_depth * ldb;
        load_k_tile_a(from_a, A, lda);
        load_k_tile_b(from_b, B, ldb);
    }
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

// Whether row m is to be stored: rows before first_row are those of another tile.
__device__ __forceinline__ bool has_row(const Tile& tile, int m) {
    return m >= tile.first_row;
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

// Stores VEC_C neighbours of the tile's row m, from its column n on, as far as the tile has them.
__device__ __forceinline__ void store_vector(const Tile& tile, int ldc, int m, int n,
                                             const float* accum, const Epilogue& with) {
    float* const c = tile.C + (long long)m * ldc + n;
    if (n >= tile.first_column) {
        store_whole_vector(c, tile.m0 + m, tile.n0 + n, accum, with);
    }
}

// Lanes that exchange neighbours of their rows, so that together they have those of one row after
// another: a warp then stores floats side by side, not one of four.
constexpr int TURNED = 2;
// From a lane to the one whose row is next.
constexpr int TO_NEXT_ROW = LANES_N;

// Transposes values among TURNED lanes: the one numbered `own` gets element `own` of each,
// that of lane e in values[e]. A vector of more elements is transposed in groups of TURNED.
__device__ __forceinline__ void turn(float (&values)[VEC_N], int own) {
    #pragma unroll
    for (int bit = 1; bit < TURNED; bit *= 2) {
        #pragma unroll
        for (int e = 0; e < VEC_N; ++e) {
            if (e & bit) {
                continue;
            }
            const bool gives_first = own & bit;
            const float given = gives_first ? values[e] : values[e + bit];
            const float taken = __shfl_xor_sync(0xffffffffu, given, TO_NEXT_ROW);
            values[e] = gives_first ? taken : values[e];
            values[e + bit] = gives_first ? values[e + bit] : taken;
        }
    }
}

// Stores the VEC_N neighbours that each lane has of its row m, from its column n on.
__device__ __forceinline__ void store_neighbours(const Tile& tile, int ldc, int m, int n,
                                                 const float* accum, const Epilogue& with) {
    const int own = m / VEC_M % TURNED;
    float values[VEC_N];
    #pragma unroll
    for (int e = 0; e < VEC_N; ++e) {
        values[e] = accum[e];
    }
    turn(values, own);
    #pragma unroll
    for (int e = 0; e < VEC_N; ++e) {
        const int row = m + (e % TURNED - own) * VEC_M;
        if (!has_row(tile, row)) {
            continue;
        }
        const int column = n + e / TURNED * TURNED + own;
        store_vector(tile, ldc, row, column, &values[e], with);
    }
}

// Stores the tile of C from its accumulators.
__device__ __forceinline__ void store_tile(const Tile& tile, int ldc, const float (&accum)[TM][TN],
                                           const Epilogue& with) {
    const Place place = place_of_thread();
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int m = place.m + i / VEC_M * VEC_M * LANES_M + i % VEC_M;
        #pragma unroll
        for (int j = 0; j < TN; j += VEC_N) {
            const int n = place.n + j * LANES_N;
            store_neighbours(tile, ldc, m, n, &accum[i][j], with);
        }
    }
}

// Stores this block's accumulators to the workspace: a whole tile, wherever the edges of C are. The
// threads' floats lie side by side, the first of all, then the second ones. Float by float: vectors
// would bind accumulators to registers that suit the main loop less.
__device__ __forceinline__ void store_partial(float* to, const float (&accum)[TM][TN]) {
    to += (int)threadIdx.x;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            to[(i * TN + j) * THREADS] = accum[i][j];
        }
    }
}

// The block that has a k_tile, of those that share stream_k_tiles in equal ranges.
__device__ __forceinline__ int owner_of(long long k_tile, long long stream_k_tiles,
                                        int stream_blocks) {
    return (int)(((k_tile + 1) * stream_blocks + stream_k_tiles - 1) / stream_k_tiles) - 1;
}

// Leaves this block's accumulators among the partial sums of its tile. The block that arrives last
// adds up all of them, always in the same order, so that the same call gives the same bits; it
// stores the tile of C and sets the counter back to zero for the next launch.
__device__ __forceinline__ void join_partials(const Tile& tile, int ldc, float* partials,
                                              unsigned* arrived, int partial, int num_partials,
                                              const float (&accum)[TM][TN], const Epilogue& with) {
    store_partial(partials + (long long)partial * PARTIAL, accum);
    // All threads of the block must have stored before it counts as arrived.
    __syncthreads();
    bool is_last = false;
    if (threadIdx.x == 0) {
        is_last = atomic_add_acq_rel(arrived, 1) == (unsigned)num_partials - 1;
    }
    if (!__syncthreads_or(is_last)) {
        return;
    }
    if (threadIdx.x == 0) {
        *arrived = 0;
    }

    // Each thread adds up what lies where its own accumulators did, AT_ONCE vectors so that their
    // loads overlap.
    constexpr int AT_ONCE = 8;
    constexpr int FLOATS = AT_ONCE * VEC_N;
    static_assert(TM * TN % FLOATS == 0, "whole passes cover a tile");
    const Place place = place_of_thread();
    partials += (int)threadIdx.x;
    for (int first = 0; first < TM * TN; first += FLOATS) {
        float totals[AT_ONCE][VEC_N] = {};
        // Not more at a time: with the registers of 128 loads those of the main loop meet in banks.
        #pragma unroll 2
        for (int from = 0; from < num_partials; ++from) {
            const float* const source = partials + (long long)from * PARTIAL;
            #pragma unroll
            for (int i = 0; i < FLOATS; ++i) {
                totals[i / VEC_N][i % VEC_N] += __ldcg(source + (first + i) * THREADS);
            }
        }
        #pragma unroll
        for (int vector = 0; vector < AT_ONCE; ++vector) {
            const int i = (first + vector * VEC_N) / TN;
            const int j = (first + vector * VEC_N) % TN;
            const int m = place.m + i / VEC_M * VEC_M * LANES_M + i % VEC_M;
            const int n = place.n + j * LANES_N;
            store_neighbours(tile, ldc, m, n, totals[vector], with);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc,
                float* __restrict__ workspace) {
    extern __shared__ __align__(16) float shared[];
    const Epilogue with = {alpha, beta};
    const int blocks_n = (N + BN - 1) / BN;
    const int blocks_m = (M + BM - 1) / BM;
    const int num_tiles = blocks_m * blocks_n;
    const int num_k_tiles = (K + BK - 1) / BK;
    // The workspace: counters of arrivals, then the partial sums.
    unsigned* const arrived = reinterpret_cast<unsigned*>(workspace);
    float* const partials = workspace + (num_tiles + 3) / 4 * 4;

    // Each block has a range of k_tiles, counted through all tiles. The first blocks have a tile
    // each, as many as keep the GPU full; STREAM_BLOCKS share what is left in equal ranges.
    const int whole = num_tiles / STREAM_BLOCKS * STREAM_BLOCKS;
    const long long stream_k_tiles = (long long)(num_tiles - whole) * num_k_tiles;
    const int stream_blocks = (int)min((long long)STREAM_BLOCKS, stream_k_tiles);
    const int stream_block = (int)blockIdx.x - whole;
    const long long first_stream = (long long)whole * num_k_tiles;
    long long k_tile = (long long)blockIdx.x * num_k_tiles;
    long long end_k_tile = k_tile + num_k_tiles;
    if (stream_block >= 0) {
        k_tile = first_stream + stream_k_tiles * min(stream_block, stream_blocks) / stream_blocks;
        end_k_tile =
            first_stream + stream_k_tiles * min(stream_block + 1, stream_blocks) / stream_blocks;
    }

    while (k_tile < end_k_tile) {
        const int index = (int)(k_tile / num_k_tiles);
        const int first = (int)(k_tile % num_k_tiles);
        const int last = (int)min((long long)num_k_tiles, first + end_k_tile - k_tile);
        const int lacking = num_k_tiles * BK - K;
        const int k_begin = max(0, first * BK - lacking);
        const int k_end = last * BK - lacking;
        // Where the tile is: row by row.
        const int own_m0 = index / blocks_n * BM;
        const int own_n0 = index % blocks_n * BN;
        // A tile that would reach past C begins further in; its first rows and columns then belong
        // to other tiles and are not stored.
        const int m0 = min(own_m0, M - BM);
        const int n0 = min(own_n0, N - BN);
        Tile tile;
        tile.A = A + (long long)m0 * lda + k_begin;
        tile.B = B + (long long)k_begin * ldb + n0;
        tile.C = C + (long long)m0 * ldc + n0;
        tile.m0 = m0;
        tile.n0 = n0;
        tile.first_row = own_m0 - m0;
        tile.first_column = own_n0 - n0;
        float accum[TM][TN] = {};
        multiply_tile(shared, tile, lda, ldb, k_end - k_begin, accum);
        if (last - first == num_k_tiles) {
            store_tile(tile, ldc, accum, with);
        } else {
            // Its partial sums come from the blocks between the owners of its first k_tile and of
            // its last.
            const int stream_tile = index - whole;
            const long long before = (long long)stream_tile * num_k_tiles;
            const int owner = owner_of(before, stream_k_tiles, stream_blocks);
            const int last_owner =
                owner_of(before + num_k_tiles - 1, stream_k_tiles, stream_blocks);
            join_partials(tile, ldc, partials + (long long)(owner + stream_tile) * PARTIAL,
                          arrived + stream_tile, stream_block - owner, last_owner - owner + 1,
                          accum, with);
        }
        k_tile += last - first;
        // All warps have read this tile's k_tiles before the next one's are copied.
        __syncthreads();
    }
}

// autogemm, family sgemm_simt: BM=32 BN=32 BK=8 WM=16 WN=8 TM=2 TN=2 SLICE_K=1 SLICES=shared
// SPLIT_K=1 STREAM_BLOCKS=0 PAD_A=4 PAD_B=0 VEC_LOAD=1 VEC_STORE=1 STAGES=1 REG_STAGES=1
// POINTERS=derived CHAIN_K=0 GROUP_M=1 MIN_BLOCKS=1 FMA_ORDER=snake EDGES=guarded PACK=0
// LANE_MAP=rows

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for:
//   M: any, N: multiples of BN, K: any
//   A: any leading dimension; accessed float by float
//   B: any leading dimension; accessed float by float
//   C: any leading dimension; accessed float by float

// Tile of C owned by one thread block, and the depth of one shared-memory k_tile.
constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 8;

// Tile of C owned by one warp, and by one thread.
constexpr int WM = 16;
constexpr int WN = 8;
constexpr int TM = 2;
constexpr int TN = 2;

// Warps across the block tile, lanes across the warp tile.
constexpr int WARPS_N = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * WARPS_N;
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
static_assert(LANES_M * LANES_N == 32, "the lanes of a warp cover its tile once");

// A thread's rows and columns come in vectors of neighbours; the vectors of the lanes interleave,
// so that a warp's read is contiguous.
constexpr int VEC_M = 2;
constexpr int VEC_N = 2;
using VectorM = float2;
using VectorN = float2;

// A k_tile of A is kept as [k][m], one of B as [k][n]: floats from one k to the next.
constexpr int STRIDE_A = BM + 4;
constexpr int STRIDE_B = BN + 0;
constexpr int K_TILE_A = BK * STRIDE_A;
static_assert(STRIDE_A % VEC_M == 0 && STRIDE_B % VEC_N == 0, "vectors are aligned");

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

__device__ __forceinline__ void unpack(float2 from, float* to) {
    to[0] = from.x;
    to[1] = from.y;
}

__device__ __forceinline__ void pack(const float* from, float2& to) {
    to = make_float2(from[0], from[1]);
}

// Loads the floats of this thread from the k_tile of op(A); past the edges comes zero.
// `a` points to what it loads first.
__device__ __forceinline__ void load_k_tile_a(float* regs, const float* a, int lda, int m_left,
                                              int k_left) {
    #pragma unroll
    for (int m = 0; m < BM; m += ROWS_A) {
        #pragma unroll
        for (int k = 0; k < BK; k += LANES_A * VEC_A) {
            const float* source = a + (long long)m * lda + k;
            const int num_valid = m < m_left ? k_left - k : 0;
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

// Loads the floats of this thread from the k_tile of op(B); past the edges comes zero.
// `b` points to what it loads first.
__device__ __forceinline__ void load_k_tile_b(float* regs, const float* b, int ldb, int k_left) {
    #pragma unroll
    for (int k = 0; k < BK; k += ROWS_B) {
        const float* source = b + (long long)k * ldb;
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

// accum += the product of one k_tile.
__device__ __forceinline__ void multiply_k_tile(const float* shared_a, const float* shared_b,
                                                float (&accum)[TM][TN]) {
    float frag_a[TM];
    float frag_b[TN];
    #pragma unroll
    for (int k = 0; k < BK; ++k) {
        load_fragments(shared_a, shared_b, k, frag_a, frag_b);
        multiply_fragments(frag_a, frag_b, accum);
    }
}

// One tile of C: where it begins, where its operands begin, and how much of C is left.
struct Tile {
    const float *A, *B;
    float* C;
    int m0, n0;
    int rows;
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
    const int m_left = tile.rows - copy_m;
    float* const copy_to_a = shared + copy_ka * STRIDE_A + copy_m;
    float* const copy_to_b = shared + K_TILE_A + copy_kb * STRIDE_B + copy_n;
    const Place place = place_of_thread();
    const float* const read_from_a = shared + place.m;
    const float* const read_from_b = shared + K_TILE_A + place.n;
    const int num_k_tiles = (k_extent + BK - 1) / BK;
    float from_a[CARRIED_A];
    float from_b[CARRIED_B];
    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        // Load.
        const int k0 = k_tile * BK;
        load_k_tile_a(from_a, A, lda, m_left, k_extent - k0 - copy_ka);
        load_k_tile_b(from_b, B, ldb, k_extent - k0 - copy_kb);
        A += advance_a;
        B += advance_b;
        store_k_tile_a(copy_to_a, from_a);
        store_k_tile_b(copy_to_b, from_b);
        __syncthreads();
        // Compute.
        multiply_k_tile(read_from_a, read_from_b, accum);
        __syncthreads();
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

// Whether row m is to be stored.
__device__ __forceinline__ bool has_row(const Tile& tile, int m) {
    return m < tile.rows;
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc) {
    extern __shared__ __align__(16) float shared[];
    const Epilogue with = {alpha, beta};
    const int blocks_n = (N + BN - 1) / BN;
    const int index = (int)blockIdx.x;
    // Where the tile is: row by row.
    const int m0 = index / blocks_n * BM;
    const int n0 = index % blocks_n * BN;
    Tile tile;
    tile.A = A + (long long)m0 * lda;
    tile.B = B + n0;
    tile.C = C + (long long)m0 * ldc + n0;
    tile.m0 = m0;
    tile.n0 = n0;
    tile.rows = M - m0;
    float accum[TM][TN] = {};
    multiply_tile(shared, tile, lda, ldb, K, accum);
    store_tile(tile, ldc, accum, with);
}

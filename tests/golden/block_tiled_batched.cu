// autogemm, family block_tiled: BM=128 BN=128 BK=8 TM=8 TN=8 ORDER_A=mk VEC=1 PAD_A=0 PAD_B=0
// MIN_BLOCKS=2

// A batch of such products in one launch. The next one's matrices begin batch_rows_a rows of A,
// batch_rows_b of B and batch_rows_c of C, as stored, behind those of the one before; 0: all share
// the operand.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for:
//   M: multiples of BM, N: multiples of BN, K: multiples of BK
//   A: any leading dimension; accessed float by float
//   B: any leading dimension; accessed float by float
//   C: any leading dimension; accessed float by float
//
// Large tiles, thin k_tiles: a block walks along K with BM x BK of A and BK x BN of B in shared
// memory, and each thread multiplies TM values by TN.

// Tile of C owned by one thread block, and the depth of one k_tile.
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 8;

// Part of the tile owned by one thread.
constexpr int TM = 8;
constexpr int TN = 8;
constexpr int THREADS_N = BN / TN;
constexpr int THREADS = BM / TM * THREADS_N;

// Columns of the k_tiles as they are stored, and floats per access to global memory.
constexpr int COLUMNS_A = BK;
constexpr int COLUMNS_B = BN;
constexpr int VEC_A = 1;
constexpr int VEC_B = 1;
constexpr int VEC_C = 1;
using VectorA = float;
using VectorB = float;
using VectorC = float;
static_assert(BM * BK % (THREADS * VEC_A) == 0, "whole passes copy A's k_tile");
static_assert(BN * BK % (THREADS * VEC_B) == 0, "whole passes copy B's k_tile");

__device__ __forceinline__ void unpack(float from, float* to) {
    to[0] = from;
}

__device__ __forceinline__ void pack(const float* from, float& to) {
    to = from[0];
}

// op(A)[m][k].
__device__ __forceinline__ float element_a(const float* A, int lda, int m, int k, int M, int K) {
    return A[(long long)m * lda + k];
}

// op(B)[k][n].
__device__ __forceinline__ float element_b(const float* B, int ldb, int k, int n, int K, int N) {
    return B[(long long)k * ldb + n];
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

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc,
                int batch, int batch_rows_a, int batch_rows_b, int batch_rows_c) {
    // The product of this block, and where its matrices begin.
    const int product = (int)blockIdx.z;
    A += (long long)product * batch_rows_a * lda;
    B += (long long)product * batch_rows_b * ldb;
    C += (long long)product * batch_rows_c * ldc;
    __shared__ __align__(16) float k_tile_a[BM][BK];
    __shared__ __align__(16) float k_tile_b[BK][BN];
    const int blocks_n = (N + BN - 1) / BN;
    const int m0 = (int)blockIdx.x / blocks_n * BM;
    const int n0 = (int)blockIdx.x % blocks_n * BN;
    const int thread = (int)threadIdx.x;
    const int thread_m = thread / THREADS_N * TM;
    const int thread_n = thread % THREADS_N * TN;

    float accum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        // Load: neighbouring threads copy neighbours.
        #pragma unroll
        for (int pass = 0; pass < BM * BK / (THREADS * VEC_A); ++pass) {
            const int i = (pass * THREADS + thread) * VEC_A;
            const int m = i / COLUMNS_A;
            const int k = i % COLUMNS_A;
            k_tile_a[m][k] = element_a(A, lda, m0 + m, k0 + k, M, K);
        }
        #pragma unroll
        for (int pass = 0; pass < BN * BK / (THREADS * VEC_B); ++pass) {
            const int i = (pass * THREADS + thread) * VEC_B;
            const int k = i / COLUMNS_B;
            const int n = i % COLUMNS_B;
            k_tile_b[k][n] = element_b(B, ldb, k0 + k, n0 + n, K, N);
        }
        __syncthreads();

        // Compute: an outer product of TM and TN values for each k.
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM];
            float b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a[i] = k_tile_a[thread_m + i][k];
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b[j] = k_tile_b[k][thread_n + j];
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    accum[i][j] = fmaf(a[i], b[j], accum[i][j]);
                }
            }
        }
        __syncthreads();
    }

    // Store.
    const Epilogue with = {alpha, beta};
    #pragma unroll
    for (int i = 0; i < TM * TN; i += VEC_C) {
        const int m = m0 + thread_m + i / TN;
        const int n = n0 + thread_n + i % TN;
        store_vector(whole_c(C, M, N), ldc, m, n, &accum[i / TN][i % TN], with);
    }
}

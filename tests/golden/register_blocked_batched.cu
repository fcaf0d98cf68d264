// autogemm, family register_blocked: BM=32 BN=32 BK=32 TM=4 TN=4 LOAD=flat STAGES=1 PAD=0

// A batch of such products in one launch. The next one's matrices begin batch_rows_a rows of A,
// batch_rows_b of B and batch_rows_c of C, as stored, behind those of the one before; 0: all share
// the operand.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for M: multiples of BM, N: multiples of BN, K: multiples of BK; any leading dimensions.
//
// A thread computes a patch of C: each float that it reads from shared memory serves TM or TN
// multiply-adds.

// Tile of C owned by one thread block, and the depth of the tiles of A and B.
constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 32;

// Patch of C owned by one thread.
constexpr int TM = 4;
constexpr int TN = 4;
constexpr int THREADS_M = BM / TM;
constexpr int THREADS_N = BN / TN;
constexpr int THREADS = THREADS_M * THREADS_N;

// Tiles are kept the way the matrices are stored.
constexpr int ROWS_A = BM;
constexpr int COLUMNS_A = BK;
constexpr int ROWS_B = BK;
constexpr int COLUMNS_B = BN;
using TileA = float[ROWS_A][COLUMNS_A];
using TileB = float[ROWS_B][COLUMNS_B];

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

// Stores C[m][n].
__device__ __forceinline__ void store_element(float* C, int ldc, int M, int N, int m, int n,
                                              float accum, const Epilogue& with) {
    float& c = C[(long long)m * ldc + n];
    c = epilogue(accum, with.reads_c() ? c : 0.0f, m, n, with);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc,
                int batch, int batch_rows_a, int batch_rows_b, int batch_rows_c) {
    // The product of this block, and where its matrices begin.
    const int product = (int)blockIdx.z;
    A += (long long)product * batch_rows_a * lda;
    B += (long long)product * batch_rows_b * ldb;
    C += (long long)product * batch_rows_c * ldc;
    __shared__ TileA tile_a;
    __shared__ TileB tile_b;
    const int blocks_n = (N + BN - 1) / BN;
    const int m0 = (int)blockIdx.x / blocks_n * BM;
    const int n0 = (int)blockIdx.x % blocks_n * BN;
    const int thread = (int)threadIdx.x;
    const int thread_m = thread / THREADS_N;
    const int thread_n = thread % THREADS_N;

    // One element of each tile, by its row and column there.
    auto load_a = [&](int k0, int row, int column) {
        return element_a(A, lda, m0 + row, k0 + column, M, K);
    };
    auto load_b = [&](int k0, int row, int column) {
        return element_b(B, ldb, k0 + row, n0 + column, K, N);
    };
    // All threads in one line: neighbours copy neighbours, so that a warp reads whole rows.
    auto copy_tiles = [&](int k0, TileA& to_a, TileB& to_b) {
        #pragma unroll
        for (int i = thread; i < ROWS_A * COLUMNS_A; i += THREADS) {
            to_a[i / COLUMNS_A][i % COLUMNS_A] = load_a(k0, i / COLUMNS_A, i % COLUMNS_A);
        }
        #pragma unroll
        for (int i = thread; i < ROWS_B * COLUMNS_B; i += THREADS) {
            to_b[i / COLUMNS_B][i % COLUMNS_B] = load_b(k0, i / COLUMNS_B, i % COLUMNS_B);
        }
    };

    float accum[TM][TN] = {};
    auto multiply_tiles = [&](const TileA& from_a, const TileB& from_b) {
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM];
            float b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a[i] = from_a[thread_m * TM + i][k];
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b[j] = from_b[k][thread_n * TN + j];
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    accum[i][j] = fmaf(a[i], b[j], accum[i][j]);
                }
            }
        }
    };

    for (int k0 = 0; k0 < K; k0 += BK) {
        // Copy, then wait for the copies of all threads.
        copy_tiles(k0, tile_a, tile_b);
        __syncthreads();
        // Multiply, then wait until all threads have read these tiles.
        multiply_tiles(tile_a, tile_b);
        __syncthreads();
    }

    const Epilogue with = {alpha, beta};
    #pragma unroll
    for (int i = 0; i < TM * TN; ++i) {
        const int m = m0 + thread_m * TM + i / TN;
        const int n = n0 + thread_n * TN + i % TN;
        store_element(C, ldc, M, N, m, n, accum[i / TN][i % TN], with);
    }
}

// autogemm, family register_blocked: BM=32 BN=32 BK=32 TM=4 TN=4 LOAD=patch STAGES=1 PAD=1

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout tt: op(A) = A^T, A stored [K,M]; op(B) = B^T, B stored [N,K].
//
// Valid for M: any, N: any, K: any; any leading dimensions.
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

// Floats added to each row of a tile, so that its columns begin in different banks.
constexpr int PAD = 1;

// Tiles are kept the way the matrices are stored.
constexpr int ROWS_A = BK;
constexpr int COLUMNS_A = BM;
constexpr int ROWS_B = BN;
constexpr int COLUMNS_B = BK;
using TileA = float[ROWS_A][COLUMNS_A + PAD];
using TileB = float[ROWS_B][COLUMNS_B + PAD];

// op(A)[m][k]; zero past the edges.
__device__ __forceinline__ float element_a(const float* A, int lda, int m, int k, int M, int K) {
    return m >= M || k >= K ? 0.0f : A[(long long)k * lda + m];
}

// op(B)[k][n]; zero past the edges.
__device__ __forceinline__ float element_b(const float* B, int ldb, int k, int n, int K, int N) {
    return k >= K || n >= N ? 0.0f : B[(long long)n * ldb + k];
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

// Stores C[m][n], unless it lies past an edge.
__device__ __forceinline__ void store_element(float* C, int ldc, int M, int N, int m, int n,
                                              float accum, const Epilogue& with) {
    if (m >= M || n >= N) {
        return;
    }
    float& c = C[(long long)m * ldc + n];
    c = epilogue(accum, with.reads_c() ? c : 0.0f, m, n, with);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc) {
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
        return element_a(A, lda, m0 + column, k0 + row, M, K);
    };
    auto load_b = [&](int k0, int row, int column) {
        return element_b(B, ldb, k0 + column, n0 + row, K, N);
    };
    // Each thread copies a patch of its own: neighbouring threads read a patch's width apart.
    constexpr int PATCH_ROWS_A = ROWS_A / THREADS_M;
    constexpr int PATCH_COLUMNS_A = COLUMNS_A / THREADS_N;
    constexpr int PATCH_ROWS_B = ROWS_B / THREADS_M;
    constexpr int PATCH_COLUMNS_B = COLUMNS_B / THREADS_N;
    auto copy_tiles = [&](int k0, TileA& to_a, TileB& to_b) {
        #pragma unroll
        for (int i = 0; i < PATCH_ROWS_A * PATCH_COLUMNS_A; ++i) {
            const int row = thread_m * PATCH_ROWS_A + i / PATCH_COLUMNS_A;
            const int column = thread_n * PATCH_COLUMNS_A + i % PATCH_COLUMNS_A;
            to_a[row][column] = load_a(k0, row, column);
        }
        #pragma unroll
        for (int i = 0; i < PATCH_ROWS_B * PATCH_COLUMNS_B; ++i) {
            const int row = thread_m * PATCH_ROWS_B + i / PATCH_COLUMNS_B;
            const int column = thread_n * PATCH_COLUMNS_B + i % PATCH_COLUMNS_B;
            to_b[row][column] = load_b(k0, row, column);
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
                a[i] = from_a[k][thread_m * TM + i];
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b[j] = from_b[thread_n * TN + j][k];
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

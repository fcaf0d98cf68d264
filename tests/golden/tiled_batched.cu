// autogemm, family tiled: BM=32 BN=32 BK=32 TN=1 STAGES=1 PREFETCH=0 PAD=0 UNROLL=32

// A batch of such products in one launch. The next one's matrices begin batch_rows_a rows of A,
// batch_rows_b of B and batch_rows_c of C, as stored, behind those of the one before; 0: all share
// the operand.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for M: multiples of BM, N: multiples of BN, K: multiples of BK; any leading dimensions.
//
// A block copies tiles of A and B to shared memory, where each element serves a whole row or column
// of threads.

// Tile of C owned by one thread block, and the depth of the tiles of A and B.
constexpr int BM = 32;
constexpr int BN = 32;
constexpr int BK = 32;

// Outputs of one thread: TN in a row of C, SIDE columns apart.
constexpr int TN = 1;
constexpr int SIDE = BN / TN;
constexpr int THREADS = BM * SIDE;
static_assert(BM == BK && SIDE == BK, "a thread copies one element of A, and TN of B");

// Tiles are kept the way the matrices are stored.
using TileA = float[BM][BK];
using TileB = float[BK][BN];

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

// The elements of a tile of A and of a tile of B that one thread copies.
struct Loaded {
    float a;
    float b[TN];
};

// Stores them at the thread's place in the tiles.
__device__ __forceinline__ void store_elements(const Loaded& loaded, int row, int column,
                                               TileA& tile_a, TileB& tile_b) {
    tile_a[row][column] = loaded.a;
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        tile_b[row][column + j * SIDE] = loaded.b[j];
    }
}

// accum += the product of one row of op(A)'s tile and TN columns of op(B)'s.
__device__ __forceinline__ void multiply_tiles(const TileA& tile_a, const TileB& tile_b, int row,
                                               int column, float (&accum)[TN]) {
    #pragma unroll 32
    for (int k = 0; k < BK; ++k) {
        const float a = tile_a[row][k];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            accum[j] = fmaf(a, tile_b[k][column + j * SIDE], accum[j]);
        }
    }
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
    // The thread's place in a tile. Neighbouring threads take neighbouring columns.
    const int row = (int)threadIdx.x / SIDE;
    const int column = (int)threadIdx.x % SIDE;

    auto load_elements = [&](int k0) {
        Loaded loaded;
        loaded.a = element_a(A, lda, m0 + row, k0 + column, M, K);
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            loaded.b[j] = element_b(B, ldb, k0 + row, n0 + column + j * SIDE, K, N);
        }
        return loaded;
    };

    float accum[TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        // Copy, then wait for the copies of all threads.
        store_elements(load_elements(k0), row, column, tile_a, tile_b);
        __syncthreads();
        // Multiply, then wait until all threads have read these tiles.
        multiply_tiles(tile_a, tile_b, row, column, accum);
        __syncthreads();
    }

    const Epilogue with = {alpha, beta};
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        const int m = m0 + row;
        const int n = n0 + column + j * SIDE;
        store_element(C, ldc, M, N, m, n, accum[j], with);
    }
}

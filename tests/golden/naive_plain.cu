// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for M: multiples of BM, N: multiples of BN, K: any; any leading dimensions.
//
// Everything comes from global memory, each time that it is needed.

// Outputs of one thread block, and of one thread: TN neighbours in a row.
constexpr int BM = 32;
constexpr int BN = 32;
constexpr int TN = 1;
constexpr int THREADS_M = BM;
constexpr int THREADS_N = BN / TN;
constexpr int THREADS = THREADS_M * THREADS_N;
static_assert(BN % TN == 0, "threads cover the block's columns once");

// One element: c = alpha * sum + beta * c. beta = 0 never reads C.
__device__ __forceinline__ void update(float* c, float sum, float alpha, float beta) {
    *c = beta == 0.0f ? alpha * sum : fmaf(alpha, sum, beta * *c);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_kernel(int M, int N, int K, float alpha, const float* __restrict__ A, int lda,
                const float* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc) {
    const int blocks_n = (N + BN - 1) / BN;
    const int thread = (int)threadIdx.x;
    // Neighbouring threads take neighbouring columns of C.
    const int thread_m = thread / THREADS_N;
    const int thread_n = thread % THREADS_N;
    const int m = (int)blockIdx.x / blocks_n * BM + thread_m;
    const int n = (int)blockIdx.x % blocks_n * BN + thread_n * TN;

    float sums[TN] = {};
    for (int k = 0; k < K; ++k) {
        const float a = A[(long long)m * lda + k];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            sums[j] = fmaf(a, B[(long long)k * ldb + n + j], sums[j]);
        }
    }

    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        update(C + (long long)m * ldc + n + j, sums[j], alpha, beta);
    }
}

// autogemm, family naive: BM=32 BN=32 TN=1 WALK=columns UNROLL=0

// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for M: any, N: any, K: any; any leading dimensions.
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

__device__ __forceinline__ float input_from_bf16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

// Instructions; the CPU emulator supplies twins of these functions.
#ifndef AUTOGEMM_EMULATOR
// 2^x, off by a few units in the last place; results below 2^-126 become zero.
__device__ __forceinline__ float fast_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// 1 / x, off by a few units in the last place; results below 2^-126 become zero.
__device__ __forceinline__ float fast_reciprocal(float x) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}
#endif  // AUTOGEMM_EMULATOR

__device__ __forceinline__ float sigmoid(float x) {
    return fast_reciprocal(1.0f + fast_exp2(-1.44269504f * x));
}

// What an element of C is made of beside its accumulator.
struct Epilogue {
    float beta;
    const unsigned short* scale;

    // With beta = 0 the old C is never read: it may hold anything.
    __device__ __forceinline__ bool reads_c() const {
        return beta != 0.0f;
    }
};

// C[m][n] = sigmoid(acc) * scale[m] + beta * c[m, n]; scale: bf16
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    const float scale = input_from_bf16(with.scale[m]);
    return sigmoid(accum) * scale + with.beta * old_c;
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
                const unsigned short* __restrict__ epilogue_scale) {
    const int blocks_n = (N + BN - 1) / BN;
    const int thread = (int)threadIdx.x;
    // Neighbouring threads take neighbouring columns of C.
    const int thread_m = thread / THREADS_N;
    const int thread_n = thread % THREADS_N;
    const int m = (int)blockIdx.x / blocks_n * BM + thread_m;
    const int n = (int)blockIdx.x % blocks_n * BN + thread_n * TN;
    if (m >= M || n >= N) {
        return;
    }

    float accum[TN] = {};
    for (int k = 0; k < K; ++k) {
        const float a = A[(long long)m * lda + k];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            accum[j] = fmaf(a, B[(long long)k * ldb + n + j], accum[j]);
        }
    }

    const Epilogue with = {beta, epilogue_scale};
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        store_element(C, ldc, M, N, m, n + j, accum[j], with);
    }
}

// autogemm, family naive: BM=32 BN=32 TN=1 WALK=columns UNROLL=0

// Rows of A and C belong to groups, each of which has M / groups of them: the first counts[g] are
// those of group g. Each group has a B of its own, one behind the other. Other rows are left as
// they are.
//
// C[M,N] = alpha * op(A)[M,K] * op(B)[K,N] + beta * C[M,N], FP32 on CUDA cores, row-major.
// Layout nn: op(A) = A, A stored [M,K]; op(B) = B, B stored [K,N].
//
// Valid for M: any, N: multiples of BN, K: any; any leading dimensions.
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

// What an element of C is made of beside its accumulator.
struct Epilogue {
    const float* scale;
    const float* bias;

    __device__ __forceinline__ bool reads_c() const {
        return false;
    }

    // With the inputs that are the group's own.
    __device__ __forceinline__ Epilogue of_group(int group, int N) const {
        Epilogue own = *this;
        own.scale += group;
        own.bias += (long long)group * N;
        return own;
    }
};

// C[m][n] = scale[g] * acc + bias[g, n]
__device__ __forceinline__ float epilogue(float accum, float old_c, int m, int n,
                                          const Epilogue& with) {
    const float scale = with.scale[0];
    const float bias = with.bias[n];
    return scale * accum + bias;
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
                int groups, const int* __restrict__ counts,
                const float* __restrict__ epilogue_scale, const float* __restrict__ epilogue_bias) {
    const int blocks_n = (N + BN - 1) / BN;
    // The group of this block's tile, the tile's number in it, the group's first row and, as M, the
    // row behind its last. There are as many blocks as there may be tiles, so that some have none.
    int index = (int)blockIdx.x;
    int group = 0;
    while (index >= (counts[group] + BM - 1) / BM * blocks_n) {
        index -= (counts[group] + BM - 1) / BM * blocks_n;
        group += 1;
        if (group == groups) {
            return;
        }
    }
    const int group_m0 = group * (M / groups);
    M = group_m0 + counts[group];
    B += (long long)group * K * ldb;
    const int thread = (int)threadIdx.x;
    // Neighbouring threads take neighbouring columns of C.
    const int thread_m = thread / THREADS_N;
    const int thread_n = thread % THREADS_N;
    const int m = group_m0 + index / blocks_n * BM + thread_m;
    const int n = index % blocks_n * BN + thread_n * TN;
    if (m >= M) {
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

    const Epilogue with = Epilogue{epilogue_scale, epilogue_bias}.of_group(group, N);
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        store_element(C, ldc, M, N, m, n + j, accum[j], with);
    }
}

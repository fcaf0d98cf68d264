// What a card reaches when it does one thing only: FP32 multiply-adds, or copying.

// Independent multiply-adds per thread, so that none waits for another.
constexpr int CHAINS = 16;
constexpr int UNROLL = 8;

// 2 * CHAINS * UNROLL * steps operations per thread. Nothing is ever stored, which the compiler
// cannot know.
extern "C" __global__ void __launch_bounds__(256)
    fma_kernel(float* out, float factor, float addend, int steps) {
    float sums[CHAINS];
    #pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
        sums[i] = (float)threadIdx.x + (float)i;
    }
    for (int step = 0; step < steps; ++step) {
        #pragma unroll
        for (int i = 0; i < CHAINS * UNROLL; ++i) {
            sums[i % CHAINS] = fmaf(sums[i % CHAINS], factor, addend);
        }
    }
    float total = 0.0f;
    #pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
        total += sums[i];
    }
    if (total == -1.0f) {
        out[0] = total;
    }
}

// Float4s that a thread has in flight at a time.
constexpr int IN_FLIGHT = 4;

// Reads and writes each of `count` float4 once; count is a multiple of IN_FLIGHT * 256.
extern "C" __global__ void __launch_bounds__(256)
    copy_kernel(float4* to, const float4* from, int count) {
    const int per_block = IN_FLIGHT * (int)blockDim.x;
    for (int first = (int)blockIdx.x * per_block; first < count;
         first += (int)gridDim.x * per_block) {
        const int begin = first + (int)threadIdx.x;
        float4 some[IN_FLIGHT];
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i) {
            some[i] = from[begin + i * blockDim.x];
        }
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i) {
            to[begin + i * blockDim.x] = some[i];
        }
    }
}

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

// Reads and writes each of `count` float4 once.
extern "C" __global__ void __launch_bounds__(256)
    copy_kernel(float4* to, const float4* from, int count) {
    const int stride = (int)(gridDim.x * blockDim.x);
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += stride) {
        to[i] = from[i];
    }
}

// Measures what a GPU reaches when it does one thing only: FP32 multiply-adds, copying in device memory,
// reading from L2, reading from shared memory; and how long one load takes at each level.

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

// The words of a vector, added. What is read from there shows in the sum.
__device__ unsigned total(uint4 words) {
    return words.x + words.y + words.z + words.w;
}

// Reads IN_FLIGHT * steps of the `mask` + 1 vectors, over and over, and past L1: 16 bytes each.
// `mask` is a power of two less one. Leaves each thread's sum of all words.
extern "C" __global__ void __launch_bounds__(256)
    l2_kernel(unsigned* sums, const uint4* from, int mask, int steps) {
    const int stride = (int)(gridDim.x * blockDim.x);
    const int thread = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned sum = 0;
    int next = thread;
    for (int step = 0; step < steps; ++step) {
        uint4 some[IN_FLIGHT];
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i) {
            // Volatile: none of them is left out because it was read before.
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(some[i].x), "=r"(some[i].y), "=r"(some[i].z), "=r"(some[i].w)
                         : "l"(from + (next & mask)));
            next += stride;
        }
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i) {
            sum += total(some[i]);
        }
    }
    sums[thread] = sum;
}

// Reads IN_FLIGHT * steps vectors of shared memory, a warp side by side: no bank waits for another.
// They come from the `mask` + 1 vectors.
// Leaves each thread's sum of all words.
extern "C" __global__ void __launch_bounds__(256)
    smem_kernel(unsigned* sums, const uint4* from, int mask, int steps) {
    __shared__ uint4 tile[256 + IN_FLIGHT];
    for (int i = (int)threadIdx.x; i < 256 + IN_FLIGHT; i += (int)blockDim.x) {
        tile[i] = from[i & mask];
    }
    __syncthreads();
    const unsigned begin = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x);
    unsigned sum = 0;
    for (int step = 0; step < steps; ++step) {
        uint4 some[IN_FLIGHT];
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i) {
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(some[i].x), "=r"(some[i].y), "=r"(some[i].z), "=r"(some[i].w)
                         : "r"(begin + 16 * i));
        }
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; ++i) {
            sum += total(some[i]);
        }
    }
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Loads in a row, each from the address that the one before it gave.
constexpr int CHAIN_UNROLL = 8;

// One thread follows a chain of addresses in global memory for `steps` loads, a multiple of
// CHAIN_UNROLL, from `start`; L1 keeps what it read. Leaves the cycles that the loads took, and the
// address that the last of them gave.
extern "C" __global__ void __launch_bounds__(32)
    l1_latency_kernel(unsigned long long* out, unsigned long long start, int steps) {
    unsigned long long at = start;
    const long long begin = clock64();
    for (int step = 0; step < steps; step += CHAIN_UNROLL) {
        #pragma unroll
        for (int i = 0; i < CHAIN_UNROLL; ++i) {
            asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(at) : : "memory");
        }
    }
    const long long end = clock64();
    out[0] = (unsigned long long)(end - begin);
    out[1] = at;
}

// The same past L1: from L2, or from device memory if L2 does not hold the chain.
extern "C" __global__ void __launch_bounds__(32)
    l2_latency_kernel(unsigned long long* out, unsigned long long start, int steps) {
    unsigned long long at = start;
    const long long begin = clock64();
    for (int step = 0; step < steps; step += CHAIN_UNROLL) {
        #pragma unroll
        for (int i = 0; i < CHAIN_UNROLL; ++i) {
            asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at) : : "memory");
        }
    }
    const long long end = clock64();
    out[0] = (unsigned long long)(end - begin);
    out[1] = at;
}

// The same in shared memory, over a cycle of LINKS words; `start` is a place in the cycle. Leaves
// the place where the loads ended.
constexpr int LINKS = 256;

extern "C" __global__ void __launch_bounds__(32)
    smem_latency_kernel(unsigned long long* out, unsigned long long start, int steps) {
    __shared__ unsigned links[LINKS];
    const unsigned base = (unsigned)__cvta_generic_to_shared(links);
    for (int i = 0; i < LINKS; ++i) {
        links[i] = base + 4 * ((i + 1) % LINKS);
    }
    __syncthreads();
    unsigned at = base + 4 * (unsigned)start;
    const long long begin = clock64();
    for (int step = 0; step < steps; step += CHAIN_UNROLL) {
        #pragma unroll
        for (int i = 0; i < CHAIN_UNROLL; ++i) {
            asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(at) : : "memory");
        }
    }
    const long long end = clock64();
    out[0] = (unsigned long long)(end - begin);
    out[1] = (at - base) / 4;
}

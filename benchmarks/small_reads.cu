// How fast 15 MB can be read by kernels that follow each other, and how much of a launch overlap hides.
//
//     nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a benchmarks/small_reads.cu -o small_reads
//     ./small_reads
//
// Each kernel reads all weights of 7168 x 2048 bytes once and adds them up, waits for the kernel
// before it, reads x of what that one wrote, and writes a number for each block: a product with few
// rows without its products. Weights are those of 20 buffers in turns, so that they come from memory.
// 200 launches in a graph are timed, twelve times; printed is the median.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                              \
    do {                                                         \
        cudaError_t error = (call);                              \
        if (error) {                                             \
            printf("%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(1);                                             \
        }                                                        \
    } while (0)

// Before they have waited for the kernel before them, blocks read nothing, ask L2 for some of their
// weights, or read all of these, which is right where no kernel before writes them.
enum Mode { WAITS, ASKS_L2, READS };

// When the next kernel may begin: once all loads are on their way, at once, or once they are there.
enum Trigger { LATE, EARLY, ARRIVED };

__device__ __forceinline__ uint4 load(const uint4* from) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

__device__ __forceinline__ void wait_for_kernels_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void let_next_kernel_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// A block reads `per` vectors of 16 bytes, a thread LOADS of them at once, and X of x.
template <int MODE, int THREADS, int MIN_BLOCKS, int LOADS, int TRIGGER, int X>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    read(const uint4* weights, const unsigned* x, unsigned* y, int total, int per, int percent) {
    const int begin = blockIdx.x * per, end = min(begin + per, total);
    if (TRIGGER == EARLY) {
        let_next_kernel_begin();
    }
    uint4 r[LOADS];
    if (MODE == ASKS_L2) {
        for (int i = threadIdx.x; i * 8 < per * percent / 100 && begin + i * 8 < end; i += THREADS) {
            asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + begin + i * 8));
        }
        wait_for_kernels_before();
    }
    if (MODE == WAITS) {
        wait_for_kernels_before();
    }
    unsigned s = 0;
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int k = begin + i * THREADS + threadIdx.x;
        r[i] = k < end ? load(weights + k) : uint4{};
    }
    if (TRIGGER == LATE) {
        let_next_kernel_begin();
    }
    if (MODE == READS) {
        wait_for_kernels_before();
    }
    s = x[threadIdx.x % 64];
    #pragma unroll
    for (int i = 0; i < X; ++i) {
        uint4 v;
        asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"((const uint4*)x + i * THREADS + threadIdx.x));
        s += v.x ^ v.y ^ v.z ^ v.w;
    }
    #pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        s += (r[i].x ^ r[i].y) + (r[i].z ^ r[i].w);
    }
    if (TRIGGER == ARRIVED) {
        __syncthreads();
        if (s != 0x12345) {
            let_next_kernel_begin();
        }
    }
    for (int o = 16; o; o /= 2) {
        s += __shfl_xor_sync(~0u, s, o);
    }
    __shared__ unsigned part[32];
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = s;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / 32; ++i) {
            s += part[i];
        }
        y[blockIdx.x] = s;
    }
}

constexpr int BUFFERS = 20;
constexpr int LAUNCHES = 200;
constexpr int RUNS = 12;
constexpr size_t BYTES = 7168 * 2048;

uint4* weights;
unsigned* numbers;

template <int MODE, int THREADS, int MIN_BLOCKS, int LOADS, int TRIGGER, int X>
void time(const char* name, int blocks, int percent, bool overlaps) {
    const int total = BYTES / 16;
    const int per = (total + blocks - 1) / blocks;
    auto kernel = read<MODE, THREADS, MIN_BLOCKS, LOADS, TRIGGER, X>;
    int resident = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, THREADS, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphExec_t runs;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < LAUNCHES; ++i) {
        cudaLaunchAttribute attribute;
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = blocks;
        config.blockDim = THREADS;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = overlaps ? 1 : 0;
        CHECK(cudaLaunchKernelEx(&config, kernel,
                                 (const uint4*)(weights + (size_t)(i % BUFFERS) * total),
                                 (const unsigned*)(numbers + i % 2 * 8192),
                                 numbers + (i + 1) % 2 * 8192, total, per, percent));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&runs, graph, 0));
    cudaEvent_t before, after;
    CHECK(cudaEventCreate(&before));
    CHECK(cudaEventCreate(&after));
    std::vector<float> times;
    for (int run = 0; run < RUNS; ++run) {
        CHECK(cudaEventRecord(before, stream));
        CHECK(cudaGraphLaunch(runs, stream));
        CHECK(cudaEventRecord(after, stream));
        CHECK(cudaStreamSynchronize(stream));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, before, after));
        times.push_back(ms * 1000 / LAUNCHES);
    }
    std::sort(times.begin(), times.end());
    const float us = times[RUNS / 2];
    const char* const begins = TRIGGER == EARLY ? "early" : TRIGGER == LATE ? "late" : "arrived";
    printf("%4d blocks of %4d, %2d loads, x %d, %d an SM  %-10s %3d %% ahead  %-7s  %.2f us  %.0f GB/s\n",
           blocks, THREADS, LOADS, X, resident, name, percent, overlaps ? begins : "-", us,
           BYTES / us / 1e3);
    CHECK(cudaGraphExecDestroy(runs));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

template <int THREADS, int MIN_BLOCKS, int LOADS, int X>
void time_all(int blocks) {
    time<WAITS, THREADS, MIN_BLOCKS, LOADS, EARLY, X>("follows", blocks, 0, false);
    time<WAITS, THREADS, MIN_BLOCKS, LOADS, EARLY, X>("waits", blocks, 0, true);
    time<WAITS, THREADS, MIN_BLOCKS, LOADS, ARRIVED, X>("waits", blocks, 0, true);
    for (int percent : {10, 15, 20, 25, 30, 40, 60}) {
        time<ASKS_L2, THREADS, MIN_BLOCKS, LOADS, EARLY, X>("asks L2", blocks, percent, true);
        time<ASKS_L2, THREADS, MIN_BLOCKS, LOADS, LATE, X>("asks L2", blocks, percent, true);
        time<ASKS_L2, THREADS, MIN_BLOCKS, LOADS, ARRIVED, X>("asks L2", blocks, percent, true);
    }
    time<READS, THREADS, MIN_BLOCKS, LOADS, LATE, X>("reads", blocks, 0, true);
}

int main() {
    CHECK(cudaMalloc(&weights, BUFFERS * BYTES));
    CHECK(cudaMemset(weights, 7, BUFFERS * BYTES));
    CHECK(cudaMalloc(&numbers, 1 << 20));
    CHECK(cudaMemset(numbers, 0, 1 << 20));
    time<WAITS, 256, 4, 7, EARLY, 0>("warms up", 528, 0, false);
    time_all<512, 1, 16, 0>(112);
    time_all<512, 1, 16, 4>(112);
    time_all<512, 1, 14, 4>(132);
    time_all<512, 1, 14, 8>(132);
    time_all<256, 2, 16, 0>(224);
    time_all<256, 2, 16, 8>(224);
    time_all<256, 2, 14, 8>(264);
    time_all<128, 4, 16, 8>(448);
}

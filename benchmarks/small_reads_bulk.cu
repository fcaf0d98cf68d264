// As small_reads.cu, with bulk copies: how fast 15 MB can be read by kernels that follow each other.
//
//     nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a benchmarks/small_reads_bulk.cu -o small_reads_bulk
//     ./small_reads_bulk
//
// Blocks read their weights to registers, or copy them to shared memory in chunks (cp.async.bulk), all
// in flight at once. Before they wait for the kernel before them they ask L2 for a share of them, line
// by line or in bulks of 4 KB (cp.async.bulk.prefetch.L2).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                               \
    do {                                                          \
        cudaError_t error = (call);                               \
        if (error) {                                              \
            printf("%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(1);                                              \
        }                                                         \
    } while (0)

// When the next kernel may begin: once all loads are on their way, at once, or once they are there.
enum Trigger { LATE, EARLY, ARRIVED };
// How L2 is asked, and where weights are read to.
enum Ahead { LINES, BULKS };
enum Loader { REGISTERS, SHARED };

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

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

// Bytes of a bulk that L2 is asked for.
constexpr int BULK = 4096;
constexpr int MOST_CHUNKS = 64;

// A block reads `per` vectors of 16 bytes, and X of x; to shared memory by `chunk` bytes.
template <int LOADER, int AHEAD, int THREADS, int MIN_BLOCKS, int LOADS, int TRIGGER, int X>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    read(const uint4* weights, const unsigned* x, unsigned* y, int total, int per, int percent,
         int chunk) {
    extern __shared__ __align__(128) char shared[];
    __shared__ uint64_t arrived[MOST_CHUNKS];
    const int begin = blockIdx.x * per, end = min(begin + per, total);
    const int bytes = (end - begin) * 16;
    if (TRIGGER == EARLY) {
        let_next_kernel_begin();
    }
    const int chunks = (bytes + chunk - 1) / chunk;
    if (LOADER == SHARED) {
        if (threadIdx.x < MOST_CHUNKS) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                shared_address(&arrived[threadIdx.x])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (percent) {
        if (AHEAD == LINES) {
            for (int i = threadIdx.x; i * 8 < (end - begin) * percent / 100; i += THREADS) {
                asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + begin + i * 8));
            }
        } else {
            const int ask = (int)((long long)bytes * percent / 100) & ~15;
            for (int o = threadIdx.x * BULK; o < ask; o += THREADS * BULK) {
                asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                                 (const char*)(weights + begin) + o),
                             "r"(min(BULK, ask - o))
                             : "memory");
            }
        }
    }
    wait_for_kernels_before();
    unsigned s = 0;
    uint4 r[LOADS];
    if (LOADER == REGISTERS) {
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int k = begin + i * THREADS + threadIdx.x;
            r[i] = k < end ? load(weights + k) : uint4{};
        }
    } else {
        __syncthreads();
        if (threadIdx.x < chunks) {
            const int o = threadIdx.x * chunk;
            const int n = min(chunk, bytes - o);
            const uint32_t barrier = shared_address(&arrived[threadIdx.x]);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                         "r"(n)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                "[%0], [%1], %2, [%3];" ::"r"(shared_address(shared + o)),
                "l"((const char*)(weights + begin) + o), "r"(n), "r"(barrier)
                : "memory");
        }
    }
    if (TRIGGER == LATE) {
        let_next_kernel_begin();
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
    if (LOADER == REGISTERS) {
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            s += (r[i].x ^ r[i].y) + (r[i].z ^ r[i].w);
        }
    } else {
        for (int c = 0; c < chunks; ++c) {
            uint32_t done = 0;
            while (!done) {
                asm volatile(
                    "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
                    "selp.u32 %0,1,0,p;}"
                    : "=r"(done)
                    : "r"(shared_address(&arrived[c]))
                    : "memory");
            }
            const int n = min(chunk, bytes - c * chunk) / 16;
            for (int k = threadIdx.x; k < n; k += THREADS) {
                const uint4 v = ((const uint4*)(shared + c * chunk))[k];
                s += (v.x ^ v.y) + (v.z ^ v.w);
            }
        }
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

template <int LOADER, int AHEAD, int THREADS, int MIN_BLOCKS, int LOADS, int TRIGGER, int X>
void time(int blocks, int percent, int chunk = 8192, bool overlaps = true) {
    const int total = BYTES / 16;
    const int per = (total + blocks - 1) / blocks;
    auto kernel = read<LOADER, AHEAD, THREADS, MIN_BLOCKS, LOADS, TRIGGER, X>;
    const int shared_bytes = LOADER == SHARED ? (per * 16 + 127) / 128 * 128 : 0;
    if (LOADER == SHARED && (per * 16 + chunk - 1) / chunk > MOST_CHUNKS) {
        return;
    }
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    int resident = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, THREADS, shared_bytes));
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
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = overlaps;
        CHECK(cudaLaunchKernelEx(&config, kernel,
                                 (const uint4*)(weights + (size_t)(i % BUFFERS) * total),
                                 (const unsigned*)(numbers + i % 2 * 8192),
                                 numbers + (i + 1) % 2 * 8192, total, per, percent, chunk));
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
    printf("%4d x %4d x%d %d/SM %s chunk %5d ahead %s %3d %% %-7s %.2f us %.0f GB/s\n", blocks,
           THREADS, X, resident, LOADER == SHARED ? "smem" : "regs", LOADER == SHARED ? chunk : 0,
           AHEAD == LINES ? "lines" : "bulks", percent, overlaps ? begins : "-", us,
           BYTES / us / 1e3);
    CHECK(cudaGraphExecDestroy(runs));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

template <int THREADS, int MIN_BLOCKS, int LOADS, int X>
void time_all(int blocks) {
    for (int percent : {0, 15, 25, 50, 75, 100}) {
        time<REGISTERS, LINES, THREADS, MIN_BLOCKS, LOADS, EARLY, X>(blocks, percent);
        time<REGISTERS, BULKS, THREADS, MIN_BLOCKS, LOADS, EARLY, X>(blocks, percent);
        time<REGISTERS, BULKS, THREADS, MIN_BLOCKS, LOADS, LATE, X>(blocks, percent);
        time<REGISTERS, BULKS, THREADS, MIN_BLOCKS, LOADS, ARRIVED, X>(blocks, percent);
        for (int chunk : {4096, 16384}) {
            time<SHARED, BULKS, THREADS, 1, 1, EARLY, X>(blocks, percent, chunk);
            time<SHARED, BULKS, THREADS, 1, 1, LATE, X>(blocks, percent, chunk);
            time<SHARED, BULKS, THREADS, 1, 1, ARRIVED, X>(blocks, percent, chunk);
        }
    }
}

int main() {
    CHECK(cudaMalloc(&weights, BUFFERS * BYTES));
    CHECK(cudaMemset(weights, 7, BUFFERS * BYTES));
    CHECK(cudaMalloc(&numbers, 1 << 20));
    CHECK(cudaMemset(numbers, 0, 1 << 20));
    time<REGISTERS, LINES, 256, 4, 7, EARLY, 0>(528, 0, 8192, false);
    time_all<512, 1, 14, 4>(132);
    time_all<256, 2, 14, 4>(264);
    time_all<256, 1, 28, 4>(132);
    time_all<128, 4, 14, 8>(528);
    time_all<128, 4, 16, 8>(448);
}

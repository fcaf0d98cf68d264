// Twin of CUDA's runtime for g++, as far as exported programs use it: device memory is host memory,
// the threads of a block take turns at barriers, and time is what a fake clock says.
//
// The environment says how a kernel fails (KERNEL_FAULT), how long work takes (TIMES, a file of
// lines "NAME MICROSECONDS") and where a trace is kept of what was queued (TRACE).
#pragma once
#include "standard.h"
// Behind it: how threads take turns without system calls.
#include "../../../autogemm/emulator/shim/fiber.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(threads)

using std::isfinite;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

// The threads of a block: each runs until it ends or comes to a barrier, where it waits on a stack of
// its own until all others are there or have ended.
class Block {
  public:
    static void run(const std::function<void()>& body) {
        num_threads_ = blockDim.x * blockDim.y;
        body_ = &body;
        next_ = 0;
        while (next_ < num_threads_) {
            Fiber* const fiber = idle_.empty() ? created() : idle_.back();
            if (!idle_.empty()) {
                idle_.pop_back();
            }
            fiber->context.prepare(fiber->stack.data(), fiber->stack.size(), threads);
            resume(fiber);
        }
        while (!waiting_.empty()) {
            std::vector<Fiber*> released;
            released.swap(waiting_);
            for (Fiber* const fiber : released) {
                resume(fiber);
            }
        }
    }

    static void barrier() {
        Fiber* const self = current_;
        self->index = threadIdx;
        waiting_.push_back(self);
        Context::switch_to(self->context, scheduler_);
        threadIdx = self->index;
    }

  private:
    using Context = autogemm_emulator::Context;
    struct Fiber {
        Context context;
        std::vector<char> stack;
        dim3 index;
    };

    static void threads() {
        Fiber* const self = current_;
        while (next_ < num_threads_) {
            const unsigned thread = next_++;
            threadIdx = dim3(thread % blockDim.x, thread / blockDim.x);
            (*body_)();
        }
        idle_.push_back(self);
        Context::switch_to(self->context, scheduler_);
    }

    static void resume(Fiber* fiber) {
        current_ = fiber;
        Context::switch_to(scheduler_, fiber->context);
    }

    static Fiber* created() {
        all_.emplace_back(new Fiber{{}, std::vector<char>(64 << 10), {}});
        return all_.back().get();
    }

    static inline std::vector<std::unique_ptr<Fiber>> all_;
    static inline std::vector<Fiber*> idle_, waiting_;
    static inline Fiber* current_;
    static inline Context scheduler_;
    static inline const std::function<void()>* body_;
    static inline unsigned next_, num_threads_;
};

inline void __syncthreads() {
    Block::barrier();
}

inline void launch_on_cpu(dim3 grid, dim3 threads, const std::function<void()>& body) {
    gridDim = grid;
    blockDim = threads;
    for (unsigned block = 0; block < grid.x; ++block) {
        blockIdx = dim3(block);
        Block::run(body);
    }
}

// In a stream, whose work is done at once.
inline void launch_on_cpu(dim3 grid, dim3 threads, int, void*, const std::function<void()>& body) {
    launch_on_cpu(grid, threads, body);
}

template <typename To, typename From>
To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}
inline int __float_as_int(float value) {
    return bits_as<int>(value);
}
inline unsigned __float_as_uint(float value) {
    return bits_as<unsigned>(value);
}
inline float __uint_as_float(unsigned bits) {
    return bits_as<float>(bits);
}
inline long long __double_as_longlong(double value) {
    return bits_as<long long>(value);
}
template <typename T>
T atomicMax(T* address, T value) {
    const T before = *address;
    *address = value > before ? value : before;
    return before;
}
template <typename T>
T atomicAdd(T* address, T value) {
    const T before = *address;
    *address += value;
    return before;
}

// The fake clock. Work takes about what TIMES says for its name, a little more or less each time,
// and twice as long until COLD_US have gone by; the clock drifts for all work alike, by DRIFT. SLOWER, "NAME
// COUNT FACTOR", makes work slower after its first so many times.
inline std::FILE* trace() {
    static std::FILE* const file =
        std::getenv("TRACE") != nullptr ? std::fopen(std::getenv("TRACE"), "w") : nullptr;
    return file;
}
inline double& now_us() {
    static double now = 0.0;
    return now;
}
extern "C" inline __attribute__((used)) void take_time(const char* name) {
    static std::map<std::string, double> times;
    if (times.empty() && std::getenv("TIMES") != nullptr) {
        std::ifstream lines(std::getenv("TIMES"));
        std::string who;
        double us;
        while (lines >> who >> us) {
            times[who] = us;
        }
    }
    static std::mt19937 random(1);
    static const double cold_us =
        std::getenv("COLD_US") != nullptr ? std::atof(std::getenv("COLD_US")) : 0.0;
    const double noise = 1.0 + 0.04 * (random() / 4294967296.0);
    static const double most = std::getenv("DRIFT") != nullptr ? std::atof(std::getenv("DRIFT")) : 0.3;
    const double drift = 1.0 + most * std::sin(now_us() / 20000.0);
    double us = times.count(name) != 0 ? times[name] * noise * drift : 1.0;
    static std::map<std::string, int> counts;
    if (const char* const slower = std::getenv("SLOWER")) {
        std::string who;
        int count;
        double factor;
        std::istringstream(slower) >> who >> count >> factor;
        us *= who == name && ++counts[who] > count ? factor : 1.0;
    }
    if (now_us() < cold_us) {
        us *= 2.0;
    }
    now_us() += us;
    if (trace() != nullptr) {
        std::fprintf(trace(), "work %s %.9g\n", name, us);
    }
}
extern "C" inline __attribute__((used)) void note(const char* line) {
    if (trace() != nullptr) {
        std::fprintf(trace(), "%s\n", line);
    }
}

typedef int cudaError_t;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
inline const char* cudaGetErrorString(cudaError_t) {
    return "error";
}
inline cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** address, size_t bytes) {
    *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* address) {
    std::free(address);
    return cudaSuccess;
}
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}
struct Stream;
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind, Stream*) {
    for (size_t row = 0; row < height; ++row) {
        std::memcpy((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width);
    }
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void* address, int value, size_t bytes) {
    std::memset(address, value, bytes);
    return cudaSuccess;
}

// A stream runs at once what it is given, but while it is captured.
typedef std::vector<std::function<void()>> Graph;
typedef Graph *cudaGraph_t, *cudaGraphExec_t;
typedef struct Stream* cudaStream_t;
inline Graph*& captured() {
    static Graph* graph = nullptr;
    return graph;
}
inline void queue(const std::function<void()>& work) {
    if (captured() != nullptr) {
        captured()->push_back(work);
    } else {
        work();
    }
}
extern "C" inline __attribute__((used)) void queue_time(const char* name) {
    queue([name] { take_time(name); });
}
extern "C" inline __attribute__((used)) int is_captured() {
    return captured() != nullptr;
}
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
    captured() = new Graph;
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
    *graph = captured();
    captured() = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, int) {
    *made = new Graph(*graph);
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete graph;
    return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
    for (const auto& work : *graph) {
        work();
    }
    return cudaSuccess;
}
typedef double* cudaEvent_t;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new double(0.0);
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    *event = now_us();
    note("event");
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
    return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
    *milliseconds = (float)(1e-3 * (*stop - *start));
    return cudaSuccess;
}

struct cudaDeviceProp {
    char name[256];
};
struct cudaFuncAttributes {
    int ptxVersion, binaryVersion;
};
inline cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    std::strcpy(properties->name, "CPU");
    return cudaSuccess;
}
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {90, 90};
    return cudaSuccess;
}
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
inline cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
    return cudaSuccess;
}

// The tuned kernel, which is one thread here: a GEMM with so many arrays behind its arguments.
#ifndef KERNEL_ARRAYS
#define KERNEL_ARRAYS 0
#endif
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, size_t,
                                    cudaStream_t) {
    typedef void Kernel(int, int, int, float, const void*, int, const void*, int, float, void*, int,
                        const void*, const void*, const void*, float);
    const auto size = [=](int i) { return *static_cast<int*>(arguments[i]); };
    const auto number = [=](int i) { return *static_cast<float*>(arguments[i]); };
    const auto address = [=](int i) { return *static_cast<void**>(arguments[i]); };
    const int M = size(0), N = size(1), K = size(2), lda = size(5), ldb = size(7), ldc = size(10);
    const float alpha = number(3), beta = number(8);
    void *const A = address(4), *const B = address(6), *const C = address(9);
#ifdef KERNEL_IS_BATCHED
    typedef void Batched(int, int, int, float, const void*, int, const void*, int, float, void*, int,
                         int, int, int, int);
    const int batch = size(11), rows_a = size(12), rows_b = size(13), rows_c = size(14);
    queue([=] {
        reinterpret_cast<Batched*>(const_cast<void*>(kernel))(M, N, K, alpha, A, lda, B, ldb, beta, C,
                                                              ldc, batch, rows_a, rows_b, rows_c);
        take_time("kernel");
    });
    return cudaSuccess;
#endif
#ifdef KERNEL_IS_GROUPED
    typedef void Grouped(int, int, int, float, const void*, int, const void*, int, float, void*, int,
                         int, const void*, const void*, const void*);
    const int groups = size(11);
    void* const offsets = address(12);
    void* const array = KERNEL_ARRAYS > 0 ? address(13) : nullptr;
    void* const second_array = KERNEL_ARRAYS > 1 ? address(14) : nullptr;
    queue([=] {
        reinterpret_cast<Grouped*>(const_cast<void*>(kernel))(M, N, K, alpha, A, lda, B, ldb, beta, C,
                                                              ldc, groups, offsets, array,
                                                              second_array);
        take_time("kernel");
    });
    return cudaSuccess;
#endif
    void* const first = KERNEL_ARRAYS > 0 ? address(11) : nullptr;
    void* const second = KERNEL_ARRAYS > 1 ? address(12) : nullptr;
    void* const third = KERNEL_ARRAYS > 2 ? address(13) : nullptr;
#ifdef KERNEL_NUMBER
    const float own = number(KERNEL_NUMBER);
#else
    const float own = 0.0f;
#endif
    const auto run = [=] {
        // A function takes no notice of arguments behind its own.
        reinterpret_cast<Kernel*>(const_cast<void*>(kernel))(M, N, K, alpha, A, lda, B, ldb, beta, C,
                                                             ldc, first, second, third, own);
    };
#ifdef MANY_THREADS
    run();  // the clock and the graph that is captured are one for all threads
#else
    queue([=] {
        run();
        take_time("kernel");
    });
#endif
    return cudaSuccess;
}

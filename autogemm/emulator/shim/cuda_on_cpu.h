// The part of CUDA C++ that emitted kernels use, for g++. Included before the kernel's own text.
//
// Operations that differ per thread (its index, a barrier, a shuffle) are calls into emulator.cpp.
// Those calls are out of line, so that their return address is in the kernel's text and names its
// line. There are no includes of the system here: a kernel compiles in a fraction of a second.
#pragma once

#define __global__ __attribute__((visibility("default"), used, noinline))
#define __device__
#define __host__
#define __constant__ static const
// thread_local, because that is `static` in `__shared__ float tile[64];` and nothing more than a type
// in `extern __shared__ float smem[];`. The process has one OS thread, whose thread-local storage is
// the shared memory of the block that runs: link.S gives it its borders and the dynamic part.
#define __shared__ thread_local
#ifdef AUTOGEMM_LINES
#define __forceinline__ inline  // each function once, so that what it does is counted once
#else
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define warpSize 32

// CUDA's device compiler knows the C integer types; NVRTC knows no <stdint.h>.
using size_t = decltype(sizeof(0));

#define AUTOGEMM_VECTORS(T, name, size)                          \
    struct __attribute__((aligned(2 * size))) name##2 {          \
        T x, y;                                                  \
    };                                                           \
    struct name##3 {                                             \
        T x, y, z;                                               \
    };                                                           \
    struct __attribute__((aligned(4 * size))) name##4 {          \
        T x, y, z, w;                                            \
    };                                                           \
    __forceinline__ name##2 make_##name##2(T x, T y) {           \
        return {x, y};                                           \
    }                                                            \
    __forceinline__ name##3 make_##name##3(T x, T y, T z) {      \
        return {x, y, z};                                        \
    }                                                            \
    __forceinline__ name##4 make_##name##4(T x, T y, T z, T w) { \
        return {x, y, z, w};                                     \
    }

AUTOGEMM_VECTORS(float, float, 4)
AUTOGEMM_VECTORS(int, int, 4)
AUTOGEMM_VECTORS(unsigned, uint, 4)
#undef AUTOGEMM_VECTORS

struct __attribute__((aligned(16))) double2 {
    double x, y;
};
__forceinline__ double2 make_double2(double x, double y) {
    return {x, y};
}

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

// Twin of what templates/parts/ptx/tensor_map_copy.cu.jinja declares; the first word is the map's number.
struct TensorMap {
    unsigned long long words[16];
};
// One of the matrices of a batch that a map describes; the only one where there is no batch.
struct MatrixMap {
    const TensorMap* map;
    int matrix;
};
// A matrix whose rows belong to groups, up to the row behind a group's last.
struct GroupMap {
    const TensorMap* map;
    int end;
};

namespace autogemm_emulator {

// Constant within one thread's run of the kernel, hence hoistable: __attribute__((const)).
__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) uint3 block_extent();
__attribute__((const)) uint3 grid_extent();

// Operations of a whole warp: it loads matrices (ldmatrix), stores them (stmatrix), multiplies
// (mma.sync, by element type and depth), starts products of its warpgroup (wgmma), waits for them.
enum class Tensor : unsigned {
    kLoad,
    kLoadTransposed,
    kStore,
    kStoreTransposed,
    kF16K8,
    kF16K16,
    kBf16K16,
    kTf32K8,
    kI8K32,
    kStartProduct,
    kFenceRegisters,
    kCommitProducts,
    kMeet,
};
// Element.format_code of autogemm/model/dtypes.py: whether it is an integer, whether it lacks infinity,
// bytes, bits of the exponent and of the fraction.
enum class TensorElement : unsigned {
    kF32 = 0x40817,
    kTf32 = 0x4080a,
    kBf16 = 0x20807,
    kF16 = 0x2050a,
    kE4m3 = 0x1010403,
    kE5m2 = 0x10502,
    kI8 = 0x3010000,
    kI32 = 0x3040000,
};
constexpr unsigned bytes_of(TensorElement element) {
    return static_cast<unsigned>(element) >> 16 & 0xff;
}
constexpr bool has_infinity(TensorElement element) {
    return static_cast<unsigned>(element) >> 24 == 0;
}
constexpr bool is_integer(TensorElement element) {
    return (static_cast<unsigned>(element) >> 25 & 1) != 0;
}
constexpr unsigned exponent_bits(TensorElement element) {
    return static_cast<unsigned>(element) >> 8 & 0xff;
}
constexpr unsigned fraction_bits(TensorElement element) {
    return static_cast<unsigned>(element) & 0xff;
}

// Descriptors of A, unless it is in registers, and of B; how they are stored.
struct WarpgroupOperands {
    TensorElement element;       // of A
    TensorElement element_of_b;  // as large
    unsigned long long a, b;
    bool a_along_k, b_along_k;
    bool accumulate;
    unsigned num_sums;  // of a thread
};
enum class Vote : unsigned { kAny, kAll, kBallot };
enum class Shuffle : unsigned { kIndex, kUp, kDown, kXor };
enum class Atomic : unsigned {
    kAdd,
    kSubtract,
    kExchange,
    kMin,
    kMax,
    kMinSigned,
    kMaxSigned,
    kAnd,
    kOr,
    kIncrement,
    kDecrement,
    kCompareAndSwap,
};

unsigned shuffle(Shuffle kind, unsigned mask, unsigned value, int lane, int width);
unsigned vote(Vote kind, unsigned mask, int predicate);
void sync_warp(unsigned mask);
int sync_block(int line, int predicate);
void tensor_multiply(Tensor operation, float* d, const unsigned* a, const unsigned* b);
void tensor_load(Tensor operation, unsigned* loaded, const void* row);
void tensor_store(Tensor operation, const unsigned* from, void* row);
unsigned long long matrix_descriptor(const void* shared, unsigned leading_bytes,
                                     unsigned stride_bytes);
void multiply_warpgroup(const WarpgroupOperands& what, float* d, const unsigned* a);
void order_warpgroup(Tensor operation);
void wait_for_products(unsigned num_left);
float float_of(TensorElement element, unsigned bits);
unsigned half_of_float(float value);
unsigned byte_of_float(TensorElement element, float value);
unsigned active_mask();
float atomic_add(float* address, float value);
unsigned atomic_bits(Atomic kind, unsigned* address, unsigned value, unsigned compare);
void fence();
unsigned add_acq_rel(unsigned* address, unsigned value);
void release_store(unsigned* address, unsigned value);
unsigned acquire_load(const unsigned* address);
void sync_named(unsigned number, unsigned num_threads, bool wait);
void wait_for_kernels_before();
unsigned rank_in_cluster();
void arrive_at_cluster(bool relaxed = false);
void wait_for_cluster();
float4 load_of_rank(const float* shared, unsigned rank);
void store_of_rank(float* shared, unsigned rank, float4 value);
void store_async_of_rank(float* shared, unsigned rank, float4 value, void* mbarrier);
void init_mbarrier(void* mbarrier, unsigned num_arrivals);
void fence_mbarrier_init();
void fence_proxy();
void arrive_mbarrier(void* mbarrier, unsigned tx_bytes);
void arrive_mbarrier_of_rank(void* mbarrier, unsigned rank, bool relaxed = false);
void wait_mbarrier(void* mbarrier, unsigned parity);
void copy_bulk(void* shared, const void* global, unsigned bytes, void* mbarrier);
void copy_bulk_to_ranks(void* shared, const void* global, unsigned bytes, void* mbarrier,
                        unsigned ranks);
template <class Map>
void copy_tile(void* shared, const Map& map, int column, int row, void* mbarrier);
template <class Map>
void copy_tile_to_ranks(void* shared, const Map& map, int column, int row, void* mbarrier,
                        unsigned ranks);
template <class Map>
void store_tile(const void* shared, const Map& map, int column, int row);
void commit_stores();
void wait_for_stores(unsigned num_left, bool only_reads);
void copy_async(void* shared, const void* global, int bytes, int valid_bytes);
void commit_copies();
void wait_group(int pending);

// 32-bit values travel by their bits, 64-bit values in two halves.
template <class T>
__forceinline__ T shuffle_value(Shuffle kind, unsigned mask, T value, int lane, int width) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 32 or 64 bits");
    unsigned words[sizeof(T) / 4];
    __builtin_memcpy(words, &value, sizeof(T));
    for (unsigned& word : words) {
        word = shuffle(kind, mask, word, lane, width);
    }
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}

}  // namespace autogemm_emulator

#define threadIdx (autogemm_emulator::thread_index())
#define blockIdx (autogemm_emulator::block_index())
#define blockDim (autogemm_emulator::block_extent())
#define gridDim (autogemm_emulator::grid_extent())

template <class T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    using namespace autogemm_emulator;
    return shuffle_value(Shuffle::kIndex, mask, value, lane, width);
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    using namespace autogemm_emulator;
    return shuffle_value(Shuffle::kUp, mask, value, (int)delta, width);
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    using namespace autogemm_emulator;
    return shuffle_value(Shuffle::kDown, mask, value, (int)delta, width);
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    using namespace autogemm_emulator;
    return shuffle_value(Shuffle::kXor, mask, value, lane_mask, width);
}

__forceinline__ int __any_sync(unsigned mask, int predicate) {
    return (int)autogemm_emulator::vote(autogemm_emulator::Vote::kAny, mask, predicate);
}
__forceinline__ int __all_sync(unsigned mask, int predicate) {
    return (int)autogemm_emulator::vote(autogemm_emulator::Vote::kAll, mask, predicate);
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
    return autogemm_emulator::vote(autogemm_emulator::Vote::kBallot, mask, predicate);
}
__forceinline__ unsigned __activemask() {
    return autogemm_emulator::active_mask();
}
__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) {
    autogemm_emulator::sync_warp(mask);
}

// The caller's line tells one barrier from another, whatever the compiler did to the code.
__forceinline__ void __syncthreads(int line = __builtin_LINE()) {
    autogemm_emulator::sync_block(line, 0);
}
__forceinline__ int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return autogemm_emulator::sync_block(line, predicate != 0);
}
__forceinline__ int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return autogemm_emulator::sync_block(line, predicate != 0) != 0;
}
__forceinline__ void __threadfence() {
    autogemm_emulator::fence();
}
__forceinline__ void __threadfence_system() {
    autogemm_emulator::fence();
}
// A block's threads switch only at calls: nothing to do, and nothing for the compiler to move.
__forceinline__ void __threadfence_block() {
    asm volatile("" ::: "memory");
}

__forceinline__ float atomicAdd(float* address, float value) {
    return autogemm_emulator::atomic_add(address, value);
}
#define AUTOGEMM_ATOMIC(T, name, kind)                                               \
    __forceinline__ T name(T* address, T value) {                                    \
        using namespace autogemm_emulator;                                           \
        return (T)atomic_bits(Atomic::kind, (unsigned*)address, (unsigned)value, 0); \
    }
AUTOGEMM_ATOMIC(int, atomicAdd, kAdd)
AUTOGEMM_ATOMIC(unsigned, atomicAdd, kAdd)
AUTOGEMM_ATOMIC(int, atomicSub, kSubtract)
AUTOGEMM_ATOMIC(unsigned, atomicSub, kSubtract)
AUTOGEMM_ATOMIC(int, atomicExch, kExchange)
AUTOGEMM_ATOMIC(unsigned, atomicExch, kExchange)
AUTOGEMM_ATOMIC(int, atomicMin, kMinSigned)
AUTOGEMM_ATOMIC(unsigned, atomicMin, kMin)
AUTOGEMM_ATOMIC(int, atomicMax, kMaxSigned)
AUTOGEMM_ATOMIC(unsigned, atomicMax, kMax)
AUTOGEMM_ATOMIC(int, atomicAnd, kAnd)
AUTOGEMM_ATOMIC(unsigned, atomicAnd, kAnd)
AUTOGEMM_ATOMIC(int, atomicOr, kOr)
AUTOGEMM_ATOMIC(unsigned, atomicOr, kOr)
AUTOGEMM_ATOMIC(unsigned, atomicInc, kIncrement)
AUTOGEMM_ATOMIC(unsigned, atomicDec, kDecrement)
#undef AUTOGEMM_ATOMIC
__forceinline__ int atomicCAS(int* address, int compare, int value) {
    using namespace autogemm_emulator;
    return (int)atomic_bits(Atomic::kCompareAndSwap, (unsigned*)address, (unsigned)value,
                            (unsigned)compare);
}
__forceinline__ unsigned atomicCAS(unsigned* address, unsigned compare, unsigned value) {
    using namespace autogemm_emulator;
    return atomic_bits(Atomic::kCompareAndSwap, address, value, compare);
}

// Loads and stores with a cache policy: caches are not emulated.
#define AUTOGEMM_LOAD(name)                    \
    template <class T>                         \
    __forceinline__ T name(const T* address) { \
        return *address;                       \
    }
AUTOGEMM_LOAD(__ldg)
AUTOGEMM_LOAD(__ldca)
AUTOGEMM_LOAD(__ldcg)
AUTOGEMM_LOAD(__ldcs)
AUTOGEMM_LOAD(__ldcv)
AUTOGEMM_LOAD(__ldlu)
#undef AUTOGEMM_LOAD
#define AUTOGEMM_STORE(name)                         \
    template <class T>                               \
    __forceinline__ void name(T* address, T value) { \
        *address = value;                            \
    }
AUTOGEMM_STORE(__stwb)
AUTOGEMM_STORE(__stcg)
AUTOGEMM_STORE(__stcs)
AUTOGEMM_STORE(__stwt)
#undef AUTOGEMM_STORE
__forceinline__ size_t __cvta_generic_to_shared(const void* address) {
    return (size_t)address;
}

__forceinline__ float fmaf(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
__forceinline__ float __fmaf_rn(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
__forceinline__ double fma(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}
__forceinline__ float fabsf(float value) {
    return __builtin_fabsf(value);
}
__forceinline__ float fmaxf(float a, float b) {
    return __builtin_fmaxf(a, b);
}
__forceinline__ float exp2f(float value) {
    return __builtin_exp2f(value);
}
__forceinline__ float fminf(float a, float b) {
    return __builtin_fminf(a, b);
}
__forceinline__ float expf(float value) {
    return __builtin_expf(value);
}
__forceinline__ float erff(float value) {
    return __builtin_erff(value);
}
__forceinline__ float tanhf(float value) {
    return __builtin_tanhf(value);
}
// Less exact on a GPU, within the bounds that results are held to.
__forceinline__ float __expf(float value) {
    return __builtin_expf(value);
}
__forceinline__ float __fdividef(float a, float b) {
    return a / b;
}

__forceinline__ int __float_as_int(float value) {
    return __builtin_bit_cast(int, value);
}
__forceinline__ float __int_as_float(int value) {
    return __builtin_bit_cast(float, value);
}
__forceinline__ unsigned __float_as_uint(float value) {
    return __builtin_bit_cast(unsigned, value);
}
__forceinline__ float __uint_as_float(unsigned value) {
    return __builtin_bit_cast(float, value);
}
// Bytes of y (4 to 7) and x (0 to 3), chosen by the nibbles of the selector.
__forceinline__ unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    }
    return result;
}
__forceinline__ int __popc(unsigned value) {
    return __builtin_popcount(value);
}
__forceinline__ int __ffs(int value) {
    return __builtin_ffs(value);
}
__forceinline__ int __clz(int value) {
    return value == 0 ? 32 : __builtin_clz((unsigned)value);
}

#define AUTOGEMM_MIN_MAX(T)                     \
    __forceinline__ constexpr T min(T a, T b) { \
        return b < a ? b : a;                   \
    }                                           \
    __forceinline__ constexpr T max(T a, T b) { \
        return a < b ? b : a;                   \
    }
AUTOGEMM_MIN_MAX(int)
AUTOGEMM_MIN_MAX(unsigned)
AUTOGEMM_MIN_MAX(long)
AUTOGEMM_MIN_MAX(unsigned long)
AUTOGEMM_MIN_MAX(long long)
AUTOGEMM_MIN_MAX(unsigned long long)
AUTOGEMM_MIN_MAX(float)
#undef AUTOGEMM_MIN_MAX

#include "twins.h"

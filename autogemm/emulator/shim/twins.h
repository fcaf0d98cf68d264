// Twins of the functions in templates/parts/ptx, and of nothing else: a kernel
// declares them itself unless AUTOGEMM_EMULATOR is defined.
#pragma once

#include "cuda_on_cpu.h"

// Twins of the templates' asynchronous copies (templates/parts/ptx/copy_async.cu.jinja).
__forceinline__ void copy_async_4(float* shared, const float* global, int valid_bytes = 4) {
    autogemm_emulator::copy_async(shared, global, 4, valid_bytes);
}
__forceinline__ void copy_async_8(float* shared, const float* global, int valid_bytes = 8) {
    autogemm_emulator::copy_async(shared, global, 8, valid_bytes);
}
__forceinline__ void copy_async_16(float* shared, const float* global, int valid_bytes = 16) {
    autogemm_emulator::copy_async(shared, global, 16, valid_bytes);
}
__forceinline__ void commit_copies() {
    autogemm_emulator::commit_copies();
}

// Twins of the gpu_counter, gpu_flag and named_barrier of templates/parts/ptx.
__forceinline__ unsigned atomic_add_acq_rel(unsigned* counter, unsigned value) {
    return autogemm_emulator::add_acq_rel(counter, value);
}
__forceinline__ void store_release(unsigned* flag, unsigned value) {
    autogemm_emulator::release_store(flag, value);
}
__forceinline__ unsigned load_acquire(const unsigned* flag) {
    return autogemm_emulator::acquire_load(flag);
}
__forceinline__ void named_barrier_sync(unsigned number, unsigned num_threads) {
    autogemm_emulator::sync_named(number, num_threads, true);
}
__forceinline__ void named_barrier_arrive(unsigned number, unsigned num_threads) {
    autogemm_emulator::sync_named(number, num_threads, false);
}

// Twin of templates/parts/ptx/warp_uniform.cu.jinja: the lowest lane, as on a GPU.
__forceinline__ bool is_elected() {
    autogemm_emulator::sync_warp(0xffffffffu);
    return threadIdx.x % 32 == 0;
}

// Twin of templates/parts/ptx/shared_pointer.cu.jinja.
__forceinline__ float* in_register(const float* shared) {
    return const_cast<float*>(shared);
}

// Twins of templates/parts/ptx/streamed_load.cu.jinja.
#define AUTOGEMM_STREAMED(bytes)                                                   \
    __forceinline__ void load_streamed_##bytes(const void* from,                   \
                                               unsigned (&to)[bytes / 4]) {         \
        struct alignas(bytes) Words {                                              \
            unsigned words[bytes / 4];                                             \
        };                                                                         \
        const Words read = *static_cast<const Words*>(from);                       \
        for (int i = 0; i < bytes / 4; ++i) {                                      \
            to[i] = read.words[i];                                                 \
        }                                                                          \
    }
AUTOGEMM_STREAMED(4)
AUTOGEMM_STREAMED(8)
AUTOGEMM_STREAMED(16)
#undef AUTOGEMM_STREAMED

// Twins of templates/parts/ptx/dependent_launch.cu.jinja.
__forceinline__ void wait_for_kernels_before() {
    autogemm_emulator::wait_for_kernels_before();
}
__forceinline__ void let_next_kernel_begin() {}
__forceinline__ void prefetch_into_l2(const void*) {}

// Twins of templates/parts/ptx/cluster.cu.jinja.
__forceinline__ unsigned cluster_rank() {
    return autogemm_emulator::rank_in_cluster();
}
__forceinline__ void cluster_arrive_release() {
    autogemm_emulator::arrive_at_cluster();
}
// Relaxed arrivals tell what was read, so that it may be overwritten, and nothing of what was written.
__forceinline__ void cluster_arrive_relaxed() {
    autogemm_emulator::arrive_at_cluster(true);
}
__forceinline__ void cluster_wait_acquire() {
    autogemm_emulator::wait_for_cluster();
}
__forceinline__ void cluster_sync() {
    autogemm_emulator::arrive_at_cluster();
    autogemm_emulator::wait_for_cluster();
}
__forceinline__ float4 load_from_rank(const float* shared, unsigned rank) {
    return autogemm_emulator::load_of_rank(shared, rank);
}
__forceinline__ void store_to_rank(float* shared, unsigned rank, float4 value) {
    autogemm_emulator::store_of_rank(shared, rank, value);
}

// Twins of templates/parts/ptx/mbarrier.cu.jinja and templates/parts/ptx/bulk_copy.cu.jinja.
__forceinline__ void mbarrier_init(unsigned long long* mbarrier, unsigned num_arrivals) {
    autogemm_emulator::init_mbarrier(mbarrier, num_arrivals);
}
__forceinline__ void mbarrier_fence_init() {
    autogemm_emulator::fence_mbarrier_init();
}
__forceinline__ void fence_before_bulk_copies() {
    autogemm_emulator::fence_proxy();
}
__forceinline__ void mbarrier_arrive(unsigned long long* mbarrier) {
    autogemm_emulator::arrive_mbarrier(mbarrier, 0);
}
__forceinline__ void mbarrier_arrive_expect(unsigned long long* mbarrier, unsigned num_bytes) {
    autogemm_emulator::arrive_mbarrier(mbarrier, num_bytes);
}
__forceinline__ void mbarrier_arrive_at_rank(unsigned long long* mbarrier, unsigned rank) {
    autogemm_emulator::arrive_mbarrier_of_rank(mbarrier, rank);
}
__forceinline__ void mbarrier_arrive_relaxed_at_rank(unsigned long long* mbarrier, unsigned rank) {
    autogemm_emulator::arrive_mbarrier_of_rank(mbarrier, rank, true);
}
__forceinline__ void mbarrier_wait(unsigned long long* mbarrier, unsigned parity) {
    autogemm_emulator::wait_mbarrier(mbarrier, parity);
}
__forceinline__ void copy_bulk(float* shared, const float* global, unsigned num_bytes,
                               unsigned long long* mbarrier) {
    autogemm_emulator::copy_bulk(shared, global, num_bytes, mbarrier);
}
__forceinline__ void copy_bulk_to_ranks(float* shared, const float* global, unsigned num_bytes,
                                        unsigned long long* mbarrier, unsigned ranks) {
    autogemm_emulator::copy_bulk_to_ranks(shared, global, num_bytes, mbarrier, ranks);
}

// Twin of templates/parts/ptx/store_async.cu.jinja.
__forceinline__ void store_async_to_rank(float* shared, unsigned rank, float4 value,
                                         unsigned long long* mbarrier) {
    autogemm_emulator::store_async_of_rank(shared, rank, value, mbarrier);
}
__forceinline__ void store_async_to_rank(int* shared, unsigned rank, int4 value,
                                         unsigned long long* mbarrier) {
    store_async_to_rank((float*)shared, rank, __builtin_bit_cast(float4, value), mbarrier);
}

// Twins of templates/parts/ptx/tensor_map_copy.cu.jinja.
__forceinline__ void prefetch_tensor_map(const TensorMap&) {}
__forceinline__ void copy_tile(void* shared, const MatrixMap& map, int column, int row,
                               unsigned long long* mbarrier) {
    autogemm_emulator::copy_tile(shared, map, column, row, mbarrier);
}
__forceinline__ void copy_tile(void* shared, const TensorMap& map, int column, int row,
                               unsigned long long* mbarrier) {
    copy_tile(shared, MatrixMap{&map, 0}, column, row, mbarrier);
}
__forceinline__ void copy_tile(void* shared, const GroupMap& map, int column, int row,
                               unsigned long long* mbarrier) {
    autogemm_emulator::copy_tile(shared, map, column, row, mbarrier);
}
__forceinline__ void copy_tile_to_ranks(void* shared, const MatrixMap& map, int column, int row,
                                        unsigned long long* mbarrier, unsigned ranks) {
    autogemm_emulator::copy_tile_to_ranks(shared, map, column, row, mbarrier, ranks);
}
__forceinline__ void copy_tile_to_ranks(void* shared, const TensorMap& map, int column, int row,
                                        unsigned long long* mbarrier, unsigned ranks) {
    copy_tile_to_ranks(shared, MatrixMap{&map, 0}, column, row, mbarrier, ranks);
}
__forceinline__ void copy_tile_to_ranks(void* shared, const GroupMap& map, int column, int row,
                                        unsigned long long* mbarrier, unsigned ranks) {
    autogemm_emulator::copy_tile_to_ranks(shared, map, column, row, mbarrier, ranks);
}
__forceinline__ void store_tile(const void* shared, const MatrixMap& map, int column, int row) {
    autogemm_emulator::store_tile(shared, map, column, row);
}
__forceinline__ void store_tile(const void* shared, const TensorMap& map, int column, int row) {
    store_tile(shared, MatrixMap{&map, 0}, column, row);
}
__forceinline__ void store_tile(const void* shared, const GroupMap& map, int column, int row) {
    autogemm_emulator::store_tile(shared, map, column, row);
}
__forceinline__ void commit_tile_stores() {
    autogemm_emulator::commit_stores();
}
__forceinline__ void wait_for_tile_reads(unsigned num_left) {
    autogemm_emulator::wait_for_stores(num_left, true);
}
__forceinline__ void wait_for_tile_stores(unsigned num_left) {
    autogemm_emulator::wait_for_stores(num_left, false);
}

// Twins of templates/parts/ptx/tensor_cores.cu.jinja and templates/parts/ptx/short_elements.cu.jinja.
#define AUTOGEMM_MMA(name, kind, a_registers, b_registers)                               \
    __forceinline__ void name(float (&d)[4], const unsigned (&a)[a_registers],          \
                              const unsigned (&b)[b_registers]) {                       \
        using namespace autogemm_emulator;                                              \
        tensor_multiply(Tensor::kind, d, a, b);                                         \
    }
AUTOGEMM_MMA(mma_f16_k16, kF16K16, 4, 2)
AUTOGEMM_MMA(mma_bf16_k16, kBf16K16, 4, 2)
AUTOGEMM_MMA(mma_tf32_k8, kTf32K8, 4, 2)
#undef AUTOGEMM_MMA
__forceinline__ void mma_i8_k32(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    using namespace autogemm_emulator;
    tensor_multiply(Tensor::kI8K32, reinterpret_cast<float*>(d), a, b);
}
// The same depth of 16 in two instructions of sm_75.
__forceinline__ void mma_f16_k8_twice(float (&d)[4], const unsigned (&a)[4],
                                      const unsigned (&b)[2]) {
    using namespace autogemm_emulator;
    tensor_multiply(Tensor::kF16K8, d, a, b);
    tensor_multiply(Tensor::kF16K8, d, a + 2, b + 1);
}
#define AUTOGEMM_LDMATRIX(name, kind)                                                       \
    __forceinline__ void name(unsigned (&first)[2], unsigned (&second)[2], const void* row) { \
        using namespace autogemm_emulator;                                                  \
        unsigned loaded[4];                                                                 \
        tensor_load(Tensor::kind, loaded, row);                                             \
        first[0] = loaded[0];                                                               \
        first[1] = loaded[1];                                                               \
        second[0] = loaded[2];                                                              \
        second[1] = loaded[3];                                                              \
    }                                                                                       \
    __forceinline__ void name(unsigned (&loaded)[4], const void* row) {                     \
        using namespace autogemm_emulator;                                                  \
        tensor_load(Tensor::kind, loaded, row);                                             \
    }
AUTOGEMM_LDMATRIX(load_matrices, kLoad)
AUTOGEMM_LDMATRIX(load_transposed, kLoadTransposed)
#undef AUTOGEMM_LDMATRIX
// Twins of templates/parts/ptx/wgmma.cu.jinja, for any number of columns that instructions have: a
// multiple of 8 up to 256, of integers above 32 a multiple of 16 (PTX ISA, wgmma.mma_async). A thread
// has half as many elements.
#define AUTOGEMM_WGMMA_COLUMNS(count, step)                                                   \
    static_assert((count) % 4 == 0 && (count) <= 128 && ((count) <= 16 || (count) % (step) == 0), \
                  "no wgmma has so many columns")
__forceinline__ unsigned long long matrix_descriptor_128(const void* shared, unsigned leading_bytes,
                                                         unsigned stride_bytes) {
    return autogemm_emulator::matrix_descriptor(shared, leading_bytes, stride_bytes);
}
#define AUTOGEMM_WGMMA_MIXED(name, of_a, of_b, a_along_k, b_along_k)                          \
    template <int COUNT>                                                                      \
    __forceinline__ void name(float (&d)[COUNT], unsigned long long a, unsigned long long b,  \
                              unsigned accumulate) {                                          \
        AUTOGEMM_WGMMA_COLUMNS(COUNT, 4);                                                     \
        using namespace autogemm_emulator;                                                    \
        multiply_warpgroup({TensorElement::of_a, TensorElement::of_b, a, b, a_along_k,        \
                            b_along_k, accumulate != 0, COUNT}, d, nullptr);                  \
    }
#define AUTOGEMM_WGMMA(name, element, a_along_k, b_along_k) \
    AUTOGEMM_WGMMA_MIXED(name, element, element, a_along_k, b_along_k)
// The same for integers: their sums are passed on as bits.
#define AUTOGEMM_WGMMA_INTEGERS(name, element)                                                \
    template <int COUNT>                                                                      \
    __forceinline__ void name(int (&d)[COUNT], unsigned long long a, unsigned long long b,    \
                              unsigned accumulate) {                                          \
        AUTOGEMM_WGMMA_COLUMNS(COUNT, 8);                                                     \
        using namespace autogemm_emulator;                                                    \
        multiply_warpgroup({TensorElement::element, TensorElement::element, a, b, true, true, \
                            accumulate != 0, COUNT}, reinterpret_cast<float*>(d), nullptr);   \
    }
#define AUTOGEMM_WGMMA_REGISTERS(name, element, b_along_k)                                    \
    template <int COUNT>                                                                      \
    __forceinline__ void name(float (&d)[COUNT], const unsigned (&a)[4], unsigned long long b, \
                              unsigned accumulate) {                                          \
        AUTOGEMM_WGMMA_COLUMNS(COUNT, 4);                                                     \
        using namespace autogemm_emulator;                                                    \
        multiply_warpgroup({TensorElement::element, TensorElement::element, 0, b, true,       \
                            b_along_k, accumulate != 0, COUNT}, d, a);                        \
    }
AUTOGEMM_WGMMA(wgmma_f16_kk, kF16, true, true)
AUTOGEMM_WGMMA(wgmma_f16_km, kF16, true, false)
AUTOGEMM_WGMMA(wgmma_f16_mk, kF16, false, true)
AUTOGEMM_WGMMA(wgmma_f16_mm, kF16, false, false)
AUTOGEMM_WGMMA(wgmma_bf16_kk, kBf16, true, true)
AUTOGEMM_WGMMA(wgmma_bf16_km, kBf16, true, false)
AUTOGEMM_WGMMA(wgmma_bf16_mk, kBf16, false, true)
AUTOGEMM_WGMMA(wgmma_bf16_mm, kBf16, false, false)
AUTOGEMM_WGMMA(wgmma_tf32_kk, kTf32, true, true)
AUTOGEMM_WGMMA(wgmma_e4m3_kk, kE4m3, true, true)
AUTOGEMM_WGMMA(wgmma_e5m2_kk, kE5m2, true, true)
AUTOGEMM_WGMMA_MIXED(wgmma_e4m3xe5m2_kk, kE4m3, kE5m2, true, true)
AUTOGEMM_WGMMA_MIXED(wgmma_e5m2xe4m3_kk, kE5m2, kE4m3, true, true)
AUTOGEMM_WGMMA_INTEGERS(wgmma_i8_kk, kI8)
AUTOGEMM_WGMMA_REGISTERS(wgmma_f16_rk, kF16, true)
AUTOGEMM_WGMMA_REGISTERS(wgmma_f16_rm, kF16, false)
AUTOGEMM_WGMMA_REGISTERS(wgmma_bf16_rk, kBf16, true)
AUTOGEMM_WGMMA_REGISTERS(wgmma_bf16_rm, kBf16, false)
AUTOGEMM_WGMMA_REGISTERS(wgmma_tf32_rk, kTf32, true)
#undef AUTOGEMM_WGMMA
#undef AUTOGEMM_WGMMA_MIXED
#undef AUTOGEMM_WGMMA_COLUMNS
#undef AUTOGEMM_WGMMA_INTEGERS
#undef AUTOGEMM_WGMMA_REGISTERS
__forceinline__ void wgmma_fence() {
    autogemm_emulator::order_warpgroup(autogemm_emulator::Tensor::kFenceRegisters);
}
__forceinline__ void wgmma_commit() {
    autogemm_emulator::order_warpgroup(autogemm_emulator::Tensor::kCommitProducts);
}
__forceinline__ void wgmma_wait_0() {
    autogemm_emulator::wait_for_products(0);
}
__forceinline__ void wgmma_wait_1() {
    autogemm_emulator::wait_for_products(1);
}
template <class Sum, int COUNT>
__forceinline__ void keep_in_place(Sum (&)[COUNT]) {}
__forceinline__ void compute_now(unsigned long long&, unsigned long long&) {}
__forceinline__ void give_up_registers() {}
__forceinline__ void take_registers() {}
__forceinline__ void store_matrices(void* row, const unsigned (&from)[4]) {
    autogemm_emulator::tensor_store(autogemm_emulator::Tensor::kStore, from, row);
}
__forceinline__ void store_matrices_transposed(void* column, const unsigned (&from)[4]) {
    autogemm_emulator::tensor_store(autogemm_emulator::Tensor::kStoreTransposed, from, column);
}
// Twin of a function of templates/sgemm_emulated.cu.jinja.
__forceinline__ unsigned rest_of(unsigned number, unsigned part) {
    return __float_as_uint(__uint_as_float(number) - __uint_as_float(part));
}
__forceinline__ float float_from_f16(unsigned short bits) {
    return autogemm_emulator::float_of(autogemm_emulator::TensorElement::kF16, bits);
}
__forceinline__ unsigned short f16_from_float(float value) {
    return (unsigned short)autogemm_emulator::half_of_float(value);
}
__forceinline__ unsigned short bf16_from_float(float value) {
    const unsigned bits = __float_as_uint(value);
    const unsigned nearest = bits + 0x7fffu + (bits >> 16 & 1u);
    return value == value ? (unsigned short)(nearest >> 16) : (unsigned short)0x7fff;
}
__forceinline__ unsigned f16_pair(float low, float high) {
    return f16_from_float(low) | (unsigned)f16_from_float(high) << 16;
}
__forceinline__ unsigned bf16_pair(float low, float high) {
    return bf16_from_float(low) | (unsigned)bf16_from_float(high) << 16;
}
// Twins of templates/parts/ptx/approximations.cu.jinja, exact but for one rounding.
__forceinline__ float fast_exp2(float x) {
    return __builtin_exp2f(x);
}
__forceinline__ float fast_reciprocal(float x) {
    return 1.0f / x;
}
// Twins of templates/parts/ptx/byte_elements.cu.jinja.
#define AUTOGEMM_BYTES(name, element)                                                       \
    __forceinline__ float float_from_##name(unsigned char bits) {                           \
        return autogemm_emulator::float_of(autogemm_emulator::TensorElement::element, bits); \
    }                                                                                       \
    __forceinline__ unsigned short name##_pair(float low, float high) {                     \
        using namespace autogemm_emulator;                                                  \
        return (unsigned short)(byte_of_float(TensorElement::element, low) |                \
                                byte_of_float(TensorElement::element, high) << 8);          \
    }
AUTOGEMM_BYTES(e4m3, kE4m3)
AUTOGEMM_BYTES(e5m2, kE5m2)
#undef AUTOGEMM_BYTES
// Twins of templates/parts/ptx/byte_pairs.cu.jinja: each of four bytes becomes the same f16, of which
// every such number is one.
#define AUTOGEMM_PAIRS(name, element)                                                        \
    __forceinline__ void half_pairs_from_##name(unsigned four, unsigned& first,              \
                                               unsigned& second) {                          \
        using namespace autogemm_emulator;                                                  \
        unsigned halves[4];                                                                 \
        for (int i = 0; i < 4; ++i) {                                                       \
            halves[i] = half_of_float(float_of(TensorElement::element, four >> (8 * i)));   \
        }                                                                                   \
        first = halves[0] | halves[1] << 16;                                                \
        second = halves[2] | halves[3] << 16;                                               \
    }
AUTOGEMM_PAIRS(e4m3, kE4m3)
AUTOGEMM_PAIRS(e5m2, kE5m2)
#undef AUTOGEMM_PAIRS

// wait_for_copies() leaves MAX_PENDING_COPIES groups in flight, a constant of the kernel's own text;
// wait_for_copies(n) leaves n.
#define AUTOGEMM_FIRST(first, ...) first
#define wait_for_copies(...) \
    autogemm_emulator::wait_group(AUTOGEMM_FIRST(__VA_ARGS__ __VA_OPT__(, ) MAX_PENDING_COPIES, ))

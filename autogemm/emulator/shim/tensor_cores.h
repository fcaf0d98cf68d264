// Tensor cores: what the 32 lanes of a warp multiply together, and how they load its parts.
//
// Products are exact. A sum begins with the accumulator, then the products of one instruction are added
// in the order of k, in double: without an error worth the name. The result is cut off to FP32, toward
// zero, as on GPUs. How they align the terms of a sum before they add differs by architecture (Fasi,
// Higham, Mikaitis and Pranesh, PeerJ Computer Science 7:e330, 2021) and is not repeated here.
//
// That of 8-bit floats is: Hopper keeps so few bits of it that it decides what a kernel is worth
// (aligned_sum below). Sums of integers are those of 32-bit integers, which wrap around.
#pragma once

#include "warps.h"

namespace autogemm_emulator {

// The value of an element's bits. Those of a word that the type does not have count for nothing.
float float_of(TensorElement element, unsigned bits) {
    const unsigned missing = 23 - fraction_bits(element), unused = 32 - 8 * bytes_of(element);
    if (is_integer(element)) {
        return static_cast<float>(static_cast<int32_t>(bits << unused) >> unused);
    }
    if (exponent_bits(element) == 8) {
        return __builtin_bit_cast(float, bits << unused >> missing << missing);
    }
    const unsigned fewer = 8 - exponent_bits(element), bias = (1u << (exponent_bits(element) - 1)) - 1;
    const uint32_t sign = bits << unused & 0x80000000u, fields = bits << unused & 0x7fffffffu;
    const uint32_t infinity = 0x7f800000u >> fewer & 0x7f800000u;
    // The same exponent and fraction, then the difference of the exponents' biases: for FP16 127 - 15.
    const uint32_t aligned = fields >> fewer;
    const float scale = __builtin_bit_cast(float, (254 - bias) << 23);
    const float size = __builtin_bit_cast(float, aligned) * scale;
    // Without infinity, all bits set is NaN.
    const bool is_finite = has_infinity(element) ? (aligned & infinity) != infinity
                                                 : fields != (0x7fffffffu & ~0u << unused);
    const uint32_t value = is_finite ? __builtin_bit_cast(uint32_t, size) : aligned | 0x7f800000u;
    return __builtin_bit_cast(float, value | sign);
}

// Reads one element's numbers; compiled for each, with all that depends on the element.
template <TensorElement element>
struct Reader {
    __attribute__((flatten)) float operator()(const char* at) const {
        uint32_t bits = 0;
        memcpy(&bits, at, bytes_of(element));
        return float_of(element, bits);
    }
};

// Calls visit(reader of that element).
template <class Visit>
inline void with_reader(TensorElement element, Visit&& visit) {
    switch (element) {
        case TensorElement::kF32:
            return visit(Reader<TensorElement::kF32>{});
        case TensorElement::kTf32:
            return visit(Reader<TensorElement::kTf32>{});
        case TensorElement::kBf16:
            return visit(Reader<TensorElement::kBf16>{});
        case TensorElement::kF16:
            return visit(Reader<TensorElement::kF16>{});
        case TensorElement::kE4m3:
            return visit(Reader<TensorElement::kE4m3>{});
        case TensorElement::kE5m2:
            return visit(Reader<TensorElement::kE5m2>{});
        case TensorElement::kI8:
            return visit(Reader<TensorElement::kI8>{});
        case TensorElement::kI32:
            return visit(Reader<TensorElement::kI32>{});
    }
}

// To nearest, ties to even.
unsigned half_of_float(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value), sign = bits >> 16 & 0x8000u;
    const float size = __builtin_fabsf(value);
    if (!(size < 65520.0f)) {
        return sign | (__builtin_isnan(value) ? 0x7e00u : 0x7c00u);
    }
    if (size < 0x1p-14f) {
        return sign | static_cast<uint32_t>(__builtin_rintf(size * 0x1p24f));
    }
    const uint32_t rest = bits & 0x7fffffffu, nearest = rest + 0xfffu + (rest >> 13 & 1u);
    return sign | ((nearest >> 13) - (112u << 10));
}

// The bits of the nearest 8-bit float, ties to even; the largest one's of what is larger (PTX ISA,
// cvt, .satfinite), all bits but the sign of NaN.
unsigned byte_of_float(TensorElement element, float value) {
    const int fraction = static_cast<int>(fraction_bits(element));
    const int bias = (1 << (exponent_bits(element) - 1)) - 1;
    const unsigned sign = __builtin_signbit(value) ? 0x80u : 0u;
    if (__builtin_isnan(value)) {
        return 0x7fu;
    }
    const unsigned infinity = ((1u << exponent_bits(element)) - 1) << fraction;
    const unsigned largest = has_infinity(element) ? infinity - 1 : 0x7eu;
    // At least the exponent of the smallest normal number, below which numbers are as far apart.
    const float size = __builtin_fabsf(value);
    const uint32_t bits = __builtin_bit_cast(uint32_t, size);
    const int exponent = static_cast<int>(bits >> 23) - 127;
    const int step = (exponent < 1 - bias ? 1 - bias : exponent) - fraction;
    if (exponent > 2 * bias) {
        return sign | largest;
    }
    // A whole number of steps; one that reaches the next exponent carries into it.
    const auto steps = static_cast<unsigned>(__builtin_rintf(__builtin_ldexpf(size, -step)));
    const unsigned biased = static_cast<unsigned>(step + fraction + bias - 1) << fraction;
    const unsigned nearest = biased + steps;
    return sign | (nearest < largest ? nearest : largest);
}

constexpr uint32_t kWholeWarp = 0xffffffff;

// One lane's operands: registers of A, B and the accumulator, or the address of a row.
struct LaneOperands {
    float* d;
    const unsigned *a, *b;
    const char* row;
    unsigned* loaded;
    const WarpgroupOperands* warpgroup;
};

// warpgroups.h
void start_product(const Thread& thread, const LaneOperands* const* lanes);
void fence_registers(const Thread& thread);
void commit_products(const Thread& thread);

// Number `index` of a lane's registers.
inline double number_at(TensorElement element, const unsigned* registers, int index) {
    const unsigned size = bytes_of(element), run = 4 / size;
    return float_of(element, registers[index / run] >> (8 * size * (index % run)));
}

inline float cut_off(double value) {
    const auto nearest = static_cast<float>(value);
    const double size = __builtin_fabs(value);
    if (__builtin_isnan(value) || __builtin_fabs(nearest) <= size || size >= 0x1p128) {
        return nearest;
    }
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, nearest) - 1);
}

// Bits of the fraction to which terms of a sum of 8-bit floats are aligned: Element.accum_fraction_bits.
// Published, and errors on an H200 agree: DeepSeek-V3 (arXiv:2412.19437, section 3.5.2) found that
// Hopper aligns products to the largest exponent, keeps 14 bits of each and truncates the rest;
// SageAttention2 (arXiv:2411.10958) that the accumulator has 13 bits of fraction.
constexpr int kFp8AccumFractionBits = 13;

// The accumulator and the products of one instruction: each is cut off toward zero at that many bits
// below the leading one of the largest, and so is their sum, which is exact before.
inline float aligned_sum(float accum, const double* products, uint32_t count) {
    const auto exponent_of = [](double value) {
        return static_cast<int>(__builtin_bit_cast(uint64_t, value) >> 52 & 0x7ff);
    };
    int largest = exponent_of(accum);
    for (uint32_t i = 0; i < count; ++i) {
        largest = std::max(largest, exponent_of(products[i]));
    }
    double plain = accum;
    if (largest == 0x7ff) {
        for (uint32_t i = 0; i < count; ++i) {
            plain += products[i];
        }
        return static_cast<float>(plain);
    }
    // Terms of less than 2^14 steps; no double here is subnormal, as no float and no product is.
    const auto power_of_2 = [](int biased) {
        return __builtin_bit_cast(double, static_cast<uint64_t>(biased) << 52);
    };
    if (largest <= kFp8AccumFractionBits) {
        return accum;
    }
    const double step = power_of_2(largest - kFp8AccumFractionBits);
    const double per_step = power_of_2(2046 - largest + kFp8AccumFractionBits);
    auto steps = static_cast<int32_t>(accum * per_step);
    for (uint32_t i = 0; i < count; ++i) {
        steps += static_cast<int32_t>(products[i] * per_step);
    }
    const int32_t limit = 1 << (kFp8AccumFractionBits + 1);
    int dropped = 0;
    while (std::abs(steps) >> dropped >= limit) {
        ++dropped;
    }
    const int32_t kept = std::abs(steps) >> dropped << dropped;
    return static_cast<float>((steps < 0 ? -kept : kept) * step);
}

// Row-major A of 16 x depth, column-major B of depth x 8, D of 16 x 8, spread over the lanes as the PTX
// ISA says (mma.m16n8k8, mma.m16n8k16, mma.m16n8k32). A lane has rows lane / 4 and lane / 4 + 8, column lane / 4 of B.
inline void multiply_warp(TensorElement element, int depth, const LaneOperands* const* lanes) {
    double a[16][32], b[32][8];
    const int run = 4 / static_cast<int>(bytes_of(element));  // neighbours in k that one register holds
    const int half = 4 * run;                           // of k, where a lane's next registers begin
    for (int lane = 0; lane < 32; ++lane) {
        const int group = lane / 4, first = lane % 4 * run;
        for (int i = 0; i < depth / 2; ++i) {
            const int k = first + i % run + i / (2 * run) * half;
            a[group + i / run % 2 * 8][k] = number_at(element, lanes[lane]->a, i);
        }
        for (int i = 0; i < depth / 4; ++i) {
            b[first + i % run + i / run * half][group] = number_at(element, lanes[lane]->b, i);
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float& d = lanes[lane]->d[i];
            // Integers are passed on as bits.
            double sum = d;
            if (is_integer(element)) {
                sum = __builtin_bit_cast(int32_t, d);
            }
            for (int k = 0; k < depth; ++k) {
                sum += a[row][k] * b[k][column];
            }
            if (is_integer(element)) {
                // Without .satfinite sums wrap around.
                d = __builtin_bit_cast(float, static_cast<uint32_t>(static_cast<int64_t>(sum)));
            } else {
                d = cut_off(sum);
            }
        }
    }
}

// Matrix i of four 8 x 8 ones of 16-bit elements has its rows where lanes 8 i to 8 i + 7 say. Register
// i of a lane gets two neighbours of row lane / 4, or of column lane / 4 where they are transposed.
inline void load_matrices(bool transposed, const LaneOperands* const* lanes) {
    uint16_t matrices[4][8][8];
    for (int lane = 0; lane < 32; ++lane) {
        memcpy(matrices[lane / 8][lane % 8], lanes[lane]->row, 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
        const int group = lane / 4, first = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) {
            const auto& matrix = matrices[i];
            const unsigned low = transposed ? matrix[first][group] : matrix[group][first];
            const unsigned high = transposed ? matrix[first + 1][group] : matrix[group][first + 1];
            lanes[lane]->loaded[i] = low | high << 16;
        }
    }
}

// The other way round: stmatrix.
inline void store_matrices(bool transposed, const LaneOperands* const* lanes) {
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const char* const two = reinterpret_cast<const char*>(lanes[lane]->a + i);
            for (int at = 0; at < 2; ++at) {
                const int row = lane / 4, column = lane % 4 * 2 + at;
                const int from_lane = 8 * i + (transposed ? column : row);
                char* const to = const_cast<char*>(lanes[from_lane]->row);
                memcpy(to + 2 * (transposed ? row : column), two + 2 * at, 2);
            }
        }
    }
}

void finish_tensor(const Thread& thread) {
    const LaneOperands* lanes[32];
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const Thread* other = lane_of_warp(thread, lane);
        if (!takes_part(other)) {
            report_here(Kind::kWarpDivergence, thread.pc);
            end_process(State::kAborted);
        }
        lanes[lane] = static_cast<const LaneOperands*>(other->operands);
    }
    switch (static_cast<Tensor>(thread.operation - kTensorBase)) {
        case Tensor::kLoad:
            load_matrices(false, lanes);
            break;
        case Tensor::kLoadTransposed:
            load_matrices(true, lanes);
            break;
        case Tensor::kStore:
            store_matrices(false, lanes);
            break;
        case Tensor::kStoreTransposed:
            store_matrices(true, lanes);
            break;
        case Tensor::kStartProduct:
            start_product(thread, lanes);
            break;
        case Tensor::kFenceRegisters:
            fence_registers(thread);
            break;
        case Tensor::kCommitProducts:
            commit_products(thread);
            break;
        case Tensor::kMeet:
            break;
        case Tensor::kF16K8:
            multiply_warp(TensorElement::kF16, 8, lanes);
            break;
        case Tensor::kF16K16:
            multiply_warp(TensorElement::kF16, 16, lanes);
            break;
        case Tensor::kBf16K16:
            multiply_warp(TensorElement::kBf16, 16, lanes);
            break;
        case Tensor::kTf32K8:
            multiply_warp(TensorElement::kTf32, 8, lanes);
            break;
        case Tensor::kI8K32:
            multiply_warp(TensorElement::kI8, 32, lanes);
            break;
    }
}

inline void with_whole_warp(Tensor operation, const LaneOperands& own, uint64_t pc) {
    current->operands = &own;
    warp_collective(kTensorBase + static_cast<uint32_t>(operation), kWholeWarp, 0, 0, 32, pc);
}

__attribute__((noinline)) void tensor_multiply(Tensor operation, float* d, const unsigned* a,
                                               const unsigned* b) {
    with_whole_warp(operation, {d, a, b, nullptr, nullptr, nullptr}, caller(__builtin_return_address(0)));
}

__attribute__((noinline)) void tensor_load(Tensor operation, unsigned* loaded, const void* row) {
    const uint64_t pc = caller(__builtin_return_address(0));
    shadow_matrix_row(row, false, pc);
    const auto* at = static_cast<const char*>(row);
    with_whole_warp(operation, {nullptr, nullptr, nullptr, at, loaded, nullptr}, pc);
}

__attribute__((noinline)) void tensor_store(Tensor operation, const unsigned* from, void* row) {
    const uint64_t pc = caller(__builtin_return_address(0));
    shadow_matrix_row(row, true, pc);
    const auto* at = static_cast<const char*>(row);
    with_whole_warp(operation, {nullptr, from, nullptr, at, nullptr, nullptr}, pc);
}

}  // namespace autogemm_emulator

// Twin of CUDA's header: the nearest E4M3 or E5M2, ties to even, the largest number for what is larger.
#pragma once
#include <cmath>

#include "cuda_runtime.h"

typedef unsigned char __nv_fp8_storage_t;
struct __nv_fp8_e4m3 {
    __nv_fp8_e4m3() = default;
    __nv_fp8_e4m3(float value) {
        const float size = std::fmin(std::fabs(value), 448.0f);
        int exponent = 0;
        std::frexp(size, &exponent);
        // Numbers of one exponent are steps apart; subnormal ones as those of the smallest.
        const int least = size == 0.0f || exponent < -5 ? -9 : exponent - 4;
        const int steps = (int)std::nearbyint(std::ldexp(size, -least));
        const int bits = least == -9 ? steps : ((least + 9) << 3) + steps;
        __x = value != value ? 0x7f : (unsigned char)(bits | (std::signbit(value) ? 0x80 : 0));
    }
    operator float() const {
        const int exponent = __x >> 3 & 15;
        const int fraction = __x & 7;
        const float size = (__x & 0x7f) == 0x7f ? NAN
                           : exponent != 0      ? std::ldexp(8.0f + fraction, exponent - 10)
                                                : std::ldexp((float)fraction, -9);
        return __x & 0x80 ? -size : size;
    }
    __nv_fp8_storage_t __x;
};

// The upper byte of an FP16.
struct __nv_fp8_e5m2 {
    __nv_fp8_e5m2() = default;
    __nv_fp8_e5m2(float value) {
        const float size = std::fmin(std::fabs(value), 57344.0f);
        int exponent = 0;
        std::frexp(size, &exponent);
        const int least = size == 0.0f || exponent < -13 ? -16 : exponent - 3;
        const int steps = (int)std::nearbyint(std::ldexp(size, -least));
        const int bits = least == -16 ? steps : ((least + 16) << 2) + steps;
        __x = value != value ? 0x7f : (unsigned char)(bits | (std::signbit(value) ? 0x80 : 0));
    }
    operator float() const {
        const unsigned short bits = (unsigned short)(__x << 8);
        _Float16 half;
        std::memcpy(&half, &bits, sizeof(half));
        return (float)half;
    }
    __nv_fp8_storage_t __x;
};

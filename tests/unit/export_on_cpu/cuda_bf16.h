// Twin of CUDA's header: the nearest BF16, ties to even.
#pragma once
#include "cuda_runtime.h"

struct __nv_bfloat16 {
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) {
        const unsigned wide = __float_as_uint(value);
        bits = value != value ? 0x7fff : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
    }
    operator float() const {
        return __uint_as_float((unsigned)bits << 16);
    }
    uint16_t bits;
};
inline short __bfloat16_as_short(__nv_bfloat16 value) {
    return (short)value.bits;
}

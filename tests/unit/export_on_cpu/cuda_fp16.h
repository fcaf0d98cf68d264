// Twin of CUDA's header: the nearest FP16, as g++ has it.
#pragma once
#include "cuda_runtime.h"

typedef _Float16 __half;
inline short __half_as_short(__half value) {
    short bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// Atomics. Threads switch only at calls, so that a plain read and write is one step.
#pragma once

#include "thread.h"

namespace autogemm_emulator {

__attribute__((noinline)) float atomic_float(Atomic kind, float* address, float value) {
    shadow_atomic(address, caller(__builtin_return_address(0)));
    const float before = *address;
    *address = kind == Atomic::kAdd ? before + value : value;
    return before;
}

__attribute__((noinline)) int atomic_int(Atomic kind, int* address, int value, int compare) {
    shadow_atomic(address, caller(__builtin_return_address(0)));
    const int before = *address;
    switch (kind) {
        case Atomic::kAdd:
            *address = before + value;
            break;
        case Atomic::kExchange:
            *address = value;
            break;
        case Atomic::kMin:
            *address = value < before ? value : before;
            break;
        case Atomic::kMax:
            *address = value > before ? value : before;
            break;
        case Atomic::kCompareAndSwap:
            *address = before == compare ? value : before;
            break;
    }
    return before;
}

}  // namespace autogemm_emulator

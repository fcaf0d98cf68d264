// Atomics and fences. Threads switch only at calls, so that a plain read and write is one step.
#pragma once

#include "thread.h"

namespace autogemm_emulator {

inline unsigned combine(Atomic kind, unsigned before, unsigned value, unsigned compare) {
    const auto is_less = [](unsigned a, unsigned b) {
        return static_cast<int>(a) < static_cast<int>(b);
    };
    switch (kind) {
        case Atomic::kAdd:
            return before + value;
        case Atomic::kSubtract:
            return before - value;
        case Atomic::kExchange:
            return value;
        case Atomic::kMin:
            return value < before ? value : before;
        case Atomic::kMax:
            return value > before ? value : before;
        case Atomic::kMinSigned:
            return is_less(value, before) ? value : before;
        case Atomic::kMaxSigned:
            return is_less(before, value) ? value : before;
        case Atomic::kAnd:
            return before & value;
        case Atomic::kOr:
            return before | value;
        case Atomic::kIncrement:
            return before >= value ? 0 : before + 1;
        case Atomic::kDecrement:
            return before == 0 || before > value ? value : before - 1;
        case Atomic::kCompareAndSwap:
            return before == compare ? value : before;
    }
    __builtin_unreachable();
}

__attribute__((noinline)) float atomic_add(float* address, float value) {
    note_counter(address);
    let_others_run();
    shadow_atomic(address, caller(__builtin_return_address(0)));
    const float before = *address;
    *address = before + value;
    return before;
}

__attribute__((noinline)) unsigned atomic_bits(Atomic kind, unsigned* address, unsigned value,
                                               unsigned compare) {
    note_counter(address);
    let_others_run();
    shadow_atomic(address, caller(__builtin_return_address(0)));
    const unsigned before = *address;
    *address = combine(kind, before, value, compare);
    return before;
}

__attribute__((noinline)) void fence() {
    shadow_fence();
}

__attribute__((noinline)) unsigned add_acq_rel(unsigned* address, unsigned value) {
    note_counter(address);
    let_others_run();
    shadow_fence();
    shadow_atomic(address, caller(__builtin_return_address(0)));
    shadow_fence();
    const unsigned before = *address;
    *address = before + value;
    return before;
}

__attribute__((noinline)) void release_store(unsigned* address, unsigned value) {
    note_counter(address);
    let_others_run();
    shadow_fence();
    shadow_relaxed(address, true, caller(__builtin_return_address(0)));
    *address = value;
}

__attribute__((noinline)) unsigned acquire_load(const unsigned* address) {
    note_counter(address);
    let_others_run(true);
    shadow_relaxed(address, false, caller(__builtin_return_address(0)));
    shadow_fence();
    return *address;
}

}  // namespace autogemm_emulator

// Functions that code under -fsanitize=thread and -fsanitize=bounds calls, in place of libtsan's.
#pragma once

#include "check_cluster.h"

#define AUTOGEMM_HERE autogemm_emulator::caller(__builtin_return_address(0))
#define AUTOGEMM_HOOK(name, size, function, how)                        \
    extern "C" void __tsan_##name##size(void* address) {                \
        autogemm_emulator::function(address, size, how, AUTOGEMM_HERE); \
    }
#define AUTOGEMM_HOOKS(size)                                                       \
    AUTOGEMM_HOOK(read, size, access, autogemm_emulator::kRead)                    \
    AUTOGEMM_HOOK(write, size, access, autogemm_emulator::kWrite)                  \
    AUTOGEMM_HOOK(volatile_read, size, volatile_access, false)                     \
    AUTOGEMM_HOOK(volatile_write, size, volatile_access, true)                     \
    AUTOGEMM_HOOK(unaligned_read, size, access, autogemm_emulator::kUnalignedRead) \
    AUTOGEMM_HOOK(unaligned_write, size, access, autogemm_emulator::kUnalignedWrite)
AUTOGEMM_HOOKS(1)
AUTOGEMM_HOOKS(2)
AUTOGEMM_HOOKS(4)
AUTOGEMM_HOOKS(8)
AUTOGEMM_HOOKS(16)

extern "C" {
void __tsan_read_range(void* address, unsigned long size) {
    autogemm_emulator::access(address, static_cast<uint32_t>(size),
                              autogemm_emulator::kUnalignedRead, AUTOGEMM_HERE);
}
void __tsan_write_range(void* address, unsigned long size) {
    autogemm_emulator::access(address, static_cast<uint32_t>(size),
                              autogemm_emulator::kUnalignedWrite, AUTOGEMM_HERE);
}
// -fsanitize=bounds: an index outside its array. What it would overwrite may be the stack: the end.
void __ubsan_handle_out_of_bounds(void*, void*) {
    autogemm_emulator::report_here(autogemm_emulator::Kind::kOutOfBounds, AUTOGEMM_HERE);
    autogemm_emulator::end_process(autogemm_emulator::State::kAborted);
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}

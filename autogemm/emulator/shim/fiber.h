// Cooperative threads: each CUDA thread of a block is one fiber with its own stack.
//
// ucontext saves the signal mask with a system call per switch, so on x86-64 the switch is written
// out: callee-saved registers and the stack pointer. Elsewhere ucontext is used.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || defined(AUTOGEMM_UCONTEXT)
#include <ucontext.h>
#endif

namespace autogemm_emulator {

#if defined(__x86_64__) && !defined(AUTOGEMM_UCONTEXT)

extern "C" void autogemm_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
    .text
    .type autogemm_switch, @function
autogemm_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size autogemm_switch, .-autogemm_switch
)");

class Context {
  public:
    // Begins `entry` on the given stack at the first switch to it. `entry` never returns.
    void prepare(char* stack, size_t bytes, void (*entry)()) {
        auto top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(15);
        auto** slots = reinterpret_cast<void**>(top) - 8;  // 6 registers, entry, alignment
        for (int i = 0; i < 8; ++i) {
            slots[i] = nullptr;
        }
        slots[6] = reinterpret_cast<void*>(entry);
        stack_pointer_ = slots;
    }
    static void switch_to(Context& from, Context& to) {
        autogemm_switch(&from.stack_pointer_, to.stack_pointer_);
    }

  private:
    void* stack_pointer_ = nullptr;
};

#else

class Context {
  public:
    void prepare(char* stack, size_t bytes, void (*entry)()) {
        getcontext(&context_);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = bytes;
        context_.uc_link = nullptr;
        makecontext(&context_, entry, 0);
    }
    static void switch_to(Context& from, Context& to) {
        swapcontext(&from.context_, &to.context_);
    }

  private:
    ucontext_t context_;
};

#endif

}  // namespace autogemm_emulator

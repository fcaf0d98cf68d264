// Barriers of some warps of a block (barrier.sync and barrier.arrive with a number and a count).
#pragma once

#include "thread.h"

namespace autogemm_emulator {

// They know at once what the round brought: the next may be over before they run.
inline void let_waiting_go(const NamedBarrier& barrier) {
    Thread* last = current;
    for (uint32_t i = 0; i < num_threads; ++i) {
        if (threads[i].status == Status::kAtNamedBarrier && threads[i].named_barrier == &barrier) {
            threads[i].status = Status::kReady;
            current = &threads[i];
            shadow_waited(barrier.completed);
        }
    }
    current = last;
}

__attribute__((noinline)) void sync_named(unsigned number, unsigned num_threads_of_it, bool wait) {
    const uint64_t pc = caller(__builtin_return_address(0));
    // Number 0 is __syncthreads, which counts for itself here.
    if (number == 0 || number >= kNamedBarriers || num_threads_of_it % 32 != 0 ||
        num_threads_of_it == 0 || num_threads_of_it > num_threads) {
        refuse_barrier(Misuse::kBadNumber, pc);
    }
    NamedBarrier& barrier = block->named_barriers[number];
    if (barrier.num_arrived > 0 && barrier.num_threads != num_threads_of_it) {
        refuse_barrier(Misuse::kOtherCount, pc);
    }
    barrier.num_threads = num_threads_of_it;
    ++barrier.num_arrived;
    shadow_arrived(barrier.arriving, false);
    if (barrier.num_arrived == num_threads_of_it) {
        barrier.num_arrived = 0;
        barrier.completed = std::move(barrier.arriving);
        barrier.arriving = {};
        let_waiting_go(barrier);
        if (wait) {
            shadow_waited(barrier.completed);
        }
    } else if (wait) {
        current->pc = pc;
        current->named_barrier = &barrier;
        current->status = Status::kAtNamedBarrier;
        leave();
    }
}

}  // namespace autogemm_emulator

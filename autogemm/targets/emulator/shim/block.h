// One block from its first thread to its last: who runs, who waits, who is stuck.
#pragma once

#include <utility>

#include "warps.h"

namespace autogemm_emulator {

inline void begin_thread(uint32_t index) {
    Thread& thread = threads[index];
    thread.status = Status::kReady;
    thread.index = index;
    thread.lane = index % 32;
    thread.x = index % launch->threads[0];
    thread.y = index / launch->threads[0] % launch->threads[1];
    thread.z = index / launch->threads[0] / launch->threads[1];
    thread.uncommitted.clear();
    thread.groups.clear();
    thread.clock = 1;
    memset(thread.seen, 0, sizeof(thread.seen));
    thread.context.prepare(stacks + index * kStackBytes, kStackBytes, run_thread);
}

// Whether a living lane of this warp could now go on, because others have left the kernel.
inline bool release_warps() {
    bool released = false;
    for (uint32_t i = 0; i < num_threads; ++i) {
        if (threads[i].status == Status::kInWarp && is_complete(threads[i])) {
            current = &threads[i];
            complete(threads[i]);
            released = true;
        }
    }
    return released;
}

// All living threads stand at a barrier: look whether it is the same one, and let them go.
inline void release_barrier() {
    const Thread* first = nullptr;
    bool some_left = false;
    barrier_count = 0;
    for (uint32_t i = 0; i < num_threads; ++i) {
        Thread& thread = threads[i];
        current = &thread;
        if (thread.status == Status::kDone) {
            some_left = true;
            continue;
        }
        if (first == nullptr) {
            first = &thread;
        } else if (thread.line != first->line) {
            report_here(Kind::kBarrierDivergence, thread.pc, first->pc);
        }
        barrier_count += thread.predicate;
        thread.status = Status::kReady;
    }
    if (some_left) {
        report_here(Kind::kBarrierDivergence, first->pc);
    }
    shadow_barrier();
    ++epoch;
}

// Nobody can go on: some wait in a warp collective for lanes that stand at a barrier.
[[noreturn]] inline void report_stuck_warp() {
    for (uint32_t i = 0; i < num_threads; ++i) {
        if (threads[i].status == Status::kInWarp) {
            current = &threads[i];
            report_here(Kind::kWarpDivergence, threads[i].pc);
        }
    }
    end_process(State::kAborted);
}

inline void run_ready_threads(uint32_t* order) {
    if (exchange->seed != 0) {
        for (uint32_t i = num_threads - 1; i > 0; --i) {
            std::swap(order[i], order[random_below(i + 1)]);
        }
    }
    for (uint32_t i = 0; i < num_threads; ++i) {
        Thread& thread = threads[order[i]];
        if (thread.status == Status::kReady) {
            current = &thread;
            Context::switch_to(scheduler, thread.context);
        }
    }
}

inline void run_block(uint32_t number) {
    block_number = number;
    block_xyz[0] = number % launch->grid[0];
    block_xyz[1] = number / launch->grid[0] % launch->grid[1];
    block_xyz[2] = number / launch->grid[0] / launch->grid[1];
    first_epoch_of_block = ++epoch;
    fill_poison(smem.static_begin, smem.static_bytes);
    fill_poison(smem.dynamic_begin, smem.dynamic_bytes);
    static uint32_t order[kMaxThreads];
    for (uint32_t i = 0; i < num_threads; ++i) {
        begin_thread(i);
        order[i] = i;
    }
    while (true) {
        run_ready_threads(order);
        bool ready = false, in_warp = false, at_barrier = false;
        for (uint32_t i = 0; i < num_threads; ++i) {
            ready |= threads[i].status == Status::kReady;
            in_warp |= threads[i].status == Status::kInWarp;
            at_barrier |= threads[i].status == Status::kAtBarrier;
        }
        if (ready || (in_warp && release_warps())) {
            continue;
        }
        if (in_warp) {
            report_stuck_warp();
        }
        if (!at_barrier) {
            break;
        }
        release_barrier();
    }
    shadow_end_block();
}

}  // namespace autogemm_emulator

// One block from its first thread to its last: who runs, who waits, who is stuck.
#pragma once

#include "warps.h"

namespace autogemm_emulator {

inline void begin_thread(Thread& thread, uint32_t index, Block& of) {
    thread.status = Status::kReady;
    thread.index = index;
    thread.lane = index % 32;
    thread.x = index % launch->threads[0];
    thread.y = index / launch->threads[0] % launch->threads[1];
    thread.z = index / launch->threads[0] / launch->threads[1];
    thread.uncommitted.clear();
    thread.groups.clear();
    thread.open_stores.clear();
    thread.store_groups.clear();
    forget_products(thread);
    thread.waited = launch->overlaps == 0;
    thread.arrived = false;
    ++thread.clock;
    thread.seen = of.seen.data() + static_cast<uint64_t>(index) * (num_threads + kMaxBarriers);
    const uint64_t stack = static_cast<uint64_t>(of.slot) * num_threads + index;
    char* const begin = stacks + stack * kStackBytes;
    if (exchange->stack_fill != 0) {
        memset(begin + kStackBytes - kFilledBytes, static_cast<int>(exchange->stack_fill),
               kFilledBytes);
    }
    thread.context.prepare(begin, kStackBytes, run_thread);
}

// Shared memory of a block, as another block's threads have to reach for it.
inline char* shared_memory_of(Block& owner, const void* shared) {
    auto* at = static_cast<char*>(const_cast<void*>(shared));
    if (&owner == block) {
        return at;
    }
    const bool is_static = at < smem.static_begin + smem.static_bytes;
    return is_static ? owner.parked_static.data() + (at - smem.static_begin)
                     : owner.parked_dynamic.data() + (at - smem.dynamic_begin);
}

// Puts a block in place: its threads, its shared memory, what is known of it.
inline void activate(Block& next) {
    if (block != &next) {
        block->parked_static.assign(smem.static_begin, smem.static_begin + smem.static_bytes);
        block->parked_dynamic.assign(smem.dynamic_begin, smem.dynamic_begin + smem.dynamic_bytes);
        std::copy(next.parked_static.begin(), next.parked_static.end(), smem.static_begin);
        std::copy(next.parked_dynamic.begin(), next.parked_dynamic.end(), smem.dynamic_begin);
        shadow_switch_block(block->slot, next.slot);
        block = &next;
    }
    threads = next.threads.data();
    block_number = next.number;
    epoch = next.epoch;
}

inline void begin_block(Block& starting, uint32_t number) {
    starting.number = number;
    starting.xyz[0] = number % launch->grid[0];
    starting.xyz[1] = number / launch->grid[0] % launch->grid[1];
    starting.xyz[2] = number / launch->grid[0] / launch->grid[1];
    starting.epoch = ++last_epoch;
    starting.ended = starting.yields = false;
    starting.mbarriers.clear();
    for (NamedBarrier& barrier : starting.named_barriers) {
        barrier = {};
    }
    activate(starting);
    fill_poison(smem.static_begin, smem.static_bytes);
    fill_poison(smem.dynamic_begin, smem.dynamic_bytes);
    shadow_begin_block();
    for (uint32_t i = 0; i < num_threads; ++i) {
        begin_thread(starting.threads[i], i, starting);
        starting.order[i] = i;
    }
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
    block->barrier_count = 0;
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
        block->barrier_count += thread.predicate;
        thread.status = Status::kReady;
    }
    if (some_left) {
        report_here(Kind::kBarrierDivergence, first->pc);
    }
    shadow_barrier();
    epoch = block->epoch = ++last_epoch;
}

inline bool run_ready_threads() {
    bool some_ran = false;
    shuffle_order(block->order);
    for (uint32_t index : block->order) {
        if (threads[index].status == Status::kReady) {
            current = &threads[index];
            Context::switch_to(scheduler, current->context);
            some_ran = true;
        }
        if (block->yields) {
            break;
        }
    }
    return some_ran;
}

// Whether no thread of a block can get on before another block or a copy does. To see it the block
// need not be put in place, which costs four copies of shared memory.
inline bool waits_for_others(const Block& waiting) {
    bool some_wait = false;
    for (const Thread& thread : waiting.threads) {
        switch (thread.status) {
            case Status::kReady:
            case Status::kInWarp:
            case Status::kAtBarrier:
                return false;
            case Status::kDone:
                break;
            default:
                some_wait = true;
        }
    }
    return some_wait;
}

// Runs a block until it ends, waits for another one or for a copy, or gives up its turn. Whether any thread got on.
inline bool run_while_it_can(Block& running) {
    if (waits_for_others(running)) {
        return false;
    }
    activate(running);
    bool some_ran = false;
    while (true) {
        some_ran |= run_ready_threads();
        if (running.yields) {
            running.yields = false;
            return true;
        }
        uint32_t count[static_cast<uint32_t>(Status::kDone) + 1] = {};
        for (uint32_t i = 0; i < num_threads; ++i) {
            ++count[static_cast<uint32_t>(threads[i].status)];
        }
        const auto number = [&](Status status) { return count[static_cast<uint32_t>(status)]; };
        const uint32_t num_living = num_threads - number(Status::kDone);
        if (number(Status::kReady) > 0 || (number(Status::kInWarp) > 0 && release_warps())) {
            continue;
        }
        if (num_living == 0) {
            shadow_end_block();
            running.ended = true;
            return true;
        }
        if (number(Status::kAtBarrier) < num_living) {
            return some_ran;
        }
        release_barrier();
    }
}

}  // namespace autogemm_emulator

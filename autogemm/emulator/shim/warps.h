// Barriers of the block, and what the lanes of a warp do together.
#pragma once

#include "thread.h"

namespace autogemm_emulator {

__attribute__((noinline)) int sync_block(int line, int predicate) {
    current->pc = caller(__builtin_return_address(0));
    current->line = line;
    current->predicate = predicate;
    current->status = Status::kAtBarrier;
    leave();
    return block->barrier_count;
}

inline Thread* lane_of_warp(const Thread& thread, uint32_t lane) {
    const uint32_t index = thread.index / 32 * 32 + lane;
    return index < num_threads ? &threads[index] : nullptr;
}

inline bool takes_part(const Thread* lane) {
    return lane != nullptr && lane->status != Status::kDone;
}

constexpr uint32_t kSyncWarp = 0, kShuffleBase = 16, kVoteBase = 32, kTensorBase = 48;

void finish_tensor(const Thread& thread);

inline int source_lane(const Thread& thread) {
    const int lane = static_cast<int>(thread.lane);
    const int first = lane / thread.width * thread.width;
    int from = lane;
    switch (static_cast<Shuffle>(thread.operation - kShuffleBase)) {
        case Shuffle::kIndex:
            return first + thread.argument % thread.width;
        case Shuffle::kUp:
            from = lane - thread.argument;
            break;
        case Shuffle::kDown:
            from = lane + thread.argument;
            break;
        case Shuffle::kXor:
            from = lane ^ thread.argument;
            break;
    }
    return from >= first && from < first + thread.width ? from : lane;
}

inline void finish_shuffle(Thread& thread) {
    const auto from = static_cast<uint32_t>(source_lane(thread));
    const Thread* source = lane_of_warp(thread, from);
    const bool inactive = !(thread.mask >> from & 1) || !takes_part(source);
    if (inactive) {
        report_here(Kind::kWarpDivergence, thread.pc);
    }
    thread.result = inactive ? kPoison : source->value;
}

inline void finish_vote(Thread& thread) {
    uint32_t ballot = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const Thread* other = lane_of_warp(thread, lane);
        if ((thread.mask >> lane & 1) && takes_part(other) && other->value != 0) {
            ballot |= 1u << lane;
        }
    }
    switch (static_cast<Vote>(thread.operation - kVoteBase)) {
        case Vote::kAny:
            thread.result = ballot != 0;
            break;
        case Vote::kAll: {
            uint32_t present = 0;
            for (uint32_t lane = 0; lane < 32; ++lane) {
                present |= takes_part(lane_of_warp(thread, lane)) ? 1u << lane : 0;
            }
            thread.result = ballot == (thread.mask & present);
            break;
        }
        case Vote::kBallot:
            thread.result = ballot;
            break;
    }
}

// __syncwarp orders memory among its lanes; shuffles and votes do not. Where nothing but barriers of
// warps and block orders threads, lanes know of their own warp only.
inline void join_clocks(const Thread& thread) {
    const bool is_wide = shadow_orders_widely();
    const uint32_t first_lane = thread.index - thread.lane;
    const uint32_t first = is_wide ? 0 : first_lane;
    const uint32_t end = is_wide ? num_clocks() : std::min(first_lane + 32, num_threads);
    static uint32_t joined[kMaxThreads + kMaxBarriers];
    std::fill(joined + first, joined + end, 0);
    for (uint32_t lane = 0; lane < 32; ++lane) {
        Thread* other = lane_of_warp(thread, lane);
        if ((thread.mask >> lane & 1) && takes_part(other)) {
            other->seen[other->index] = other->clock++;
            for (uint32_t i = first; i < end; ++i) {
                joined[i] = std::max(joined[i], other->seen[i]);
            }
        }
    }
    for (uint32_t lane = 0; lane < 32; ++lane) {
        Thread* other = lane_of_warp(thread, lane);
        if ((thread.mask >> lane & 1) && takes_part(other)) {
            std::copy(joined + first, joined + end, other->seen + first);
        }
    }
    shadow_sync_warp(thread.mask);
}

// Whether every living lane of the mask waits in the same operation with the same mask.
inline bool is_complete(const Thread& thread) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const Thread* other = lane_of_warp(thread, lane);
        if (!(thread.mask >> lane & 1) || !takes_part(other)) {
            continue;
        }
        if (other->status != Status::kInWarp || other->operation != thread.operation ||
            other->mask != thread.mask) {
            return false;
        }
    }
    return true;
}

inline void complete(Thread& thread) {
    if (thread.operation >= kTensorBase) {
        finish_tensor(thread);
    }
    for (uint32_t lane = 0; lane < 32; ++lane) {
        Thread* other = lane_of_warp(thread, lane);
        if (!(thread.mask >> lane & 1) || !takes_part(other)) {
            continue;
        }
        if (thread.operation >= kVoteBase && thread.operation < kTensorBase) {
            finish_vote(*other);
        } else if (thread.operation >= kShuffleBase && thread.operation < kVoteBase) {
            finish_shuffle(*other);
        }
    }
    if (thread.operation == kSyncWarp) {
        join_clocks(thread);
    }
    for (uint32_t lane = 0; lane < 32; ++lane) {
        Thread* other = lane_of_warp(thread, lane);
        if ((thread.mask >> lane & 1) && takes_part(other)) {
            other->status = Status::kReady;
        }
    }
}

inline uint32_t warp_collective(uint32_t operation, uint32_t mask, uint32_t value, int argument,
                                int width, uint64_t pc) {
    Thread& thread = *current;
    thread.operation = operation;
    thread.mask = mask;
    thread.value = value;
    thread.argument = argument;
    thread.width = width;
    thread.pc = pc;
    thread.status = Status::kInWarp;
    if (!(mask >> thread.lane & 1)) {
        report_here(Kind::kWarpDivergence, pc);
        end_process(State::kAborted);
    }
    if (is_complete(thread)) {
        complete(thread);
    } else {
        leave();
    }
    return thread.result;
}

__attribute__((noinline)) unsigned shuffle(Shuffle kind, unsigned mask, unsigned value, int lane,
                                           int width) {
    return warp_collective(kShuffleBase + static_cast<uint32_t>(kind), mask, value, lane, width,
                           caller(__builtin_return_address(0)));
}

__attribute__((noinline)) unsigned vote(Vote kind, unsigned mask, int predicate) {
    return warp_collective(kVoteBase + static_cast<uint32_t>(kind), mask,
                           static_cast<uint32_t>(predicate), 0, 32,
                           caller(__builtin_return_address(0)));
}

__attribute__((noinline)) void sync_warp(unsigned mask) {
    warp_collective(kSyncWarp, mask, 0, 0, 32, caller(__builtin_return_address(0)));
}

unsigned active_mask() {
    uint32_t mask = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
        mask |= takes_part(lane_of_warp(*current, lane)) ? 1u << lane : 0;
    }
    return mask;
}

}  // namespace autogemm_emulator

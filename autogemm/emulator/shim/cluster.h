// Blocks that run together: whose turn it is, the cluster's barrier, each other's shared memory.
#pragma once

#include "mbarriers.h"

namespace autogemm_emulator {

struct ClusterBarrier {
    uint32_t phase = 0;
    uint32_t num_living = 0, num_arrived = 0;
    Fences arriving;
    std::shared_ptr<const Fences> completed;
};
inline std::vector<ClusterBarrier> cluster_barriers;  // of the clusters that run by turns

inline ClusterBarrier& cluster_barrier() {
    return cluster_barriers[block->slot / cluster_size];
}

inline void complete_cluster_barrier() {
    ClusterBarrier& barrier = cluster_barrier();
    if (barrier.num_arrived == 0 || barrier.num_arrived < barrier.num_living) {
        return;
    }
    ++barrier.phase;
    barrier.num_arrived = 0;
    if (barrier.completed) {
        barrier.arriving.join(*barrier.completed);
    }
    barrier.completed = std::make_shared<const Fences>(std::move(barrier.arriving));
    barrier.arriving = {};
    for (uint32_t rank = 0; rank < cluster_size; ++rank) {
        for (Thread& thread : block_of_own_cluster(rank).threads) {
            if (thread.status == Status::kAtClusterBarrier) {
                thread.status = Status::kReady;
            }
        }
    }
}

// A block that has left is not waited for.
void leave_cluster_barrier() {
    ClusterBarrier& barrier = cluster_barrier();
    --barrier.num_living;
    if (current->arrived && current->arrived_phase == barrier.phase) {
        --barrier.num_arrived;
    }
    complete_cluster_barrier();
}

__attribute__((noinline)) void arrive_at_cluster(bool relaxed) {
    const uint64_t pc = caller(__builtin_return_address(0));
    if (current->arrived) {
        refuse_barrier(Misuse::kArrivedTwice, pc);
    }
    ClusterBarrier& barrier = cluster_barrier();
    shadow_cluster_arrived(barrier.arriving, relaxed);
    current->arrived = true;
    current->arrived_phase = barrier.phase;
    ++barrier.num_arrived;
    complete_cluster_barrier();
}

__attribute__((noinline)) void wait_for_cluster() {
    const uint64_t pc = caller(__builtin_return_address(0));
    if (!current->arrived) {
        refuse_barrier(Misuse::kNotArrived, pc);
    }
    while (cluster_barrier().phase == current->arrived_phase) {
        current->pc = pc;
        current->status = Status::kAtClusterBarrier;
        leave();
    }
    current->arrived = false;
    current->from_cluster = cluster_barrier().completed;
}

unsigned rank_in_cluster() {
    return block->rank;
}

__attribute__((noinline)) float4 load_of_rank(const float* shared, unsigned rank) {
    const uint64_t pc = caller(__builtin_return_address(0));
    Block& owner = block_of_rank(rank, pc);
    shadow_remote_access(owner, shared, sizeof(float4), false, pc);
    float4 value;
    memcpy(&value, shared_memory_of(owner, shared), sizeof(value));
    return value;
}

__attribute__((noinline)) void store_of_rank(float* shared, unsigned rank, float4 value) {
    const uint64_t pc = caller(__builtin_return_address(0));
    Block& owner = block_of_rank(rank, pc);
    shadow_remote_access(owner, shared, sizeof(float4), true, pc);
    memcpy(shared_memory_of(owner, shared), &value, sizeof(value));
}

// No thread can go on: some wait for lanes that stand elsewhere, or for an event that never comes.
[[noreturn]] inline void report_deadlock() {
    bool beyond_warps = false;
    const auto for_each_waiting = [&](auto&& tell) {
        for (Block& member : residents) {
            activate(member);
            for (Thread& thread : member.threads) {
                current = &thread;
                tell(thread);
            }
        }
    };
    for_each_waiting([&](Thread& thread) {
        beyond_warps |= thread.status != Status::kDone && thread.status != Status::kInWarp &&
                        thread.status != Status::kAtBarrier;
    });
    for_each_waiting([&](Thread& thread) {
        if (thread.status == Status::kInWarp) {
            report_here(Kind::kWarpDivergence, thread.pc);
        } else if (thread.status != Status::kDone && beyond_warps) {
            report_here(Kind::kDeadlock, thread.pc);
        }
    });
    end_process(State::kAborted);
}

inline uint32_t number_in_cluster(uint32_t first, uint32_t rank) {
    const uint32_t* by = cluster_extent;
    const uint32_t x = rank % by[0], y = rank / by[0] % by[1], z = rank / by[0] / by[1];
    const uint32_t wide = launch->grid[0] / by[0], high = launch->grid[1] / by[1];
    const uint32_t block_x = first % wide * by[0] + x;
    const uint32_t block_y = first / wide % high * by[1] + y;
    const uint32_t block_z = first / wide / high * by[2] + z;
    return (block_z * launch->grid[1] + block_y) * launch->grid[0] + block_x;
}

inline void begin_cluster(uint32_t slot, uint32_t number) {
    const uint32_t first_epoch = last_epoch + 1;
    cluster_barriers[slot] = {};
    cluster_barriers[slot].num_living = num_threads * cluster_size;
    for (uint32_t rank = 0; rank < cluster_size; ++rank) {
        Block& starting = residents[slot * cluster_size + rank];
        starting.rank = rank;
        starting.first_epoch = first_epoch;
        begin_block(starting, number_in_cluster(number, rank));
    }
}

inline bool has_ended(uint32_t slot) {
    const Block* first = &residents[slot * cluster_size];
    return std::all_of(first, first + cluster_size, [](const Block& it) { return it.ended; });
}

// Which cluster is next to begin. One of the places is for the lowest number that has not begun, so
// that clusters that wait for lower ones, which a GPU starts before, get on in any order of the
// others.
inline uint32_t take_next(std::vector<uint32_t>& waiting, uint32_t slot) {
    const bool in_order = slot == 0 && cluster_barriers.size() > 1;
    const auto next = in_order ? std::min_element(waiting.begin(), waiting.end()) : waiting.begin();
    const uint32_t number = *next;
    waiting.erase(next);
    return number;
}

// Runs all clusters of a launch, as many by turns as are resident.
inline void run_clusters(std::vector<uint32_t> waiting) {
    std::vector<uint32_t> order(residents.size());
    for (uint32_t slot = 0; slot < residents.size(); ++slot) {
        order[slot] = slot;
        residents[slot].ended = true;
    }
    while (true) {
        bool all_ended = true;
        for (uint32_t slot = 0; slot < cluster_barriers.size(); ++slot) {
            if (has_ended(slot) && !waiting.empty()) {
                begin_cluster(slot, take_next(waiting, slot));
            }
            all_ended &= has_ended(slot);
        }
        if (all_ended) {
            return;
        }
        bool some_ran = false, some_did_more_than_look = false;
        shuffle_order(order);
        for (uint32_t slot : order) {
            Block& running = residents[slot];
            if (running.ended) {
                continue;
            }
            running.looks = false;
            const bool ran = run_while_it_can(running);
            some_ran |= ran;
            some_did_more_than_look |= ran && !running.looks;
            if (running.ended) {
                lose_bulk_copies(running);
            }
        }
        // A thread that polls a flag waits, perhaps for a block that waits for a copy.
        if (!some_did_more_than_look && !land_a_bulk_copy() && !some_ran) {
            report_deadlock();
        }
    }
}

}  // namespace autogemm_emulator

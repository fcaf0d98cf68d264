// Check mode: what fences and atomics order, between blocks and within one.
//
// As in the PTX memory model a write is published by a fence behind it and an atomic behind the fence,
// and received by an atomic on the same address and a fence behind that. Barriers carry all of it
// from thread to thread: the writers' own fences before a barrier are as good as one fence of the
// publishing thread behind it, and so at the receiving end. Kernels without fences pay nothing.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "thread.h"

namespace autogemm_emulator {

// What is known of one block: its accesses before an epoch, and each thread's up to a clock.
struct Knowledge {
    uint32_t epoch = 0;
    std::vector<uint32_t> clocks;  // by thread; empty: of none

    void learn(uint32_t thread, uint32_t clock) {
        clocks.resize(num_threads);
        clocks[thread] = std::max(clocks[thread], clock);
    }
    void join(const Knowledge& other) {
        epoch = std::max(epoch, other.epoch);
        clocks.resize(std::max(clocks.size(), other.clocks.size()));
        for (size_t i = 0; i < other.clocks.size(); ++i) {
            clocks[i] = std::max(clocks[i], other.clocks[i]);
        }
    }
    bool covers(uint32_t thread, uint32_t of_epoch, uint32_t of_clock) const {
        return of_epoch < epoch || (thread < clocks.size() && of_clock <= clocks[thread]);
    }
};

class View {
  public:
    bool empty() const {
        return blocks_.empty();
    }
    void clear() {
        blocks_.clear();
    }
    Knowledge& of(uint32_t block) {
        return blocks_[block];
    }
    void join(const View& other) {
        for (const auto& [block, knowledge] : other.blocks_) {
            blocks_[block].join(knowledge);
        }
    }
    bool covers(uint32_t block, uint32_t thread, uint32_t of_epoch, uint32_t of_clock) const {
        const auto found = blocks_.find(block);
        return found != blocks_.end() && found->second.covers(thread, of_epoch, of_clock);
    }

  private:
    std::unordered_map<uint32_t, Knowledge> blocks_;
};

struct Fences {
    View fenced;    // before a fence: the next atomic publishes it
    View observed;  // found at an atomic: the next fence makes it count
    View received;  // happened before

    bool empty() const {
        return fenced.empty() && observed.empty() && received.empty();
    }
    void clear() {
        fenced.clear();
        observed.clear();
        received.clear();
    }
    void join(const Fences& other) {
        fenced.join(other.fenced);
        observed.join(other.observed);
        received.join(other.received);
    }
};

inline Fences thread_fences[kMaxThreads];  // since the thread's last barrier
inline Fences block_fences;                // what all threads of the block share since then
inline bool fences_in_use;                 // by the launch that runs
inline std::unordered_map<const void*, View> published;  // by address of the atomic

inline void begin_launch_of_fences() {
    published.clear();
    fences_in_use = false;
}

inline void forget_fences_of_block() {
    if (fences_in_use) {
        block_fences.clear();
        for (uint32_t i = 0; i < num_threads; ++i) {
            thread_fences[i].clear();
        }
    }
}

inline bool is_received(uint32_t block, uint32_t thread, uint32_t of_epoch, uint32_t of_clock) {
    return fences_in_use &&
           (block_fences.received.covers(block, thread, of_epoch, of_clock) ||
            thread_fences[current->index].received.covers(block, thread, of_epoch, of_clock));
}

void shadow_fence() {
    fences_in_use = true;
    Fences& mine = thread_fences[current->index];
    mine.received.join(mine.observed);
    mine.received.join(block_fences.observed);
    mine.fenced.join(mine.received);
    mine.fenced.join(block_fences.received);
    Knowledge& own = mine.fenced.of(block_number);
    own.epoch = epoch;
    const uint32_t first_of_warp = current->index / 32 * 32;
    for (uint32_t lane = 0; lane < 32 && first_of_warp + lane < num_threads; ++lane) {
        own.learn(first_of_warp + lane, current->seen[lane]);
    }
    own.learn(current->index, current->clock++);  // what comes now is behind the fence
}

inline void fences_at_atomic(const void* address) {
    if (!fences_in_use || is_shared(address)) {
        return;
    }
    Fences& mine = thread_fences[current->index];
    View& here = published[address];
    mine.observed.join(here);
    here.join(mine.fenced);
    here.join(block_fences.fenced);
}

void shadow_barrier() {
    if (!fences_in_use) {
        return;
    }
    for (uint32_t i = 0; i < num_threads; ++i) {
        if (threads[i].status != Status::kDone && !thread_fences[i].empty()) {
            block_fences.join(thread_fences[i]);
            thread_fences[i].clear();
        }
    }
}

void shadow_sync_warp(uint32_t mask) {
    if (!fences_in_use) {
        return;
    }
    const uint32_t first = current->index / 32 * 32;
    Fences joined;
    for (uint32_t lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) && first + lane < num_threads) {
            joined.join(thread_fences[first + lane]);
        }
    }
    for (uint32_t lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) && first + lane < num_threads && !joined.empty()) {
            thread_fences[first + lane] = joined;
        }
    }
}

}  // namespace autogemm_emulator

// Check mode: what fences and atomics order, between blocks and within one.
//
// As in the PTX memory model a write is published by a fence behind it and an atomic behind the fence,
// and received by an atomic on the same address and a fence behind that. Barriers carry all of it
// from thread to thread: the writers' own fences before a barrier are as good as one fence of the
// publishing thread behind it, and so at the receiving end. Kernels without fences pay nothing.
#pragma once

#include "thread.h"

namespace autogemm_emulator {

inline bool knows_other_warps;  // some thread that runs, by more than barriers of the whole block
inline bool fences_in_use;      // by the launch that runs, or its blocks form clusters
inline std::unordered_map<const void*, View> published;  // by address of the atomic

inline void begin_launch_of_fences() {
    published.clear();
    fences_in_use = cluster_size > 1;
    knows_other_warps = false;
}

inline void forget_fences_of_block() {
    block->fences.clear();
    for (uint32_t i = 0; fences_in_use && i < num_threads; ++i) {
        threads[i].fences.clear();
        threads[i].from_cluster.reset();
    }
}

inline bool is_received(uint32_t of_block, uint32_t thread, uint32_t of_epoch, uint32_t of_clock,
                        bool was_read = false) {
    if (!fences_in_use) {
        return false;
    }
    const auto known_by = [&](const Fences& fences) {
        return fences.received.covers(of_block, thread, of_epoch, of_clock) ||
               (was_read && fences.read.covers(of_block, thread, of_epoch, of_clock));
    };
    return known_by(block->fences) || known_by(current->fences) ||
           (current->from_cluster && known_by(*current->from_cluster));
}

// From now on all this happened before what the current thread does.
inline void receive(const View& view) {
    if (const Knowledge* own = view.find(block_number)) {
        for (size_t i = 0; i < own->clocks.size(); ++i) {
            current->seen[i] = std::max(current->seen[i], own->clocks[i]);
        }
    }
    current->fences.received.join_others(view, block_number);
}

// All that happened before this point of the current thread.
inline void add_all_that_happened(View& view) {
    Knowledge& own = view.of(block_number);
    own.epoch = std::max(own.epoch, epoch);
    own.learn(current->seen, num_clocks());
    own.learn(current->index, current->clock++);  // what comes now comes behind it
    view.join(current->fences.received);
    view.join(block->fences.received);
}

// All of it for a barrier of some threads: to happen before what they do next, and as published.
//
// A relaxed arrival is as an atomic: it publishes what a fence before it made ready. What was read is
// done with all the same, so that others may write there.
inline void give(Fences& arriving, bool relaxed = false) {
    add_all_that_happened(relaxed ? arriving.read : arriving.received);
    for (const Fences* known : {&current->fences, &block->fences}) {
        if (relaxed) {
            arriving.received.join(known->fenced);
        }
        arriving.fenced.join(known->fenced);
        arriving.observed.join(known->observed);
        arriving.read.join(known->read);
        arriving.proxied.join(known->proxied);
    }
}

bool shadow_orders_widely() {
    return fences_in_use || knows_other_warps;
}

void shadow_fence() {
    fences_in_use = true;
    receive(current->fences.observed);
    receive(block->fences.observed);
    add_all_that_happened(current->fences.fenced);
    if (current->from_cluster) {
        current->fences.fenced.join(current->from_cluster->received);
    }
}

inline void fences_at_atomic(const void* address) {
    if (!fences_in_use || is_shared(address)) {
        return;
    }
    View& here = published[address];
    current->fences.observed.join(here);
    here.join(current->fences.fenced);
    here.join(block->fences.fenced);
}

void shadow_barrier() {
    const uint32_t num_mbarriers = num_clocks() - num_threads;
    std::vector<uint32_t> copied(num_mbarriers);
    for (uint32_t i = 0; i < num_threads && (fences_in_use || num_mbarriers > 0); ++i) {
        Thread& thread = threads[i];
        if (thread.status == Status::kDone) {
            continue;
        }
        for (uint32_t m = 0; m < num_mbarriers; ++m) {
            copied[m] = std::max(copied[m], thread.seen[num_threads + m]);
        }
        if (!thread.fences.empty()) {
            block->fences.join(thread.fences);
            thread.fences.clear();
        }
    }
    for (uint32_t i = 0; i < num_threads && num_mbarriers > 0; ++i) {
        std::copy(copied.begin(), copied.end(), threads[i].seen + num_threads);
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
            joined.join(threads[first + lane].fences);
        }
    }
    for (uint32_t lane = 0; lane < 32 && !joined.empty(); ++lane) {
        if ((mask >> lane & 1) && first + lane < num_threads) {
            threads[first + lane].fences = joined;
        }
    }
}

}  // namespace autogemm_emulator

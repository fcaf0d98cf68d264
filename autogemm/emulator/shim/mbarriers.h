// Barriers in shared memory (mbarrier): arrivals, phases, and the bulk copies that they count.
#pragma once

#include "block.h"

namespace autogemm_emulator {

inline std::vector<BulkCopy> bulk_copies;  // issued and not yet landed

inline Block& block_of_rank(uint32_t rank, uint64_t pc) {
    if (rank >= cluster_size) {
        report_here(Kind::kBadRank, pc);
        end_process(State::kAborted);
    }
    Block& owner = block_of_own_cluster(rank);
    if (owner.ended) {
        report_here(Kind::kEndedBlock, pc);
    }
    return owner;
}

inline Mbarrier* find_mbarrier(Block& owner, const void* address) {
    for (Mbarrier& mbarrier : owner.mbarriers) {
        if (mbarrier.address == address) {
            return &mbarrier;
        }
    }
    return nullptr;
}

inline Mbarrier& used_mbarrier(Block& owner, const void* address, uint64_t pc) {
    Mbarrier* mbarrier = find_mbarrier(owner, address);
    if (mbarrier == nullptr) {
        refuse_barrier(Misuse::kNotInitialised, pc);
    }
    if (&owner != block && !mbarrier->fenced) {
        refuse_barrier(Misuse::kNotFenced, pc);
    }
    shadow_mbarrier_used(*mbarrier, pc);
    return *mbarrier;
}

__attribute__((noinline)) void init_mbarrier(void* address, unsigned num_arrivals) {
    const uint64_t pc = caller(__builtin_return_address(0));
    Mbarrier* mbarrier = find_mbarrier(*block, address);
    const bool is_new = mbarrier == nullptr;
    if (num_arrivals == 0) {
        refuse_barrier(Misuse::kNoArrivals, pc);
    }
    if (is_new && block->mbarriers.size() == kMaxBarriers) {
        refuse_barrier(Misuse::kTooManyBarriers, pc);
    }
    if (is_new) {
        mbarrier = &block->mbarriers.emplace_back();
        mbarrier->index = static_cast<uint32_t>(block->mbarriers.size()) - 1;
    }
    mbarrier->address = static_cast<const char*>(address);
    mbarrier->owner = block->slot;
    mbarrier->block = block_number;
    mbarrier->expected = num_arrivals;
    mbarrier->pending = num_arrivals;
    mbarrier->tx_bytes = 0;
    mbarrier->phase = 0;
    mbarrier->fenced = false;
    shadow_mbarrier_initialised(*mbarrier, pc);
}

void fence_mbarrier_init() {
    for (Mbarrier& mbarrier : block->mbarriers) {
        mbarrier.fenced |= mbarrier.init_thread == current->index;
    }
}

void fence_proxy() {
    shadow_proxy_fence();
}

inline void complete_phase(Mbarrier& mbarrier) {
    if (mbarrier.pending > 0 || mbarrier.tx_bytes != 0) {
        return;
    }
    ++mbarrier.phase;
    mbarrier.pending = mbarrier.expected;
    mbarrier.completed = std::move(mbarrier.arriving);
    mbarrier.arriving = {};
    for (Thread& thread : residents[mbarrier.owner].threads) {
        if (thread.status == Status::kAtMbarrier && thread.mbarrier == &mbarrier) {
            thread.status = Status::kReady;
        }
    }
}

inline void arrive_at(Mbarrier& mbarrier, uint32_t tx_bytes, uint64_t pc, bool relaxed = false) {
    if (mbarrier.pending == 0) {
        refuse_barrier(Misuse::kTooManyArrivals, pc);
    }
    shadow_mbarrier_arrived(mbarrier, pc);
    shadow_arrived(mbarrier.arriving, relaxed);
    --mbarrier.pending;
    mbarrier.tx_bytes += tx_bytes;
    complete_phase(mbarrier);
}

__attribute__((noinline)) void arrive_mbarrier(void* address, unsigned tx_bytes) {
    const uint64_t pc = caller(__builtin_return_address(0));
    arrive_at(used_mbarrier(*block, address, pc), tx_bytes, pc);
}

__attribute__((noinline)) void arrive_mbarrier_of_rank(void* address, unsigned rank, bool relaxed) {
    const uint64_t pc = caller(__builtin_return_address(0));
    arrive_at(used_mbarrier(block_of_rank(rank, pc), address, pc), 0, pc, relaxed);
}

__attribute__((noinline)) void wait_mbarrier(void* address, unsigned parity) {
    const uint64_t pc = caller(__builtin_return_address(0));
    const Mbarrier& mbarrier = used_mbarrier(*block, address, pc);
    while ((mbarrier.phase & 1) == parity) {
        current->pc = pc;
        current->mbarrier = &mbarrier;
        current->status = Status::kAtMbarrier;
        leave();
    }
    shadow_waited(mbarrier.completed);
}

void load_tile(const Tile& tile, Block& owner, char* shared);  // tiles.h

inline void land(const BulkCopy& copy) {
    if (residents[copy.mbarrier->owner].ended) {
        report_here(Kind::kLostCopy, copy.pc);
        return;
    }
    Block& owner = residents[copy.mbarrier->owner];
    if (copy.tile.map != nullptr) {
        load_tile(copy.tile, owner, copy.shared);
    } else {
        const void* const from = copy.global != nullptr ? copy.global : (const char*)&copy.value;
        memcpy(shared_memory_of(owner, copy.shared), from, copy.bytes);
    }
    shadow_bulk_copy_landed(copy);
    copy.mbarrier->tx_bytes -= copy.bytes;
    complete_phase(*copy.mbarrier);
}

inline bool land_a_bulk_copy() {
    if (bulk_copies.empty()) {
        return false;
    }
    const auto count = static_cast<uint32_t>(bulk_copies.size());
    const auto which = bulk_copies.begin() + (exchange->seed != 0 ? random_below(count) : 0);
    const BulkCopy copy = *which;
    bulk_copies.erase(which);
    land(copy);
    return true;
}

// Those on their way to a block that has ended: nobody waited for them.
inline void lose_bulk_copies(const Block& ended) {
    for (size_t i = 0; i < bulk_copies.size();) {
        if (bulk_copies[i].mbarrier->owner == ended.slot) {
            report_here(Kind::kLostCopy, bulk_copies[i].pc);
            bulk_copies.erase(bulk_copies.begin() + static_cast<ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
}

inline void issue_bulk_copy(uint32_t rank, BulkCopy copy, const void* address) {
    Block& owner = block_of_rank(rank, copy.pc);
    copy.mbarrier = &used_mbarrier(owner, address, copy.pc);
    if (!copy.mbarrier->fenced) {
        refuse_barrier(Misuse::kNotFenced, copy.pc);
    }
    if (copy.bytes == 0 || copy.bytes % 16 != 0) {
        report_here(Kind::kBadCopy, copy.pc);
        end_process(State::kAborted);
    }
    shadow_bulk_copy_issued(copy);
    if (exchange->late_copies) {
        bulk_copies.push_back(copy);
    } else {
        land(copy);
    }
}

__attribute__((noinline)) void copy_bulk(void* shared, const void* global, unsigned bytes,
                                         void* address) {
    const uint64_t pc = caller(__builtin_return_address(0));
    const BulkCopy copy{static_cast<char*>(shared), static_cast<const char*>(global), bytes,
                        nullptr, pc, {}, {}};
    issue_bulk_copy(block->rank, copy, address);
}

__attribute__((noinline)) void store_async_of_rank(float* shared, unsigned rank, float4 value,
                                                   void* address) {
    const uint64_t pc = caller(__builtin_return_address(0));
    const BulkCopy copy{reinterpret_cast<char*>(shared), nullptr, sizeof(value), nullptr, pc, {},
                        value};
    issue_bulk_copy(rank, copy, address);
}

// The same place in the shared memory of several blocks, whose own mbarriers count it.
inline void issue_to_ranks(const BulkCopy& copy, const void* address, uint32_t ranks) {
    for (uint32_t rank = 0; ranks >> rank != 0; ++rank) {
        if (ranks >> rank & 1) {
            issue_bulk_copy(rank, copy, address);
        }
    }
}

__attribute__((noinline)) void copy_bulk_to_ranks(void* shared, const void* global, unsigned bytes,
                                                  void* address, unsigned ranks) {
    const uint64_t pc = caller(__builtin_return_address(0));
    const BulkCopy copy{static_cast<char*>(shared), static_cast<const char*>(global), bytes,
                        nullptr, pc, {}, {}};
    issue_to_ranks(copy, address, ranks);
}

}  // namespace autogemm_emulator

// Check mode: clusters, mbarriers and bulk copies.
#pragma once

#include "check.h"
#include "cluster.h"

namespace autogemm_emulator {

constexpr uint32_t kTileAlignment = 128;
inline uint32_t num_landed;  // the clock of mbarriers

void shadow_switch_block(uint32_t from_slot, uint32_t to_slot) {
    for (uint32_t i = 0; i < 2; ++i) {
        Shadow& in_place = shadows[static_cast<uint32_t>(Region::kDynamicShared) + i];
        parked_shadows[from_slot].of[i] = std::move(in_place);
        in_place = std::move(parked_shadows[to_slot].of[i]);
    }
}

void shadow_cluster_arrived(Fences& arriving, bool relaxed) {
    fences_in_use = true;
    give(arriving, relaxed);
}

inline void report_shared(Kind kind, const Touch& touch, int64_t offset, uint32_t size) {
    report_access(kind, touch.region, offset, size, touch.write, touch.pc, nullptr, touch.owner);
}

// An access of 16 bytes, or a copy of several, to a block's shared memory: aborts where a GPU would.
inline void check_shared(const Block& owner, const void* shared, uint32_t size, bool write,
                         uint64_t pc, uint32_t alignment = 16) {
    const Place place = place_of(shared);
    const uint32_t of_other = &owner == block ? 0 : owner.rank + 1;
    const Touch touch{place.region, pc, !write, write, false, of_other};
    if (place.region != Region::kDynamicShared && place.region != Region::kStaticShared) {
        report_here(Kind::kBadCopy, pc);
        end_process(State::kAborted);
    }
    if (reinterpret_cast<uintptr_t>(shared) % alignment != 0) {
        report_shared(Kind::kMisaligned, touch, place.offset, size);
        end_process(State::kAborted);
    }
    const Shadow& shadow = shared_shadow(owner.slot, place.region);
    if (place.offset < 0 || static_cast<uint64_t>(place.offset) + size > shadow.bytes) {
        report_shared(Kind::kOutOfBounds, touch, place.offset, size);
        end_process(State::kAborted);
    }
    exchange->num_accesses += size / 16;
}

void shadow_remote_access(const Block& owner, const void* shared, uint32_t size, bool write,
                          uint64_t pc) {
    check_shared(owner, shared, size, write, pc);
    const Place place = place_of(shared);
    const uint32_t of_other = &owner == block ? 0 : owner.rank + 1;
    Toucher toucher{shared_shadow(owner.slot, place.region),
                    {place.region, pc, !write, write, false, of_other}};
    for (uint64_t i = 0; i < word_of(size); ++i) {
        toucher.touch(word_of(static_cast<uint64_t>(place.offset)) + i);
    }
    if (&owner != block) {
        remote_accesses[owner.slot][own_number() | (write ? kStoreBit : 0)] =
            this_access({Region::kElsewhere, pc, !write, write, false});
    }
}

// A block may end once one of its threads knows that no other block uses its shared memory any more.
inline void check_remote_accesses() {
    auto& accesses = remote_accesses[block->slot];
    Fences known;
    std::shared_ptr<const Fences> from_cluster;
    for (uint32_t i = 0; i < num_threads && !accesses.empty(); ++i) {
        known.join(threads[i].fences);
        if (threads[i].from_cluster && threads[i].from_cluster != from_cluster) {
            from_cluster = threads[i].from_cluster;
            known.join(*from_cluster);
        }
    }
    known.join(block->fences);
    for (const auto& [number, access] : accesses) {
        const uint32_t of_block = ((number & ~kStoreBit) >> kThreadBits) - 1;
        const uint32_t thread = number & kThreadMask;
        const auto covers = [&](const View& view) {
            return view.covers(of_block, thread, access.epoch, access.clock);
        };
        if (!covers(known.received) && ((number & kStoreBit) != 0 || !covers(known.read))) {
            Finding finding{};
            finding.kind = static_cast<uint32_t>(Kind::kEndedBlock);
            finding.region = static_cast<uint32_t>(Region::kElsewhere);
            finding.pc = access.pc;
            finding.block = of_block;
            finding.thread = thread;
            finding.count = 1;
            report(finding);
        }
    }
    accesses.clear();
}

inline void mark_mbarrier(const Mbarrier& mbarrier, bool is_one) {
    const Place place = place_of(mbarrier.address);
    Shadow& shadow = shared_shadow(mbarrier.owner, place.region);
    for (uint64_t i = 0; i < word_of(8); ++i) {
        shadow.words[word_of(static_cast<uint64_t>(place.offset)) + i].is_mbarrier = is_one;
    }
}

void shadow_end_block() {
    check_remote_accesses();
    for (const Mbarrier& mbarrier : block->mbarriers) {
        mark_mbarrier(mbarrier, false);
    }
    forget_copies_of_block();
    forget_fences_of_block();
}

void shadow_mbarrier_initialised(Mbarrier& mbarrier, uint64_t pc) {
    if (!is_shared(mbarrier.address)) {
        refuse_barrier(Misuse::kNotShared, pc);
    }
    if (mbarrier.init_pc != 0) {
        mark_mbarrier(mbarrier, false);  // initialised again
    }
    access(mbarrier.address, 8, kWrite, pc);
    const Place place = place_of(mbarrier.address);
    if (static_cast<uint64_t>(place.offset) + 8 > shared_shadow(block->slot, place.region).bytes) {
        end_process(State::kAborted);  // reported: out of bounds
    }
    mark_mbarrier(mbarrier, true);
    mbarrier.init_thread = current->index;
    mbarrier.init_epoch = epoch;
    mbarrier.init_clock = current->clock;
    mbarrier.init_pc = pc;
}

void shadow_mbarrier_used(const Mbarrier& mbarrier, uint64_t pc) {
    const Access init{((mbarrier.block + 1) << kThreadBits) + mbarrier.init_thread,
                      mbarrier.init_epoch, mbarrier.init_clock,
                      static_cast<uint32_t>(mbarrier.init_pc)};
    // Its fence has published it, however threads then arrive.
    if (!is_ordered(init, 0, false, mbarrier.fenced)) {
        const Place place = place_of(mbarrier.address);
        const uint32_t owner =
            mbarrier.owner == block->slot ? 0 : residents[mbarrier.owner].rank + 1;
        report_access(Kind::kRace, place.region, place.offset, 8, true, pc, &init, owner);
    }
}

// Copies need no such note: a block that ends before they have come loses them, which is told.
void shadow_mbarrier_arrived(const Mbarrier& mbarrier, uint64_t pc) {
    if (mbarrier.owner != block->slot) {
        remote_accesses[mbarrier.owner][own_number()] =
            this_access({Region::kElsewhere, pc, false, true, false});
    }
}

void shadow_arrived(Fences& arriving, bool relaxed) {
    give(arriving, relaxed);
    if (!current->from_cluster) {
        return;
    }
    if (relaxed) {
        arriving.read.join(current->from_cluster->received);
        arriving.read.join(current->from_cluster->read);
    } else {
        arriving.join(*current->from_cluster);
    }
}

void shadow_waited(const Fences& completed) {
    knows_other_warps = true;
    receive(completed.received);
    current->fences.read.join(completed.read);
    current->fences.fenced.join(completed.fenced);
    current->fences.observed.join(completed.observed);
    current->fences.proxied.join(completed.proxied);
}

void shadow_proxy_fence() {
    fences_in_use = true;
    add_all_that_happened(current->fences.proxied);
    if (current->from_cluster) {
        current->fences.proxied.join(current->from_cluster->received);
    }
}

// Stores, loads and bulk copies take different ways to memory: without a proxy fence a store may come
// last, and a load that was begun before may find what is copied.
inline bool may_overtake(const Access& before, uint32_t floor) {
    const uint32_t thread = before.thread & ~kAtomicBit;
    const uint32_t of_block = (thread >> kThreadBits) - 1, index = thread & kThreadMask;
    if (thread == 0 || before.epoch < floor || index >= num_threads) {
        return false;
    }
    const auto known_by = [&](const Fences& fences) {
        return fences.proxied.covers(of_block, index, before.epoch, before.clock);
    };
    return !known_by(current->fences) && !known_by(block->fences) &&
           !(current->from_cluster && known_by(*current->from_cluster));
}

inline void check_source(const BulkCopy& copy) {
    if (copy.tile.map != nullptr) {
        for_each_row(copy.tile, false, [&](const char* from, uint32_t bytes, uint32_t) {
            access(from, bytes, kUnalignedRead, copy.pc);
        });
        return;
    }
    if (copy.global == nullptr) {
        return;
    }
    const Place from = place_of(copy.global);
    if (!is_global(from.region)) {
        report_here(Kind::kBadCopy, copy.pc);
        end_process(State::kAborted);
    }
    if (reinterpret_cast<uintptr_t>(copy.global) % 16 != 0) {
        report_access(Kind::kMisaligned, from.region, from.offset, copy.bytes, false, copy.pc);
        end_process(State::kAborted);
    }
    access(copy.global, copy.bytes, kUnalignedRead, copy.pc);
}

void shadow_bulk_copy_issued(const BulkCopy& copy) {
    check_source(copy);
    const Block& owner = residents[copy.mbarrier->owner];
    const uint32_t alignment = copy.tile.map != nullptr ? kTileAlignment : 16;
    check_shared(owner, copy.shared, copy.bytes, true, copy.pc, alignment);
    const Place to = place_of(copy.shared);
    const uint32_t of_other = &owner == block ? 0 : owner.rank + 1;
    Shadow& shadow = shared_shadow(owner.slot, to.region);
    Toucher toucher{shadow, {to.region, copy.pc, false, true, false, of_other}};
    for (uint64_t i = 0; i < word_of(copy.bytes); ++i) {
        const uint64_t index = word_of(static_cast<uint64_t>(to.offset)) + i;
        const auto check = [&](const Access& before) {
            if (may_overtake(before, shadow.floor)) {
                report_access(Kind::kNoProxyFence, to.region, offset_of(index),
                              exchange->word_bytes, true, copy.pc, &before, of_other);
            }
        };
        toucher.touch(index, [&](const Word& word) {
            if (word.in_flight) {
                return;
            }
            check(word.writer);
            for (int r = 0; r < 2; ++r) {
                if (word.loaders >> r & 1) {
                    check(word.readers[r]);
                }
            }
        });
        shadow.words[index].in_flight = true;
    }
}

// The mbarrier has written: who waits for its phase, and whom these tell, may use what was copied.
void shadow_bulk_copy_landed(const BulkCopy& copy) {
    Mbarrier& mbarrier = *copy.mbarrier;
    const uint32_t index = num_threads + mbarrier.index;
    const Access landed{((mbarrier.block + 1) << kThreadBits) + index,
                        residents[mbarrier.owner].epoch, ++num_landed,
                        static_cast<uint32_t>(copy.pc)};
    const Place to = place_of(copy.shared);
    Shadow& shadow = shared_shadow(mbarrier.owner, to.region);
    for (uint64_t i = 0; i < word_of(copy.bytes); ++i) {
        Word& word = shadow.words[word_of(static_cast<uint64_t>(to.offset)) + i];
        word.in_flight = false;
        word.writer = landed;
    }
    mbarrier.arriving.received.of(mbarrier.block).learn(index, num_landed);
}

template <class Visit>
inline void for_each_shared_word(const TileStore& store, Visit&& visit) {
    const Place place = place_of(store.shared);
    Shadow& shadow = shared_shadow(block->slot, place.region);
    const uint64_t first = word_of(static_cast<uint64_t>(place.offset));
    for (uint64_t i = 0; i < word_of(tile_bytes(*store.tile.map)); ++i) {
        visit(shadow, first + i, place.region);
    }
}

template <class Visit>
inline void for_each_global_word(const TileStore& store, Visit&& visit) {
    for_each_row(store.tile, true, [&](char* to, uint32_t bytes, uint32_t) {
        const Region region = known_region(to);
        if (!is_global(region)) {
            return;  // reported when it was issued
        }
        Shadow& shadow = shadows[static_cast<int>(region)];
        const uint64_t first = word_of(static_cast<uint64_t>(to - shadow.begin));
        for (uint64_t i = first; i < first + word_of(bytes); ++i) {
            const uint64_t index = index_of(shadow, i);
            if (index < shadow.words.size()) {
                visit(shadow.words[index]);
            }
        }
    });
}

// A tile on its way out may read shared memory until it is known to have done so, and may write at any
// time until it is known to have landed.
void shadow_tile_store_issued(const TileStore& store) {
    const uint64_t pc = store.pc;
    check_shared(*block, store.shared, tile_bytes(*store.tile.map), false, pc, kTileAlignment);
    const Region region = place_of(store.shared).region;
    Toucher toucher{shared_shadow(block->slot, region), {region, pc, true, false, false, 0, true}};
    for_each_shared_word(store, [&](Shadow& shadow, uint64_t index, Region) {
        toucher.touch(index, [&](const Word& word) {
            if (!word.in_flight && may_overtake(word.writer, shadow.floor)) {
                report_access(Kind::kNoProxyFence, region, offset_of(index), exchange->word_bytes,
                              false, pc, &word.writer);
            }
        });
        ++shadow.words[index].being_read;
    });
    for_each_row(store.tile, true, [&](char* to, uint32_t bytes, uint32_t) {
        access(to, bytes, kUnalignedWrite, pc);
    });
    for_each_global_word(store, [](Word& word) { word.in_flight = true; });
}

void shadow_tile_store_has_read(const TileStore& store, uint64_t pc) {
    for_each_shared_word(store, [&](Shadow& shadow, uint64_t index, Region region) {
        Word& word = shadow.words[index];
        --word.being_read;
        note_reader(word, this_access({region, pc, true, false, false}), true);
    });
}

// Calls visit(word of dynamic shared memory) for all that the warp's part of a product reads.
template <class Visit>
inline void for_each_operand_word(const Product& product, uint32_t first_row, Visit&& visit) {
    const WarpgroupOperands& what = product.what;
    const uint32_t size = bytes_of(what.element);
    const auto visit_words = [&](const char* at, uint32_t, uint32_t, uint32_t elements) {
        const uint64_t first = word_of(static_cast<uint64_t>(at - smem.dynamic_begin));
        for (uint64_t i = 0; i < word_of(elements * size); ++i) {
            visit(first + i);
        }
    };
    if (product.registers.empty()) {
        for_each_chunk(what.a, what.a_along_k, first_row, 16, size, visit_words);
    }
    for_each_chunk(what.b, what.b_along_k, 0, 2 * product.sums->count, size, visit_words);
}

// A warp's part of a product may read its operands until it is known to be done. It takes the way of bulk
// copies to shared memory. The last lane stands for the warp.
void shadow_product_issued(const Product& product, uint32_t first_row) {
    Shadow& shadow = shared_shadow(block->slot, Region::kDynamicShared);
    const uint64_t pc = product.pc;
    Thread* const running = current;
    current = lane_of_warp(*current, 31);
    Toucher toucher{shadow, {Region::kDynamicShared, pc, true, false, false, 0, true}};
    for_each_operand_word(product, first_row, [&](uint64_t index) {
        if (index >= shadow.words.size()) {
            report_access(Kind::kOutOfBounds, Region::kDynamicShared, offset_of(index),
                          exchange->word_bytes, false, pc);
            end_process(State::kAborted);
        }
        toucher.touch(index, [&](const Word& word) {
            if (!word.in_flight && may_overtake(word.writer, shadow.floor)) {
                report_access(Kind::kNoProxyFence, Region::kDynamicShared, offset_of(index),
                              exchange->word_bytes, false, pc, &word.writer);
            }
        });
        ++shadow.words[index].being_read;
    });
    current = running;
}

// The warp's last lane stands for what was read: up to which of its clocks.
uint32_t shadow_product_done(const Product& product, const Thread& lane_0, uint64_t pc) {
    Shadow& shadow = shared_shadow(block->slot, Region::kDynamicShared);
    Thread& last = *lane_of_warp(lane_0, 31);
    const Access reader{((block_number + 1) << kThreadBits) + last.index, epoch, last.clock,
                        static_cast<uint32_t>(pc)};
    for_each_operand_word(product, first_row(lane_0), [&](uint64_t index) {
        --shadow.words[index].being_read;
        note_reader(shadow.words[index], reader, true);
    });
    return last.clock++;
}

// A thread that has waited for a product is ordered behind all warps of its group.
void shadow_knows_products(const Thread& lane_0, const uint32_t* done) {
    knows_other_warps = true;
    for (uint32_t lane = 0; lane < 32; ++lane) {
        uint32_t& seen = current->seen[lane_0.index + lane];
        seen = std::max(seen, done[lane]);
    }
}

// Values that products took from registers had been loaded when these began.
void shadow_knows_loads(const Thread& lane_0, const std::vector<uint32_t>& loaded) {
    fences_in_use |= !loaded.empty();
    for (uint32_t lane = 0; lane < loaded.size(); ++lane) {
        current->fences.proxied.of(block_number).learn(lane_0.index + lane, loaded[lane]);
    }
}

void shadow_tile_store_landed(const TileStore& store, uint64_t pc) {
    for_each_global_word(store, [&](Word& word) {
        word.in_flight = false;
        word.writer = this_access({Region::kC, pc, false, true, false});
    });
}

}  // namespace autogemm_emulator

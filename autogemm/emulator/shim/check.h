// Check mode: every access looked up in the shadow; what begins and ends with a run, a launch, a block.
#pragma once

#include "copies.h"
#include "shadow.h"
#include "warpgroups.h"

namespace autogemm_emulator {

// The last store, and the last other access, of each thread of other blocks to the shared memory of a
// block, by slot.
constexpr uint32_t kStoreBit = 0x80000000;
inline std::vector<std::unordered_map<uint32_t, Access>> remote_accesses;

inline void trace(Region region, const char* at, uint32_t size, bool write, uint64_t pc) {
    if (exchange->trace_capacity == 0 || block_number != exchange->trace_block) {
        return;
    }
    auto* records = reinterpret_cast<TraceRecord*>(file_at(exchange->trace_offset));
    if (exchange->num_trace < exchange->trace_capacity) {
        const auto& shadow = shadows[static_cast<int>(region)];
        records[exchange->num_trace] = {
            static_cast<uint32_t>(pc),
            static_cast<uint16_t>(current->index),
            static_cast<uint16_t>(static_cast<uint32_t>(region) * 2 + write),
            size,
            static_cast<uint32_t>(at - shadow.begin),
            epoch,
        };
    }
    ++exchange->num_trace;
}

// An address that is in no buffer: a zone (report and go on), the process's own data (a stack, a
// constant table: fine to read), or nowhere.
inline void access_elsewhere(const char* at, uint32_t size, bool write, uint64_t pc);

inline bool is_stack(const char* at) {
    return at >= stacks && at < stacks + stacks_bytes;
}

// The kernel touches a local variable: one that products add to, or one that the next must be told of.
inline void touch_registers(const char* at, uint32_t size, bool write, uint64_t pc) {
    if (lane_of_warp(*current, 0)->products == nullptr) {
        return;
    }
    WarpProducts& products = *lane_of_warp(*current, 0)->products;
    for (const Range& range : products.known[current->lane]) {
        if (at + size <= range.begin || at >= range.end) {
            continue;
        }
        products.fenced &= !write;
        const auto adds = [&](const Product& product) {
            return reinterpret_cast<char*>(product.sums->of_lane[current->lane]) == range.begin;
        };
        bool in_flight = std::any_of(products.open.begin(), products.open.end(), adds);
        for (const ProductGroup& group : products.groups) {
            in_flight |= std::any_of(group.products.begin(), group.products.end(), adds);
        }
        if (in_flight) {
            report_access(Kind::kInFlight, Region::kElsewhere, 0, size, write, pc);
        }
    }
}

struct Kinds {
    bool read, write, atomic, aligned;
};
constexpr Kinds kRead{true, false, false, true}, kWrite{false, true, false, true};
constexpr Kinds kUnalignedRead{true, false, false, false},
    kUnalignedWrite{false, true, false, false};
constexpr Kinds kAtomicRead{true, false, true, true}, kAtomicWrite{false, true, true, true};
constexpr Kinds kAtomicUpdate{true, true, true, true};

inline void access(const void* address, uint32_t size, const Kinds& kinds, uint64_t pc) {
    const bool write = kinds.write;
    const auto* at = static_cast<const char*>(address);
    if (is_stack(at)) {
        if (!warp_products.empty()) {
            touch_registers(at, size, write, pc);
        }
        return;
    }
    ++exchange->num_accesses;
    const Region region = known_region(at);
    if (kinds.aligned && reinterpret_cast<uintptr_t>(at) % size != 0) {
        const Place place = place_of(at);
        report_access(Kind::kMisaligned, place.region, place.offset, size, write, pc);
        end_process(State::kAborted);  // so does a GPU
    }
    if (region == Region::kElsewhere) {
        access_elsewhere(at, size, write, pc);
        return;
    }
    Shadow& shadow = shadows[static_cast<int>(region)];
    const auto offset = static_cast<uint64_t>(at - shadow.begin);
    if (!current->waited && is_global(region)) {
        report_access(Kind::kBeforeWait, region, static_cast<int64_t>(offset), size, write, pc);
    }
    if (offset + size > shadow.bytes) {
        report_access(Kind::kOutOfBounds, region, static_cast<int64_t>(offset), size, write, pc);
    }
    trace(region, at, size, write, pc);
    const uint64_t end = offset + size < shadow.bytes ? offset + size : shadow.bytes;
    const uint64_t first_word = word_of(offset), end_word = word_of(end + exchange->word_bytes - 1);
    const Touch touch{region, pc, kinds.read, write, kinds.atomic};
    Toucher toucher{shadow, touch};
    for (uint64_t word = first_word; word < end_word; ++word) {
        const uint64_t index = index_of(shadow, word);
        if (index == kUnknown || (write && is_padding(shadow, index))) {
            report_access(Kind::kOutOfBounds, region, offset_of(word), exchange->word_bytes, write,
                          pc);
            if (index == kUnknown) {
                end_process(State::kAborted);
            }
            continue;
        }
        if (end_word - first_word == 1) {
            touch_word(shadow, index, touch);
        } else {
            toucher.touch(index);
        }
    }
}

extern "C" char __executable_start, etext, edata, end;

inline void access_elsewhere(const char* at, uint32_t size, bool write, uint64_t pc) {
    const Place place = place_of(at);
    if (place.region != Region::kElsewhere) {
        report_access(Kind::kOutOfBounds, place.region, place.offset, size, write, pc);
        return;
    }
    if (!write && at >= &__executable_start && at < &end) {
        return;  // a constant table of the kernel
    }
    // Nearest global buffer, so that the report can say how far off it is.
    int64_t distance = at - buffers[0].begin;
    uint32_t nearest = 0;
    for (uint32_t i = 1; i < exchange->num_buffers; ++i) {
        const int64_t other = at - buffers[i].begin;
        if (buffers[i].bytes > 0 &&
            (other < 0 ? -other : other) < (distance < 0 ? -distance : distance)) {
            distance = other;
            nearest = i;
        }
    }
    report_access(Kind::kOutOfBounds, static_cast<Region>(nearest), distance, size, write, pc);
    end_process(State::kAborted);
}

inline void set_shared_shadow(Shadow& shadow, char* begin, uint64_t bytes) {
    shadow.begin = begin;
    shadow.bytes = bytes;
    shadow.words.assign(word_of(bytes + exchange->word_bytes - 1), Word{});
    shadow.shared = true;
}

inline void shadow_begin_pass() {
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        const Buffer& buffer = buffers[i];
        Shadow& shadow = shadows[i];
        shadow.begin = buffer.begin;
        shadow.bytes = buffer.bytes;
        shadow.input = is_input(i);
        shadow.output = is_output(i);
        shadow.pitch = buffer.spec.pitch;
        shadow.columns = buffer.spec.columns;
        shadow.stride = buffer.spec.stride;
        shadow.rows = buffer.spec.rows;
        shadow.group_rows = buffer.spec.group_rows;
        if (buffer.spec.counts != 0) {
            const Buffer& of_groups = buffers[buffer.spec.counts];
            const int* counts = reinterpret_cast<const int*>(of_groups.begin);
            shadow.counts.assign(counts, counts + of_groups.bytes / sizeof(int));
        }
        const uint64_t num_words = buffer.spec.words;
        const auto readable = static_cast<uint8_t>(buffer.spec.readable != 0);
        if (shadow.input) {
            shadow.valid.assign(num_words, readable);
        } else {
            Word word{};
            word.valid = readable;
            shadow.words.assign(num_words, word);
        }
        for_each_padding(shadow, num_words, [&](uint64_t first, uint64_t end) {
            for (uint64_t i = first; i < end; ++i) {
                (shadow.input ? shadow.valid[i] : shadow.words[i].valid) = 0;
            }
        });
    }
}

inline void shadow_begin_launch() {
    begin_launch_of_fences();
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        shadows[i].floor = first_epoch_of_launch;
    }
    parked_shadows = std::vector<SharedShadows>(residents.size());
    remote_accesses.assign(residents.size(), {});
    for (uint32_t slot = 0; slot < residents.size(); ++slot) {
        set_shared_shadow(shared_shadow(slot, Region::kDynamicShared), smem.dynamic_begin,
                          smem.dynamic_bytes);
        set_shared_shadow(shared_shadow(slot, Region::kStaticShared), smem.static_begin,
                          smem.static_bytes);
    }
}

void shadow_begin_block() {
    for (const Region region : {Region::kDynamicShared, Region::kStaticShared}) {
        shared_shadow(block->slot, region).floor = block->first_epoch;
    }
}

inline void set_in_flight(const Copy& copy, bool in_flight, const Touch& touch) {
    const Region region = known_region(copy.shared);
    if (region != Region::kDynamicShared && region != Region::kStaticShared) {
        return;  // reported when it was issued
    }
    Shadow& shadow = shadows[static_cast<int>(region)];
    const uint64_t first = word_of(static_cast<uint64_t>(copy.shared - shadow.begin));
    for (uint64_t i = 0; i < word_of(static_cast<uint64_t>(copy.bytes)); ++i) {
        if (first + i < shadow.words.size()) {
            shadow.words[first + i].in_flight = in_flight;
            shadow.words[first + i].writer = this_access(touch);
        }
    }
}

// Copies that no thread waited for: the next block begins with none.
inline void forget_copies_of_block() {
    for (uint32_t i = 0; i < num_threads; ++i) {
        current = &threads[i];
        const Touch touch{Region::kElsewhere, 0, false, true, false};
        for (const auto& group : threads[i].groups) {
            for (const Copy& copy : group) {
                set_in_flight(copy, false, touch);
            }
        }
        for (const Copy& copy : threads[i].uncommitted) {
            set_in_flight(copy, false, touch);
        }
    }
}

// The copy may read its source and write its destination at any time from here to the wait.
void shadow_copy_issued(const Copy& copy, uint64_t pc) {
    const auto size = static_cast<uint32_t>(copy.bytes);
    const bool misaligned = reinterpret_cast<uintptr_t>(copy.global) % size != 0;
    if (misaligned) {
        const Place place = place_of(copy.global);
        report_access(Kind::kMisaligned, place.region, place.offset, size, false, pc);
        end_process(State::kAborted);
    }
    if (copy.valid_bytes > 0) {
        access(copy.global, static_cast<uint32_t>(copy.valid_bytes), kUnalignedRead, pc);
    }
    const Region to = place_of(copy.shared).region;
    const Region from = place_of(copy.global).region;
    const bool from_global = is_global(from) || copy.valid_bytes == 0;
    if ((to != Region::kDynamicShared && to != Region::kStaticShared) || !from_global) {
        report_here(Kind::kBadCopy, pc);
        end_process(State::kAborted);
    }
    access(copy.shared, size, kWrite, pc);
    set_in_flight(copy, true, {Region::kElsewhere, pc, false, true, false});
}

void shadow_copy_landed(const Copy& copy, uint64_t pc) {
    set_in_flight(copy, false, {Region::kElsewhere, pc, false, true, false});
}

// ldmatrix and stmatrix are for shared memory only.
void shadow_matrix_row(const void* row, bool write, uint64_t pc) {
    const Place place = place_of(row);
    if (place.region != Region::kDynamicShared && place.region != Region::kStaticShared) {
        report_access(Kind::kOutOfBounds, place.region, place.offset, 16, write, pc);
        end_process(State::kAborted);
    }
    access(row, 16, write ? kWrite : kRead, pc);
}

void shadow_atomic(void* address, uint64_t pc) {
    access(address, 4, kAtomicUpdate, pc);
    fences_at_atomic(address);
}

void shadow_relaxed(const void* address, bool write, uint64_t pc) {
    access(address, 4, write ? kAtomicWrite : kAtomicRead, pc);
    fences_at_atomic(address);
}

// A volatile access of global memory is a relaxed atomic; of shared memory it is one like any other.
inline void volatile_access(const void* address, uint32_t size, bool write, uint64_t pc) {
    if (is_shared(address) || is_stack(static_cast<const char*>(address))) {
        access(address, size, write ? kWrite : kRead, pc);
        return;
    }
    note_counter(address);
    let_others_run();
    access(address, size, write ? kAtomicWrite : kAtomicRead, pc);
    fences_at_atomic(address);
}

// Reports what is left of a result that has no writer.
inline void report_never_written(uint32_t region) {
    const Shadow& result = shadows[region];
    Finding finding{};
    finding.kind = static_cast<uint32_t>(Kind::kNeverWritten);
    finding.region = region;
    finding.size = exchange->word_bytes;
    for (uint64_t i = 0; i < result.words.size(); ++i) {
        if (result.words[i].writer.thread == 0 && !is_padding(result, i)) {
            finding.offset = finding.count == 0 ? offset_of_index(result, i) : finding.offset;
            ++finding.count;
        }
    }
    if (finding.count > 0) {
        report(finding);
    }
}

inline void shadow_end_pass() {
    report_never_written(static_cast<uint32_t>(Region::kC));
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        if (is_output(i)) {
            report_never_written(i);
        }
    }
}

}  // namespace autogemm_emulator

// Check mode: what is known of every word of memory, and the hooks that see every access.
//
// The kernel is compiled with -fsanitize=thread, which puts a call before each access, but is linked
// against these functions instead of the sanitizer's own. Races are found by happens-before, not by
// timing: two accesses, one of them a write, by two threads with no barrier between them are a race
// in whatever order the scheduler ran them (vector clocks per warp, epochs per block; the last writer
// and two readers per word, after Flanagan and Freund, FastTrack, PLDI 2009).
#pragma once

#include <vector>

#include "fences.h"

namespace autogemm_emulator {

struct Access {
    uint32_t thread;  // (block + 1) * 1024 + thread; 0: none. The top bit marks an atomic
    uint32_t epoch;
    uint32_t clock;
    uint32_t pc;
};
constexpr uint32_t kAtomicBit = 0x80000000;

struct Word {
    Access writer;
    Access readers[2];
    uint8_t valid;
    uint8_t in_flight;
};

struct Shadow {
    char* begin;
    uint64_t bytes;
    std::vector<Word> words;
    uint32_t columns, stride;  // words; stride 0: no rows
    bool input, shared;
};
inline Shadow shadows[7];  // by Region

inline uint32_t own_number() {
    return ((block_number + 1) << 10) + current->index;
}

inline bool is_ordered(const Access& before, uint32_t floor_epoch, bool atomic) {
    const uint32_t thread = before.thread & ~kAtomicBit;
    if (thread == 0 || before.epoch < floor_epoch || thread == own_number()) {
        return true;
    }
    if (atomic && (before.thread & kAtomicBit)) {
        return true;
    }
    if (thread >> 10 != block_number + 1) {
        return is_received((thread >> 10) - 1, thread & 1023, before.epoch, before.clock);
    }
    if (before.epoch < epoch) {
        return true;  // a barrier lies between
    }
    const uint32_t index = thread & 1023;
    if (index / 32 == current->index / 32 && current->seen[index % 32] >= before.clock) {
        return true;
    }
    return is_received(block_number, index, before.epoch, before.clock);
}

inline void report_access(Kind kind, Region region, int64_t offset, uint32_t size, bool write,
                          uint64_t pc, const Access* other = nullptr) {
    Finding finding{};
    finding.kind = static_cast<uint32_t>(kind);
    finding.region = static_cast<uint32_t>(region);
    finding.pc = pc;
    finding.offset = offset;
    finding.size = size;
    finding.write = write;
    finding.block = block_number;
    finding.thread = current->index;
    finding.count = 1;
    if (other != nullptr) {
        finding.other_pc = other->pc;
        finding.other_block = ((other->thread & ~kAtomicBit) >> 10) - 1;
        finding.other_thread = other->thread & 1023;
    }
    report(finding);
}

struct Touch {
    Region region;
    uint64_t pc;
    bool read, write, atomic;
};

inline Access this_access(const Touch& touch) {
    return {own_number() | (touch.atomic ? kAtomicBit : 0), epoch, current->clock,
            static_cast<uint32_t>(touch.pc)};
}

inline void note_reader(Word& word, const Access& access) {
    if (word.readers[0].thread != access.thread) {
        const bool same_warp = word.readers[0].thread >> 5 == access.thread >> 5;
        if (!same_warp || word.readers[1].epoch < access.epoch) {
            word.readers[1] = word.readers[0];
        }
    }
    word.readers[0] = access;
}

// Whether who stores now has seen the store that it replaces: read it by an atomic, then a fence. What
// the storing thread's own last fence published has then been received.
inline bool has_seen(const Word& word, uint32_t floor) {
    const Access& writer = word.writer;
    const uint32_t thread = writer.thread & ~kAtomicBit;
    if (thread == writer.thread || writer.clock < 2 ||
        !is_received((thread >> 10) - 1, thread & 1023, writer.epoch, writer.clock - 1)) {
        return false;
    }
    const auto by_atomic = [&](const Access& reader) {
        return (reader.thread & kAtomicBit) != 0 && is_ordered(reader, floor, false);
    };
    return by_atomic(word.readers[0]) || by_atomic(word.readers[1]);
}

inline void touch_word(Shadow& shadow, uint64_t index, const Touch& touch) {
    Word& word = shadow.words[index];
    const auto offset = static_cast<int64_t>(4 * index);
    auto complain = [&](Kind kind, const Access* other = nullptr) {
        report_access(kind, touch.region, offset, 4, touch.write, touch.pc, other);
    };
    if (shadow.input) {
        if (touch.write) {
            complain(Kind::kInputWritten);
        } else if (!word.valid) {
            complain(Kind::kUninitialised);
        }
        return;
    }
    const uint32_t floor = shadow.shared ? first_epoch_of_block : first_epoch_of_launch;
    const bool written =
        word.writer.thread != 0 && (!shadow.shared || word.writer.epoch >= first_epoch_of_block);
    if (word.in_flight) {
        complain(Kind::kInFlight, &word.writer);
        return;
    }
    // A store never goes with another store, even where both are volatile: one of them is lost.
    const bool may_overlap = touch.atomic && touch.read;
    if (!is_ordered(word.writer, floor, may_overlap) && !(touch.write && has_seen(word, floor))) {
        complain(Kind::kRace, &word.writer);
    }
    if (touch.read && !written && !word.valid) {
        // The workspace begins as zeros, which only counters may rely on.
        const bool counter = touch.atomic && touch.region == Region::kWorkspace;
        if (!counter) {
            const bool of_c = touch.region == Region::kC && exchange->beta == 0.0f;
            complain(of_c ? Kind::kReadOfC : Kind::kUninitialised);
        }
    }
    if (!touch.write) {
        note_reader(word, this_access(touch));
        return;
    }
    for (const Access& reader : word.readers) {
        if (!is_ordered(reader, floor, touch.atomic)) {
            complain(Kind::kRace, &reader);
            break;
        }
    }
    word.writer = this_access(touch);
    word.readers[0] = word.readers[1] = {};
}

// The region of an address whose words are known, or kElsewhere.
inline Region known_region(const char* at) {
    for (int i = 0; i < 6; ++i) {
        if (at >= shadows[i].begin && at < shadows[i].begin + shadows[i].bytes) {
            return static_cast<Region>(i);
        }
    }
    return Region::kElsewhere;
}

}  // namespace autogemm_emulator

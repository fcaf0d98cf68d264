// Check mode: what is known of every word of memory, and the hooks that see every access.
//
// The kernel is compiled with -fsanitize=thread, which puts a call before each access, but is linked
// against these functions instead of the sanitizer's own. Races are found by happens-before, not by
// timing: two accesses, one of them a write, by two threads with no barrier between them are a race
// in whatever order the scheduler ran them (epochs per block, vector clocks for all else; the last writer
// and two readers per word, after Flanagan and Freund, FastTrack, PLDI 2009).
#pragma once

#include <vector>

#include "fences.h"

namespace autogemm_emulator {

struct Access {
    uint32_t thread;  // (block + 1) * 2048 + thread; 0: none. The top bit marks an atomic
    uint32_t epoch;
    uint32_t clock;
    uint32_t pc;
};
constexpr uint32_t kAtomicBit = 0x80000000;
constexpr uint32_t kThreadBits = 11;  // threads, and behind them mbarriers
constexpr uint32_t kThreadMask = (1u << kThreadBits) - 1;

struct Word {
    Access writer;
    Access readers[2];
    uint8_t loaders;  // bits of those readers that are loads; products and tiles on their way out are none
    uint8_t valid;
    uint8_t in_flight;
    uint8_t is_mbarrier;
    uint16_t being_read;  // by tiles on their way out, by products of warpgroups
};

// Memory in large pages, if the system has them: there are megabytes of words, and to be given their
// small pages one by one takes longer than to fill them.
template <class T>
struct InLargePages {
    using value_type = T;
    static constexpr size_t kLargePage = 2 << 20;

    InLargePages() = default;
    template <class Other>
    InLargePages(const InLargePages<Other>&) {}

    T* allocate(size_t count) {
        const size_t bytes = round_up(count * sizeof(T), kLargePage);
        if (bytes < 2 * kLargePage) {
            return static_cast<T*>(checked(malloc(count * sizeof(T))));
        }
        void* const made = checked(aligned_alloc(kLargePage, bytes));
        madvise(made, bytes, MADV_HUGEPAGE);
        return static_cast<T*>(made);
    }
    void deallocate(T* made, size_t) {
        free(made);
    }
    bool operator==(const InLargePages&) const {
        return true;
    }

  private:
    static void* checked(void* made) {
        if (made == nullptr) {
            abort();
        }
        return made;
    }
};
using Words = std::vector<Word, InLargePages<Word>>;

struct Shadow {
    char* begin;
    uint64_t bytes;
    Words words;                 // none of an input
    std::vector<uint8_t> valid;  // of an input: whether there is something to read in each word
    uint64_t pitch;            // words from row to row in memory
    uint32_t columns, stride;  // words, those that are known of a row; stride 0: no rows
    uint32_t rows, group_rows;  // valid rows of each group of a batch; 0: all are
    std::vector<int> counts;    // valid rows of each group, where they differ
    uint32_t floor;            // accesses of earlier epochs are ordered
    bool input, shared;
    bool output;               // a second output, of which each element is written once
};
// Memory is looked at in words of 1, 2 or 4 bytes.
inline uint64_t word_of(uint64_t offset) {
    return offset >> exchange->word_bytes / 2;
}
inline int64_t offset_of(uint64_t word) {
    return static_cast<int64_t>(word * exchange->word_bytes);
}

// Where a word of memory is among those that are known of a region, or kUnknown: between far rows.
constexpr uint64_t kUnknown = UINT64_MAX;
inline uint64_t index_of(const Shadow& shadow, uint64_t word) {
    if (shadow.pitch <= shadow.stride) {
        return word;
    }
    const uint64_t column = word % shadow.pitch;
    return column < shadow.stride ? word / shadow.pitch * shadow.stride + column : kUnknown;
}
// Whether a row lies behind the valid ones of its matrix of a batch.
inline bool is_padding_row(const Shadow& shadow, uint64_t row) {
    if (shadow.group_rows == 0) {
        return false;
    }
    const uint64_t group = row / shadow.group_rows;
    const bool differs = group < shadow.counts.size();
    return row % shadow.group_rows >=
           (differs ? static_cast<uint32_t>(shadow.counts[group]) : shadow.rows);
}
// Whether a known word lies between rows, or between the matrices of a batch.
inline bool is_padding(const Shadow& shadow, uint64_t index) {
    return shadow.stride != 0 && (index % shadow.stride >= shadow.columns ||
                                  is_padding_row(shadow, index / shadow.stride));
}
// Calls visit(first word, end) for all padding.
template <class Visit>
inline void for_each_padding(const Shadow& shadow, uint64_t num_words, Visit&& visit) {
    for (uint64_t row = 0, begin = 0; shadow.stride != 0 && begin < num_words; ++row) {
        const uint64_t end = std::min(begin + shadow.stride, num_words);
        visit(std::min(is_padding_row(shadow, row) ? begin : begin + shadow.columns, end), end);
        begin = end;
    }
}
inline int64_t offset_of_index(const Shadow& shadow, uint64_t index) {
    if (shadow.pitch <= shadow.stride) {
        return offset_of(index);
    }
    return offset_of(index / shadow.stride * shadow.pitch + index % shadow.stride);
}

inline Shadow shadows[kNumRegions];  // by Region; shared memory of the block that runs
struct SharedShadows {
    Shadow of[2];  // dynamic, static
};
inline std::vector<SharedShadows> parked_shadows;  // of the others, by slot

inline Shadow& shared_shadow(uint32_t slot, Region region) {
    const auto i = static_cast<uint32_t>(region);
    const auto first = static_cast<uint32_t>(Region::kDynamicShared);
    return slot == block->slot ? shadows[i] : parked_shadows[slot].of[i - first];
}

inline uint32_t own_number() {
    return ((block_number + 1) << kThreadBits) + current->index;
}

// `was_read`: it was a read, after which a relaxed arrival is enough.
inline bool is_ordered(const Access& before, uint32_t floor_epoch, bool atomic,
                       bool was_read = false) {
    const uint32_t thread = before.thread & ~kAtomicBit;
    if (thread == 0 || before.epoch < floor_epoch || thread == own_number()) {
        return true;
    }
    if (atomic && (before.thread & kAtomicBit)) {
        return true;
    }
    const uint32_t of_block = (thread >> kThreadBits) - 1, index = thread & kThreadMask;
    if (of_block != block_number) {
        return is_received(of_block, index, before.epoch, before.clock, was_read);
    }
    if (before.epoch < epoch && index < num_threads) {
        return true;  // a barrier lies between
    }
    return current->seen[index] >= before.clock ||
           ((current->from_cluster || was_read) &&
            is_received(of_block, index, before.epoch, before.clock, was_read));
}

inline void report_access(Kind kind, Region region, int64_t offset, uint32_t size, bool write,
                          uint64_t pc, const Access* other = nullptr, uint32_t owner = 0) {
    Finding finding{};
    finding.kind = static_cast<uint32_t>(kind);
    finding.region = static_cast<uint32_t>(region);
    finding.pc = pc;
    finding.offset = offset;
    finding.size = size;
    finding.write = write;
    finding.block = block_number;
    finding.thread = current->index;
    finding.owner = owner;
    finding.count = 1;
    if (other != nullptr) {
        finding.other_pc = other->pc;
        finding.other_block = ((other->thread & ~kAtomicBit) >> kThreadBits) - 1;
        finding.other_thread = other->thread & kThreadMask;
    }
    report(finding);
}

struct Touch {
    Region region;
    uint64_t pc;
    bool read, write, atomic;
    uint32_t owner = 0;  // as in Finding
    bool by_proxy = false;  // by a product or a tile on its way out
};

inline Access this_access(const Touch& touch) {
    return {own_number() | (touch.atomic ? kAtomicBit : 0), epoch, current->clock,
            static_cast<uint32_t>(touch.pc)};
}

inline void note_reader(Word& word, const Access& access, bool by_proxy) {
    if (word.readers[0].thread != access.thread) {
        const bool same_warp = word.readers[0].thread >> 5 == access.thread >> 5;
        if (!same_warp || word.readers[1].epoch < access.epoch) {
            word.readers[1] = word.readers[0];
            word.loaders = static_cast<uint8_t>(word.loaders << 1 & 2);
        }
    }
    word.readers[0] = access;
    word.loaders = static_cast<uint8_t>((word.loaders & 2) | (by_proxy ? 0 : 1));
}

// Whether who stores now has seen the store that it replaces: read it by an atomic, then a fence. What
// the storing thread's own last fence published has then been received.
inline bool has_seen(const Word& word, uint32_t floor) {
    const Access& writer = word.writer;
    const uint32_t thread = writer.thread & ~kAtomicBit;
    if (thread == writer.thread || writer.clock < 2 ||
        !is_received((thread >> kThreadBits) - 1, thread & kThreadMask, writer.epoch,
                     writer.clock - 1)) {
        return false;
    }
    const auto by_atomic = [&](const Access& reader) {
        return (reader.thread & kAtomicBit) != 0 && is_ordered(reader, floor, false);
    };
    return by_atomic(word.readers[0]) || by_atomic(word.readers[1]);
}

inline bool is_written(const Shadow& shadow, const Word& word) {
    return word.writer.thread != 0 && (!shadow.shared || word.writer.epoch >= shadow.floor);
}

// Whether two accesses are ordered alike with all others.
inline bool is_same_event(const Access& one, const Access& other) {
    return one.thread == other.thread && one.epoch == other.epoch && one.clock == other.clock;
}

// Whether what is known of two words of a region is the same to one who reads them, or writes to them.
inline bool is_alike(const Word& one, const Word& other, bool write) {
    if (!is_same_event(one.writer, other.writer) || one.valid != other.valid ||
        one.in_flight != other.in_flight || one.is_mbarrier != other.is_mbarrier) {
        return false;
    }
    return !write || (is_same_event(one.readers[0], other.readers[0]) &&
                      is_same_event(one.readers[1], other.readers[1]) &&
                      one.loaders == other.loaders && one.being_read == other.being_read);
}

inline void note_access(Word& word, const Touch& touch, const Access& access) {
    if (!touch.write) {
        note_reader(word, access, touch.by_proxy);
        return;
    }
    word.writer = access;
    word.readers[0] = word.readers[1] = {};
    word.loaders = 0;
}

inline void touch_word(Shadow& shadow, uint64_t index, const Touch& touch) {
    const auto complain = [&](Kind kind, const Access* other = nullptr) {
        report_access(kind, touch.region, offset_of_index(shadow, index), exchange->word_bytes,
                      touch.write, touch.pc, other, touch.owner);
    };
    if (shadow.input) {
        if (touch.write) {
            complain(Kind::kInputWritten);
        } else if (!shadow.valid[index]) {
            complain(Kind::kUninitialised);
        }
        return;
    }
    Word& word = shadow.words[index];
    const uint32_t floor = shadow.floor;
    const bool written = is_written(shadow, word);
    if (word.is_mbarrier) {
        report_access(Kind::kBadBarrier, touch.region, offset_of_index(shadow, index),
                      static_cast<uint32_t>(Misuse::kAsData), touch.write, touch.pc);
        return;
    }
    if (word.in_flight) {
        complain(Kind::kInFlight, &word.writer);
        return;
    }
    if (touch.write && word.being_read > 0) {
        complain(Kind::kInFlight, &word.readers[0]);
        return;
    }
    // A store never goes with another store, even where both are volatile: one of them is lost.
    const bool may_overlap = touch.atomic && touch.read;
    // Data of a bulk copy was complete for threads that waited for it.
    const bool was_brought = touch.write && (word.writer.thread & kThreadMask) >= num_threads;
    if (!is_ordered(word.writer, floor, may_overlap, was_brought) &&
        !(touch.write && has_seen(word, floor))) {
        complain(Kind::kRace, &word.writer);
    }
    if (touch.read && !written && !word.valid) {
        // The workspace begins as zeros, which only counters may rely on.
        const bool counter = touch.atomic && touch.region == Region::kWorkspace;
        if (!counter) {
            const bool of_c = touch.region == Region::kC && !buffers[2].spec.readable;
            complain(of_c ? Kind::kReadOfC : Kind::kUninitialised);
        }
    }
    if (touch.write) {
        for (const Access& reader : word.readers) {
            if (!is_ordered(reader, floor, touch.atomic, true)) {
                complain(Kind::kRace, &reader);
                break;
            }
        }
        if (shadow.output && written) {
            complain(Kind::kWrittenTwice, &word.writer);
        }
    }
    note_access(word, touch, this_access(touch));
}

// Touches words of one region for one access. Neighbours are mostly alike: what is right for one word is
// right for all that are like it, as nothing is learned meanwhile.
class Toucher {
  public:
    Toucher(Shadow& shadow, const Touch& touch)
        : shadow_(shadow), touch_(touch), access_(this_access(touch)) {}

    // Calls check(word) before it touches a word that is not like one that was found right.
    template <class Check>
    void touch(uint64_t index, Check&& check) {
        if (shadow_.input) {
            touch_word(shadow_, index, touch_);
            return;
        }
        Word& word = shadow_.words[index];
        if (has_right_ && is_alike(word, right_, touch_.write)) {
            note_access(word, touch_, access_);
            return;
        }
        right_ = word;
        const uint64_t reports_before = num_reports;
        check(word);
        touch_word(shadow_, index, touch_);
        has_right_ = num_reports == reports_before;
    }
    void touch(uint64_t index) {
        touch(index, [](const Word&) {});
    }

  private:
    Shadow& shadow_;
    const Touch touch_;
    const Access access_;
    Word right_;
    bool has_right_ = false;
};

// The region of an address whose words are known, or kElsewhere.
inline Region known_region(const char* at) {
    const auto holds = [&](Region region) {
        const Shadow& shadow = shadows[static_cast<int>(region)];
        return at >= shadow.begin && at < shadow.begin + shadow.bytes;
    };
    for (const Region region : {Region::kDynamicShared, Region::kStaticShared}) {
        if (holds(region)) {
            return region;
        }
    }
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        if (holds(static_cast<Region>(i))) {
            return static_cast<Region>(i);
        }
    }
    return Region::kElsewhere;
}

}  // namespace autogemm_emulator

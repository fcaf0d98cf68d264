// Where everything lies: the exchange file, the arena of global buffers, shared memory; and what was
// found. The arena keeps a zone before, between and behind the buffers, so that an access out of
// bounds reads NaN or writes where it does no harm, and can be reported instead of suffered.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "protocol.h"

extern "C" {
// link.S
extern thread_local char autogemm_zone_begin[];
extern thread_local char autogemm_static_begin[];
extern thread_local char autogemm_static_end[];
extern thread_local char autogemm_dynamic_begin[];
extern thread_local char autogemm_zone_end[];
}

namespace autogemm_emulator {

constexpr uint64_t kZoneBytes = 1 << 20;
constexpr uint64_t kCanaryBytes = 1 << 14;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kFarZoneBytes = 1024;  // around each row that is far from the next
constexpr uint32_t kPoison = 0xffffffff;  // a NaN

inline Exchange* exchange;
inline uint32_t pass;  // 0, or 1 where all launches run once more on the same workspace

inline char* file_at(uint64_t offset) {
    return reinterpret_cast<char*>(exchange) + offset;
}

// Rows lie in the exchange file as close as they may, and in memory a pitch apart: gigabytes where an
// index of 32 bits has to overflow. Nothing is between far rows but reserved addresses.
struct Buffer {
    BufferSpec spec;
    char* begin;
    uint64_t bytes;  // from the first element to the last

    bool has_far_rows() const {
        return spec.pitch > spec.stride;
    }
    // Calls visit(in memory, in the file, bytes) for all of it, or for each row where rows are far.
    template <class Visit>
    void for_each_part(Visit&& visit) const {
        const uint64_t part = has_far_rows() ? spec.stride : spec.words;
        for (uint64_t word = 0, row = 0; word < spec.words; word += part, ++row) {
            visit(begin + row * spec.pitch * exchange->word_bytes,
                  file_at(spec.offset + word * exchange->word_bytes),
                  std::min(part, spec.words - word) * exchange->word_bytes);
        }
    }
};
inline Buffer buffers[kMaxBuffers];  // by Region; the first num_buffers of the exchange are there
inline char* arena;
inline uint64_t arena_bytes;

struct SharedMemory {
    char* static_begin;
    uint64_t static_bytes;
    char* dynamic_begin;
    uint64_t dynamic_bytes;  // of the launch that runs
    char* zone_begin;
    char* zone_end;
};
inline SharedMemory smem;

inline uint64_t round_up(uint64_t value, uint64_t to) {
    return (value + to - 1) / to * to;
}

inline void fill_poison(char* begin, uint64_t bytes) {
    memset(begin, 0xff, bytes);
}

inline uint64_t extent_of(const BufferSpec& spec) {
    const uint64_t num_gaps = spec.pitch > spec.stride ? (spec.words - 1) / spec.stride : 0;
    return exchange->word_bytes * (spec.words + num_gaps * (spec.pitch - spec.stride));
}

// Makes whole pages of the arena usable, from an address to another.
inline bool open_pages(char* begin, char* end) {
    char* const first = arena + (begin - arena) / kPageBytes * kPageBytes;
    const auto bytes = round_up(static_cast<uint64_t>(end - first), kPageBytes);
    return mprotect(first, bytes, PROT_READ | PROT_WRITE) == 0;
}

// Whether there was room for all.
inline bool lay_out_buffers() {
    uint64_t offset = kZoneBytes;
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        buffers[i].spec = exchange->buffers[i];
        buffers[i].bytes = extent_of(buffers[i].spec);
        offset = round_up(offset + buffers[i].bytes + 256 + kZoneBytes, kPageBytes);
    }
    arena_bytes = offset;
    // Reserved, which costs neither memory nor a share of what the system has promised.
    void* const reserved = mmap(nullptr, arena_bytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        return false;
    }
    arena = static_cast<char*>(reserved);
    madvise(arena, arena_bytes, MADV_NOHUGEPAGE);
    bool is_open = true;
    offset = kZoneBytes;
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        Buffer& buffer = buffers[i];
        buffer.begin = arena + offset + buffer.spec.misalign;
        char* const end = buffer.begin + buffer.bytes;
        offset = round_up(offset + buffer.bytes + 256 + kZoneBytes, kPageBytes);
        char* const zone_begin = i == 0 ? arena : buffer.begin - kZoneBytes;
        if (buffer.has_far_rows()) {
            is_open &= open_pages(zone_begin, buffer.begin) && open_pages(end, arena + offset);
        } else {
            is_open &= open_pages(zone_begin, arena + offset);
        }
        buffer.for_each_part([&](char* at, const char* from, uint64_t bytes) {
            is_open = is_open && open_pages(at - kFarZoneBytes, at + bytes + kFarZoneBytes);
            if (is_open) {
                fill_poison(at - kFarZoneBytes, kFarZoneBytes + bytes + kFarZoneBytes);
                memcpy(at, from, bytes);
            }
        });
        if (is_open) {
            fill_poison(buffer.begin - kCanaryBytes, kCanaryBytes);
            fill_poison(end, kCanaryBytes);
        }
    }
    return is_open;
}

// Counters of the workspace, 4 bytes each, that an atomic touched: the first finds zero there, and each
// launch must leave zero for the next.
inline std::vector<bool> counters;

inline void note_counter(const void* address) {
    const Buffer& workspace = buffers[static_cast<int>(Region::kWorkspace)];
    const auto* at = static_cast<const char*>(address);
    if (at >= workspace.begin && at < workspace.begin + workspace.bytes) {
        counters.resize(workspace.bytes / 4);
        counters[static_cast<uint64_t>(at - workspace.begin) / 4] = true;
    }
}

// Whether it is a second output: an array beside the matrices whose contents do not count.
inline bool is_output(uint32_t region) {
    return region >= static_cast<uint32_t>(Region::kExtra) && region < exchange->num_buffers &&
           buffers[region].spec.readable == 0;
}

// C and a second output as they were given, and a workspace of which only the counters are what the pass before left.
inline void prepare_next_pass() {
    const Buffer& c = buffers[static_cast<int>(Region::kC)];
    c.for_each_part([&](char* at, const char* from, uint64_t bytes) {
        memcpy(file_at(exchange->first_c_offset) + (from - file_at(c.spec.offset)), at, bytes);
        memcpy(at, from, bytes);
    });
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        if (is_output(i)) {
            buffers[i].for_each_part(
                [](char* at, const char* from, uint64_t bytes) { memcpy(at, from, bytes); });
        }
    }
    const Buffer& workspace = buffers[static_cast<int>(Region::kWorkspace)];
    counters.resize(workspace.bytes / 4);
    for (uint64_t i = 0; i < counters.size(); ++i) {
        if (!counters[i]) {
            memcpy(workspace.begin + 4 * i, &kPoison, 4);
        }
    }
}

inline void lay_out_shared() {
    smem.static_begin = autogemm_static_begin;
    smem.static_bytes = static_cast<uint64_t>(autogemm_static_end - autogemm_static_begin);
    smem.dynamic_begin = autogemm_dynamic_begin;
    smem.zone_begin = autogemm_zone_begin;
    smem.zone_end = autogemm_zone_end;
    exchange->static_smem_bytes = smem.static_bytes;
    fill_poison(smem.zone_begin, static_cast<uint64_t>(smem.zone_end - smem.zone_begin));
}

inline void copy_results_out() {
    for (const Buffer& buffer : buffers) {
        if (buffer.begin != nullptr) {
            buffer.for_each_part(
                [](const char* at, char* to, uint64_t bytes) { memcpy(to, at, bytes); });
        }
    }
}

// Implemented by counts.cpp, where lines are counted. Returns the bytes that there are.
extern "C" uint64_t autogemm_counts(char* to, uint64_t capacity) __attribute__((weak));

[[noreturn]] inline void end_process(State state) {
    copy_results_out();
    if (exchange->counts_capacity > 0 && autogemm_counts != nullptr) {
        exchange->num_counts =
            autogemm_counts(file_at(exchange->counts_offset), exchange->counts_capacity);
    }
    exchange->state = static_cast<uint32_t>(state);
    _exit(0);
}

// Whether kernels only read it: A, B, and arrays of a family's own.
inline bool is_input(uint32_t region) {
    return region < static_cast<uint32_t>(Region::kC) ||
           (region >= static_cast<uint32_t>(Region::kExtra) && region < kMaxBuffers &&
            !is_output(region));
}

inline bool is_global(Region region) {
    return region < Region::kDynamicShared;
}

inline bool is_shared(const void* address) {
    const auto* at = static_cast<const char*>(address);
    return at >= smem.zone_begin && at < smem.zone_end;
}

// The region an address belongs to, or is nearest to. A zone belongs to the nearer neighbour.
struct Place {
    Region region;
    int64_t offset;
};

inline Place place_of(const void* address) {
    const auto* at = static_cast<const char*>(address);
    if (at >= smem.zone_begin && at < smem.zone_end) {
        const int64_t in_static = at - smem.static_begin;
        const bool is_static = in_static < static_cast<int64_t>(smem.static_bytes);
        if (is_static && (smem.static_bytes > 0 || in_static < 0)) {
            return {smem.static_bytes > 0 ? Region::kStaticShared : Region::kDynamicShared,
                    smem.static_bytes > 0 ? in_static : at - smem.dynamic_begin};
        }
        return {Region::kDynamicShared, at - smem.dynamic_begin};
    }
    if (at < arena || at >= arena + arena_bytes) {
        return {Region::kElsewhere, 0};
    }
    uint32_t nearest = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < exchange->num_buffers; ++i) {
        const Buffer& buffer = buffers[i];
        const char* end = buffer.begin + buffer.bytes;
        const int64_t distance = at < buffer.begin ? buffer.begin - at : at >= end ? at - end : 0;
        if (buffer.bytes > 0 && static_cast<uint64_t>(distance) < least) {
            least = static_cast<uint64_t>(distance);
            nearest = i;
        }
    }
    return {static_cast<Region>(nearest), at - buffers[nearest].begin};
}

inline uint64_t num_reports;

// Counts a finding. The first of its kind at this line and region is kept with all it says.
inline void report(const Finding& finding) {
    ++num_reports;
    for (uint32_t i = 0; i < exchange->num_findings; ++i) {
        Finding& known = exchange->findings[i];
        if (known.kind == finding.kind && known.pc == finding.pc &&
            known.region == finding.region) {
            known.count += finding.count;
            return;
        }
    }
    if (exchange->num_findings == kMaxFindings) {
        ++exchange->findings_lost;
        return;
    }
    exchange->findings[exchange->num_findings] = finding;
    exchange->findings[exchange->num_findings++].pass = pass;
}

}  // namespace autogemm_emulator

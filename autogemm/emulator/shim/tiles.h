// Tiles that the tensor memory accelerator (TMA) moves between a matrix and shared memory.
//
// Chunks of 16 bytes of a tile's row change places in shared memory by the map's swizzle: the number of
// the 128-byte line that an address is in, modulo 8, 4 or 2, is xored into the chunk's number. The pattern
// is one of addresses, so that a tile has to begin where the pattern does.
#pragma once

#include "mbarriers.h"

namespace autogemm_emulator {

inline const TensorMapSpec& spec_of(const ::TensorMap& map) {
    return exchange->tensor_maps[map.words[0]];
}

inline TensorElement element_of(const TensorMapSpec& map) {
    return static_cast<TensorElement>(map.element);
}

inline uint32_t element_bytes(const TensorMapSpec& map) {
    return bytes_of(element_of(map));
}

inline uint32_t tile_bytes(const TensorMapSpec& map) {
    return element_bytes(map) * map.box_columns * map.box_rows;
}

inline char* swizzled(char* at, uint32_t swizzle_bytes) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    const uintptr_t chunks = swizzle_bytes / 16;  // of a row
    const uintptr_t turned = chunks == 0 ? 0 : (address >> 7 & (chunks - 1)) << 4;
    return reinterpret_cast<char*>(address ^ turned);
}

// To nearest, as TMA makes TF32 numbers of FP32 ones.
inline void round_to_tf32(char* at) {
    uint32_t bits;
    memcpy(&bits, at, 4);
    if ((bits & 0x7f800000u) != 0x7f800000u) {
        bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
        memcpy(at, &bits, 4);
    }
}

// Calls visit(first byte in the matrix, bytes, offset in the tile) for the part of each row of a tile
// that lies in the matrix; where the tile is written, also for the rest of the last 16 bytes, which
// the GPU writes with them.
template <class Visit>
inline void for_each_row(const Tile& tile, bool is_written, Visit&& visit) {
    const TensorMapSpec& map = *tile.map;
    const int64_t size = element_bytes(map);
    const int64_t first = std::max<int64_t>(tile.column, 0);
    const int64_t piece = is_written ? 16 / size : 1;
    const int64_t columns = (map.columns + piece - 1) / piece * piece;
    const int64_t end = std::min<int64_t>(int64_t{tile.column} + map.box_columns, columns);
    char* const base = buffers[map.region].begin + map.offset_bytes +
                       tile.matrix * static_cast<int64_t>(map.matrix_bytes);
    const bool is_there = tile.matrix >= 0 && tile.matrix < static_cast<int64_t>(map.matrices);
    const int64_t end_row = std::min<int64_t>(tile.end, map.rows);
    for (int64_t i = 0; i < map.box_rows && first < end && is_there; ++i) {
        const int64_t row = tile.row + i;
        if (row >= 0 && row < end_row) {
            visit(base + row * static_cast<int64_t>(map.ld_bytes) + first * size,
                  static_cast<uint32_t>((end - first) * size),
                  static_cast<uint32_t>((i * map.box_columns + first - tile.column) * size));
        }
    }
}

// Calls visit(offset, bytes) for all parts of a tile from an offset on that lie in 16 bytes of their own.
template <class Visit>
inline void for_each_piece(const char* tile, uint32_t offset, uint32_t bytes, Visit&& visit) {
    const uint32_t end = offset + bytes;
    while (offset < end) {
        const auto left = static_cast<uint32_t>(16 - reinterpret_cast<uintptr_t>(tile + offset) % 16);
        const uint32_t size = std::min(left, end - offset);
        visit(offset, size);
        offset += size;
    }
}

// Zero outside the matrix. The pattern of addresses is that of the owner's shared memory in its place.
void load_tile(const Tile& tile, Block& owner, char* shared) {
    const TensorMapSpec& map = *tile.map;
    // A swizzle moves 16 bytes as a whole.
    const auto in_place = [&](uint32_t offset) {
        return static_cast<char*>(
            shared_memory_of(owner, swizzled(shared + offset, map.swizzle_bytes)));
    };
    for_each_piece(shared, 0, tile_bytes(map), [&](uint32_t offset, uint32_t size) {
        memset(in_place(offset), 0, size);
    });
    for_each_row(tile, false, [&](const char* from, uint32_t bytes, uint32_t offset) {
        for_each_piece(shared, offset, bytes, [&](uint32_t at, uint32_t size) {
            char* const to = in_place(at);
            memcpy(to, from + (at - offset), size);
            for (uint32_t i = 0; element_of(map) == TensorElement::kTf32 && i < size; i += 4) {
                round_to_tf32(to + i);
            }
        });
    });
}

inline void store_tile(const TileStore& store) {
    for_each_row(store.tile, true, [&](char* to, uint32_t bytes, uint32_t offset) {
        for_each_piece(store.shared, offset, bytes, [&](uint32_t at, uint32_t size) {
            memcpy(to + (at - offset),
                   swizzled(store.shared + at, store.tile.map->swizzle_bytes), size);
        });
    });
}

// An instruction has as many coordinates as the map has dimensions.
inline Tile tile_of(const ::MatrixMap& map, int column, int row, uint64_t pc) {
    const TensorMapSpec& spec = spec_of(*map.map);
    if (spec.divided) {
        report_here(Kind::kBadCopy, pc);
    }
    return {&spec, column, row, map.matrix};
}

inline Tile tile_of(const ::GroupMap& map, int column, int row, uint64_t pc) {
    const TensorMapSpec& spec = spec_of(*map.map);
    if (!spec.divided || map.end < 0 || map.end > static_cast<int64_t>(spec.rows)) {
        report_here(Kind::kBadCopy, pc);
    }
    return {&spec, column, row, 0, map.end};
}

inline BulkCopy copy_of(void* shared, const Tile& tile, uint64_t pc) {
    return {static_cast<char*>(shared), nullptr, tile_bytes(*tile.map), nullptr, pc, tile};
}

template <class Map>
__attribute__((noinline)) void copy_tile(void* shared, const Map& map, int column, int row,
                                         void* mbarrier) {
    const uint64_t pc = caller(__builtin_return_address(0));
    issue_bulk_copy(block->rank, copy_of(shared, tile_of(map, column, row, pc), pc), mbarrier);
}

template <class Map>
__attribute__((noinline)) void copy_tile_to_ranks(void* shared, const Map& map, int column, int row,
                                                  void* mbarrier, unsigned ranks) {
    const uint64_t pc = caller(__builtin_return_address(0));
    issue_to_ranks(copy_of(shared, tile_of(map, column, row, pc), pc), mbarrier, ranks);
}

template <class Map>
__attribute__((noinline)) void store_tile(const void* shared, const Map& map, int column, int row) {
    const uint64_t pc = caller(__builtin_return_address(0));
    auto* from = static_cast<char*>(const_cast<void*>(shared));
    const TileStore store{from, tile_of(map, column, row, pc), pc};
    shadow_tile_store_issued(store);
    if (!exchange->late_copies) {
        store_tile(store);
    }
    current->open_stores.push_back(store);
}

template void copy_tile(void*, const ::MatrixMap&, int, int, void*);
template void copy_tile(void*, const ::GroupMap&, int, int, void*);
template void copy_tile_to_ranks(void*, const ::MatrixMap&, int, int, void*, unsigned);
template void copy_tile_to_ranks(void*, const ::GroupMap&, int, int, void*, unsigned);
template void store_tile(const void*, const ::MatrixMap&, int, int);
template void store_tile(const void*, const ::GroupMap&, int, int);

__attribute__((noinline)) void commit_stores() {
    current->store_groups.push_back({std::move(current->open_stores), false});
    current->open_stores.clear();
}

inline void have_read(StoreGroup& group, uint64_t pc) {
    for (const TileStore& store : group.stores) {
        if (!group.has_read) {
            if (exchange->late_copies) {
                store_tile(store);
            }
            shadow_tile_store_has_read(store, pc);
        }
    }
    group.has_read = true;
}

inline void have_written(const StoreGroup& group, uint64_t pc) {
    for (const TileStore& store : group.stores) {
        shadow_tile_store_landed(store, pc);
    }
}

// All but the last num_left groups of this thread have read shared memory; or C has them as well.
__attribute__((noinline)) void wait_for_stores(unsigned num_left, bool only_reads) {
    const uint64_t pc = caller(__builtin_return_address(0));
    auto& groups = current->store_groups;
    const size_t num_done = groups.size() > num_left ? groups.size() - num_left : 0;
    for (size_t i = 0; i < num_done; ++i) {
        have_read(groups[i], pc);
        if (!only_reads) {
            have_written(groups[i], pc);
        }
    }
    if (!only_reads) {
        groups.erase(groups.begin(), groups.begin() + static_cast<ptrdiff_t>(num_done));
    }
}

// The thread leaves: what it wrote comes to C by the end of the launch, if shared memory has been read.
void end_tile_stores_of_thread() {
    if (!current->open_stores.empty()) {
        report_here(Kind::kLostCopy, current->open_stores.front().pc);
        commit_stores();
    }
    for (StoreGroup& group : current->store_groups) {
        if (group.stores.empty()) {
            continue;
        }
        if (!group.has_read) {
            report_here(Kind::kLostCopy, group.stores.front().pc);
        }
        have_read(group, group.stores.front().pc);
        have_written(group, group.stores.front().pc);
    }
    current->store_groups.clear();
}

}  // namespace autogemm_emulator

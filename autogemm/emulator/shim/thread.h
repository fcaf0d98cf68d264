// Threads and blocks, which of them runs, and what is known of the launch.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "fiber.h"
#include "memory.h"
#include "views.h"

namespace autogemm_emulator {

constexpr uint64_t kStackBytes = 128 * 1024;
constexpr uint64_t kFilledBytes = 16 * 1024;  // of a stack, several times what kernels use
constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxBarriers = 64;  // mbarriers of a block
constexpr uint32_t kMaxCluster = 16;   // blocks
#ifdef AUTOGEMM_CHECK
constexpr bool kCheck = true;
#else
constexpr bool kCheck = false;
#endif

// Calls a kernel with its arguments, of which these are the addresses. toolchain.py makes it of the
// kernel's signature, in a file of its own.
extern "C" void autogemm_call(void* kernel, const void* const* arguments);

struct Copy {
    char* shared;
    const char* global;
    int bytes;
    int valid_bytes;
};

enum class Status : uint8_t {
    kReady,
    kAtBarrier,
    kInWarp,
    kAtClusterBarrier,
    kAtMbarrier,
    kAtNamedBarrier,
    kAtProducts,
    kDone,
};

// A barrier of some warps of a block, by its number.
struct NamedBarrier {
    uint32_t num_threads;  // that this round is for; 0: none has arrived
    uint32_t num_arrived;
    Fences arriving, completed;
};
constexpr uint32_t kNamedBarriers = 16;

struct Mbarrier {
    const char* address;  // in its own block
    uint32_t owner;       // slot of the block that it lies in
    uint32_t block;       // that block's number
    uint32_t index;       // in that block
    uint32_t expected;
    int64_t pending;   // arrivals that the phase still needs
    int64_t tx_bytes;  // bytes expected and not yet copied
    uint32_t phase;
    bool fenced;  // its initialisation, for other blocks and for bulk copies
    uint32_t init_thread, init_epoch, init_clock;
    uint64_t init_pc;
    Fences arriving;   // what arrivals of this phase publish
    Fences completed;  // what those of the phase before did
};

// A box of a tensor map, its first element in that column and row.
struct Tile {
    const TensorMapSpec* map;
    int32_t column, row, matrix;
    int32_t end = INT32_MAX;  // the row behind a group's last
};

// A tile on its way from shared memory to a matrix, and those that are waited for together.
struct TileStore {
    char* shared;
    Tile tile;
    uint64_t pc;
};
struct StoreGroup {
    std::vector<TileStore> stores;
    bool has_read;
};

// A bulk copy into the shared memory of a block, which may be another one of the cluster.
struct BulkCopy {
    char* shared;  // as the owner sees it
    const char* global;  // nullptr: a tile, or a thread's value
    uint32_t bytes;
    Mbarrier* mbarrier;
    uint64_t pc;
    Tile tile;
    float4 value;
};

struct WarpProducts;

struct Thread {
    Context context;
    Status status;
    uint32_t x, y, z;
    uint32_t index;  // in the block
    uint32_t lane;
    // At a barrier.
    int line;
    int predicate;
    uint64_t pc;
    const Mbarrier* mbarrier;
    const NamedBarrier* named_barrier;
    // In a warp collective: what it is, who takes part, what this lane brings and gets.
    uint32_t operation;
    uint32_t mask;
    uint32_t value;
    int argument;
    int width;
    uint32_t result;
    const void* operands;  // of a tensor core's instruction
    // Asynchronous copies: those not yet committed, and the groups in flight, oldest first.
    std::vector<Copy> uncommitted;
    std::vector<std::vector<Copy>> groups;
    std::vector<TileStore> open_stores;
    std::vector<StoreGroup> store_groups;
    WarpProducts* products;  // of the warp, known to its lane 0; nullptr before the first
    // Whether the launch before has ended, as this thread knows.
    bool waited;
    // The cluster's barrier: the phase that this thread arrived in.
    bool arrived;
    uint32_t arrived_phase;
    // Vector clock: how much of each thread of the block happened before what this one does now, over
    // and above what the block's barriers order; the block's mbarriers follow the threads. Clocks
    // grow from block to block, so that what is left of an earlier one is never enough.
    uint32_t clock;
    uint32_t* seen;
    Fences fences;                               // since the last barrier
    std::shared_ptr<const Fences> from_cluster;  // at the cluster's barrier
};

struct Block {
    uint32_t slot;          // among those that run by turns
    uint32_t number, rank;  // in the grid, in the cluster
    uint32_t xyz[3];
    uint32_t epoch;
    uint32_t first_epoch;  // of its cluster
    std::vector<Thread> threads;
    std::vector<uint32_t> seen;  // by its threads
    std::vector<uint32_t> order;
    int barrier_count;  // predicates that held at the barrier just passed
    bool ended;
    bool yields;    // lets others have their turn, though it could go on
    bool looks;     // gave up its turn to look at a flag
    Fences fences;  // what all threads share since the last barrier
    std::deque<Mbarrier> mbarriers;
    NamedBarrier named_barriers[kNamedBarriers];
    // Shared memory, while another block runs.
    std::vector<char> parked_static, parked_dynamic;
};

inline std::vector<Block> residents;  // the blocks that run by turns, cluster behind cluster
inline uint32_t cluster_size;
inline Block* block;  // whose threads run, whose shared memory is in place
inline Thread* threads;
inline Thread* current;
inline Context scheduler;
inline char* stacks;
inline uint64_t stacks_bytes;
inline const LaunchSpec* launch;
inline uint32_t cluster_extent[3];
inline void* kernel;
inline const void* argument_addresses[kMaxArguments];

inline void lay_out_arguments() {
    static void* addresses[kMaxBuffers];
    static TensorMap maps[kMaxTensorMaps];
    for (uint32_t i = 0; i < exchange->num_arguments; ++i) {
        const ArgumentSpec& spec = exchange->arguments[i];
        switch (static_cast<ArgumentSource>(spec.source)) {
            case ArgumentSource::kValue:
                argument_addresses[i] = &spec.bits;
                break;
            case ArgumentSource::kBuffer:
                addresses[spec.number] = buffers[spec.number].begin;
                argument_addresses[i] = &addresses[spec.number];
                break;
            case ArgumentSource::kTensorMap:
                maps[spec.number].words[0] = spec.number;
                argument_addresses[i] = &maps[spec.number];
                break;
        }
    }
}
inline uint32_t block_number;
// Grows at every barrier, block and launch: two accesses of one block in different epochs are ordered.
inline uint32_t last_epoch;
inline uint32_t epoch;  // of the block that runs
inline uint32_t first_epoch_of_launch;

inline uint64_t caller(void* return_address) {
    return reinterpret_cast<uint64_t>(return_address);
}

// The clocks of a block: one for each thread and each mbarrier.
inline uint32_t num_clocks() {
    return num_threads + static_cast<uint32_t>(block->mbarriers.size());
}

// Implemented by shadow.h and its like in check mode, empty in fast mode.
void shadow_begin_block();
void shadow_switch_block(uint32_t from_slot, uint32_t to_slot);
void shadow_end_block();
void shadow_matrix_row(const void* row, bool write, uint64_t pc);
void shadow_copy_issued(const Copy& copy, uint64_t pc);
void shadow_copy_landed(const Copy& copy, uint64_t pc);
void shadow_atomic(void* address, uint64_t pc);
void shadow_relaxed(const void* address, bool write, uint64_t pc);
void shadow_fence();
void shadow_barrier();
void shadow_sync_warp(uint32_t mask);
bool shadow_orders_widely();
void shadow_cluster_arrived(Fences& arriving, bool relaxed);
void shadow_remote_access(const Block& owner, const void* shared, uint32_t size, bool write,
                          uint64_t pc);
void shadow_mbarrier_initialised(Mbarrier& mbarrier, uint64_t pc);
void shadow_mbarrier_arrived(const Mbarrier& mbarrier, uint64_t pc);
void shadow_mbarrier_used(const Mbarrier& mbarrier, uint64_t pc);
void shadow_arrived(Fences& arriving, bool relaxed);
void shadow_waited(const Fences& completed);
void shadow_proxy_fence();
void shadow_bulk_copy_issued(const BulkCopy& copy);
void shadow_bulk_copy_landed(const BulkCopy& copy);
void shadow_tile_store_issued(const TileStore& store);
void shadow_tile_store_has_read(const TileStore& store, uint64_t pc);
void shadow_tile_store_landed(const TileStore& store, uint64_t pc);
struct Product;
void shadow_product_issued(const Product& product, uint32_t first_row);
uint32_t shadow_product_done(const Product& product, const Thread& lane_0, uint64_t pc);
void shadow_knows_products(const Thread& lane_0, const uint32_t* done);
void shadow_knows_loads(const Thread& lane_0, const std::vector<uint32_t>& loaded);

inline void report_here(Kind kind, uint64_t pc, uint64_t other_pc = 0, uint32_t size = 0) {
    Finding finding{};
    finding.kind = static_cast<uint32_t>(kind);
    finding.region = static_cast<uint32_t>(Region::kElsewhere);
    finding.pc = pc;
    finding.other_pc = other_pc;
    finding.size = size;
    finding.block = block_number;
    finding.thread = current != nullptr ? current->index : 0;
    finding.count = 1;
    report(finding);
}

[[noreturn]] inline void refuse_barrier(Misuse misuse, uint64_t pc) {
    report_here(Kind::kBadBarrier, pc, 0, static_cast<uint32_t>(misuse));
    end_process(State::kAborted);
}

inline uint32_t random_below(uint32_t bound) {
    static uint64_t state = 0x9e3779b97f4a7c15ull * (exchange->seed + 1);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>((state >> 32) % bound);
}

inline void shuffle_order(std::vector<uint32_t>& order) {
    for (auto i = static_cast<uint32_t>(order.size()); exchange->seed != 0 && i > 1; --i) {
        std::swap(order[i - 1], order[random_below(i)]);
    }
}

inline void leave() {
    Context::switch_to(current->context, scheduler);
}

// Before an atomic: other blocks may come first. Who looks at a flag may have to look again.
inline void let_others_run(bool looks = false) {
    if (residents.size() > 1) {
        block->yields = true;
        block->looks = looks;
        leave();
    }
}

inline Block& block_of_own_cluster(uint32_t rank) {
    return residents[block->slot - block->rank + rank];
}

void leave_cluster_barrier();
void end_tile_stores_of_thread();
void end_products_of_thread();
void forget_products(Thread& lane_0);

inline void run_thread() {
    autogemm_call(kernel, argument_addresses);
    end_tile_stores_of_thread();
    end_products_of_thread();
    current->status = Status::kDone;
    leave_cluster_barrier();
    leave();
    __builtin_unreachable();
}

void wait_for_kernels_before() {
    current->waited = true;
}

uint3 thread_index() {
    return {current->x, current->y, current->z};
}
uint3 block_index() {
    return {block->xyz[0], block->xyz[1], block->xyz[2]};
}
uint3 block_extent() {
    return {launch->threads[0], launch->threads[1], launch->threads[2]};
}
uint3 grid_extent() {
    return {launch->grid[0], launch->grid[1], launch->grid[2]};
}

}  // namespace autogemm_emulator

// The threads of the block that runs, and what is known of launch and block.
#pragma once

#include <vector>

#include "fiber.h"
#include "memory.h"

namespace autogemm_emulator {

constexpr uint64_t kStackBytes = 128 * 1024;
constexpr int kMaxThreads = 1024;

using Kernel = void (*)(int, int, int, float, const float*, int, const float*, int, float, float*,
                        int, float*);

struct Copy {
    char* shared;
    const char* global;
    int bytes;
    int valid_bytes;
};

enum class Status : uint8_t { kReady, kAtBarrier, kInWarp, kDone };

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
    // In a warp collective: what it is, who takes part, what this lane brings and gets.
    uint32_t operation;
    uint32_t mask;
    uint32_t value;
    int argument;
    int width;
    uint32_t result;
    // Asynchronous copies: those not yet committed, and the groups in flight, oldest first.
    std::vector<Copy> uncommitted;
    std::vector<std::vector<Copy>> groups;
    // Vector clock over the lanes of the warp: what a __syncwarp ordered before this thread.
    uint32_t clock;
    uint32_t seen[32];
};

inline Thread threads[kMaxThreads];
inline uint32_t num_threads;
inline Thread* current;
inline Context scheduler;
inline char* stacks;
inline const LaunchSpec* launch;
inline Kernel kernel;
inline uint32_t block_number;
inline uint32_t block_xyz[3];
// Grows at every barrier, block and launch: two accesses of one block in different epochs are ordered.
inline uint32_t epoch;
inline uint32_t first_epoch_of_block;
inline uint32_t first_epoch_of_launch;
inline int barrier_count;  // predicates that held at the barrier just passed

inline uint64_t caller(void* return_address) {
    return reinterpret_cast<uint64_t>(return_address);
}

// Implemented by shadow.h in check mode, empty in fast mode.
void shadow_end_block();
void shadow_copy_issued(const Copy& copy, uint64_t pc);
void shadow_copy_landed(const Copy& copy, uint64_t pc);
void shadow_atomic(void* address, uint64_t pc);
void shadow_fence();
void shadow_barrier();
void shadow_sync_warp(uint32_t mask);

inline void report_here(Kind kind, uint64_t pc, uint64_t other_pc = 0) {
    Finding finding{};
    finding.kind = static_cast<uint32_t>(kind);
    finding.region = static_cast<uint32_t>(Region::kElsewhere);
    finding.pc = pc;
    finding.other_pc = other_pc;
    finding.block = block_number;
    finding.thread = current != nullptr ? current->index : 0;
    finding.count = 1;
    report(finding);
}

inline uint32_t random_below(uint32_t bound) {
    static uint64_t state = 0x9e3779b97f4a7c15ull * (exchange->seed + 1);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>((state >> 32) % bound);
}

inline void leave() {
    Context::switch_to(current->context, scheduler);
}

inline void run_thread() {
    const Exchange& e = *exchange;
    kernel(e.m, e.n, e.k, e.alpha, reinterpret_cast<const float*>(buffers[0].begin), e.lda,
           reinterpret_cast<const float*>(buffers[1].begin), e.ldb, e.beta,
           reinterpret_cast<float*>(buffers[2].begin), e.ldc,
           reinterpret_cast<float*>(buffers[3].begin));
    current->status = Status::kDone;
    leave();
    __builtin_unreachable();
}

uint3 thread_index() {
    return {current->x, current->y, current->z};
}
uint3 block_index() {
    return {block_xyz[0], block_xyz[1], block_xyz[2]};
}
uint3 block_extent() {
    return {launch->threads[0], launch->threads[1], launch->threads[2]};
}
uint3 grid_extent() {
    return {launch->grid[0], launch->grid[1], launch->grid[2]};
}

}  // namespace autogemm_emulator

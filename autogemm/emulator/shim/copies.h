// Asynchronous copies (cp.async): issued, gathered into groups, landing late at a wait or at once.
#pragma once

#include "thread.h"

namespace autogemm_emulator {

inline void perform(const Copy& copy) {
    memcpy(copy.shared, copy.global, static_cast<size_t>(copy.valid_bytes));
    memset(copy.shared + copy.valid_bytes, 0, static_cast<size_t>(copy.bytes - copy.valid_bytes));
}

__attribute__((noinline)) void copy_async(void* shared, const void* global, int bytes,
                                          int valid_bytes) {
    const uint64_t pc = caller(__builtin_return_address(0));
    Copy copy{static_cast<char*>(shared), static_cast<const char*>(global), bytes, valid_bytes};
    if (valid_bytes < 0 || valid_bytes > bytes) {
        report_here(Kind::kBadCopy, pc);
        copy.valid_bytes = valid_bytes < 0 ? 0 : bytes;
    }
    shadow_copy_issued(copy, pc);
    if (!exchange->late_copies) {
        perform(copy);
    }
    current->uncommitted.push_back(copy);
}

__attribute__((noinline)) void commit_copies() {
    current->groups.push_back(std::move(current->uncommitted));
    current->uncommitted.clear();
}

inline void land(const std::vector<Copy>& group, uint64_t pc) {
    for (const Copy& copy : group) {
        if (exchange->late_copies) {
            perform(copy);
        }
        shadow_copy_landed(copy, pc);
    }
}

__attribute__((noinline)) void wait_group(int pending) {
    const uint64_t pc = caller(__builtin_return_address(0));
    auto& groups = current->groups;
    const int num_landing = static_cast<int>(groups.size()) - pending;
    for (int i = 0; i < num_landing; ++i) {
        land(groups[static_cast<size_t>(i)], pc);
    }
    if (num_landing > 0) {
        groups.erase(groups.begin(), groups.begin() + num_landing);
    }
}

}  // namespace autogemm_emulator

// Events that happened before the present of a thread, block or barrier: vector clocks per block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace autogemm_emulator {

inline uint32_t num_threads;  // of each block of the launch that runs

// Known events of one block: its accesses before an epoch, and each thread's up to a clock. Behind
// the threads come the block's mbarriers, which write for the bulk copies that they count; no epoch
// ends with these.
struct Knowledge {
    uint32_t epoch = 0;
    std::vector<uint32_t> clocks;

    void learn(uint32_t thread, uint32_t clock) {
        if (clocks.size() <= thread) {
            clocks.resize(thread + 1);
        }
        clocks[thread] = std::max(clocks[thread], clock);
    }
    void learn(const uint32_t* others, uint32_t count) {
        clocks.resize(std::max<size_t>(clocks.size(), count));
        for (uint32_t i = 0; i < count; ++i) {
            clocks[i] = std::max(clocks[i], others[i]);
        }
    }
    void join(const Knowledge& other) {
        epoch = std::max(epoch, other.epoch);
        learn(other.clocks.data(), static_cast<uint32_t>(other.clocks.size()));
    }
    bool covers(uint32_t thread, uint32_t of_epoch, uint32_t of_clock) const {
        return (of_epoch < epoch && thread < num_threads) ||
               (thread < clocks.size() && of_clock <= clocks[thread]);
    }
};

class View {
  public:
    bool empty() const {
        return blocks_.empty();
    }
    void clear() {
        blocks_.clear();
    }
    Knowledge& of(uint32_t block) {
        return blocks_[block];
    }
    const Knowledge* find(uint32_t block) const {
        const auto found = blocks_.find(block);
        return found == blocks_.end() ? nullptr : &found->second;
    }
    void join(const View& other) {
        for (const auto& [block, knowledge] : other.blocks_) {
            blocks_[block].join(knowledge);
        }
    }
    void join_others(const View& other, uint32_t own_block) {
        for (const auto& [block, knowledge] : other.blocks_) {
            if (block != own_block) {
                blocks_[block].join(knowledge);
            }
        }
    }
    bool covers(uint32_t block, uint32_t thread, uint32_t of_epoch, uint32_t of_clock) const {
        const Knowledge* known = blocks_.empty() ? nullptr : find(block);
        return known != nullptr && known->covers(thread, of_epoch, of_clock);
    }

  private:
    std::unordered_map<uint32_t, Knowledge> blocks_;
};

struct Fences {
    View fenced;    // before a fence: the next atomic publishes it
    View observed;  // found at an atomic: the next fence makes it count
    View received;  // happened before
    View read;      // the same of what was read, and no more: what a relaxed arrival tells
    View proxied;   // before a proxy fence: bulk copies may overwrite what was stored or loaded

    bool empty() const {
        return fenced.empty() && observed.empty() && received.empty() && read.empty() &&
               proxied.empty();
    }
    void clear() {
        if (!empty()) {
            fenced.clear();
            observed.clear();
            received.clear();
            read.clear();
            proxied.clear();
        }
    }
    void join(const Fences& other) {
        fenced.join(other.fenced);
        observed.join(other.observed);
        received.join(other.received);
        read.join(other.read);
        proxied.join(other.proxied);
    }
};

}  // namespace autogemm_emulator

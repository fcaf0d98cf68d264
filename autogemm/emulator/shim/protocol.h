// Messages between Python and the emulator process, in one file that both map into memory.
// exchange.py repeats these structures for ctypes; both sides check kMagic and the size.
#pragma once

#include <cstdint>

namespace autogemm_emulator {

constexpr uint32_t kMagic = 0x41474d41;  // "AGMA"
constexpr int kMaxExtras = 8;            // arrays of a family's own and of the epilogue's
constexpr int kMaxBuffers = 4 + kMaxExtras;
constexpr int kMaxArguments = 32;
constexpr int kMaxLaunches = 8;
constexpr int kMaxTensorMaps = 8;
constexpr int kMaxFindings = 256;
constexpr int kMaxDynamicSmem = 256 * 1024;  // link.S reserves as much

// Global buffers first, those of a family's own last among them.
enum class Region : uint32_t {
    kA,
    kB,
    kC,
    kWorkspace,
    kExtra,
    kDynamicShared = kMaxBuffers,
    kStaticShared,
    kElsewhere
};
constexpr int kNumRegions = static_cast<int>(Region::kElsewhere) + 1;

// How an argument of the kernel is made.
enum class ArgumentSource : uint32_t { kValue, kBuffer, kTensorMap };

enum class Kind : uint32_t {
    kRace,
    kUninitialised,
    kOutOfBounds,
    kMisaligned,
    kInputWritten,
    kReadOfC,
    kBarrierDivergence,
    kWarpDivergence,
    kInFlight,
    kNeverWritten,
    kBadCopy,
    kBadBarrier,
    kBadRank,
    kEndedBlock,
    kDeadlock,
    kLostCopy,
    kNoProxyFence,
    kNoRegisterFence,
    kWrittenTwice,
    kBeforeWait,
};

// Kinds of misuse of a barrier, kept in Finding::size.
enum class Misuse : uint32_t {
    kNotInitialised,
    kNotFenced,
    kTooManyArrivals,
    kNoArrivals,
    kTooManyBarriers,
    kNotShared,
    kArrivedTwice,
    kNotArrived,
    kAsData,
    kBadNumber,
    kOtherCount,
};

enum class State : uint32_t {
    kRunning,
    kFinished,
    kAborted,
    kCrashed,
    kTimedOut,
    kNoKernel,
    kBadCluster,
    kNoAddressSpace
};

struct BufferSpec {
    uint64_t offset;    // of the data in the exchange file, bytes
    uint64_t words;     // exact size there, in words of Exchange::word_bytes
    uint64_t pitch;     // words from row to row as the kernel has it; more than stride: far rows
    uint32_t columns;   // valid words per row
    uint32_t stride;    // words from row to row in the exchange file
    uint32_t misalign;  // bytes by which the base is off its 256-byte alignment, whole words
    uint32_t readable;  // whether the contents count as initialised
    uint32_t rows;      // valid rows of each `group_rows`, those of one product of a batch
    uint32_t group_rows;  // 0: all rows are valid
    uint32_t counts;      // the buffer that says how many rows of each group are; 0: `rows` are
};

struct ArgumentSpec {
    uint32_t source;  // an ArgumentSource
    uint32_t number;  // of the buffer or the tensor map
    uint64_t bits;    // of a value, the first ones
};

struct LaunchSpec {
    char kernel[64];
    uint32_t grid[3];
    uint32_t threads[3];
    uint32_t smem_bytes;
    uint32_t overlaps;  // whether it may begin before the launch before it has ended
};

// A matrix and the tiles of it that TMA moves; columns and rows in elements.
struct TensorMapSpec {
    uint32_t region;  // A, B, C or the workspace
    uint32_t element;  // a TensorElement
    uint64_t offset_bytes;
    uint64_t ld_bytes;
    uint32_t columns, rows;
    uint32_t box_columns, box_rows;
    uint32_t swizzle_bytes;
    uint32_t matrices;  // of a batch, which lie matrix_bytes apart; 1 where there is none
    uint64_t matrix_bytes;
    uint64_t divided;  // whether rows belong to groups
};

struct Finding {
    uint32_t kind;
    uint32_t region;
    uint64_t pc;        // return address of the access; 0 where there is none
    uint64_t other_pc;  // the earlier access of a race
    int64_t offset;     // bytes from the region's begin
    uint32_t size;
    uint32_t write;
    uint32_t block;
    uint32_t thread;
    uint32_t other_block;
    uint32_t other_thread;
    uint32_t pass;
    uint32_t owner;  // 1 + rank of the block whose shared memory it is, where it is another's
    uint64_t count;
};

// One access of one thread, for the analysis of requests.
struct TraceRecord {
    uint32_t pc;
    uint16_t thread;
    uint16_t region_and_write;  // region * 2 + write
    uint32_t size;              // in bytes; one bulk copy brings a whole tile
    uint32_t offset;            // bytes from the region's begin
    uint32_t phase;             // barrier intervals since the launch began
};

struct Exchange {
    uint32_t magic;
    uint32_t exchange_bytes;
    uint32_t num_arguments;
    uint32_t num_buffers;  // those of `buffers` that there are
    uint32_t seed;         // 0: threads and blocks in order; else shuffled
    uint32_t late_copies;  // 1: asynchronous copies land at their wait; 0: at once
    uint32_t num_launches;
    uint32_t deadline_s;
    uint64_t trace_offset;     // of TraceRecord[trace_capacity] in the exchange file
    uint64_t trace_capacity;   // 0: no trace
    uint32_t trace_block;      // the block that is traced
    uint32_t num_passes;       // how often all launches run, on one workspace
    uint32_t resident_blocks;  // how many run by turns, rounded up to whole clusters
    uint32_t word_bytes;       // 4; 2 or 1 where elements have 16 or 8 bits: what accesses are told apart by
    uint32_t stack_fill;       // the byte that a thread's variables begin with, where nothing sets them
    uint32_t reserved;
    uint64_t first_c_offset;   // C after the first of two passes, in the exchange file
    uint64_t counts_offset;    // of how often lines ran, as gcov stores it, in the exchange file
    uint64_t counts_capacity;  // in bytes; 0: not asked for
    ArgumentSpec arguments[kMaxArguments];
    BufferSpec buffers[kMaxBuffers];
    LaunchSpec launches[kMaxLaunches];
    TensorMapSpec tensor_maps[kMaxTensorMaps];
    // Written by the emulator process.
    uint32_t state;
    uint32_t signal;
    uint64_t crash_pc;
    uint64_t num_trace;
    uint64_t num_accesses;
    uint64_t num_counts;  // bytes that there are; more than the capacity: nothing was kept
    uint64_t static_smem_bytes;
    uint32_t num_findings;
    uint32_t findings_lost;
    Finding findings[kMaxFindings];
};

}  // namespace autogemm_emulator

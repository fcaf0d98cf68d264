// The emulator process: maps the exchange file named on its command line, runs the launches it
// describes, and leaves results and findings there. One translation unit, linked with one kernel.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <ucontext.h>

#include <string>

#include "cuda_on_cpu.h"
// The kernel's words for what it runs on would get in the way from here on.
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#undef warpSize
#undef wait_for_copies
#undef __noinline__
#undef __constant__

#include "atomics.h"
#include "cluster.h"
#include "copies.h"
#include "named_barriers.h"
#include "tensor_cores.h"
#include "tiles.h"
#include "warpgroups.h"
#ifdef AUTOGEMM_CHECK
#include "hooks.h"
#endif

namespace autogemm_emulator {

#ifndef AUTOGEMM_CHECK
void shadow_begin_block() {}
void shadow_switch_block(uint32_t, uint32_t) {}
void shadow_end_block() {}
void shadow_matrix_row(const void*, bool, uint64_t) {}
void shadow_copy_issued(const Copy&, uint64_t) {}
void shadow_copy_landed(const Copy&, uint64_t) {}
void shadow_atomic(void*, uint64_t) {}
void shadow_relaxed(const void*, bool, uint64_t) {}
void shadow_fence() {}
void shadow_barrier() {}
void shadow_sync_warp(uint32_t) {}
bool shadow_orders_widely() {
    return false;
}
void shadow_cluster_arrived(Fences&, bool) {}
void shadow_remote_access(const Block&, const void*, uint32_t, bool, uint64_t) {}
void shadow_mbarrier_initialised(Mbarrier& mbarrier, uint64_t) {
    mbarrier.init_thread = current->index;
}
void shadow_mbarrier_used(const Mbarrier&, uint64_t) {}
void shadow_mbarrier_arrived(const Mbarrier&, uint64_t) {}
void shadow_arrived(Fences&, bool) {}
void shadow_waited(const Fences&) {}
void shadow_proxy_fence() {}
void shadow_bulk_copy_issued(const BulkCopy&) {}
void shadow_bulk_copy_landed(const BulkCopy&) {}
void shadow_tile_store_issued(const TileStore&) {}
void shadow_tile_store_has_read(const TileStore&, uint64_t) {}
void shadow_tile_store_landed(const TileStore&, uint64_t) {}
void shadow_product_issued(const Product&, uint32_t) {}
uint32_t shadow_product_done(const Product&, const Thread&, uint64_t) {
    return 0;
}
void shadow_knows_products(const Thread&, const uint32_t*) {}
void shadow_knows_loads(const Thread&, const std::vector<uint32_t>&) {}
static void shadow_begin_pass() {}
static void shadow_begin_launch() {}

static void report_span(Kind kind, uint32_t region, int64_t offset) {
    Finding finding{};
    finding.kind = static_cast<uint32_t>(kind);
    finding.region = region;
    finding.offset = offset;
    finding.size = 4;
    finding.write = 1;
    finding.count = 1;
    report(finding);
}

// Fast mode sees writes only by what they left: in the canaries around the buffers, and in inputs.
static void shadow_end_pass() {
    for (uint32_t region = 0; region < exchange->num_buffers; ++region) {
        const Buffer& buffer = buffers[region];
        for (uint64_t i = 0; i < 2 * kCanaryBytes; i += 4) {
            char* at = i < kCanaryBytes ? buffer.begin - kCanaryBytes + i
                                        : buffer.begin + buffer.bytes + i - kCanaryBytes;
            if (memcmp(at, &kPoison, 4) != 0) {
                report_span(Kind::kOutOfBounds, region, at - buffer.begin);
                memcpy(at, &kPoison, 4);  // neighbours may share a canary
            }
        }
        bool is_changed = false;
        buffer.for_each_part([&](const char* at, const char* given, uint64_t bytes) {
            is_changed |= is_input(region) && memcmp(at, given, bytes) != 0;
        });
        if (is_changed) {
            report_span(Kind::kInputWritten, region, 0);
        }
    }
    for (char* at = smem.dynamic_begin + round_up(smem.dynamic_bytes, 4); at < smem.zone_end;
         at += 4) {
        if (memcmp(at, &kPoison, 4) != 0) {
            report_span(Kind::kOutOfBounds, static_cast<uint32_t>(Region::kDynamicShared),
                        at - smem.dynamic_begin);
            break;
        }
    }
}
#endif

static void end_by_signal(int number, siginfo_t*, void* context) {
    exchange->signal = static_cast<uint32_t>(number);
#if defined(__x86_64__)
    const auto* machine = &static_cast<ucontext_t*>(context)->uc_mcontext;
    exchange->crash_pc = static_cast<uint64_t>(machine->gregs[REG_RIP]) + 1;
#elif defined(__aarch64__)
    exchange->crash_pc = static_cast<ucontext_t*>(context)->uc_mcontext.pc + 1;
#endif
    exchange->state = static_cast<uint32_t>(number == SIGPROF ? State::kTimedOut : State::kCrashed);
    _exit(0);
}

static void catch_signals() {
    static char signal_stack[65536];
    stack_t stack{};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof(signal_stack);
    sigaltstack(&stack, nullptr);
    struct sigaction action{};
    action.sa_sigaction = end_by_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF}) {
        sigaction(number, &action, nullptr);
    }
    itimerval timer{};
    timer.it_value.tv_sec = exchange->deadline_s;
    setitimer(ITIMER_PROF, &timer, nullptr);
}

// `__cluster_dims__` of the kernel, as toolchain.py compiled it beside the kernel.
static void find_cluster_extent(const LaunchSpec& spec) {
    const std::string name = std::string("autogemm_cluster_") + spec.kernel;
    const auto* extent = static_cast<const uint32_t*>(dlsym(RTLD_DEFAULT, name.c_str()));
    uint32_t size = 1;
    for (int i = 0; i < 3; ++i) {
        cluster_extent[i] = extent != nullptr ? extent[i] : 1;
        size *= cluster_extent[i];
        if (cluster_extent[i] == 0 || spec.grid[i] % cluster_extent[i] != 0) {
            end_process(State::kBadCluster);
        }
    }
    if (size > kMaxCluster) {
        end_process(State::kBadCluster);
    }
    cluster_size = size;
}

static void make_residents(uint32_t num_clusters) {
    const uint32_t asked = (exchange->resident_blocks + cluster_size - 1) / cluster_size;
    const uint32_t num_resident = std::max(1u, std::min(asked, num_clusters));
    cluster_barriers = std::vector<ClusterBarrier>(num_resident);
    residents = std::vector<Block>(num_resident * cluster_size);
    for (uint32_t slot = 0; slot < residents.size(); ++slot) {
        residents[slot].slot = slot;
        residents[slot].threads.resize(num_threads);
        residents[slot].order.resize(num_threads);
        residents[slot].seen.resize(num_threads * (num_threads + kMaxBarriers));
    }
    block = &residents[0];
    if (stacks != nullptr) {
        munmap(stacks, stacks_bytes);
    }
    stacks_bytes = residents.size() * num_threads * kStackBytes;
    void* mapped = mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        abort();
    }
    stacks = static_cast<char*>(mapped);
}

static void run_launch(const LaunchSpec& spec) {
    launch = &spec;
    num_threads = spec.threads[0] * spec.threads[1] * spec.threads[2];
    kernel = dlsym(RTLD_DEFAULT, spec.kernel);
    if (kernel == nullptr) {
        end_process(State::kNoKernel);
    }
    find_cluster_extent(spec);
    const uint32_t num_blocks = spec.grid[0] * spec.grid[1] * spec.grid[2];
    std::vector<uint32_t> order(num_blocks / cluster_size);
    make_residents(static_cast<uint32_t>(order.size()));
    smem.dynamic_bytes = spec.smem_bytes;
    first_epoch_of_launch = ++last_epoch;
    shadow_begin_launch();
    for (uint32_t i = 0; i < order.size(); ++i) {
        order[i] = i;
    }
    shuffle_order(order);
    run_clusters(order);
    current = nullptr;
}

static bool map_exchange(const char* path) {
    const int file = open(path, O_RDWR);
    struct stat status{};
    if (file < 0 || fstat(file, &status) != 0) {
        return false;
    }
    void* mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE,
                        MAP_SHARED, file, 0);
    exchange = static_cast<Exchange*>(mapped);
    return mapped != MAP_FAILED && exchange->magic == kMagic &&
           exchange->exchange_bytes == sizeof(Exchange);
}

}  // namespace autogemm_emulator

int main(int argc, char** argv) {
    using namespace autogemm_emulator;
    if (argc != 2 || !map_exchange(argv[1])) {
        return 3;
    }
    catch_signals();
    if (!lay_out_buffers()) {
        exchange->state = static_cast<uint32_t>(State::kNoAddressSpace);
        return 0;
    }
    lay_out_shared();
    lay_out_arguments();
    for (pass = 0; pass < exchange->num_passes; ++pass) {
        if (pass > 0) {
            prepare_next_pass();
        }
        shadow_begin_pass();
        for (uint32_t i = 0; i < exchange->num_launches; ++i) {
            run_launch(exchange->launches[i]);
        }
        shadow_end_pass();
    }
    end_process(State::kFinished);
}

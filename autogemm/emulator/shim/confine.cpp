// Starts a program that may do nothing but compute: confine SECONDS FILE_DESCRIPTOR PROGRAM ARGUMENT.
//
// The program is a kernel from a template, and what is told to a template may come from others. It may
// read files, and write to the one that it shares with its parent; it has no network, starts no
// process and signals none. What a system does not offer is left out: only the limits are everywhere.
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

static void limit(int resource, rlim_t most) {
    const rlimit both{most, most};
    setrlimit(static_cast<__rlimit_resource_t>(resource), &both);
}

// linux/landlock.h, which older systems lack. The numbers are the same on all architectures.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr uint64_t kWriteFile = 1 << 1, kFirstMaking = 4, kTcp = 3;

struct Ruleset {
    uint64_t files, net;
};

struct __attribute__((packed)) BelowPath {
    uint64_t allowed;
    int32_t parent;
};

// Landlock: no file can be written, made, moved or removed, but for the one that is open as `file`.
static void write_nothing_but(int file) {
    const long version = syscall(kCreateRuleset, nullptr, 0, 1);
    if (version < 1) {
        return;
    }
    // Removing and making are bits 4 to 12; moving came with version 2, truncating with 3.
    const int last = version >= 3 ? 14 : version == 2 ? 13 : 12;
    uint64_t writing = kWriteFile;
    for (int bit = kFirstMaking; bit <= last; ++bit) {
        writing |= uint64_t{1} << bit;
    }
    const Ruleset handled{writing, version >= 4 ? kTcp : 0};
    const size_t size = version >= 4 ? sizeof(handled) : sizeof(handled.files);
    const int rules = static_cast<int>(syscall(kCreateRuleset, &handled, size, 0));
    if (rules < 0) {
        return;
    }
    const BelowPath shared{kWriteFile, file};
    if (syscall(kAddRule, rules, 1, &shared, 0) == 0) {
        syscall(kRestrictSelf, rules, 0);
    }
    close(rules);
}

// Calls of the system that no kernel needs.
static const long kRefused[] = {
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_clone, SYS_ptrace, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_perf_event_open,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_ftruncate, SYS_truncate, SYS_fallocate,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_shmget, SYS_msgget, SYS_tkill,
#ifdef SYS_fork
    SYS_fork, SYS_vfork,
#endif
#ifdef SYS_bpf
    SYS_bpf,
#endif
#ifdef SYS_userfaultfd
    SYS_userfaultfd,
#endif
};
// Newer than the headers may be; the numbers are the same on all architectures.
constexpr long kIoUringSetup = 425, kPidfdSendSignal = 424, kPidfdOpen = 434, kClone3 = 435;

// Whether the system takes the filter: a call that is refused fails with EPERM.
static bool refuse_calls() {
    if (kArchitecture == 0) {
        return false;
    }
    std::vector<uint32_t> refused(std::begin(kRefused), std::end(kRefused));
    for (const long number : {kIoUringSetup, kPidfdSendSignal, kPidfdOpen, kClone3}) {
        refused.push_back(static_cast<uint32_t>(number));
    }
    const uint32_t no = SECCOMP_RET_ERRNO | EPERM, yes = SECCOMP_RET_ALLOW;
    const auto own = static_cast<uint32_t>(getpid());
    std::vector<sock_filter> code{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        // Calls of x86 programs with short pointers have numbers of their own.
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, no),
    };
    for (const uint32_t number : refused) {
        code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
        code.push_back(BPF_STMT(BPF_RET | BPF_K, no));
    }
    // Signals to itself alone: abort() sends one.
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 2, 0));
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 1, 0));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, yes));
    code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])));
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, yes));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, no));
    const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(int argc, char** argv) {
    if (argc < 4) {
        return 3;
    }
    limit(RLIMIT_CPU, static_cast<rlim_t>(atol(argv[1])));
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    write_nothing_but(atoi(argv[2]));
    if (!refuse_calls()) {
        // A network of its own, in which there is nobody else.
        (void)!unshare(CLONE_NEWUSER | CLONE_NEWNET);
    }
    execv(argv[3], argv + 3);
    return 3;
}

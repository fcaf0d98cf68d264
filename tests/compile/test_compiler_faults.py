"""A compiler that hangs, dies or grows costs one kernel; the next compiles."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from waiting import PATIENCE_S, has_ended, wait_until

from autogemm.compile import CompileLimits, Compiler
from autogemm.compile.worker import NICENESS
from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout
from autogemm.support.child_process import child_environment
from autogemm.support.errors import (
    CompilerDiedError,
    CompileTimeoutError,
    KernelCompileError,
)

pytestmark = pytest.mark.compile

# A busy machine takes its time to start a process.
LIMITS = CompileLimits(PATIENCE_S, memory_bytes=2**29)
BUILDER = "faulty_compilers:faulty"


def source_of(fault: str) -> KernelSource:
    return KernelSource("test", "0" * 64, Config("test", ()), Layout.NN, f"// {fault}")


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    with closing(Compiler(tmp_path, threads=2, limits=LIMITS, builder=BUILDER)) as compiler:
        yield compiler


def test_compilers_leave_the_cores_to_those_that_feed_the_gpu(compiler: Compiler) -> None:
    """Where every core compiles, a thread that has a candidate for the GPU must not wait."""
    pid = worker_pid(compiler)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(own + NICENESS, 19)


def worker_pid(compiler: Compiler) -> int:
    # Another text each time: the cache would answer for the same one.
    return int(compiler.compile(source_of(f"who {time.monotonic_ns()}"), "sm_90").cubin)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("fault", "error_class", "says"),
    [
        ("segfault", CompilerDiedError, "killed by signal 11"),
        ("abort", CompilerDiedError, "signal 6.: terminate called after .*std::bad_alloc"),
        ("killed", CompilerDiedError, "killed by signal 9"),
        ("grow", CompilerDiedError, r"took 0\.\d GiB of host memory, the limit is 0\.5"),
        ("lie", CompilerDiedError, "answered with a str"),
        ("refuse", KernelCompileError, "NVRTC_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_a_broken_compiler_costs_one_kernel(
    compiler: Compiler,
    tmp_path: Path,
    fault: str,
    error_class: type[KernelCompileError],
    says: str,
) -> None:
    with pytest.raises(error_class, match=says) as caught:
        compiler.compile(source_of(fault), "sm_90")
    assert type(caught.value) is error_class
    assert "\n" not in str(caught.value)
    if error_class is not KernelCompileError:
        assert_kept(caught.value, tmp_path, fault)
    assert compiler.compile(source_of("fine"), "sm_90").cubin == b"machine code"


def assert_kept(error: KernelCompileError, folder: Path, fault: str) -> None:
    """The text that breaks a compiler is worth a report to its maker."""
    assert error.source_path == folder / "failed" / f"{source_of(fault).sha256}.cu"
    assert error.source_path.read_text() == f"// {fault}"


def test_one_byte_of_static_shared_memory_too_many_does_not_compile(tmp_path: Path) -> None:
    text = (
        'extern "C" __global__ void k(float* x) {{ __shared__ char s[{size}]; '
        "s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[x[2] > 0]; }}"
    )
    with closing(Compiler(tmp_path, threads=1)) as compiler:
        for size in (48 * 1024, 48 * 1024 + 1):
            source = KernelSource(
                "test", "0" * 64, Config("test", ()), Layout.NN, text.format(size=size)
            )
            if size == 48 * 1024:
                (resources,) = compiler.compile(source, "sm_90").resources
                assert resources.static_smem_bytes == size
            else:
                with pytest.raises(KernelCompileError, match="too much shared data"):
                    compiler.compile(source, "sm_90")


def test_the_others_go_on_while_one_hangs_until_its_deadline(tmp_path: Path) -> None:
    limits = CompileLimits(deadline_s=5.0)
    with closing(Compiler(tmp_path, threads=2, limits=limits, builder=BUILDER)) as compiler:
        hanging = compiler.submit(source_of("hang"), "sm_90")
        others = [compiler.submit(source_of(f"fine {number}"), "sm_90") for number in range(20)]
        for future in others:
            assert future.result().cubin == b"machine code"
        with pytest.raises(CompileTimeoutError, match="no answer within 5 s") as caught:
            hanging.result()
    assert "\n" not in str(caught.value)
    assert_kept(caught.value, tmp_path, "hang")


def test_a_process_is_kept_for_the_next_kernel(compiler: Compiler) -> None:
    assert worker_pid(compiler) == worker_pid(compiler) != os.getpid()


def test_an_idle_process_that_the_system_ended_costs_nothing(compiler: Compiler) -> None:
    pid = worker_pid(compiler)
    compiler.compile(source_of("last"), "sm_90")
    wait_until(lambda: has_ended(pid), "the system ended it")
    assert worker_pid(compiler) != pid


def test_closing_does_not_wait_for_a_hanging_compiler(tmp_path: Path) -> None:
    limits = CompileLimits(deadline_s=600)
    compiler = Compiler(tmp_path, threads=1, limits=limits, builder=BUILDER)
    pid = worker_pid(compiler)
    began = tmp_path / "began"
    hanging = compiler.submit(source_of(f"hang {began}"), "sm_90")
    waiting = compiler.submit(source_of("fine"), "sm_90")
    wait_until(began.exists, "the compiler is at work")
    begin = time.perf_counter()
    compiler.close()
    assert time.perf_counter() - begin < limits.deadline_s / 4
    assert is_gone(pid)
    with pytest.raises(CompilerDiedError):
        hanging.result()
    assert waiting.cancelled()


@pytest.mark.parametrize("after_s", [0.0, 0.003, 0.02])
def test_closing_while_processes_start_leaves_none(tmp_path: Path, after_s: float) -> None:
    others = compilers_of(os.getpid())
    compiler = Compiler(tmp_path, threads=4, builder=BUILDER)
    futures = [compiler.submit(source_of(f"hang {number}"), "sm_90") for number in range(4)]
    timer = threading.Timer(after_s, compiler.close)
    timer.start()
    timer.join()
    ends = {type(future.exception()) for future in futures if not future.cancelled()}
    assert ends <= {CompilerDiedError}
    assert compilers_of(os.getpid()) <= others


def test_a_killed_parent_takes_its_compilers_along(tmp_path: Path) -> None:
    code = (
        "import sys, threading; from test_compiler_faults import *\n"
        "limits = CompileLimits(deadline_s=600)\n"
        "compiler = Compiler(Path(sys.argv[1]), threads=1, limits=limits, builder=BUILDER)\n"
        "print(worker_pid(compiler), flush=True)\n"
        "compiler.compile(source_of('hang'), 'sm_90')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: has_ended(pid), "the compiler ends with its parent")


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]


def compilers_of(pid: int) -> set[int]:
    """Other tests may have some in the same process."""
    return {child for child in children(pid) if "compile.worker" in command(child)}


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""

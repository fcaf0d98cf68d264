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

from autogemm.child_process import child_environment
from autogemm.compile import CompileLimits, Compiler
from autogemm.config import Config
from autogemm.errors import (
    CompilerDiedError,
    CompileTimeoutError,
    KernelCompileError,
)
from autogemm.kernel import KernelSource
from autogemm.problem import Layout

pytestmark = pytest.mark.compile

LIMITS = CompileLimits(deadline_s=1.5, memory_bytes=2**29)
BUILDER = "faulty_compilers:faulty"


def source_of(fault: str) -> KernelSource:
    return KernelSource("test", "0" * 64, Config("test", ()), Layout.NN, f"// {fault}")


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    with closing(Compiler(tmp_path, threads=2, limits=LIMITS, builder=BUILDER)) as compiler:
        yield compiler


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
        ("hang", CompileTimeoutError, "no answer within 1.5 s"),
        ("segfault", CompilerDiedError, "killed by signal 11"),
        ("abort", CompilerDiedError, "signal 6.: terminate called after .*std::bad_alloc"),
        ("killed", CompilerDiedError, "killed by signal 9"),
        ("grow", CompilerDiedError, r"took 0\.\d GiB of host memory, it may take 0\.5"),
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
    begin = time.perf_counter()
    with pytest.raises(error_class, match=says) as caught:
        compiler.submit(source_of(fault), "sm_90").result(20)
    assert time.perf_counter() - begin < 10
    assert type(caught.value) is error_class
    assert "\n" not in str(caught.value)
    if error_class is not KernelCompileError:
        # The text that breaks a compiler is worth a report to its maker.
        assert caught.value.source_path == tmp_path / "failed" / f"{source_of(fault).sha256}.cu"
        assert caught.value.source_path.read_text() == f"// {fault}"
    assert compiler.compile(source_of("fine"), "sm_90").cubin == b"machine code"


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


def test_the_others_go_on_while_one_hangs(compiler: Compiler) -> None:
    hanging = compiler.submit(source_of("hang"), "sm_90")
    others = [compiler.submit(source_of(f"fine {number}"), "sm_90") for number in range(20)]
    for future in others:
        assert future.result(20).cubin == b"machine code"
    with pytest.raises(CompileTimeoutError):
        hanging.result(20)


def test_a_process_is_kept_for_the_next_kernel(compiler: Compiler) -> None:
    assert worker_pid(compiler) == worker_pid(compiler) != os.getpid()


def test_an_idle_process_that_the_system_ended_costs_nothing(compiler: Compiler) -> None:
    pid = worker_pid(compiler)
    compiler.compile(source_of("last"), "sm_90")
    time.sleep(0.3)
    assert worker_pid(compiler) != pid


def test_closing_does_not_wait_for_a_hanging_compiler(tmp_path: Path) -> None:
    limits = CompileLimits(deadline_s=600)
    compiler = Compiler(tmp_path, threads=1, limits=limits, builder=BUILDER)
    pid = worker_pid(compiler)
    hanging = compiler.submit(source_of("hang"), "sm_90")
    waiting = compiler.submit(source_of("fine"), "sm_90")
    time.sleep(0.2)
    begin = time.perf_counter()
    compiler.close()
    assert time.perf_counter() - begin < 3
    assert is_gone(pid)
    with pytest.raises(CompilerDiedError):
        hanging.result(5)
    assert waiting.cancelled()


def test_closing_while_processes_start_leaves_none(tmp_path: Path) -> None:
    others = compilers_of(os.getpid())
    compiler = Compiler(tmp_path, threads=4, builder=BUILDER)
    futures = [compiler.submit(source_of(f"hang {number}"), "sm_90") for number in range(4)]
    timer = threading.Timer(0.02, compiler.close)
    timer.start()
    timer.join()
    assert all(future.done() for future in futures)
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
    give_up = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and state(pid) != "Z":
        assert time.monotonic() < give_up, "the compiler outlives its parent"
        time.sleep(0.1)


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


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"

"""Compiles emitted CUDA to machine code: options, processes, the cache, and sources of failures."""

import logging
import os
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from autogemm.compile import nvrtc
from autogemm.compile.cubin_cache import CubinCache
from autogemm.compile.processes import DEFAULT_LIMITS, NVRTC, CompileLimits, CompilerProcesses
from autogemm.compile.ptxas_log import first_error, parse_resources
from autogemm.model.kernel import CompiledKernel, KernelSource
from autogemm.support.disk_cache import trim
from autogemm.support.errors import (
    CompilerDiedError,
    CompileTimeoutError,
    KernelCompileError,
    UsageError,
)
from autogemm.support.files import write_atomically
from autogemm.support.resources import cache_folder

# No --use_fast_math: FMA contraction is NVRTC's default, and nothing else may change results.
_LANGUAGE = "--std=c++17"
# Makes ptxas print registers, spills and shared memory into the log.
_RESOURCE_USE = "--ptxas-options=-v"
# NVRTC keeps a cache of its own, and a kernel that comes out of it comes without that log.
_NO_CACHE = "--no-cache"
_NAME_IN_LOG = "kernel.cu"

_log = logging.getLogger(__name__)


class Elsewhere(Protocol):
    """Compilers of other machines, with caches of their own; ``slots`` kernels at a time."""

    @property
    def slots(self) -> int:
        """At least 0."""

    def compile(self, source: KernelSource, arch: str, version: str) -> CompiledKernel | None:
        """The kernel as the compiler ``version`` makes it; None if that did not succeed there, for
        whatever reason.
        """


class Compiler:
    """NVRTC in processes that may hang or die, and a cache on disk. Needs no GPU and no driver.

    ``version`` is ``nvrtc 12.9.86``; ``threads`` kernels compile at a time, each in a process that
    is started when it is first needed and killed when a kernel breaks ``limits``. Files go to
    ``cache_dir`` (default: the user's cache folder): ``cubins/`` holds compiled kernels,
    ``failed/`` the sources that did not compile.

    Safe to use from several threads. Raises CompilerMissingError without NVRTC, AutogemmError when
    the cache folder cannot be written, UsageError for fewer than one thread.
    """

    def __init__(
        self,
        cache_dir: Path | None = None,
        threads: int | None = None,
        limits: CompileLimits = DEFAULT_LIMITS,
        builder: str = NVRTC,
    ) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"compiling needs at least 1 thread, got {threads}")
        self.version = nvrtc.version()
        if cache_dir is None:
            trim(cache_folder())
        folder = cache_dir or cache_folder()
        self._failed_folder = folder / "failed"
        self._cache = CubinCache(folder / "cubins")
        self._cache_full = False
        # Cores that this process may run on: fewer than there are under taskset or a batch system.
        self.threads = threads or len(os.sched_getaffinity(0))
        self._processes = CompilerProcesses(self.threads, limits, builder)
        self._num_processes = self.threads
        # A thread waits for each process, and for each kernel that is compiled elsewhere.
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="nvrtc")
        self._elsewhere: Elsewhere | None = None
        self._slots = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._in_flight: dict[str, Future[CompiledKernel]] = {}

    def use(self, elsewhere: Elsewhere | None) -> None:
        """Let other machines compile, too, as many kernels at a time as they have slots now.

        A source that fails there is compiled here, so that errors are those of this machine. What
        waits to be compiled now is dropped. None ends it.
        """
        slots = elsewhere.slots if elsewhere is not None else 0
        self._elsewhere, self._slots = elsewhere, threading.Semaphore(slots)
        if self.threads != self._num_processes + slots:
            self.threads = self._num_processes + slots
            with self._lock:
                before = self._pool
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="nvrtc")
            before.shutdown(wait=True, cancel_futures=True)

    def compile(self, source: KernelSource, arch: str) -> CompiledKernel:
        """Machine code and resource use of one source, for ``arch`` such as ``sm_90``; for
        ``sm_90a`` where the source says that it needs that.

        ``seconds`` is the time spent in the compiler: 0 when the kernel came from the cache.
        Raises KernelCompileError, which names the file that holds the source: CompileTimeoutError
        or CompilerDiedError where it is the compiler that failed. UsageError for an architecture
        that this NVRTC does not know.
        """
        arch = _checked(arch, source)
        options = (f"--gpu-architecture={arch}", _LANGUAGE, _RESOURCE_USE, _NO_CACHE)
        key = CubinCache.key(source.sha256, options, self.version)
        with self._lock:
            pending = self._in_flight.get(key)
            if pending is None:
                mine: Future[CompiledKernel] = Future()
                self._in_flight[key] = mine
        if pending is not None:
            # Another thread is compiling it; its kernel or error serves this call too.
            return pending.result()
        try:
            kernel = (
                self._cache.load(key)
                or self._from_elsewhere(key, source, arch, options)
                or self._build(key, source, arch, options)
            )
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(kernel)
            return kernel
        finally:
            with self._lock:
                del self._in_flight[key]

    def submit(self, source: KernelSource, arch: str) -> Future[CompiledKernel]:
        """:meth:`compile` in a thread of the pool."""
        with self._lock:
            return self._pool.submit(self.compile, source, arch)

    def close(self) -> None:
        """Drop compilations that have not begun, and end those that have. May be called twice."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._processes.close()
        self._pool.shutdown(wait=True)

    def _from_elsewhere(
        self, key: str, source: KernelSource, arch: str, options: tuple[str, ...]
    ) -> CompiledKernel | None:
        """None where other machines have no free slot, or do not succeed."""
        elsewhere, slots = self._elsewhere, self._slots
        if elsewhere is None or not slots.acquire(blocking=False):
            return None
        try:
            kernel = elsewhere.compile(source, arch, self.version)
        finally:
            slots.release()
        if kernel is None:
            return None
        made = (kernel.source_sha256, kernel.arch, kernel.options, kernel.compiler)
        if made != (source.sha256, arch, options, self.version):
            return None
        self._keep(key, kernel)
        return kernel

    def _build(
        self, key: str, source: KernelSource, arch: str, options: tuple[str, ...]
    ) -> CompiledKernel:
        begin = time.perf_counter()
        try:
            build = self._processes.build(source.text, _NAME_IN_LOG, options)
        except (CompileTimeoutError, CompilerDiedError) as error:
            path, said = _kept(source, str(error), self._failed_folder)
            raise type(error)(f"{error}; {said}", source_path=path) from error
        seconds = time.perf_counter() - begin
        if build.code is None:
            raise _failure(build, source, arch, self._failed_folder)
        kernel = CompiledKernel(
            source_sha256=source.sha256,
            arch=arch,
            cubin=build.code,
            resources=parse_resources(build.log),
            log=build.log,
            compiler=self.version,
            options=options,
            seconds=seconds,
        )
        self._keep(key, kernel)
        return kernel

    def _keep(self, key: str, kernel: CompiledKernel) -> None:
        try:
            self._cache.store(key, kernel)
        except OSError as error:
            # The kernel is good; only the next run has to compile it again.
            if not self._cache_full:
                _log.warning("compiled kernels are not kept: %s", error)
            self._cache_full = True


def ptx(source: KernelSource, arch: str) -> str:
    """PTX of one source for ``arch`` such as ``sm_90``. Errors as :meth:`Compiler.compile`."""
    virtual = _checked(arch, source).replace("sm_", "compute_")
    options = (f"--gpu-architecture={virtual}", _LANGUAGE)
    build = nvrtc.to_ptx(source.text, _NAME_IN_LOG, options)
    if build.code is None:
        raise _failure(build, source, arch, cache_folder() / "failed")
    return build.code.rstrip(b"\0").decode()


def _checked(arch: str, source: KernelSource) -> str:
    """The architecture that the source is compiled for; ``sm_90a`` and ``sm_100f`` pass where their
    number does.
    """
    if arch[-1:].isdigit():
        arch += source.arch_suffix
    supported = nvrtc.supported_archs()
    if not re.fullmatch(r"sm_\d+[af]?", arch) or arch.rstrip("af") not in supported:
        raise UsageError(
            f"{nvrtc.version()} does not support {arch!r}, only {', '.join(supported)}"
        )
    return arch


def _kept(source: KernelSource, log: str, folder: Path) -> tuple[Path | None, str]:
    """The file of a source that did not compile (None if it could not be written), and a note."""
    path = folder / f"{source.sha256}.cu"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, source.text.encode())
        write_atomically(path.with_suffix(".log"), f"{log}\n".encode())
    except OSError as error:
        return None, f"its source could not be kept: {error}"
    return path, f"its source is {path}"


def _failure(
    build: nvrtc.Build, source: KernelSource, arch: str, folder: Path
) -> KernelCompileError:
    """The error to raise, once source and log lie in ``folder``."""
    reason = first_error(build.log) or build.error
    path, said = _kept(source, build.log, folder)
    message = f"the kernel does not compile for {arch}: {reason}; {said}"
    return KernelCompileError(message, log=build.log, source_path=path)

"""Compilation by the workers of a Dask scheduler of their own, on machines that need no GPU."""

import asyncio
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from autogemm.cluster.client import opened_client
from autogemm.compile import Compiler
from autogemm.model.kernel import CompiledKernel, KernelSource
from autogemm.support.errors import AutogemmError, ClusterError
from autogemm.support.version import __version__

# How often it is looked whether there are still workers for a kernel that is awaited, and how long
# there may be none.
LOOK_EVERY_S = 1.0
GONE_S = 3.0
# A kernel that took so long is compiled here: more than the compiler's own deadline.
DEADLINE_S = 90.0
# A worker that asks for help does not keep its GPU waiting for a scheduler that is gone.
PATIENCE_S = 2.0


class Compilers:
    """The workers of a scheduler, as `autogemm.compile.Elsewhere`.

    ``sharers`` are the GPUs that share them. The same kernel, asked for by several, is compiled
    once. Safe to use from several threads; a scheduler or workers that are gone are no error.
    """

    def __init__(self, client: Any, sharers: int = 1) -> None:
        self._client = client
        self._sharers = sharers
        self._lock = threading.Lock()
        self._looked_at, self._num_there = -LOOK_EVERY_S, 0

    @property
    def slots(self) -> int:
        """The part of one GPU of all threads; 1 at least where there is a worker."""
        return -(-self._there() // self._sharers)

    def compile(self, source: KernelSource, arch: str, version: str) -> CompiledKernel | None:
        """Have a worker compile it, unless there is none with this compiler and autogemm."""
        if not self._there():
            return None
        begin = seen_at = time.monotonic()
        asked = (source, arch, version, __version__)
        identity = "\n".join((source.sha256, *asked[1:]))
        key = f"compile-{hashlib.sha256(identity.encode()).hexdigest()}"
        try:
            future = self._client.submit(compile_one, *asked, key=key)
            while True:
                with suppress(TimeoutError):
                    kernel: CompiledKernel | None = future.result(timeout=LOOK_EVERY_S)
                    return kernel
                now = time.monotonic()
                if self._there():
                    seen_at = now
                if now - seen_at > GONE_S or now - begin > DEADLINE_S:
                    future.cancel()
                    return None
        except (Exception, asyncio.CancelledError):
            # Whatever is wrong there costs this machine a compilation, and not the run.
            return None

    def _there(self) -> int:
        """The number of kernels that all workers compile at a time, at most a second old."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_EVERY_S:
                self._num_there = self._counted()
                self._looked_at = time.monotonic()
            return self._num_there

    def _counted(self) -> int:
        if self._client.status != "running":
            return 0
        try:
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        except (Exception, asyncio.CancelledError):
            # A scheduler that is gone is told by the status; this one did not answer in time.
            return self._num_there
        return sum(one["nthreads"] for one in workers)


@contextmanager
def opened_compilers(
    where: str, sharers: int = 1, timeout_s: float | None = None
) -> Iterator[Compilers]:
    """Yield the workers of the scheduler at ``where``: tcp://host:8786, or the file that it wrote.

    Raises ClusterError if it does not answer.
    """
    is_file = "://" not in where
    if is_file and not Path(where).is_file():
        raise ClusterError(f"--compilers: there is no file {where}")
    address, file = (None, where) if is_file else (where, None)
    with opened_client(address, file, timeout_s) as client:
        yield Compilers(client, sharers)


def compile_one(
    source: KernelSource, arch: str, version: str, autogemm: str
) -> CompiledKernel | None:
    """Compile on a worker. None with another compiler or autogemm than asked for, and for a kernel
    that does not compile: the machine that asks finds out why.
    """
    try:
        compiler = _compiler()
        if (compiler.version, __version__) != (version, autogemm):
            return None
        return compiler.compile(source, arch)
    except AutogemmError:
        return None


@cache
def _compiler() -> Compiler:
    """The compiler of this worker process, with the cache of its machine."""
    return Compiler()

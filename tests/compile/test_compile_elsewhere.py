"""Kernels that Dask workers without a GPU compile: real processes, real NVRTC."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sampling import one_in
from waiting import PATIENCE_S, wait_until

from autogemm.cluster import helped
from autogemm.cluster.compiling import Compilers, opened_compilers
from autogemm.compile import Compiler, nvrtc
from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout
from autogemm.support.errors import ClusterError, KernelCompileError

pytestmark = pytest.mark.compile

ROOT = Path(__file__).parents[2]
SCALE = 'extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= %d; }\n'
BROKEN = 'extern "C" __global__ void broken() { no_such_name = 1; }\n'
# No function: what reaches this machine's own compiler fails.
NONE_HERE = "autogemm.compile.nvrtc:nothing_is_compiled_here"


# The number of kernels in the family of the fake GPU.
NUM_KERNELS = 16


def source_of(text: str) -> KernelSource:
    return KernelSource("test", "0" * 64, Config("test", ()), Layout.NN, text)


class Cluster:
    """A scheduler and its workers, in a folder that has its file and the workers' caches."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._started("scheduler", "--port", "0", "--host", "127.0.0.1")
        wait_until(self.file.exists, "the scheduler is there")

    def cache(self, name: str) -> Path:
        return self._folder / f"cache-{name}"

    def worker(self, name: str) -> "subprocess.Popen[bytes]":
        where = ("--local-directory", str(self._folder / name), "--name", name)
        return self._started("worker", "--no-nanny", "--nthreads", "2", *where)

    def _started(self, kind: str, *arguments: str) -> "subprocess.Popen[bytes]":
        name = arguments[-1]
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard"]
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(self.file), *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT), "AUTOGEMM_CACHE": str(self.cache(name))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def with_workers(cluster: Cluster, count: int) -> Iterator[Compilers]:
    """The workers of the cluster, once so many threads of them are there."""
    with opened_compilers(str(cluster.file)) as compilers:
        wait_until(lambda: compilers.slots >= count, "the workers are there")
        yield compilers


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with closing(Cluster(tmp_path)) as opened:
        yield opened


def test_workers_compile_for_several_machines_and_share_what_they_compiled(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.worker("w0")
    source = source_of(SCALE % 3)
    with (
        with_workers(cluster, 2),
        closing(Compiler(tmp_path / "first", 1, builder=NONE_HERE)) as first,
        closing(Compiler(tmp_path / "second", 1, builder=NONE_HERE)) as second,
        closing(Compiler(tmp_path / "alone", 1)) as alone,
    ):
        with helped(first, str(cluster.file)), helped(second, str(cluster.file)):
            assert first.threads == 3, "its own and those of the worker"
            made = first.submit(source, "sm_90").result(PATIENCE_S)
            again = second.compile(source, "sm_90")
        assert first.threads == 1
        expected = alone.compile(source, "sm_90")
    assert (made.cubin, made.resources) == (expected.cubin, expected.resources)
    assert made.seconds > 0
    assert again.cubin == made.cubin
    assert again.seconds in (0, made.seconds), "the worker had it"
    names = {
        place: {path.name for path in (tmp_path / place / "cubins").iterdir()}
        for place in ("first", "second", "alone", "cache-w0")
    }
    assert len(names["first"]) == 1
    assert all(one == names["first"] for one in names.values()), "one key on every machine"


def test_what_fails_elsewhere_is_judged_here(cluster: Cluster, tmp_path: Path) -> None:
    cluster.worker("w0")
    with with_workers(cluster, 2) as there, closing(Compiler(tmp_path / "own", 1)) as compiler:
        compiler.use(there)
        with pytest.raises(KernelCompileError, match="no_such_name") as caught:
            compiler.compile(source_of(BROKEN), "sm_90")
        assert caught.value.source_path is not None
        assert caught.value.source_path.parent == tmp_path / "own" / "failed"
        # Another compiler's machine code would be stored as this one's.
        assert there.compile(source_of(SCALE % 4), "sm_90", "nvrtc 1.0.0") is None
        assert there.compile(source_of(SCALE % 4), "sm_90", compiler.version) is not None


def test_kill_9_of_a_worker_costs_a_compilation_here(cluster: Cluster, tmp_path: Path) -> None:
    worker = cluster.worker("w0")
    source = source_of(SCALE % 5)
    with with_workers(cluster, 2) as there, closing(Compiler(tmp_path / "own", 1)) as compiler:
        compiler.use(there)
        worker.send_signal(signal.SIGSTOP)
        made = compiler.submit(source, "sm_90")
        with pytest.raises(TimeoutError):
            made.result(1.5)
        worker.kill()
        assert made.result(PATIENCE_S).seconds > 0
        assert not cluster.cache("w0").exists()
        # A worker that comes later helps again.
        cluster.worker("w1")
        wait_until(lambda: there.slots == 2, "the other worker is there")
        compiler.compile(source_of(SCALE % 6), "sm_90")
        assert len(list((cluster.cache("w1") / "cubins").iterdir())) == 1


def test_a_scheduler_that_dies_leaves_it_to_this_machine(cluster: Cluster, tmp_path: Path) -> None:
    cluster.worker("w0")
    with with_workers(cluster, 2) as there, closing(Compiler(tmp_path / "own", 1)) as compiler:
        compiler.use(there)
        cluster.scheduler.kill()
        with ThreadPoolExecutor(2) as threads:
            made = [
                threads.submit(compiler.compile, source_of(SCALE % number), "sm_90")
                for number in (7, 8)
            ]
            assert all(one.result(PATIENCE_S).cubin for one in made)
    with closing(Compiler(tmp_path / "late", 1)) as compiler:
        (tmp_path / "none.json").unlink(missing_ok=True)
        with (
            pytest.raises(ClusterError, match="there is no file"),
            helped(compiler, str(tmp_path / "none.json")),
        ):
            pass


@pytest.mark.parametrize("gpu", one_in(2, ["all", "0"]))
def test_tune_has_its_kernels_compiled_elsewhere(
    cluster: Cluster, tmp_path: Path, gpu: str
) -> None:
    cluster.worker("w0")
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "nvrtc").touch()
    paths = (ROOT, ROOT / "tests", ROOT / "tests" / "unit")
    words = ["--size", "128x512x256", "--size", "512x512x256", "--json", "--quiet"]
    words += ["--budget", "none", "--sampler", "exhaustive", "--fix", "ECHO=0", "--rounds", "2"]
    words += ["--gpu", gpu, "--db", str(folder / "t.db"), "--compilers", str(cluster.file)]
    with with_workers(cluster, 2) as there:
        # The first kernel takes a worker longer than the others.
        assert there.compile(source_of(SCALE % 9), "sm_90", nvrtc.version()) is not None
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests/unit/fake_cluster.py"), str(folder), "1", *words],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert all(one["ratio"] for one in json.loads(done.stdout)["problems"])
    with closing(sqlite3.connect(folder / "t.db")) as connection:
        found = connection.execute("SELECT DISTINCT status FROM run_trials").fetchall()
    assert found == [("ok",)]
    own, theirs = (
        {path.name for path in (place / "cubins").iterdir()}
        for place in (folder / "cache-of-0", cluster.cache("w0"))
    )
    assert len(own) == NUM_KERNELS
    assert len(theirs & own) == len(theirs) - 1
    assert len(theirs) > NUM_KERNELS // 4, "this machine took a second for each of the others"

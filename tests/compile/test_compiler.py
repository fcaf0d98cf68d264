"""Real NVRTC, no GPU."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE_S

from autogemm.compile import Compiler, nvrtc, ptx
from autogemm.compile.processes import CompilerProcesses
from autogemm.model.config import Config
from autogemm.model.kernel import CompiledKernel, KernelSource
from autogemm.model.problem import Layout
from autogemm.support.errors import (
    AutogemmError,
    CompilerMissingError,
    KernelCompileError,
    UsageError,
)
from autogemm.support.resources import data_folder

pytestmark = pytest.mark.compile

SCALE = """\
extern "C" __global__ void scale(float* x, float factor)
{
    x[threadIdx.x] *= factor;
}
"""

# 64 values live at once and at most 32 registers for each of 2 * 1024 threads.
SPILLING = """\
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* x, int n)
{
    float value[64];
    #pragma unroll
    for (int i = 0; i < 64; ++i) value[i] = x[i * n + threadIdx.x];
    for (int k = 0; k < n; ++k) {
        #pragma unroll
        for (int i = 0; i < 64; ++i) value[i] = value[i] * value[(i + 7) % 64] + x[k];
    }
    #pragma unroll
    for (int i = 0; i < 64; ++i) x[i * n + threadIdx.x] = value[i];
}
"""

STATIC_SMEM = """\
extern "C" __global__ void reversed(float* x)
{
    __shared__ float tile[300];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[299 - threadIdx.x];
}
"""

BROKEN = 'extern "C" __global__ void broken()\n{\n    no_such_name = 1;\n}\n'


def source_of(text: str) -> KernelSource:
    return KernelSource("test", "0" * 64, Config("test", ()), Layout.NN, text)


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    compiler = Compiler(tmp_path, threads=2)
    yield compiler
    compiler.close()


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """Source text and options of every compilation that reaches NVRTC."""
    calls: list[tuple[str, tuple[str, ...]]] = []
    real = CompilerProcesses.build

    def counted(
        self: CompilerProcesses, source: str, name: str, options: tuple[str, ...]
    ) -> nvrtc.Build:
        calls.append((source, options))
        return real(self, source, name, options)

    monkeypatch.setattr(CompilerProcesses, "build", counted)
    return calls


def entries(folder: Path) -> list[Path]:
    return list((folder / "cubins").iterdir())


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_compiles_for_every_architecture(arch: str, compiler: Compiler) -> None:
    if arch not in nvrtc.supported_archs():
        pytest.skip(f"{compiler.version} does not know {arch}")
    kernel = compiler.compile(source_of(SCALE), arch)
    assert kernel.cubin.startswith(b"\x7fELF")
    assert kernel.arch == arch
    assert f"--gpu-architecture={arch}" in kernel.options
    assert kernel.compiler == compiler.version
    assert kernel.source_sha256 == source_of(SCALE).sha256
    assert kernel.seconds > 0
    (resources,) = kernel.resources
    assert resources.kernel == "scale"
    assert 0 < resources.registers <= 32
    assert resources.spill_store_bytes == resources.spill_load_bytes == 0
    assert resources.static_smem_bytes == resources.stack_bytes == 0


def test_spills_are_seen(compiler: Compiler) -> None:
    (resources,) = compiler.compile(source_of(SPILLING), "sm_90").resources
    assert resources.registers <= 32
    assert resources.spill_store_bytes > 100
    assert resources.spill_load_bytes > 100
    assert resources.stack_bytes > 100


def test_every_kernel_of_a_source_has_its_resources(compiler: Compiler) -> None:
    kernel = compiler.compile(source_of(STATIC_SMEM + SCALE), "sm_80")
    static_smem = {each.kernel: each.static_smem_bytes for each in kernel.resources}
    assert static_smem == {"reversed": 1200, "scale": 0}


def test_multiply_and_add_are_contracted_and_nothing_else_is_fast(compiler: Compiler) -> None:
    text = """\
extern "C" __global__ void contracted(float* x)
{
    x[0] = x[1] * x[2] + x[3];
    x[4] = x[5] / x[6];
}
"""
    emitted = ptx(source_of(text), "sm_90")
    assert "fma.rn.f32" in emitted
    assert "div.rn.f32" in emitted
    assert not any(
        "fast" in option for option in compiler.compile(source_of(text), "sm_90").options
    )


def test_version_is_exact(compiler: Compiler) -> None:
    name, number = compiler.version.split()
    assert name == "nvrtc"
    assert len(number.split(".")) >= 3


def test_an_architecture_variant_compiles(compiler: Compiler) -> None:
    # wgmma exists in sm_90a alone.
    text = 'extern "C" __global__ void a() { asm volatile("wgmma.fence.sync.aligned;"); }'
    assert compiler.compile(source_of(text), "sm_90a").arch == "sm_90a"
    with pytest.raises(KernelCompileError, match=r"sm_90\b"):
        compiler.compile(source_of(text), "sm_90")


def test_a_source_may_need_an_architecture_variant(compiler: Compiler) -> None:
    asks = (data_folder("templates") / "parts/ptx/sm_90a.cu.jinja").read_text()
    text = 'extern "C" __global__ void a() { asm volatile("wgmma.fence.sync.aligned;"); }'
    kernel = compiler.compile(source_of(asks + text), "sm_90")
    assert (kernel.arch, kernel.options[0]) == ("sm_90a", "--gpu-architecture=sm_90a")
    assert ".target sm_90a" in ptx(source_of(asks + text), "sm_90")
    with pytest.raises(KernelCompileError, match=r"for compute capability 9\.0 alone"):
        compiler.compile(source_of(asks + text), "sm_100")


@pytest.mark.parametrize("arch", ["sm_42", "90", "sm_90 -G", "compute_90", "", "sm_aff"])
def test_unknown_architecture_names_the_known(arch: str, compiler: Compiler) -> None:
    for attempt in (compiler.compile, ptx):
        with pytest.raises(UsageError, match=r"sm_80, .*sm_90") as caught:
            attempt(source_of(SCALE), arch)
        assert repr(arch) in str(caught.value)


class TestCache:
    def test_a_second_compiler_takes_the_kernel_from_disk(
        self, tmp_path: Path, builds: list[Any], compiler: Compiler
    ) -> None:
        first = compiler.compile(source_of(SPILLING), "sm_90")
        other = Compiler(tmp_path, threads=1)
        second = other.compile(source_of(SPILLING), "sm_90")
        other.close()
        assert len(builds) == 1
        assert second.cubin == first.cubin
        assert second.resources == first.resources
        assert (second.log, second.options, second.compiler, second.arch) == (
            first.log,
            first.options,
            first.compiler,
            first.arch,
        )
        assert second.seconds == 0.0

    @pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "foreign"])
    def test_a_damaged_entry_is_compiled_again(
        self, damage: str, tmp_path: Path, builds: list[Any], compiler: Compiler
    ) -> None:
        good = compiler.compile(source_of(SCALE), "sm_90")
        (entry,) = entries(tmp_path)
        content = entry.read_bytes()
        middle = len(content) // 2
        entry.write_bytes(
            {
                "flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
                "truncate": content[:-1],
                "empty": b"",
                "foreign": b"PK\x03\x04 something else\n",
            }[damage]
        )
        again = compiler.compile(source_of(SCALE), "sm_90")
        assert (len(builds), again.cubin) == (2, good.cubin)
        # The entry has been repaired.
        compiler.compile(source_of(SCALE), "sm_90")
        assert len(builds) == 2

    def test_source_and_architecture_are_part_of_the_key(
        self, tmp_path: Path, builds: list[Any], compiler: Compiler
    ) -> None:
        for text, arch in [(SCALE, "sm_80"), (SCALE, "sm_90"), (SCALE + "\n", "sm_90")]:
            compiler.compile(source_of(text), arch)
        assert len(builds) == len(entries(tmp_path)) == 3

    def test_options_are_part_of_the_key(
        self, builds: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiler.compile(source_of(SCALE), "sm_90")
        monkeypatch.setattr("autogemm.compile.compiler._LANGUAGE", "--std=c++20")
        kernel = compiler.compile(source_of(SCALE), "sm_90")
        assert len(builds) == 2
        assert "--std=c++20" in kernel.options

    def test_the_compilers_version_is_part_of_the_key(
        self, tmp_path: Path, builds: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiler.compile(source_of(SCALE), "sm_90")
        monkeypatch.setattr(nvrtc, "version", lambda: "nvrtc 99.9.1")
        other = Compiler(tmp_path, threads=1)
        kernel = other.compile(source_of(SCALE), "sm_90")
        other.close()
        assert (len(builds), kernel.compiler) == (2, "nvrtc 99.9.1")

    def test_no_temporary_files_stay(self, tmp_path: Path, compiler: Compiler) -> None:
        compiler.compile(source_of(SCALE), "sm_90")
        with pytest.raises(KernelCompileError):
            compiler.compile(source_of(BROKEN), "sm_90")
        names = [path.suffix for path in tmp_path.rglob("*") if path.is_file()]
        assert sorted(names) == [".cu", ".cubin", ".log"]

    def test_a_folder_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(AutogemmError, match="AUTOGEMM_CACHE") as caught:
            Compiler(tmp_path / "file" / "cache")
        assert str(tmp_path / "file" / "cache") in str(caught.value)

    def test_the_default_is_the_cache_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "chosen"))
        compiler = Compiler(threads=1)
        compiler.compile(source_of(SCALE), "sm_90")
        compiler.close()
        assert len(entries(tmp_path / "chosen")) == 1

    def test_a_full_disk_costs_the_entry_and_one_warning(
        self,
        tmp_path: Path,
        compiler: Compiler,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("autogemm.compile.cubin_cache.write_atomically", full)
        with caplog.at_level(logging.WARNING):
            for text in (SCALE, SCALE + "\n"):
                assert compiler.compile(source_of(text), "sm_90").cubin
        assert [record.getMessage() for record in caplog.records] == [
            "compiled kernels are not kept: [Errno 28] No space left on device"
        ]
        assert entries(tmp_path) == []


class TestError:
    def test_keeps_source_and_log_and_names_the_first_error(
        self, tmp_path: Path, compiler: Compiler
    ) -> None:
        with pytest.raises(KernelCompileError) as caught:
            compiler.compile(source_of(BROKEN), "sm_90")
        path = tmp_path / "failed" / f"{source_of(BROKEN).sha256}.cu"
        assert caught.value.source_path == path
        assert path.read_text() == BROKEN
        assert path.with_suffix(".log").read_text().strip() == caught.value.log
        message = str(caught.value)
        assert 'kernel.cu(3): error: identifier "no_such_name" is undefined' in message
        assert str(path) in message
        assert "\n" not in message
        assert entries(tmp_path) == []

    def test_an_error_of_the_assembler_is_one_too(self, compiler: Compiler) -> None:
        text = 'extern "C" __global__ void bad() { asm volatile("bogus.f32;"); }'
        with pytest.raises(KernelCompileError, match="bogus"):
            compiler.compile(source_of(text), "sm_90")

    def test_is_raised_by_the_future(self, compiler: Compiler) -> None:
        with pytest.raises(KernelCompileError):
            compiler.submit(source_of(BROKEN), "sm_90").result()

    def test_a_source_that_cannot_be_kept_is_still_reported(
        self, tmp_path: Path, compiler: Compiler
    ) -> None:
        in_the_way = tmp_path / "failed" / f"{source_of(BROKEN).sha256}.cu"
        in_the_way.mkdir(parents=True)
        with pytest.raises(KernelCompileError, match=r"no_such_name.*could not be kept") as caught:
            compiler.compile(source_of(BROKEN), "sm_90")
        assert caught.value.source_path is None
        assert list(in_the_way.parent.iterdir()) == [in_the_way]

    def test_ptx_keeps_the_source_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path))
        with pytest.raises(KernelCompileError, match="no_such_name") as caught:
            ptx(source_of(BROKEN), "sm_90")
        assert caught.value.source_path is not None
        assert caught.value.source_path.read_text() == BROKEN


class TestThreads:
    def test_the_same_kernel_asked_for_at_once_is_compiled_once(
        self, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, asked_again, go_on = threading.Event(), threading.Event(), threading.Event()
        calls = []
        real = CompilerProcesses.build

        def slow(
            self: CompilerProcesses, source: str, name: str, options: tuple[str, ...]
        ) -> nvrtc.Build:
            calls.append(source)
            begun.set()
            assert go_on.wait(PATIENCE_S)
            return real(self, source, name, options)

        class Awaited(Future[CompiledKernel]):
            """A caller that waits for it has found it in flight."""

            def result(self, timeout: float | None = None) -> CompiledKernel:
                asked_again.set()
                return super().result(timeout)

        monkeypatch.setattr(CompilerProcesses, "build", slow)
        monkeypatch.setattr("autogemm.compile.compiler.Future", Awaited)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(compiler.compile, source_of(SCALE), "sm_90")
            assert begun.wait(PATIENCE_S)
            second = pool.submit(compiler.compile, source_of(SCALE), "sm_90")
            assert asked_again.wait(PATIENCE_S)
            go_on.set()
            assert first.result() is second.result()
        assert calls == [SCALE]

    def test_two_kernels_are_in_the_compiler_together(self, tmp_path: Path) -> None:
        # Each waits until the other has begun.
        builder = "faulty_compilers:meet"
        with closing(Compiler(tmp_path, threads=2, builder=builder)) as compiler:
            futures = [
                compiler.submit(source_of(f"// {tmp_path / name}"), "sm_90") for name in "ab"
            ]
            for future in futures:
                assert future.result().cubin == b"both"

    def test_many_at_once_do_not_mix(self, compiler: Compiler) -> None:
        texts = [SCALE.replace("scale", f"scale_{number}") for number in range(16)]
        futures = [compiler.submit(source_of(text), "sm_90") for text in texts]
        for number, future in enumerate(futures):
            kernel = future.result()
            assert [each.kernel for each in kernel.resources] == [f"scale_{number}"]
            assert f"scale_{number}".encode() in kernel.cubin

    def test_a_failure_does_not_stay_in_flight(self, compiler: Compiler, builds: list[Any]) -> None:
        for _ in range(2):
            with pytest.raises(KernelCompileError):
                compiler.compile(source_of(BROKEN), "sm_90")
        assert len(builds) == 2

    def test_close_may_be_called_twice(self, tmp_path: Path) -> None:
        compiler = Compiler(tmp_path)
        compiler.close()
        compiler.close()

    @pytest.mark.parametrize("threads", [0, -1])
    def test_fewer_than_one_thread_is_refused(self, threads: int, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=str(threads)):
            Compiler(tmp_path, threads=threads)


class TestMissingCompiler:
    def test_no_bindings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        nvrtc._api.cache_clear()
        nvrtc.version.cache_clear()
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
        with pytest.raises(CompilerMissingError, match=r"pip install .*nvidia-cuda-nvrtc-cu12"):
            Compiler(tmp_path)

    def test_no_library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from cuda.bindings import nvrtc as bindings

        def missing() -> None:
            raise RuntimeError('Failure finding "libnvrtc.so":\n  no such file')

        nvrtc._api.cache_clear()
        nvrtc.version.cache_clear()
        monkeypatch.setattr(bindings, "nvrtcVersion", missing)
        with pytest.raises(CompilerMissingError, match="pip install nvidia-cuda-nvrtc") as caught:
            Compiler(tmp_path)
        assert "\n" not in str(caught.value)

    def test_importing_the_package_loads_nothing(self) -> None:
        program = "import sys, autogemm.compile; print('cuda.bindings' in sys.modules)"
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == "False"

"""Libraries of others on a simulated GPU: right results, on our stream, the fastest tile."""

import ctypes
import importlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_fakes import CUTLASS, NVCC, TORCH_US, FakeTorch, FakeTriton
from simulated_gpu import CublasLibrary, Kernel, SimulatedGpu, compiled_helpers, prepared_problem

from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.elements import stored_type
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.tools import toolkit
from autogemm.targets.cuda.worker.gpu import cublas
from autogemm.targets.cuda.worker.libraries import LIBRARIES, NotHereError, with_cutlass
from autogemm.targets.cuda.worker.libraries.baselines import fastest_of
from autogemm.targets.cuda.worker.libraries.with_cutlass import Build
from autogemm.targets.cuda.worker.problem.prepared import Contestant, PreparedProblem

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]
SIMT = with_cutlass.BUILDS[DType.F32]
FROM_PYTHON = [f"{one}_{dtype}" for one in ("torch", "triton") for dtype in ("f32", "bf16", "f16")]
ROOM = "autogemm.targets.cuda.worker.libraries"
PROBLEMS = [
    Problem(13, 9, 40, alpha=1.25, beta=0.5, ldc=12),
    Problem(13, 9, 40, lda=43, ldb=42),
    Problem(5, 130, 33, alpha=-2.0, beta=-1.0),
    Problem(70, 6, 8, alpha=3.0),
    Problem(6, 7, 9, beta=1.0),
]


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled_helpers(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def gpu(helpers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    monkeypatch.setattr(cublas, "load_library", CublasLibrary)
    return SimulatedGpu(helpers)


@pytest.fixture
def torch(gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch(gpu)
    monkeypatch.setitem(sys.modules, "torch", fake)
    for name in ("with_torch", "with_triton"):
        # Imported anew, with what is there now.
        monkeypatch.setitem(sys.modules, f"{ROOM}.{name}", None)
        monkeypatch.delitem(sys.modules, f"{ROOM}.{name}")
        monkeypatch.delattr(importlib.import_module(ROOM), name, raising=False)
    return fake


@pytest.fixture
def triton(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    fake = FakeTriton(torch)
    monkeypatch.setitem(sys.modules, "triton", fake)
    monkeypatch.setitem(sys.modules, "triton.language", fake.language)
    return fake


def made(name: str, prepared: PreparedProblem) -> tuple[Contestant, str]:
    return LIBRARIES[name].make(prepared, prepared._cublas)


def dtype_of(name: str) -> DType:
    return LIBRARIES[name].dtype


def laid_out(problem: Problem, layout: Layout) -> Problem:
    """With rows as much longer than they need to be as those of the problem."""
    spare_a, spare_b = problem.lda - problem.a_shape[1], problem.ldb - problem.b_shape[1]
    packed = replace(problem, layout=layout, lda=0, ldb=0)
    return replace(packed, lda=packed.lda + spare_a, ldb=packed.ldb + spare_b)


@pytest.mark.parametrize("layout", list(Layout), ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.label.replace(" ", "-"))
@pytest.mark.parametrize("name", FROM_PYTHON)
def test_the_result_is_that_of_the_gemm(
    gpu: SimulatedGpu, triton: FakeTriton, name: str, problem: Problem, layout: Layout
) -> None:
    """TF32 is off, sums are FP32, C is added where beta is not 0, all on the worker's stream."""
    gpu.stream.ptr = 77
    prepared = prepared_problem(gpu, replace(laid_out(problem, layout), dtype=dtype_of(name)))
    contestant, _ = made(name, prepared)
    assert prepared.check(contestant).complaint == ""
    assert set(triton.torch.streams) == {"stream 77"}


@pytest.mark.parametrize(
    "problem",
    [
        Problem(13, 9, 40, Layout.NT, DType.E4M3),
        Problem(16, 48, 32, Layout.NT, DType.E4M3, lda=48, ldb=64, ldc=80, alpha=2.0),
        Problem(70, 6, 300, Layout.NT, DType.E4M3, alpha=-0.75),
    ],
    ids=lambda one: one.label.replace(" ", "-"),
)
def test_torch_multiplies_8_bit_floats(
    gpu: SimulatedGpu, torch: FakeTorch, problem: Problem
) -> None:
    """With alpha as the scale of A, on the worker's stream."""
    gpu.stream.ptr = 77
    prepared = prepared_problem(gpu, problem)
    contestant, _ = made("torch_e4m3", prepared)
    assert prepared.check(contestant).complaint == ""
    assert set(torch.streams) == {"stream 77"}


@pytest.mark.parametrize("adds_fast", [False, True])
def test_torch_adds_8_bit_floats_in_the_faster_way(
    gpu: SimulatedGpu, torch: FakeTorch, adds_fast: bool
) -> None:
    torch.scaled_us[adds_fast] = 10.0
    prepared = prepared_problem(gpu, Problem(16, 16, 32, Layout.NT, DType.E4M3))
    contestant, version = made("torch_e4m3", prepared)
    assert set(torch.adds_fast) == {False, True}
    how = "with" if adds_fast else "without"
    assert version == f"PyTorch 2.9, {how} fast accumulation"
    assert prepared.check(contestant).launch_us == 10.0
    assert torch.adds_fast[-1] is adds_fast


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (Problem(16, 16, 16, Layout.NN, DType.E4M3), "8-bit floats need layout nt, got nn"),
        (Problem(16, 16, 16, Layout.NT, DType.E4M3, beta=1.0), "adds no C: leave out beta, got 1"),
        (Problem(16, 16, 16, Layout.NT, DType.E4M3, batch=Batch(2)), "leave out --batch"),
    ],
)
@pytest.mark.usefixtures("torch")
def test_what_torch_does_not_do_with_8_bit_floats_is_said(
    gpu: SimulatedGpu, problem: Problem, says: str
) -> None:
    with pytest.raises(NotHereError, match=says):
        made("torch_e4m3", prepared_problem(gpu, problem))


def test_torch_says_its_version_and_takes_its_time(gpu: SimulatedGpu, torch: FakeTorch) -> None:
    prepared = prepared_problem(gpu, PROBLEMS[0])
    contestant, version = made("torch_f32", prepared)
    assert version == "PyTorch 2.9"
    assert prepared.check(contestant).launch_us == TORCH_US


@pytest.mark.parametrize(
    ("alpha", "beta", "adds"), [(1.0, 0.0, 0), (2.0, 0.0, 1), (1.0, 1.0, 1), (1.0, -1.0, 1)]
)
def test_torch_is_not_asked_to_add_what_is_not_there(
    gpu: SimulatedGpu, torch: FakeTorch, alpha: float, beta: float, adds: int
) -> None:
    """``mm`` where it does: it is the faster call."""
    added = []
    torch.addmm = lambda *_, **__: added.append(1)  # type: ignore[method-assign]
    prepared = prepared_problem(gpu, Problem(8, 8, 8, alpha=alpha, beta=beta))
    contestant, _ = made("torch_f32", prepared)
    contestant.queue(prepared.reals)
    assert len(added) == adds


@pytest.mark.parametrize("name", FROM_PYTHON)
def test_a_set_of_inputs_with_a_c_of_its_own_has_its_result_there(
    gpu: SimulatedGpu, triton: FakeTriton, name: str
) -> None:
    problem = Problem(16, 16, 16, dtype=dtype_of(name), beta=1.0)
    prepared = prepared_problem(gpu, problem, l2=CacheState.ROTATE)
    contestant, _ = made(name, prepared)
    first, second = prepared.timed[:2]
    for one in (first, second):
        into: Any = one.own_c
        before = np.empty((16, 16), stored_type(problem.dtype.c))
        after = np.empty_like(before)
        gpu.read(into, before)
        contestant.queue(one)
        gpu.read(into, after)
        assert not np.array_equal(before, after)


@pytest.mark.parametrize(
    ("name", "tile", "shown"),
    [
        ("triton_f32", (64, 64, 32, 4, 3), "64x64x32"),
        ("triton_f32", (32, 64, 32, 2, 4), "32x64x32"),
        ("triton_tf32x3", (128, 128, 16, 8, 4), "128x128x16"),
        ("triton_tf32x3", (64, 128, 32, 4, 3), "64x128x32"),
        ("triton_bf16", (128, 256, 64, 8, 3), "128x256x64"),
        ("triton_f16", (64, 32, 32, 2, 5), "64x32x32"),
    ],
)
def test_triton_runs_the_fastest_of_its_tiles_in_that_precision(
    gpu: SimulatedGpu, triton: FakeTriton, name: str, tile: tuple[int, ...], shown: str
) -> None:
    triton.times_us[tile] = 30.0
    prepared = prepared_problem(gpu, Problem(70, 130, 20, dtype=dtype_of(name)))
    contestant, version = made(name, prepared)
    assert version == f"Triton 3.5, tile {shown}"
    tried = {one for _, one in triton.launched}
    assert len(tried) == (5 if dtype_of(name) is DType.F32 else 7)
    assert prepared.check(contestant).launch_us == 30.0
    # A program for each tile of C, no more.
    bm, bn = tile[:2]
    assert triton.launched[-1] == (-(-70 // bm) * -(-130 // bn), tile)
    assert triton.language.precisions == {"tf32x3" if name == "triton_tf32x3" else "ieee"}


def test_triton_goes_through_all_tiles_once_where_groups_of_rows_are_not_full(
    gpu: SimulatedGpu, triton: FakeTriton
) -> None:
    """11 tiles of rows, 8 in the first group and 3 in the second, by 3 of columns."""
    triton.times_us[32, 64, 32, 2, 4] = 30.0
    prepared = prepared_problem(gpu, Problem(340, 130, 8))
    contestant, _ = made("triton_f32", prepared)
    assert prepared.check(contestant).complaint == ""
    assert triton.launched[-1] == (33, (32, 64, 32, 2, 4))


def test_the_fastest_is_that_of_launches_after_the_first(gpu: SimulatedGpu) -> None:
    """The first loads or compiles code: the slow one begins quickly here, the quick one slowly."""
    prepared = prepared_problem(gpu, PROBLEMS[0])

    class Loading(Kernel):
        loading_us = 0.0

        def queue(self, inputs: Any) -> None:
            gpu.now_us += 0.0 if self.num_launches else self.loading_us
            super().queue(inputs)

    kernels = [Loading(prepared, time_us) for time_us in (30.0, 20.0, 25.0)]
    kernels[1].loading_us = 9000.0
    assert fastest_of(prepared, kernels) == 1
    assert {one.num_launches for one in kernels} == {4}


@pytest.mark.parametrize(
    ("name", "missing", "says"),
    [
        ("torch_f32", "torch", "pip install torch"),
        ("torch_e4m3", "torch", "pip install torch"),
        ("triton_f32", "torch", "pip install torch triton"),
        ("triton_tf32x3", "triton", "pip install torch triton"),
    ],
)
@pytest.mark.usefixtures("triton")
def test_what_is_not_installed_says_what_to_do(
    gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch, name: str, missing: str, says: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(NotHereError, match=says):
        problem = replace(PROBLEMS[1], layout=Layout.NT, lda=0, ldb=0, dtype=dtype_of(name))
        made(name, prepared_problem(gpu, problem))


class Toolkit:
    """A folder with nvcc and CUTLASS's headers, both found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        nvcc = folder / "nvcc"
        nvcc.write_text(NVCC.replace("FOLDER", str(folder)))
        nvcc.chmod(0o755)
        (folder / "library.cpp").write_text(CUTLASS)
        self.headers = folder / "cutlass_library" / "source" / "include"
        (self.headers / "cutlass").mkdir(parents=True)
        (folder / "cutlass_library" / "__init__.py").touch()
        version = "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 1\n"
        (self.headers / "cutlass" / "version.h").write_text(version)

    @property
    def commands(self) -> list[str]:
        path = self.folder / "commands"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toolkit]:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    toolkit.program_version.cache_clear()
    yield Toolkit(tmp_path)
    toolkit.program_version.cache_clear()
    sys.modules.pop("cutlass_library", None)


class WithLibrary(SimulatedGpu):
    """A GPU whose clock is that of the library too."""

    loaded: ctypes.CDLL | None = None

    def event(self) -> float:
        spent = ctypes.c_double.in_dll(self.loaded, "now_us").value if self.loaded else 0.0
        return self.now_us + spent


@pytest.fixture
def watched(
    helpers: ctypes.CDLL, gpu: SimulatedGpu, nvcc: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> WithLibrary:
    one = WithLibrary(helpers)
    one.device.arch = 90
    built = with_cutlass.built

    def noted(include: Path, arch: int, build: Build) -> Path:
        path = built(include, arch, build)
        one.loaded = ctypes.CDLL(str(path))
        return path

    monkeypatch.setattr(with_cutlass, "built", noted)
    return one


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.label.replace(" ", "-"))
def test_cutlass_runs_its_fastest_tile_on_our_stream(
    watched: WithLibrary, problem: Problem
) -> None:
    watched.stream.ptr = 0x123456789AB
    prepared = prepared_problem(watched, problem)
    contestant, version = made("cutlass_f32", prepared)
    assert version == "CUTLASS 4.2.1, tile 16x8 4 stages"
    checked = prepared.check(contestant)
    assert (checked.complaint, checked.launch_us) == ("", 20.0)
    assert watched.loaded is not None
    assert ctypes.c_void_p.in_dll(watched.loaded, "seen_stream").value == 0x123456789AB


def test_cutlass_writes_to_the_c_of_its_inputs(watched: WithLibrary) -> None:
    prepared = prepared_problem(watched, Problem(16, 16, 16, beta=1.0), l2=CacheState.ROTATE)
    contestant, _ = made("cutlass_f32", prepared)
    one = prepared.timed[1]
    into: Any = one.own_c
    before, after = (np.empty((16, 16), np.float32) for _ in range(2))
    watched.read(into, before)
    contestant.queue(one)
    watched.read(into, after)
    assert not np.array_equal(before, after)


def test_a_tile_that_refuses_a_problem_takes_no_part(watched: WithLibrary) -> None:
    prepared = prepared_problem(watched, Problem(8, 11, 8))
    contestant, version = made("cutlass_f32", prepared)
    assert version == "CUTLASS 4.2.1, tile 8x8 2 stages"
    assert prepared.check(contestant).complaint == ""


def test_cutlass_that_refuses_a_problem_gives_its_status(watched: WithLibrary) -> None:
    with pytest.raises(DeviceError, match="status 3"):
        made("cutlass_f32", prepared_problem(watched, Problem(8, 8, 7)))


@pytest.mark.parametrize("name", ["cutlass_bf16", "cutlass_f16"])
def test_cutlass_multiplies_16_bits_with_tensor_cores(
    watched: WithLibrary, nvcc: Toolkit, name: str
) -> None:
    prepared = prepared_problem(watched, Problem(8, 16, 24, dtype=dtype_of(name)))
    _, version = made(name, prepared)
    assert version == "CUTLASS 4.2.1, tile 16x8 4 stages"
    (command,) = nvcc.commands
    element = "bfloat16_t" if name == "cutlass_bf16" else "half_t"
    for option in (f"-DELEMENT=cutlass::{element}", "-arch=sm_90a", "-DHAS_WGMMA"):
        assert option in command
    assert "cutlass_tensor_gemm.cu" in command


def test_cutlass_for_16_bits_knows_wgmma_on_hopper_alone(nvcc: Toolkit) -> None:
    build = with_cutlass.BUILDS[DType.BF16]
    assert len({with_cutlass.built(nvcc.headers, arch, build) for arch in (80, 89, 90, 100)}) == 4
    assert [("-DHAS_WGMMA" in one, "sm_90a" in one) for one in nvcc.commands] == [
        *((False, False), (False, False)),
        *((True, True), (False, False)),
    ]


def test_cutlass_for_16_bits_needs_ampere(watched: WithLibrary, nvcc: Toolkit) -> None:
    watched.device.arch = 75
    with pytest.raises(NotHereError, match="for bf16 need sm_80"):
        made("cutlass_bf16", prepared_problem(watched, Problem(8, 8, 8, dtype=DType.BF16)))
    assert not nvcc.commands


@pytest.mark.parametrize("layout", [Layout.NT, Layout.TN, Layout.TT], ids=str)
def test_cutlass_is_for_nn_alone(watched: WithLibrary, nvcc: Toolkit, layout: Layout) -> None:
    with pytest.raises(NotHereError, match="layout nn only"):
        made("cutlass_f32", prepared_problem(watched, Problem(8, 8, 8, layout)))
    assert not nvcc.commands


def test_cutlass_is_built_once_for_an_architecture_and_compiler(nvcc: Toolkit) -> None:
    first = with_cutlass.built(nvcc.headers, 90, SIMT)
    assert first == with_cutlass.built(nvcc.headers, 90, SIMT)
    assert first.parent == nvcc.folder / "cache" / "cutlass"
    (command,) = nvcc.commands
    for option in ("-arch=sm_90", "-shared", f"-I {nvcc.headers}", "-DHAS_CP_ASYNC", "-O3"):
        assert option in command
    older = with_cutlass.built(nvcc.headers, 75, SIMT)
    assert older != first
    assert "-arch=sm_75" in nvcc.commands[1]
    assert "HAS_CP_ASYNC" not in nvcc.commands[1]
    assert with_cutlass.built(nvcc.headers, 80, SIMT) not in {first, older}
    assert "-DHAS_CP_ASYNC" in nvcc.commands[2]
    # Headers of another version are another library.
    version = nvcc.headers / "cutlass" / "version.h"
    version.write_text(version.read_text().replace("PATCH 1", "PATCH 2"))
    assert with_cutlass.built(nvcc.headers, 90, SIMT) != first
    assert len(nvcc.commands) == 4


def test_a_version_that_is_not_said_has_gaps(nvcc: Toolkit) -> None:
    (nvcc.headers / "cutlass" / "version.h").write_text("#define CUTLASS_MAJOR 4\n")
    assert with_cutlass.cutlass_version(nvcc.headers) == "4.?.?"


def test_cutlass_needs_its_headers_and_nvcc(nvcc: Toolkit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_cutlass.cutlass_headers() == nvcc.headers
    with monkeypatch.context() as patch:
        patch.setattr(with_cutlass, "find_program", lambda name: None)
        with pytest.raises(NotHereError, match="CUDA toolkit"):
            with_cutlass.built(nvcc.headers, 90, SIMT)
    (nvcc.headers / "cutlass" / "version.h").unlink()
    with pytest.raises(NotHereError, match="pip install nvidia-cutlass"):
        with_cutlass.cutlass_headers()
    monkeypatch.setattr(with_cutlass, "find_spec", lambda name: None)
    with pytest.raises(NotHereError, match="pip install nvidia-cutlass"):
        with_cutlass.cutlass_headers()


def test_the_first_error_of_nvcc_is_said_and_nothing_is_kept(nvcc: Toolkit) -> None:
    folder = nvcc.folder / "fail"
    shutil.copytree(nvcc.headers, folder)
    with pytest.raises(DeviceError, match=r"cannot be built: x.cu\(1\): error: no b"):
        with_cutlass.built(folder, 90, SIMT)
    assert not list((nvcc.folder / "cache" / "cutlass").iterdir())


def test_nvcc_that_does_not_end_or_cannot_be_run_is_one_line(
    nvcc: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(with_cutlass, "find_program", lambda name: str(nvcc.folder / "none"))
    with pytest.raises(DeviceError, match=r"CUTLASS cannot be built: .*No such file"):
        with_cutlass.built(nvcc.headers, 90, SIMT)
    (nvcc.folder / "nvcc").write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(with_cutlass, "find_program", lambda name: str(nvcc.folder / "nvcc"))
    monkeypatch.setattr(with_cutlass, "BUILD_DEADLINE_S", 0.05)
    monkeypatch.setattr(toolkit, "VERSION_DEADLINE_S", 0.05)
    with pytest.raises(DeviceError, match="timed out after"):
        with_cutlass.built(nvcc.headers, 90, SIMT)

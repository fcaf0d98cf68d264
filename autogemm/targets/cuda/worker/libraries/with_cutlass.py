"""CUTLASS's SIMT SGEMM, and its GEMM of 16 bits on tensor cores, compiled once for this GPU by nvcc
from the headers of its wheel.
"""

import ctypes
import hashlib
import itertools
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout
from autogemm.support.errors import DeviceError
from autogemm.support.files import write_atomically
from autogemm.support.resources import cache_folder
from autogemm.targets.cuda.tools import find_program, program_version
from autogemm.targets.cuda.worker.libraries.baselines import NotHereError, fastest_of
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem

FOLDER = "autogemm.targets.cuda.worker.libraries"


@dataclass(frozen=True, slots=True)
class Build:
    """The kernels for one dtype: their text, and how nvcc reads it.

    ``least_arch`` is the first compute capability that has their instructions.
    """

    source: str
    options: tuple[str, ...] = ()
    least_arch: int = 0


def _on_tensor_cores(element: str) -> Build:
    # mma.sync of bf16 and cp.async come with 80. The headers call constexpr functions of the host.
    options = (f"-DELEMENT=cutlass::{element}", "-w", "--expt-relaxed-constexpr")
    return Build("cutlass_tensor_gemm.cu", options, least_arch=80)


BUILDS = {
    DType.F32: Build("cutlass_gemm.cu"),
    DType.BF16: _on_tensor_cores("bfloat16_t"),
    DType.F16: _on_tensor_cores("half_t"),
}
HOPPER = 90
BUILD_DEADLINE_S = 600.0
# The macros of cutlass/version.h.
VERSION_PARTS = ("MAJOR", "MINOR", "PATCH")


class CutlassContestant:
    """One tile shape of the library."""

    def __init__(self, prepared: PreparedProblem, library: ctypes.CDLL, tile: int) -> None:
        self._prepared_problem, self._library, self.tile = prepared, library, tile
        self._stream = ctypes.c_void_p(prepared.gpu.stream.ptr)

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream. Raises DeviceError when CUTLASS refuses it."""
        problem = self._prepared_problem.problem
        status = self._library.autogemm_gemm(
            ctypes.c_int(self.tile),
            *(ctypes.c_int(extent) for extent in (problem.m, problem.n, problem.k)),
            ctypes.c_float(inputs.alpha),
            *(ctypes.c_void_p(inputs.a.address), ctypes.c_int(problem.lda)),
            *(ctypes.c_void_p(inputs.b.address), ctypes.c_int(problem.ldb)),
            ctypes.c_float(inputs.beta),
            ctypes.c_void_p(inputs.own_c or self._prepared_problem.result.address),
            ctypes.c_int(problem.ldc),
            self._stream,
        )
        if status != 0:
            raise DeviceError(f"CUTLASS gave status {status}")


def fastest_cutlass(prepared: PreparedProblem) -> tuple[CutlassContestant, str]:
    """The contestant with the fastest tile, and what it is. Raises NotHereError, DeviceError."""
    problem, arch = prepared.problem, prepared.gpu.device.arch
    build = BUILDS[problem.dtype]
    if problem.layout is not Layout.NN:
        raise NotHereError("CUTLASS is built for layout nn only")
    if arch < build.least_arch:
        raise NotHereError(f"CUTLASS's kernels for {problem.dtype} need sm_{build.least_arch}")
    include = cutlass_headers()
    library = ctypes.CDLL(str(built(include, arch, build)))
    library.autogemm_tile_name.restype = ctypes.c_char_p
    tiles = _accepted(prepared, library)
    tile = tiles[fastest_of(prepared, tiles)]
    name = library.autogemm_tile_name(tile.tile).decode()
    return tile, f"CUTLASS {cutlass_version(include)}, tile {name}"


def _accepted(prepared: PreparedProblem, library: ctypes.CDLL) -> list[CutlassContestant]:
    """The tiles that take the problem. Raises DeviceError, with its status, if none does."""
    accepted: list[CutlassContestant] = []
    refusal: DeviceError | None = None
    for tile in range(library.autogemm_num_tiles()):
        contestant = CutlassContestant(prepared, library, tile)
        try:
            contestant.queue(prepared.reals)
        except DeviceError as error:
            refusal = error
        else:
            accepted.append(contestant)
    if refusal is not None and not accepted:
        raise refusal
    return accepted


def cutlass_headers() -> Path:
    """The folder to include from. Raises NotHereError."""
    spec = find_spec("cutlass_library")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        include = Path(folder) / "source" / "include"
        if (include / "cutlass" / "version.h").is_file():
            return include
    raise NotHereError("CUTLASS's headers are not installed: pip install nvidia-cutlass")


def cutlass_version(include: Path) -> str:
    """``4.2.0``."""
    words = (include / "cutlass" / "version.h").read_text().split()
    values = dict(itertools.pairwise(words))
    return ".".join(values.get(f"CUTLASS_{part}", "?") for part in VERSION_PARTS)


def built(include: Path, arch: int, build: Build) -> Path:
    """The library for an architecture, from the cache or built now (half a minute for SIMT, some
    minutes for tensor cores).

    Raises NotHereError without nvcc, DeviceError when it fails.
    """
    source = files(FOLDER).joinpath(build.source).read_bytes()
    nvcc = find_program("nvcc")
    if nvcc is None:
        raise NotHereError("CUTLASS needs nvcc: install the CUDA toolkit")
    has_wgmma = arch == HOPPER and build.least_arch > 0
    name = f"sm_{arch}a" if has_wgmma else f"sm_{arch}"
    # Without assertions, as CUTLASS's own builds.
    options = ["-O3", "-DNDEBUG", "-std=c++17", f"-arch={name}", "-Xcompiler", "-fPIC", "-shared"]
    options += build.options
    options += ["-DHAS_CP_ASYNC"] if arch >= 80 else []
    options += ["-DHAS_WGMMA"] if has_wgmma else []
    words = (cutlass_version(include), program_version(nvcc), *options)
    key = hashlib.sha256(source + " ".join(words).encode()).hexdigest()[:16]
    library = cache_folder() / "cutlass" / f"{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(library, _compiled(nvcc, options, include, build.source, source))
    return library


def _compiled(nvcc: str, options: list[str], include: Path, name: str, source: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, library = Path(folder) / name, Path(folder) / "library.so"
        path.write_bytes(source)
        command = [nvcc, *options, "-I", str(include), "-o", str(library), str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(f"CUTLASS cannot be built: {error}") from error
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise DeviceError(f"CUTLASS cannot be built: {' '.join(errors[:1]) or done.returncode}")
        return library.read_bytes()

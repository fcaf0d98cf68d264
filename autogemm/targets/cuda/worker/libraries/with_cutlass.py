"""CUTLASS's SIMT SGEMM, compiled once for this GPU by nvcc from the headers of its wheel."""

import ctypes
import hashlib
import itertools
import subprocess
import tempfile
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from autogemm.model.problem import Layout
from autogemm.support.errors import DeviceError
from autogemm.support.files import write_atomically
from autogemm.support.resources import cache_folder
from autogemm.targets.cuda.tools import find_program, program_version
from autogemm.targets.cuda.worker.libraries.baselines import NotHereError, fastest_of
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem

SOURCE = "cutlass_gemm.cu"
BUILD_DEADLINE_S = 300.0
# The macros of cutlass/version.h.
VERSION_PARTS = ("MAJOR", "MINOR", "PATCH")


class CutlassContestant:
    """One tile shape of the library."""

    def __init__(self, prepared: PreparedProblem, library: ctypes.CDLL, tile: int) -> None:
        self._prepared_problem, self._library, self._tile = prepared, library, tile
        self._stream = ctypes.c_void_p(prepared.gpu.stream.ptr)

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream. Raises DeviceError when CUTLASS refuses it."""
        problem = self._prepared_problem.problem
        status = self._library.autogemm_gemm(
            ctypes.c_int(self._tile),
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
    if prepared.problem.layout is not Layout.NN:
        raise NotHereError("CUTLASS is built for layout nn only")
    include = cutlass_headers()
    library = ctypes.CDLL(str(built(include, prepared.gpu.device.arch)))
    library.autogemm_tile_name.restype = ctypes.c_char_p
    tiles = [CutlassContestant(prepared, library, i) for i in range(library.autogemm_num_tiles())]
    tile = fastest_of(prepared, tiles)
    contestant, name = tiles[tile], library.autogemm_tile_name(tile).decode()
    return contestant, f"CUTLASS {cutlass_version(include)}, tile {name}"


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


def built(include: Path, arch: int) -> Path:
    """The library for an architecture, from the cache or built now (half a minute).

    Raises NotHereError without nvcc, DeviceError when it fails.
    """
    source = files("autogemm.targets.cuda.worker.libraries").joinpath(SOURCE).read_bytes()
    nvcc = find_program("nvcc")
    if nvcc is None:
        raise NotHereError("CUTLASS needs nvcc: install the CUDA toolkit")
    options = ["-O3", "-std=c++17", f"-arch=sm_{arch}", "-Xcompiler", "-fPIC", "-shared"]
    options += ["-DHAS_CP_ASYNC"] if arch >= 80 else []
    words = (cutlass_version(include), program_version(nvcc), *options)
    key = hashlib.sha256(source + " ".join(words).encode()).hexdigest()[:16]
    library = cache_folder() / "cutlass" / f"{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(library, _compiled(nvcc, options, include, source))
    return library


def _compiled(nvcc: str, options: list[str], include: Path, source: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, library = Path(folder) / SOURCE, Path(folder) / "library.so"
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

"""NVRTC through NVIDIA's public bindings: the only module that calls it.

Works with cuda-bindings 12.9 and later. The library is loaded at the first call, never at import.
Candidates are compiled in processes of their own (`autogemm.compile.processes`): NVRTC may hang or
crash on what a template emits.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from autogemm.support.errors import CompilerMissingError, KernelCompileError, UsageError

# The two functions of NVRTC for each of its results.
GetSize = Callable[[Any], tuple[Any, int]]
GetBytes = Callable[[Any, bytearray], tuple[Any]]


@dataclass(frozen=True, slots=True)
class Build:
    """One compilation's result: machine code or PTX, or None and a reason; the log in any case."""

    code: bytes | None
    log: str
    error: str = ""


def to_cubin(source: str, name: str, options: Sequence[str]) -> Build:
    """Compile to machine code; ``name`` is the file name that messages show.

    Raises UsageError when NVRTC does not take the options, CompilerMissingError without NVRTC.
    """
    api = _api()
    return _build(source, name, options, api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN)


def to_ptx(source: str, name: str, options: Sequence[str]) -> Build:
    """Compile like :func:`to_cubin`, to PTX text."""
    api = _api()
    return _build(source, name, options, api.nvrtcGetPTXSize, api.nvrtcGetPTX)


@cache
def version() -> str:
    """``nvrtc 12.9.86``: register counts differ between builds of one release.

    The library itself tells only 12.9; the build stands in the header of the PTX it writes.
    Raises CompilerMissingError.
    """
    _, major, minor = _api().nvrtcVersion()
    header = (to_ptx("", "version.cu", ()).code or b"").decode(errors="replace")
    build = re.search(r"release [\d.]+, V(\d+(?:\.\d+)+)", header)
    return f"nvrtc {build[1] if build else f'{major}.{minor}'}"


@cache
def supported_archs() -> tuple[str, ...]:
    """``sm_75``, ``sm_80``, ... as this NVRTC compiles for. Raises CompilerMissingError."""
    _, numbers = _api().nvrtcGetSupportedArchs()
    return tuple(f"sm_{number}" for number in sorted(numbers))


@cache
def _api() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompilerMissingError(
            f"NVIDIA's Python bindings cannot be imported ({error}); install them and the "
            'compiler: pip install "cuda-bindings>=12.9,<13" nvidia-cuda-nvrtc-cu12'
        ) from error
    try:
        nvrtc.nvrtcVersion()
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise CompilerMissingError(
            f"the NVRTC library cannot be loaded ({reason}); install the one that fits your "
            "cuda-bindings: pip install nvidia-cuda-nvrtc-cu12 (bindings 12.x) or "
            "pip install nvidia-cuda-nvrtc (bindings 13.x)"
        ) from error
    return nvrtc


def _build(
    source: str, name: str, options: Sequence[str], get_size: GetSize, get_code: GetBytes
) -> Build:
    api = _api()
    result, program = api.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    if result != api.nvrtcResult.NVRTC_SUCCESS:
        raise KernelCompileError(f"NVRTC cannot create a program: {result.name}")
    try:
        encoded = [option.encode() for option in options]
        (result,) = api.nvrtcCompileProgram(program, len(encoded), encoded)
        text = _bytes(program, api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog)
        log = text.rstrip(b"\0").decode(errors="replace").strip()
        if result == api.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise UsageError(f"NVRTC does not take the options {' '.join(options)}: {log}")
        if result != api.nvrtcResult.NVRTC_SUCCESS:
            return Build(None, log, error=result.name)
        return Build(_bytes(program, get_size, get_code), log)
    finally:
        api.nvrtcDestroyProgram(program)


def _bytes(program: Any, get_size: GetSize, get_code: GetBytes) -> bytes:
    _, size = get_size(program)
    # A bytearray, not the bytes of NVIDIA's examples: NVRTC writes into it, and Python shares
    # short bytes objects, so that a one-byte log would overwrite b" " everywhere.
    buffer = bytearray(size)
    get_code(program, buffer)
    return bytes(buffer)

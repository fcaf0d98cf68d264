"""Finds g++, builds emulator executables, keeps them in the cache folder."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from autogemm.emulator.statics import least_aligned, with_declared_alignment
from autogemm.model.signature import Argument, ArgumentKind, Signature
from autogemm.support.errors import CompilerMissingError, KernelCompileError
from autogemm.support.files import write_atomically

SHIM = Path(__file__).resolve().parent / "shim"

# The first that has __builtin_bit_cast and std=c++20 as the shim uses them.
OLDEST_GXX = 11
# Compiling takes about 10 s; a compilation that takes this long would not end, or would exhaust the
# memory first.
COMPILE_S = 600

COMMON_FLAGS = ("-fno-pie", "-fno-extern-tls-init", "-fno-exceptions", "-fno-rtti")
KERNEL_FLAGS = (
    # -g1 loses the lines of arguments of inlined calls; where variables live is of no use here.
    "-g",
    "-fno-var-tracking",
    "-std=c++17",
    "-w",
    "-fno-strict-aliasing",
    "-fno-stack-protector",
    "-ffp-contract=off",
    # A product of int that overflows must wrap, as it does on a GPU, not become a 64-bit one.
    "-fwrapv",
    "-DAUTOGEMM_EMULATOR",
    "-xc++",
)


class Mode(StrEnum):
    """The way to compile a kernel: for speed, with a call before each access, or as written.

    As written, every variable has a place on its thread's stack, and begins as what lies there.
    LINES is as written too, and counts how often each line and branch runs.
    """

    FAST = "fast"
    CHECK = "check"
    UNSET = "unset"
    LINES = "lines"


MODE_FLAGS = {
    Mode.FAST: ("-O3",),
    # Without -fno-tree-sra a float4 would be taken apart before the calls are put in.
    # Bounds: indices into arrays of known extent, local ones among them, which nothing else sees.
    Mode.CHECK: (
        *("-O1", "-fsanitize=thread", "--param=tsan-distinguish-volatile=1"),
        *("-fno-tree-sra", "-fsanitize=bounds"),
    ),
    Mode.UNSET: ("-O0", "-fstack-reuse=none"),
    # The program may write no file, so that nothing is registered to write one at its end.
    # The seed makes the same stamp of the same text, so that notes and counts fit.
    Mode.LINES: (
        *("-O0", "--coverage", "-fprofile-info-section=autogemm_counts"),
        *("-frandom-seed=autogemm", "-DAUTOGEMM_LINES"),
    ),
}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A suitable g++, and the flags for it."""

    gxx: str
    version: str
    major: int

    def kernel_flags(self, mode: Mode) -> tuple[str, ...]:
        """The flags for compiling the emitted source."""
        # Locals never written hold a value that spoils the result, instead of a lucky zero.
        poisons = self.major >= 12 and mode is not Mode.UNSET
        poison = ("-ftrivial-auto-var-init=pattern",) if poisons else ()
        fma = ("-mfma",) if _has("fma") else ()
        return (*COMMON_FLAGS, *KERNEL_FLAGS, *MODE_FLAGS[mode], *poison, *fma)


@dataclass(frozen=True, slots=True)
class Build:
    """An executable for one kernel, what starts it, the source it was built from, and how long that
    took.
    """

    executable: Path
    confine: Path
    source_path: Path
    seconds: float

    @property
    def notes(self) -> Path:
        """The notes that gcov needs on a program that counts: its lines and blocks."""
        return notes_of(self.executable)


def notes_of(executable: Path) -> Path:
    """Return the place of the compiler's notes on a program that counts lines."""
    return executable.with_suffix(".gcno")


@cache
def _quick_linker() -> tuple[str, ...]:
    """The flag for gold where it is installed: it takes a third of the usual linker's time."""
    return ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


@cache
def _has(feature: str) -> bool:
    """Whether this x86-64 has a feature; elsewhere the compiler needs no telling."""
    try:
        return f" {feature} " in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def find_toolchain() -> Toolchain:
    """The g++ of this machine. Raises CompilerMissingError when there is none that will do."""
    name = os.environ.get("AUTOGEMM_GXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise CompilerMissingError(
            f"the emulator needs g++ {OLDEST_GXX} or newer and found no {name!r}: install g++, or "
            "name it in AUTOGEMM_GXX"
        )
    return _examine(path)


@cache
def _examine(path: str) -> Toolchain:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompilerMissingError(
            f"the emulator cannot start {path}: {error.strerror}; name another g++ in AUTOGEMM_GXX"
        ) from error
    version = answer.stdout.partition("\n")[0].strip()
    # clang splits a float4 into four accesses; its width would be lost.
    numbers = re.search(r"\b(\d+)\.\d+\.\d+\b", version)
    if answer.returncode != 0 or numbers is None or "clang" in answer.stdout.lower():
        raise CompilerMissingError(
            f"the emulator needs GNU g++ {OLDEST_GXX} or newer, {path} says {version!r}: name "
            "another one in AUTOGEMM_GXX"
        )
    major = int(numbers.group(1))
    if major < OLDEST_GXX:
        raise CompilerMissingError(
            f"the emulator needs g++ {OLDEST_GXX} or newer, {path} is {version!r}: name another "
            "one in AUTOGEMM_GXX"
        )
    return Toolchain(path, version, major)


@cache
def shim_sha256() -> str:
    """Identity of the shim: any change of it makes new executables."""
    digest = hashlib.sha256()
    for path in sorted(SHIM.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def build(  # noqa: PLR0913  # a kernel, and how and where to build it
    text: str,
    signature: Signature,
    mode: Mode,
    toolchain: Toolchain,
    folder: Path,
    *,
    kernels_in: Path | None = None,
) -> Build:
    """The executable for a kernel's text, from the cache folder or newly built into it. It calls
    kernels with arguments of that signature.

    With ``kernels_in`` that folder has the kernel and its source, and the cache folder what all
    kernels share: the emulator itself, which takes g++ many times as long.
    Raises KernelCompileError with the compiler's log and the path of the kept source.
    """
    start = time.perf_counter()
    flags = toolchain.kernel_flags(mode)
    key = _key(text, caller_text(signature), mode, toolchain.version, shim_sha256(), *flags)
    executable = (kernels_in or folder) / f"{key}.{mode}"
    source = executable.with_suffix(".cu")
    if not executable.is_file():
        write_atomically(source, text.encode())
        caller = _caller_object(signature, toolchain, folder)
        _build_executable(source, executable, text, caller, (mode, toolchain, flags))
    confine = _confining_program(toolchain, folder)
    return Build(executable, confine, source, time.perf_counter() - start)


def _build_executable(
    source: Path,
    executable: Path,
    text: str,
    caller: Path,
    how: tuple[Mode, Toolchain, tuple[str, ...]],
) -> None:
    mode, toolchain, flags = how
    shared = caller.parent
    runtime = _runtime_object(mode, toolchain, shared)
    with tempfile.TemporaryDirectory(dir=executable.parent) as scratch:
        kernel, program = Path(scratch) / "kernel.o", Path(scratch) / "program"
        shim = ("-include", str(SHIM / "cuda_on_cpu.h"))
        aligned = with_declared_alignment(text)
        compiled = _with_clusters(source, text, aligned, Path(scratch))
        compile_it = [toolchain.gxx, *flags, *shim, str(compiled)]
        if aligned is None:
            _call([*compile_it, "-c", "-o", str(kernel)], source)
        else:
            assembly = kernel.with_suffix(".s")
            _call([*compile_it, "-S", "-o", str(assembly)], source)
            assembly.write_text(least_aligned(assembly.read_text()))
            _call([toolchain.gxx, "-c", str(assembly), "-o", str(kernel)], source)
        borders = [_border(toolchain, shared, dynamic) for dynamic in (None, text)]
        link = [
            "-no-pie",
            "-rdynamic",
            *_quick_linker(),
            "-o",
            str(program),
            str(borders[0]),
            str(kernel),
            str(caller),
        ]
        link += [str(runtime), str(borders[1]), "-ldl"]
        if mode is Mode.LINES:
            link += [str(_counting_object(toolchain, shared)), "-lgcov"]
            kernel.with_suffix(".gcno").replace(notes_of(executable))
        _call([toolchain.gxx, *link], source)
        program.replace(executable)


def assembly(text: str, toolchain: Toolchain) -> str:
    """The optimised code that g++ generates for a kernel; texts with equal code behave alike.

    Raises KernelCompileError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "kernel.cu", Path(scratch) / "kernel.s"
        source.write_text(text)
        flags = toolchain.kernel_flags(Mode.FAST)
        shim = ("-include", str(SHIM / "cuda_on_cpu.h"))
        _call([toolchain.gxx, *flags, "-g0", *shim, "-S", str(source), "-o", str(made)], source)
        return made.read_text().replace(scratch, "")


# `__cluster_dims__(X, Y, Z)` and the kernel that it belongs to.
CLUSTER = re.compile(
    r"__cluster_dims__\s*\(([^()]*)\)\s*(?:void\s+|__\w+__\s*(?:\([^()]*\))?\s*)*(\w+)\s*\("
)


def _with_clusters(source: Path, text: str, aligned: str | None, scratch: Path) -> Path:
    """The source, or one in its stead with its lines: the text with alignments where there is one,
    and then how large the clusters of its kernels are.
    """
    found = CLUSTER.findall(text)
    if not found and aligned is None:
        return source
    extents = [
        f'extern "C" const unsigned autogemm_cluster_{kernel}[3] = {{{extent}}};\n'
        for extent, kernel in found
    ]
    # The text keeps the source's name, by which findings tell its lines from the shim's.
    path = scratch / ("clusters.cu" if aligned is None else source.name)
    body = f'#include "{source}"' if aligned is None else aligned
    path.write_text(f"{body}\n" + "".join(extents))
    return path


# An `extern __shared__` array: what it is declared as, and its name.
DYNAMIC_ARRAY = re.compile(r"extern\s+__shared__\s([^;]*?)(\w+)\s*\[\s*\]\s*;")
ALIGNED = re.compile(r"(?:__align__|alignas)\s*\(\s*(\d+)\s*\)")
# The least alignment of dynamic shared memory, and the largest on which a swizzle depends.
LEAST_ALIGNMENT, MOST_ALIGNMENT = 16, 1024


def _border(toolchain: Toolchain, folder: Path, text: str | None) -> Path:
    """One side of shared memory, assembled from shim/link.S; with the kernel's text the second.

    Kernels with arrays of the same names and alignment share one, kept in the folder. The
    `extern __shared__` arrays all begin where dynamic memory begins: at an address that is
    aligned as they ask for and no better, so that what relies on more is found.
    """
    defines = ["-DAUTOGEMM_BEGIN"]
    if text is not None:
        arrays = DYNAMIC_ARRAY.findall(text)
        labels = " ".join(
            f".globl {name}; {name}:" for name in sorted({name for _, name in arrays})
        )
        asked = (int(found[1]) for declared, _ in arrays if (found := ALIGNED.search(declared)))
        offset = max(asked, default=LEAST_ALIGNMENT) % MOST_ALIGNMENT
        defines = [f"-DAUTOGEMM_DYNAMIC_NAMES={labels}", f"-DAUTOGEMM_DYNAMIC_OFFSET={offset}"]
    path = folder / f"border-{_key(toolchain.version, shim_sha256(), *defines)}.o"
    return _compiled_once(path, SHIM / "link.S", toolchain, *defines)


def _runtime_object(mode: Mode, toolchain: Toolchain, folder: Path) -> Path:
    """Return the emulator itself, compiled once for each mode and compiler."""
    checks = mode is Mode.CHECK
    define = ("-DAUTOGEMM_CHECK",) if checks else ()
    kind = Mode.CHECK if checks else Mode.FAST
    # Products of warpgroups are loops that become vectors.
    flags = ("-std=c++20", *(("-mavx2",) if _has("avx2") else ()), *define)
    path = folder / f"runtime-{_key(toolchain.version, shim_sha256(), *flags)}.{kind}.o"
    return _compiled_once(path, SHIM / "emulator.cpp", toolchain, *flags)


def _counting_object(toolchain: Toolchain, folder: Path) -> Path:
    """Return shim/counts.cpp, compiled once for each compiler."""
    path = folder / f"counts-{_key(toolchain.version, shim_sha256())}.o"
    return _compiled_once(path, SHIM / "counts.cpp", toolchain, "-std=c++20")


def _confining_program(toolchain: Toolchain, folder: Path) -> Path:
    """Return shim/confine.cpp, built once for each compiler."""
    path = folder / f"confine-{_key(toolchain.version, shim_sha256())}"
    source = SHIM / "confine.cpp"
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made"
            # Started before each run: with the whole of C++'s library to load it would take longer.
            how = ("-std=c++20", "-O2", "-static-libstdc++", "-static-libgcc")
            _call([toolchain.gxx, *how, str(source), "-o", str(made)], source)
            made.replace(path)
    return path


def _compiled_once(path: Path, source: Path, toolchain: Toolchain, *flags: str) -> Path:
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / "made.o"
            how = (*flags, "-O3", *COMMON_FLAGS)
            _call([toolchain.gxx, *how, "-c", str(source), "-o", str(made)], source)
            made.replace(path)
    return path


def _key(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


CALLER = """\
struct TensorMap {{
    unsigned long long words[16];
}};
using Kernel = void (*)({types});
extern "C" void autogemm_call(void* kernel, const void* const* arguments) {{
    reinterpret_cast<Kernel>(kernel)({values});
}}
"""


def caller_text(signature: Signature) -> str:
    """C++ that calls a kernel with arguments of which it gets the addresses."""
    types = [_passed_type(argument) for argument in signature]
    values = [
        f"*static_cast<{kind} const*>(arguments[{place}])" for place, kind in enumerate(types)
    ]
    return CALLER.format(types=", ".join(types), values=", ".join(values))


def _passed_type(argument: Argument) -> str:
    if argument.kind is ArgumentKind.TENSOR_MAP:
        return "TensorMap"
    if argument.is_array:
        return "void*"
    return "int" if argument.type is None else "float"


def _caller_object(signature: Signature, toolchain: Toolchain, folder: Path) -> Path:
    """Return `caller_text`, compiled once for each signature and compiler."""
    text = caller_text(signature)
    source = folder / f"caller-{_key(toolchain.version, text)}.cpp"
    if not source.is_file():
        write_atomically(source, text.encode())
    return _compiled_once(source.with_suffix(".o"), source, toolchain)


def _call(command: list[str], source: Path) -> None:
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMPILE_S
        )
    except subprocess.TimeoutExpired as error:
        raise KernelCompileError(
            f"g++ did not end within {COMPILE_S} s (source: {source})", source_path=source
        ) from error
    if answer.returncode != 0:
        log = answer.stderr
        errors = [line for line in log.splitlines() if "error" in line or "undefined" in line]
        first = errors[0] if errors else (log.strip().splitlines() or ["no message"])[-1]
        raise KernelCompileError(
            f"g++ cannot compile the kernel for the emulator: {first} (source: {source})",
            log=log,
            source_path=source,
        )

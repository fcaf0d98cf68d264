"""Exported programs compiled by g++ and run on the CPU, with a kernel that may be wrong."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from export_samples import stored_kernel

from autogemm.codegen.export import export_cuda
from autogemm.model.problem import Problem
from autogemm.space import load_family

SHIM = Path(__file__).with_name("export_on_cpu")

FAMILY = """
family: on_cpu
summary: A loop that runs on the CPU.
dtypes: {{a: [{ab}], b: [{ab}], c: [{ab}], accumulate: f32}}
architectures: ">=70"
parameters:
  BM: {{values: [1], doc: nothing}}
launch:
  - {{kernel: gemm_kernel, threads: 1, grid: 1, smem_bytes: 0}}
seeds:
  - {{BM: 1}}
"""

KERNEL = """\
#include "kernel.h"
extern "C" __global__ void gemm_kernel({{ signature.in_kernel(on_cpu) }}) {
    multiply_on_cpu<{{ trans_a | int }}, {{ trans_b | int }}>(
        M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, SIGNIFICANT_BITS);
}
"""

# `kernel<<<grid, threads>>>(arguments);`
LAUNCH = re.compile(r"(\w+)<<<(.+?)>>>\((.*?)\);", re.DOTALL)


def exported_text(problem: Problem, folder: Path) -> str:
    """The exported file of a kernel that runs on the CPU."""
    own = folder / f"family_{problem.layout}_{problem.dtype}"
    own.mkdir(exist_ok=True)
    element = problem.dtype.ab
    bits = element.fraction_bits + 1
    (own / "on_cpu.yaml").write_text(FAMILY.format(ab=element.label))
    (own / "on_cpu.cu.jinja").write_text(
        KERNEL.replace("in_kernel(on_cpu)", f'in_kernel("{element.host_type}")').replace(
            "SIGNIFICANT_BITS", str(bits)
        )
    )
    family = load_family(own)
    return export_cuda(stored_kernel(family, problem), family, "best.cu", date(2026, 11, 21))


def made_once(name: str, text: str, make: Callable[[Path], object]) -> Path:
    """A file that ``make`` makes of that text, once for all processes of a test run."""
    folder = Path(os.environ["AUTOGEMM_CACHE"]).parent / "export_on_cpu"
    folder.mkdir(exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}-{name}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:
            make(Path(own) / name)
            (Path(own) / name).replace(path)
    return path


@cache
def standard_headers(level: str) -> tuple[str, ...]:
    """Flags that give a program the headers of C++ as they were compiled with ``level``.

    To read them took two thirds of a program's time. Other flags that change code would make g++
    read them anew.
    """
    header = SHIM / "standard.h"

    def compile_them(to: Path) -> None:
        flags = ("-std=c++17", level, "-w", "-x", "c++-header")
        subprocess.run(["g++", *flags, header, "-o", to], check=True)

    text = header.read_text()
    # Two files of one name: the header, which g++ falls back on, and what it was compiled to.
    kept = made_once(f"{level[1:]}-standard.h", text, lambda to: shutil.copy(header, to))
    made_once(f"{level[1:]}-standard.h.gch", text, compile_them)
    return ("-std=c++17", level, "-w", "-include", str(kept))


def compile_on_cpu(text: str, program: Path) -> Path:
    """The program of an exported file, whose launches become calls."""
    source = program.with_suffix(".cpp")
    source.write_text(LAUNCH.sub(r"launch_on_cpu(\2, [&] { \1(\3); });", text))
    # The clock of the program is what a loaded library calls.
    flags = (*standard_headers("-Og"), "-ffp-contract=off", "-rdynamic", f"-I{SHIM}")
    subprocess.run(["g++", *flags, source, "-o", program, "-ldl"], check=True)
    return program


def compile_cublas() -> Path:
    """The library that takes its time as cuBLAS."""
    source = SHIM / "cublas.cpp"

    def compile_it(to: Path) -> None:
        flags = ("-std=c++17", "-O1", "-shared", "-fPIC")
        subprocess.run(["g++", *flags, source, "-o", to], check=True)

    return made_once("libcublas_on_cpu.so", source.read_text(), compile_it)


@dataclass(frozen=True, slots=True)
class Sample:
    """The work between two events: whose it is, how often, and the mean time of one.

    ``begun_us`` is the clock at the first event, ``behind`` the work that was queued before it.
    """

    name: str
    launches: int
    time_us: float
    begun_us: float
    behind: str


@dataclass(frozen=True, slots=True)
class Run:
    """The output of a program, how it ended, and what it queued."""

    code: int
    output: str
    trace: tuple[str, ...] = ()

    def samples(self) -> list[Sample]:
        """The timed work, one after the other: that between each first and second event."""
        found = []
        now_us = 0.0
        begun: float | None = None
        behind = ""
        since: list[tuple[str, float]] = []
        for word, *rest in (line.split() for line in self.trace):
            if word == "work":
                since.append((rest[0], float(rest[1])))
                now_us += since[-1][1]
            elif word == "event" and begun is None:
                begun, behind, since = now_us, since[-1][0] if since else "", []
            elif word == "event":
                assert begun is not None
                (name,) = {who for who, _ in since}
                mean_us = sum(us for _, us in since) / len(since)
                found.append(Sample(name, len(since), mean_us, begun, behind))
                begun, since = None, []
        return found


def run_on_cpu(program: Path, *arguments: object, **variables: str) -> Run:
    """Run an exported program, with variables of the environment for its kernel and clock."""
    trace = program.with_suffix(".trace")
    trace.unlink(missing_ok=True)
    done = subprocess.run(
        [program, *map(str, arguments)],
        env={**os.environ, "TRACE": str(trace), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = trace.read_text().splitlines() if trace.exists() else []
    return Run(done.returncode, done.stdout + done.stderr, tuple(lines))

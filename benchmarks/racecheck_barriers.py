"""What racecheck says of blocks whose warps passed barriers of their own unequally often.

    benchmarks/gpu_box.sh run python3 benchmarks/racecheck_barriers.py --out OUT
    ... racecheck_barriers.py --read OUT        the table of outputs that are there

A small kernel, right at a glance, and a kernel of sgemm_simt that racecheck refused in a session,
as it was emitted and with changes that would end a race or have nothing to do with one. Each runs
several times under `compute-sanitizer --tool racecheck`, in processes of their own.
"""

import ctypes
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Verdict
from autogemm.space import launch_plan, load_family
from autogemm.support.child_process import child_environment
from autogemm.targets.cuda.tools.sanitizer import Job, find_sanitizer, judged

# Four slices of 64 threads each pass a barrier of their own ROUNDS times. Then all threads meet,
# write, meet, and read what the other slices wrote.
SMALL = r"""
extern "C" __global__ void __launch_bounds__(256) small(int* out) {
    extern __shared__ int shared[];
    EARLY
    const int slice = (int)threadIdx.x / 64, t = (int)threadIdx.x % 64;
    int* const own = shared + 1024;
    for (int i = 0; i < ROUNDS; ++i) {
        own[threadIdx.x] = i;
        asm volatile("barrier.sync %0, %1;" ::"r"(1 + slice), "r"(64) : "memory");
    }
    __syncthreads();
    for (int i = 0; i < 4; ++i) shared[(slice * 4 + i) * 64 + t] = (int)threadIdx.x + i;
    __syncthreads();
    int total = 0;
    for (int s = 0; s < 4; ++s) total += shared[(s * 4 + slice) * 64 + t];
    out[blockIdx.x * 256 + threadIdx.x] = total;
}
"""
EARLY = (
    'asm volatile("griddepcontrol.launch_dependents;" ::: "memory");'
    ' asm volatile("griddepcontrol.wait;" ::: "memory");'
)
BLOCKS, THREADS, SMEM_BYTES = 4, 256, 32768


@dataclass(frozen=True)
class Small:
    """The small kernel: how often slices pass their barriers, with dependent launch or without."""

    rounds: str
    early: str = EARLY
    dependent: bool = True


@dataclass(frozen=True)
class Emitted:
    """The refused kernel, with a change of its config, its launch or its text."""

    k: int = 48
    dependent: bool = True
    pdl: str = "early"
    old: str = ""
    new: str = ""

    @property
    def problem(self) -> Problem:
        return Problem(128, 256, self.k)


UNEQUAL = "1 + slice % 2"
BARRIERS = "    " + "__syncthreads(); " * 8 + "\n"
KERNELS: dict[str, Small | Emitted] = {
    "small": Small(UNEQUAL),
    "small, plain launch": Small(UNEQUAL, dependent=False),
    "small, without PDL": Small(UNEQUAL, early="", dependent=False),
    "small, 1 and 41 times": Small("1 + 40 * (slice % 2)"),
    "small, equally often": Small("2"),
    "emitted": Emitted(),
    "emitted, plain launch": Emitted(dependent=False),
    "emitted, PDL=none": Emitted(pdl="none", dependent=False),
    "emitted, PDL=none, dependent": Emitted(pdl="none"),
    "emitted, no launch_dependents": Emitted(old="    let_next_kernel_begin();\n"),
    "emitted, no wait": Emitted(old="    wait_for_kernels_before();\n"),
    "emitted, barrier.aligned": Emitted(old="barrier.sync %0", new="barrier.sync.aligned %0"),
    "emitted, 8 more barriers": Emitted(
        old="    #pragma unroll 3\n", new=BARRIERS + "    #pragma unroll 3\n"
    ),
    "emitted, K = 64": Emitted(k=64),
}
FAMILY = load_family("sgemm_simt")
CONFIG = dict[str, int | str](
    **{"BM": 64, "BN": 128, "BK": 8, "WM": 64, "WN": 64, "TM": 16, "TN": 8, "SLICE_K": 4},
    **{"SLICES": "separate", "SPLIT_K": 1, "STREAM_BLOCKS": 0, "PAD_A": 4, "PAD_B": 0},
    **{"VEC_LOAD": 4, "VEC_STORE": 4, "STAGES": 2, "REG_STAGES": 2, "HANDOVER": 2},
    **{"POINTERS": "held", "CHAIN_K": 0, "GROUP_M": 1, "MIN_BLOCKS": 1, "FMA_ORDER": "snake"},
    **{"EDGES": "guarded", "PACK": 0, "LANE_MAP": "quads"},
)


def run_small_kernel(one: Small) -> str:
    """Run it here; return ``right`` or ``wrong: ...``."""
    import cupy

    from autogemm.targets.cuda.dependent_launch import DependentLaunch, launch_dependent
    from autogemm.targets.cuda.worker.gpu.launching import Arguments

    text = SMALL.replace("EARLY", one.early).replace("ROUNDS", one.rounds)
    kernel = cupy.RawModule(code=text, options=("-std=c++17",)).get_function("small")
    out = cupy.zeros(BLOCKS * THREADS, dtype=np.int32)
    if one.dependent:
        arguments = Arguments(ctypes.c_void_p(out.data.ptr))
        launch = DependentLaunch.of((BLOCKS, 1, 1), (THREADS, 1, 1), SMEM_BYTES, 0)
        assert launch_dependent(kernel.kernel.ptr, launch, arguments.address) == 0
    else:
        kernel((BLOCKS,), (THREADS,), (out,), shared_mem=SMEM_BYTES)
    cupy.cuda.runtime.deviceSynchronize()
    slices, t = np.divmod(np.arange(THREADS), 64)
    expected = sum(64 * other + t + slices for other in range(4))
    return "right" if (out.get().reshape(BLOCKS, -1) == expected).all() else "wrong: sums"


def arguments_of(name: str, folder: Path, compiler: Compiler) -> list[str]:
    """What Python is called with to run the kernel once."""
    one = KERNELS[name]
    if isinstance(one, Small):
        return [__file__, "--run-small", name]
    config = FAMILY.completed(Config.of(FAMILY.name, CONFIG | {"PDL": one.pdl}))
    source = render(FAMILY, config, one.problem)
    text = source.text.replace(one.old, one.new) if one.old else source.text
    assert bool(one.old) == (text != source.text), name
    source = KernelSource(FAMILY.name, source.template_sha256, config, source.layout, text)
    plan = launch_plan(FAMILY, config, one.problem, few_blocks=True)
    launches = tuple(replace(launch, overlaps=one.dependent) for launch in plan.launches)
    kernel = Candidate(source, replace(plan, launches=launches), compiler.compile(source, "sm_90"))
    job = folder / f"{name}.job"
    job.write_bytes(pickle.dumps(Job(kernel, one.problem, 0)))
    return ["-P", "-m", "autogemm.targets.cuda.worker.sanitized", str(job)]


def watched(arguments: list[str], output: Path, deadline_s: float) -> None:
    """Run it once under racecheck; what that prints goes to a file."""
    tool = find_sanitizer()
    if tool is None:
        raise click.ClickException("compute-sanitizer is not installed")
    command = [tool, "--tool", "racecheck", "--racecheck-report", "all", "--print-limit", "400"]
    ended = subprocess.run(
        [*command, sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline_s,
        env=child_environment(),
        check=False,
    )
    output.write_text(ended.stdout)


def table(folder: Path) -> Iterator[str]:
    """A line for each kernel: how often it was refused, how often its result was right, a race."""
    yield f"{'kernel':30} {'runs':>4} {'refused':>7} {'right':>5}  a race of some run"
    for name in KERNELS:
        outputs = [file.read_text() for file in sorted(folder.glob(f"{name}-*.txt"))]
        verdicts = [judged(0, output, Problem(1, 1, 1))[0] for output in outputs]
        refused = verdicts.count(Verdict.FAILED)
        right = sum(bool(re.search("^right$", output, re.M)) for output in outputs)
        race = re.search(
            r"Race reported between (\w+ access) at \S+\+(\w+)\n=+ +and (\w+ access) at \S+\+(\w+)",
            "".join(outputs),
        )
        sides = "{} at {}, {} at {}".format(*race.groups()) if race else ""
        yield f"{name:30} {len(outputs):4} {refused:7} {right:5}  {sides}".rstrip()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="For outputs.")
@click.option("--times", default=8, show_default=True, help="Runs of each kernel.")
@click.option("--seconds", default=60.0, show_default=True, help="Begins no run after so many.")
@click.option("--read", type=click.Path(path_type=Path, exists=True), help="Only print its table.")
@click.option("--run-small", type=click.Choice(list(KERNELS)), hidden=True)
def main(
    out: Path | None, times: int, seconds: float, read: Path | None, run_small: str | None
) -> None:
    """Racecheck's verdicts on kernels that are right."""
    if run_small:
        one = KERNELS[run_small]
        assert isinstance(one, Small)
        click.echo(run_small_kernel(one))
        return
    folder = read or out
    if folder is None:
        raise click.UsageError("--out FOLDER, or --read FOLDER")
    if read is None:
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, times, time.monotonic() + seconds)
    click.echo("\n".join(table(folder)))


def measure(folder: Path, times: int, end: float) -> None:
    """Run every kernel so many times, eight at a time."""
    compiler = Compiler()
    arguments = {name: arguments_of(name, folder, compiler) for name in KERNELS}
    compiler.close()

    def once(number: int, name: str) -> None:
        if time.monotonic() < end:
            watched(arguments[name], folder / f"{name}-{number}.txt", deadline_s=60.0)

    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(once, number, name) for number in range(times) for name in KERNELS]
        for run in runs:
            run.result()


if __name__ == "__main__":
    main()

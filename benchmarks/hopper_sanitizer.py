"""compute-sanitizer, all four tools, on small problems of the families for Hopper; a line for each.

    benchmarks/gpu_box.sh run python3 benchmarks/hopper_sanitizer.py --seconds 60 --out OUT

PASSED or FAILED is a verdict, NOT DONE is none. What a tool said lies in OUT.
"""

import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, broken_constraints, launch_plan, load_family
from autogemm.support.child_process import child_environment
from autogemm.targets.cuda.tools.sanitizer import FOUND, TOOLS, Job, find_sanitizer, judged

WGMMA, EMULATED = load_family("gemm_wgmma"), load_family("sgemm_emulated_wgmma")


@dataclass(frozen=True, slots=True)
class Case:
    """A seed on a problem of few tiles."""

    name: str
    family: Family
    config: Config
    problem: Problem


def seed(**wanted: object) -> Config:
    """The first seed of gemm_wgmma with these values."""
    seeds = [WGMMA.completed(one) for one in WGMMA.seeds]
    return next(one for one in seeds if wanted.items() <= one.as_dict().items())


def cases() -> list[Case]:
    bf16, f16, tf32 = DType.BF16, DType.F16, DType.TF32
    nn, nt, tn, tt = Layout.NN, Layout.NT, Layout.TN, Layout.TT
    walking = seed(BM=128, BN=256, CLUSTER_M=1, BLOCKS=132)
    clusters = seed(BN=256, CLUSTER_M=2, BOX_M=16)
    turns = seed(SCHEDULE="pingpong", BN=128, CLUSTER_M=1)
    single = seed(BM=128, BN=64, CLUSTER_N=1, SPLIT_K=1)
    tall = seed(BM=256, WN=64, BLOCKS=132, CLUSTER_N=1, SWAP_AB=0)
    square = seed(BM=128, BN=128, WM=128, WN=64)
    in_2, in_4, in_8 = seed(BM=64, BN=64, SPLIT_K=2), seed(SPLIT_K=4), seed(SPLIT_K=8)
    return [
        Case("two tiles", WGMMA, walking, Problem(200, 456, 200, nn, bf16)),
        Case("clusters", WGMMA, clusters, Problem(456, 456, 200, nn, bf16)),
        Case("in turns", WGMMA, turns, Problem(328, 264, 136, nt, f16)),
        Case("in turns 192", WGMMA, seed(BN=192), Problem(328, 456, 136, tn, bf16)),
        Case("swapped", WGMMA, seed(BM=200), Problem(408, 264, 136, nn, bf16)),
        Case("two heights", WGMMA, seed(SHORT_BY=24), Problem(700, 264, 136, nn, bf16)),
        Case("one tile", WGMMA, single, Problem(200, 136, 200, tt, bf16)),
        Case("2 parts", WGMMA, in_2, Problem(72, 136, 328, nn, bf16)),
        Case("4 parts", WGMMA, in_4, Problem(72, 136, 328, nn, f16)),
        Case("8 parts tf32", WGMMA, in_8, Problem(72, 264, 328, nn, tf32)),
        Case("tf32", WGMMA, tall, Problem(264, 264, 136, nn, tf32)),
        Case("tf32 tt", WGMMA, square, Problem(136, 136, 136, tt, tf32)),
        Case("emulated", EMULATED, EMULATED.seeds[0], Problem(136, 264, 136)),
        Case("emulated clusters", EMULATED, EMULATED.seeds[2], Problem(520, 136, 136)),
    ]


def run(case: Case, tool: str, compiler: Compiler, folder: Path, end: float) -> str:
    label = f"{tool:9} {case.name:18} {case.problem.label:22}"
    left_s = end - time.monotonic()
    program = find_sanitizer()
    if program is None or left_s < 3:
        return f"{label} NOT DONE: {'no time left' if program else 'no compute-sanitizer here'}"
    source = render(case.family, case.config, case.problem)
    # Few blocks, so that rings go round.
    plan = launch_plan(case.family, case.config, case.problem, few_blocks=True)
    kernel = Candidate(source, plan, compiler.compile(source, "sm_90"))
    name = f"{case.name} {tool}".replace(" ", "_")
    job = folder / f"{name}.job"
    job.write_bytes(pickle.dumps(Job(kernel, case.problem, 0)))
    command = [program, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "3"]
    command += [sys.executable, "-P", "-m", "autogemm.targets.cuda.worker.sanitized", str(job)]
    begin = time.monotonic()
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=left_s,
            env=child_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{label} NOT DONE in {left_s:.0f} s"
    finally:
        job.unlink()
    output = ended.stdout + ended.stderr
    (folder / f"{name}.txt").write_text(output)
    verdict, what = judged(ended.returncode, output, case.problem)
    return f"{label} {verdict.name:8} {time.monotonic() - begin:3.0f} s {what[:110]}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=60.0, help="For all of it.")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Only look whether all are legal, and compile them.")
def main(seconds: float, out: Path, dry_run: bool) -> None:
    """All four tools of compute-sanitizer on both families."""
    end = time.monotonic() + seconds
    out.mkdir(parents=True, exist_ok=True)
    every, device, compiler = cases(), find_device("h100"), Compiler()
    for case in every:
        broken = broken_constraints(case.family, case.config, case.problem, device)
        assert not broken, (case.name, broken)
        if dry_run:
            source = render(case.family, case.config, case.problem)
            compiler.compile(source, "sm_90")
    if not dry_run:
        jobs = [(case, tool) for tool in TOOLS for case in every]
        with ThreadPoolExecutor(10) as pool:
            for line in pool.map(lambda job: run(job[0], job[1], compiler, out, end), jobs):
                click.echo(line)
    compiler.close()


if __name__ == "__main__":
    main()

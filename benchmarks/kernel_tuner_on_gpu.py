"""Kernel Tuner and autogemm on one GPU, one kernel and one list of configs, in one run.

    benchmarks/gpu_box.sh run python3 benchmarks/kernel_tuner_on_gpu.py --candidates 60
    benchmarks/gpu_box.sh run python3 benchmarks/kernel_tuner_on_gpu.py --candidates 60 --one-core

Kernel Tuner samples at random through its CuPy back end, verifying nothing (its default), seven
launches a candidate. autogemm verifies and times every candidate: once at random, once with its own
sampler. The best of each is then timed once more beside cuBLAS, interleaved. The space is one that
both can launch (Kernel Tuner does not ask for more than 48 KB of shared memory a block), and
neither is told of configs known to be good.

autogemm compiles in as many processes as there are cores, Kernel Tuner in its own one: most of the
difference in rate is that. With --one-core everything runs on a single core, autogemm with a single
compiling process: what is left is due to what is done for a candidate.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import click
import numpy as np

from autogemm.cli.table import print_table
from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.signature import PLAIN, extents, factors
from autogemm.space import Family, Space, build_space, launch_plan, load_family, parse_fix
from autogemm.store import open_store
from autogemm.targets.cuda import CudaTarget
from autogemm.tuning import TuneRequest, tune
from autogemm.tuning.task.build import Builder

MAX_SMEM_BYTES = 48 * 1024
# Near the space of the shipped recording at 4096; no workspace, which Kernel Tuner would not zero.
FIX = (
    "BM=64,128,256 BN=64,128,256 BK=8,16 WM=32,64 WN=32,64,128 TM=8,16 TN=8 SLICE_K=1 SPLIT_K=1 "
    "SLICES=shared POINTERS=derived CHAIN_K=0 EDGES=guarded PACK=0 PDL=none "
    "STREAM_BLOCKS=0 HANDOVER=5 PAD_A=4 PAD_B=0 VEC_LOAD=4 VEC_STORE=4 STAGES=1,2,3,4,5 "
    "REG_STAGES=1,2 GROUP_M=1,8 MIN_BLOCKS=1,2 FMA_ORDER=snake LANE_MAP=rows,quads"
)
# Kernel Tuner launches with as many threads as this parameter says.
THREADS = "block_size_x"


@dataclass(frozen=True)
class Result:
    """The work of one tool. ``search_s`` leaves out getting ready, by the tool's own account."""

    tool: str
    candidates: int
    failed: int
    wall_s: float
    search_s: float
    best: Config
    best_us: float
    gpu_busy: float | None = None


@dataclass(frozen=True)
class Job:
    family: Family
    space: Space
    problem: Problem
    fix: dict[str, Any]
    candidates: int
    seed: int

    def source(self, config: Config) -> str:
        return Builder((self.family,), self.problem, self.space.device, None).render(config).text

    def plan(self, config: Config) -> LaunchPlan:
        return launch_plan(self.family, config, self.problem)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--size", default="4096", show_default=True)
@click.option("--candidates", default=60, show_default=True, help="For each tool.")
@click.option("--rounds", default=30, show_default=True, help="Of the bests beside cuBLAS.")
@click.option("--seed", default=0, show_default=True)
@click.option("--one-core", is_flag=True, help="Both on one core, child processes too.")
def main(size: str, candidates: int, rounds: int, seed: int, one_core: bool) -> None:
    """Run both and print one table."""
    if one_core:
        keep_to_one_core()
    with tempfile.TemporaryDirectory() as folder:
        # From empty caches, both.
        os.environ["CUPY_CACHE_DIR"] = f"{folder}/cupy"
        os.environ["AUTOGEMM_CACHE"] = f"{folder}/autogemm"
        target = CudaTarget(0)
        with closing(target):
            job = job_of(Path(folder), size, target, candidates, seed)
            click.echo(
                f"{job.problem.label} on {target.device.name}: {len(job.space)} configs of "
                f"{job.family.name}, {candidates} candidates each, seed {seed}"
            )
            click.echo(shares())
            results = [
                by_autogemm(job, target, "random"),
                by_autogemm(job, target, "surrogate"),
                by_kernel_tuner(job),
            ]
            ratios = beside_cublas(job, target, [one.best for one in results], rounds)
    report(job, results, ratios)


def keep_to_one_core() -> None:
    """Keep this process, and those that it starts from now on, to one of its cores."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def shares() -> str:
    """The number of cores, and the processes that use them."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return "1 core: both tools compile in one process"
    return f"{cores} cores: autogemm compiles in {cores} processes, Kernel Tuner in one"


def job_of(folder: Path, size: str, target: CudaTarget, candidates: int, seed: int) -> Job:
    family = launchable_by_both(load_family("sgemm_simt"), folder / "family")
    problem = Problem.of_size(size)
    fix = parse_fix(family, FIX.split())
    space = build_space(family, problem, target.device, fix)
    return Job(family, space, problem, fix, candidates, seed)


def launchable_by_both(family: Family, folder: Path) -> Family:
    """The family with one constraint more, and without the configs that are known to be good."""
    assert family.template_path is not None, "a family that ships has a template"
    folder.mkdir()
    rule = f"  - {{require: smem_bytes <= {MAX_SMEM_BYTES}, because: Kernel Tuner asks no more}}\n"
    text = family.yaml_path.read_text().replace("constraints:\n", f"constraints:\n{rule}", 1)
    (folder / family.yaml_path.name).write_text(text)
    shutil.copy(family.template_path, folder)
    return load_family(folder)


def by_autogemm(job: Job, target: CudaTarget, sampler: str) -> Result:
    request = TuneRequest(
        problem=job.problem,
        families=(job.family,),
        fix=job.fix,
        sampler=sampler,
        seed=job.seed,
        trials=job.candidates,
        finalists=1,
        rounds=1,
    )
    # Each from an empty database and cubin cache.
    with tempfile.TemporaryDirectory() as folder, closing(Compiler(Path(folder))) as compiler:
        began = time.perf_counter()
        with open_store(f"{folder}/tune.db") as store:
            result = tune(request, target, compiler, store)
        wall_s = time.perf_counter() - began
    best = result.best
    assert best is not None and best.time_us is not None, "some candidate worked"
    failed = sum(outcome.time_us is None for outcome in result.outcomes)
    return Result(
        tool=f"autogemm, {sampler}",
        candidates=result.num_trials,
        failed=failed,
        wall_s=wall_s - result.finals_s,
        search_s=result.search_s,
        best=best.config,
        best_us=best.time_us,
        gpu_busy=result.gpu_busy,
    )


def by_kernel_tuner(job: Job) -> Result:
    began = time.perf_counter()
    results, env = run_kernel_tuner(job)
    wall_s = time.perf_counter() - began
    worked = [row for row in results if "__error__" not in row]
    best = min(worked, key=lambda row: row["time"])
    own_account = ("compile", "verification", "benchmark", "strategy", "framework")
    return Result(
        tool="Kernel Tuner, random_sample",
        candidates=len(results),
        failed=len(results) - len(worked),
        wall_s=wall_s,
        search_s=sum(env.get(f"total_{part}_time", 0.0) for part in own_account) / 1e3,
        best=config_of(job, best),
        best_us=best["time"] * 1e3,
    )


def run_kernel_tuner(job: Job) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Random sampling over the legal configs. What it prints is dropped."""
    import kernel_tuner
    from constraint import FunctionConstraint

    problem, space = job.problem, job.space
    configs = [space.config(index) for index in range(len(space))]
    threads = [job.plan(config).launches[0].num_threads for config in configs]
    legal = {
        (*(value for _, value in config), count)
        for config, count in zip(configs, threads, strict=True)
    }
    rng = np.random.default_rng(job.seed)
    a = rng.standard_normal(problem.a_shape, dtype=np.float32)
    b = rng.standard_normal(problem.b_shape, dtype=np.float32)
    values = {
        **{name: np.int32(value) for name, value in extents(problem).items()},
        **{name: np.float32(value) for name, value in factors(problem).items()},
        **{"A": a, "B": b, "C": np.zeros((problem.m, problem.n), np.float32)},
    }
    arguments = [values[name] for name in PLAIN.names]

    def launch(choose: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
        return lambda params: choose(job.plan(config_of(job, params)).launches[0])

    np.random.seed(job.seed)  # that is where Kernel Tuner draws from
    with redirect_stdout(StringIO()):
        results, env = kernel_tuner.tune_kernel(
            kernel_name="gemm_kernel",
            kernel_source=lambda params: job.source(config_of(job, params)),
            problem_size=launch(lambda one: one.grid),
            arguments=arguments,
            tune_params={
                **{p.name: list(p.values) for p in space.parameters},
                THREADS: sorted(set(threads)),
            },
            grid_div_x=[],
            grid_div_y=[],
            grid_div_z=[],
            restrictions=[FunctionConstraint(lambda *values: values in legal)],
            smem_args={"size": launch(lambda one: one.smem_bytes)},
            # The text has its own constants.
            defines={},
            compiler_options=["--std=c++17"],
            lang="CUPY",
            strategy="random_sample",
            strategy_options={"max_fevals": job.candidates},
            quiet=True,
            seed=job.seed,
        )
    return list(results), env


def config_of(job: Job, params: dict[str, Any]) -> Config:
    """Kernel Tuner's params without those that it adds."""
    return Config.of(job.family.name, {p.name: params[p.name] for p in job.space.parameters})


def beside_cublas(job: Job, target: CudaTarget, bests: list[Config], rounds: int) -> dict[str, str]:
    """``ratio (low..high)`` by config, from interleaved rounds."""
    with tempfile.TemporaryDirectory() as folder, closing(Compiler(Path(folder))) as compiler:
        builder = Builder((job.family,), job.problem, target.device, compiler)
        distinct = list(dict.fromkeys(bests))
        candidates = [builder.start(builder.render(config)).candidate() for config in distinct]
        finals = target.finals(candidates, rounds, job.seed)
    return {
        str(entry.config): f"{entry.ratio:.3f} ({entry.ratio_low:.3f}..{entry.ratio_high:.3f})"
        for entry in finals.entries
    }


def report(job: Job, results: list[Result], ratios: dict[str, str]) -> None:
    rows = [
        {
            "tool": one.tool,
            "candidates": one.candidates,
            "failed": one.failed,
            "wall s": one.wall_s,
            "search s": one.search_s,
            "candidates/s": one.candidates / one.search_s,
            "GPU busy": None if one.gpu_busy is None else f"{100 * one.gpu_busy:.0f} %",
            "best TFLOP/s": job.problem.tflops(one.best_us),
            "x cuBLAS": ratios[str(one.best)],
        }
        for one in results
    ]
    print_table(rows, list(rows[0]))
    theirs = results[-1]
    for ours in results[:-1]:
        times = ours.candidates / ours.search_s / (theirs.candidates / theirs.search_s)
        click.echo(
            f"{ours.tool}: {times:.1f} times the candidates a second of {theirs.tool} ({shares()})"
        )
    for one in results:
        click.echo(f"best of {one.tool}: {one.best}")


if __name__ == "__main__":
    # Searches begin with nothing but seeds, whatever ships.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    main()

"""Errors of FP32 sums with and without CHAIN_K, computed on this machine's processor.

Runs what sgemm_simt and sgemm_skinny emit in the emulator, a few tiles at the full depth of K, on
normal inputs. An error is relative to float64 in the norm of Frobenius. No GPU, and no times.

    python benchmarks/chain_error.py
"""

import click
import numpy as np

from autogemm.cli.output import print_rows
from autogemm.codegen import render
from autogemm.emulator import Emulator, Mode
from autogemm.emulator.buffers import buffers_of
from autogemm.emulator.emulator import RunOptions
from autogemm.emulator.exchange import Program, RawExchange, run_process
from autogemm.emulator.toolchain import build
from autogemm.model.config import Config, Value
from autogemm.model.problem import Problem
from autogemm.reference import Data, make_inputs
from autogemm.space import launch_plan, load_family

SLICED: dict[str, Value] = {"BM": 96, "BN": 96, "SLICE_K": 2, "SLICES": "separate", "CHAIN_K": 0}
WHOLE: dict[str, Value] = {
    **{"BM": 128, "BN": 128, "POINTERS": "held"},
    **{"EDGES": "guarded", "PACK": 0, "CHAIN_K": 0},
}
ROWS: dict[str, Value] = {"BM": 8, "BN": 64, "TM": 4, "SLICE_K": 16}
# The shape, the family, a seed of it by some of its values, and chains.
# Tiles that blocks share are left out: their ranges of k are shorter.
KERNELS: tuple[tuple[str, str, dict[str, Value], tuple[int, ...]], ...] = (
    ("1536", "sgemm_simt", SLICED, (0, 512, 128)),
    ("3072", "sgemm_simt", WHOLE, (0, 512, 128)),
    ("4096", "sgemm_simt", WHOLE, (0, 512, 128)),
    ("16x4096x4096", "sgemm_skinny", ROWS, (0, 64)),
)


def seed_of(family_name: str, values: dict[str, Value]) -> dict[str, Value]:
    """The first seed with these values, as far as it has them."""
    family = load_family(family_name)
    seeds = (family.completed(seed).as_dict() for seed in family.seeds)
    return next(seed for seed in seeds if values.items() <= seed.items())


def error(emulator: Emulator, config: Config, k: int) -> float:
    """Return the error of two by two tiles."""
    family, values = load_family(config.family), config.as_dict()
    problem = Problem(2 * int(values["BM"]), 2 * int(values["BN"]), k)
    plan = launch_plan(family, config, problem)
    source = render(family, config, problem)
    built = build(source.text, plan.signature, Mode.FAST, emulator.toolchain, emulator.folder)
    inputs = make_inputs(problem, plan, Data.REALS, RunOptions().seed)
    header = RawExchange(deadline_s=600, resident_blocks=1)
    buffers = buffers_of(inputs, problem, plan)
    c = run_process(
        Program(built.executable, built.confine), header, plan, problem, buffers
    ).c.reshape(problem.m, problem.n)
    return float(np.linalg.norm(c - inputs.expected) / np.linalg.norm(inputs.expected))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Errors with and without short chains."""
    emulator, rows = Emulator(), []
    for shape, family, some, chains in KERNELS:
        seed = seed_of(family, some) | ({"STREAM_BLOCKS": 0} if family == "sgemm_simt" else {})
        depth = int(shape.split("x")[-1])
        for chain in chains:
            found = error(emulator, Config.of(family, seed | {"CHAIN_K": chain}), depth)
            row = {"shape": shape, "family": family, "CHAIN_K": chain}
            rows.append(row | {"error": f"{found:.2e}"})
    print_rows(rows, list(rows[0]))


if __name__ == "__main__":
    main()

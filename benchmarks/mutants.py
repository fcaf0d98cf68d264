"""Plant bugs by rules in the kernels of all families that ship, and say what became of each.

`python benchmarks/mutants.py --seed 100 > benchmarks/results/mutants.txt`: of each family what
`autogemm verify --mutate FAMILY --mutants N --seed S` draws, of the first with the seed given, of
the second with the next. Seconds are of one core: of the process that ran a mutant and of its
children, compilers among them.
"""

import argparse
import itertools
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import yaml

from autogemm.catalogue.gpus import find_device
from autogemm.cli.kernels.run.mutants import HANGS_S, MOST_CONFIGS
from autogemm.cli.kernels.run.verify import dtypes_of
from autogemm.emulator import Emulator
from autogemm.space import load_family
from autogemm.verify import (
    CaseSet,
    Draw,
    Fate,
    MutantResult,
    Planted,
    draw_mutants,
    fate_of,
    planned_cases,
    verified_by_default,
)

FAMILIES = (
    *("naive", "tiled", "register_blocked", "block_tiled", "sgemm_simt", "sgemm_skinny"),
    *("sgemm_emulated", "sgemm_emulated_wgmma", "gemm_mma", "gemm_skinny", "gemm_wgmma"),
)
# Seconds of one core after which a mutant is given up: 60 s of two.
EACH_S = 120.0
# Mutants that no case can catch, and why: a person judged each. Keys: family, line, new.
JUDGED = Path(__file__).with_name("mutants_judged.yaml")


def planted(family_name: str, draw: Draw) -> list[Planted]:
    """The mutants that `autogemm verify --mutate` draws."""
    family, device = load_family(family_name), find_device("h100")
    seeds = verified_by_default(family, device)
    sets = [(seed, dtype) for dtype in dtypes_of(family, None) for seed in seeds]
    order = np.random.default_rng(draw.seed).permutation(len(sets))[:MOST_CONFIGS]
    chosen = [
        CaseSet(seed, dtype, planned_cases(family, seed, device, dtype))
        for seed, dtype in (sets[index] for index in order)
    ]
    return draw_mutants(family, device, chosen, draw)


def cpu_s() -> float:
    """Seconds of processors that this process and its children took."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def fates(folder: str, family_name: str, draw: Draw) -> list[MutantResult]:
    """The fate of each mutant of a family; its seconds are of one core."""
    emulator = Emulator(Path(folder), HANGS_S)
    drawn = planted(family_name, draw)
    return [fate_of(emulator, one, draw.each_s, cpu_s) for one in drawn]


def results(families: list[str], draw: Draw, jobs: int) -> Iterator[tuple[str, MutantResult]]:
    """Each mutant's family and fate."""
    draws = [replace(draw, seed=draw.seed + place) for place in range(len(families))]
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(jobs) as pool:
        found = pool.map(fates, itertools.repeat(folder), families, draws)
        for name, results_of_family in zip(families, found, strict=True):
            for one in results_of_family:
                yield name, one


def judged() -> dict[tuple[str, str, str], str]:
    """Why a mutant that no case catches does no harm."""
    entries = yaml.safe_load(JUDGED.read_text()) if JUDGED.is_file() else []
    return {(one["family"], one["line"], one["new"]): one["why"] for one in entries or []}


def verdict_of(
    name: str, one: MutantResult, reasons: dict[tuple[str, str, str], str]
) -> tuple[str, str]:
    """One of VERDICTS, and why. What does not compile is no kernel, and does not count."""
    why = reasons.get((name, one.mutant.line, one.mutant.new), "")
    match one.fate:
        case Fate.CAUGHT:
            return "caught", f"{one.problem}: {one.message[:100]}"
        case Fate.NOT_COMPILED:
            return "refused", "g++ or a static_assert refuses it"
        case Fate.SAME_CODE:
            return "equivalent", "g++ makes the same program of it"
    return ("equivalent", why) if why else ("missed", str(one.fate))


VERDICTS = ("caught", "equivalent", "missed", "refused")


def main() -> int:
    """Exit code 1 where a mutant that does harm was not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10, help="mutants of each family")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    arguments = parser.parse_args()
    reasons = judged()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"$ python benchmarks/mutants.py {' '.join(sys.argv[1:])}")
    print(f"{date.today()}, commit {commit}; seconds are of one core\n")
    numbers = dict.fromkeys(VERDICTS, 0)
    caught_s = [0.0]
    draw = Draw(arguments.count, arguments.seed, EACH_S)
    for name, one in results(arguments.families, draw, arguments.jobs):
        verdict, why = verdict_of(name, one, reasons)
        numbers[verdict] += 1
        if verdict == "caught":
            caught_s.append(one.seconds)
        print(f"{name:20} {verdict:10} {one.seconds:6.1f} s  {one.mutant.rule}")
        print(f"    - {one.mutant.line}\n    + {one.mutant.new}\n      {why}", flush=True)
    print("\n" + ", ".join(f"{numbers[verdict]} {verdict}" for verdict in VERDICTS))
    real = numbers["caught"] + numbers["missed"]
    print(
        f"caught {numbers['caught']} of the {real} that do harm, each within {max(caught_s):.0f} s"
    )
    return 1 if numbers["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())

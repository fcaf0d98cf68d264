"""Tunes the same problems several times with different seeds and compares the winners.

    python benchmarks/stability.py --sizes 1024 4096 4096x256x1024 --seeds 0 1 --out FOLDER

Each run starts from an empty database. Then the winners of one problem are timed in the same
rounds, interleaved and in random order; a ratio is the median of paired ratios with its 95 %
interval, above 1 where it is slower than the winner of the first seed. Prints a table, and writes
it with all samples to FOLDER/stability.json.
"""

import argparse
import json
import os
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from autogemm.cli.table import print_table
from autogemm.compile import Compiler
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.finals import paired_ratio
from autogemm.model.results.outcome import FinalsEntry
from autogemm.space import default_families
from autogemm.store import open_store
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget
from autogemm.tuning import TuneRequest, TuneResult, tune
from autogemm.tuning.task.build import Builder

ROUNDS = 60
SAME_WITHIN = 0.01
COLUMNS = ("problem", "seed", "trials", "s", "x cuBLAS", "to first", "interval", "1 %", "winner")


@dataclass(frozen=True)
class Run:
    """One tuning run and its winner."""

    seed: int
    result: TuneResult
    winner: FinalsEntry


@dataclass(frozen=True)
class Row:
    """A winner beside the winner of the first seed. ``within`` 1 % by the median."""

    problem: str
    seed: int
    trials: int
    seconds: float
    family: str
    config: str
    ratio: float
    to_first: float
    to_first_low: float
    to_first_high: float
    within: bool
    samples_us: tuple[float, ...]


def main() -> None:
    options = parsed()
    with closing(CudaTarget(0)) as target, closing(Compiler()) as compiler:
        rows = [
            row
            for size in options.sizes
            for row in compared(Problem.of_size(size), options, target, compiler)
        ]
        print_table([shown(row) for row in rows], COLUMNS, title=target.device.name)
        content = {
            "gpu": target.device.name,
            "environment": asdict(target.environment),
            "trials": options.trials,
            "budget_s": options.budget_s,
            "rounds": ROUNDS,
            "rows": [asdict(row) for row in rows],
        }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "stability.json").write_text(json.dumps(content, indent=1) + "\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["1024", "4096", "4096x256x1024"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--budget-s", type=float, default=60.0, help="of each run's search")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def compared(
    problem: Problem, options: argparse.Namespace, target: CudaTarget, compiler: Compiler
) -> list[Row]:
    """The winners of all seeds beside that of the first."""
    runs = [tuned(problem, seed, options, target, compiler) for seed in options.seeds]
    target.prepare(problem, MeasureOptions())
    candidates = {run.winner.kernel_sha256: made(problem, run, target, compiler) for run in runs}
    finals = target.finals(list(candidates.values()), ROUNDS, seed=0)
    for lost in finals.disqualified:
        raise SystemExit(f"{problem.label}: the winner {lost.config}: {lost.reason}")
    entries = {entry.kernel_sha256: entry for entry in finals.entries}
    first = entries[runs[0].winner.kernel_sha256]
    return [row_of(problem, run, entries[run.winner.kernel_sha256], first) for run in runs]


def tuned(
    problem: Problem,
    seed: int,
    options: argparse.Namespace,
    target: CudaTarget,
    compiler: Compiler,
) -> Run:
    request = TuneRequest(
        problem,
        tuple(default_families()),
        seed=seed,
        trials=options.trials,
        budget_s=options.budget_s,
        measure=MeasureOptions(seed=seed),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(str(Path(folder) / "empty.db")) as store,
    ):
        result = tune(request, target, compiler, store)
    if result.finals is None:
        raise SystemExit(f"{problem.label}, seed {seed}: nothing ran")
    return Run(seed, result, result.finals.winner)


def made(problem: Problem, run: Run, target: CudaTarget, compiler: Compiler) -> Candidate:
    config = run.winner.config
    assert config is not None, "only cuBLAS has no config"
    builder = Builder(tuple(default_families()), problem, target.device, compiler)
    return builder.start(builder.render(config)).candidate()


def row_of(problem: Problem, run: Run, entry: FinalsEntry, first: FinalsEntry) -> Row:
    to_first = paired_ratio(entry.samples_us, first.samples_us, seed=0)
    assert entry.config is not None, "only cuBLAS has no config"
    return Row(
        problem=problem.size_label,
        seed=run.seed,
        trials=run.result.num_trials,
        seconds=run.result.search_s + run.result.finals_s,
        family=entry.config.family,
        config=entry.config.label,
        ratio=entry.ratio,
        to_first=to_first.ratio,
        to_first_low=to_first.low,
        to_first_high=to_first.high,
        within=abs(to_first.ratio - 1) <= SAME_WITHIN,
        samples_us=entry.samples_us,
    )


def shown(row: Row) -> dict[str, object]:
    return {
        "problem": row.problem,
        "seed": row.seed,
        "trials": row.trials,
        "s": f"{row.seconds:.0f}",
        "x cuBLAS": f"{row.ratio:.3f}",
        "to first": f"{row.to_first:.4f}",
        "interval": f"{row.to_first_low:.4f}..{row.to_first_high:.4f}",
        "1 %": "yes" if row.within else "NO",
        "winner": f"{row.family} {row.config}",
    }


if __name__ == "__main__":
    # Searches begin with nothing but seeds, whatever ships.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    main()

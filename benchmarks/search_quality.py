"""Replays search strategies on recorded spaces and prints how close to the optimum they come.

    python benchmarks/search_quality.py FILE... --strategies surrogate random --seeds 25

FILE is a Kernel Tuner cache file (JSON, gzipped or not) of a fully measured space. Each cell is the
median over the seeds of (best time of the space) / (best time found so far).
"""

import os

# One process a run: threads of the linear algebra library would fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import gzip
import itertools
import json
import math
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autogemm.config import Config, Value
from autogemm.outcome import Measurement, Outcome, Provenance, Status
from autogemm.search import SAMPLERS, Search


@dataclass(frozen=True)
class Parameter:
    name: str
    values: tuple[Value, ...]


class RecordedSpace:
    """A Kernel Tuner cache as an enumerated space with known times (inf for a failed config)."""

    def __init__(self, path: Path, with_pairs: bool) -> None:
        self._with_pairs = with_pairs
        raw = path.read_bytes()
        record = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        rows = list(record["cache"].values())
        self.name = path.name.partition(".")[0]
        self.times_us = np.array([_time_us(row) for row in rows])
        self.parameters = tuple(
            Parameter(name, tuple(sorted({row[name] for row in rows})))
            for name in record["tune_params_keys"]
        )
        self._configs = [tuple(row[p.name] for p in self.parameters) for row in rows]
        self._index = {values: i for i, values in enumerate(self._configs)}
        self.codes = np.array(
            [
                [p.values.index(v) for p, v in zip(self.parameters, c, strict=True)]
                for c in self._configs
            ],
            dtype=np.int16,
        )
        self.seeds: list[int] = []

    def __len__(self) -> int:
        return len(self._configs)

    def config(self, index: int) -> Config:
        names = (p.name for p in self.parameters)
        return Config(self.name, tuple(zip(names, self._configs[index], strict=True)))

    def index(self, config: Config) -> int | None:
        return self._index.get(tuple(value for _, value in config))

    def features(
        self, rows: NDArray[np.int64] | None = None
    ) -> tuple[list[str], NDArray[np.float64]]:
        """Log2 of the parameters and, if wanted, of all their products and ratios.

        A cache file does not say which derived quantities matter (threads, work per thread).
        """
        codes = self.codes if rows is None else self.codes[rows]
        columns = {
            p.name: _log2(p.values)[codes[:, i]]
            for i, p in enumerate(self.parameters)
            if len(p.values) > 1
        }
        if self._with_pairs:
            pairs = list(itertools.combinations(columns, 2))
            columns |= {f"{a}*{b}": columns[a] + columns[b] for a, b in pairs} | {
                f"{a}/{b}": columns[a] - columns[b] for a, b in pairs
            }
        return list(columns), np.stack(list(columns.values()), axis=1)


@dataclass(frozen=True)
class Job:
    path: Path
    strategy: str
    seed: int
    evaluations: int
    batch: int
    with_pairs: bool


@dataclass(frozen=True)
class Replay:
    """``fractions[i]`` of the optimum after i + 1 evaluations, and the search's own time."""

    fractions: NDArray[np.float64]
    ms_per_proposal: float


def replay(job: Job) -> Replay:
    space = _load(job.path, job.with_pairs)
    search = Search(space, job.strategy, job.seed, None, "replay")
    best, times, search_s = math.inf, [], 0.0
    while len(times) < min(job.evaluations, len(space)):
        start = time.perf_counter()
        asked = [search.ask() for _ in range(min(job.batch, job.evaluations - len(times)))]
        search_s += time.perf_counter() - start
        for proposal in asked:
            if proposal is None:
                continue
            time_us = float(space.times_us[proposal.index])
            best = min(best, time_us)
            times.append(best)
            start = time.perf_counter()
            search.tell(proposal, _outcome(proposal.config, time_us))
            search_s += time.perf_counter() - start
    return Replay(space.times_us.min() / np.array(times), search_s / len(times) * 1e3)


def _outcome(config: Config, time_us: float) -> Outcome:
    if math.isinf(time_us):
        return Outcome(config, Status.LAUNCH_FAILED, reason="failed in the recording")
    return Outcome(config, Status.OK, measurement=Measurement((time_us,), Provenance.RECORDED))


@cache
def _load(path: Path, with_pairs: bool) -> RecordedSpace:
    return RecordedSpace(path, with_pairs)


def _time_us(row: dict[str, Any]) -> float:
    """Milliseconds in the file; a word where the config failed."""
    return row["time"] * 1e3 if isinstance(row["time"], int | float) else math.inf


def _log2(values: tuple[Value, ...]) -> NDArray[np.float64]:
    """Log2 of numbers, log2(1 + x) where one of them is below 1, positions of words."""
    if any(isinstance(value, str) for value in values):
        return np.arange(float(len(values)))
    numbers = np.array(values, dtype=float)
    return np.log2(numbers + 1.0 if numbers.min() < 1.0 else numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--strategies", nargs="+", default=["surrogate", "random"], choices=SAMPLERS
    )
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--evaluations", nargs="+", type=int, default=[25, 50, 100, 200])
    parser.add_argument("--batch", nargs="+", type=int, default=[1])
    parser.add_argument("--pairs", action="store_true", help="products and ratios as features")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print("space strategy batch " + " ".join(f"@{n}" for n in options.evaluations) + " ms/proposal")
    with ProcessPoolExecutor(options.processes) as pool:
        for path, strategy, batch in itertools.product(
            options.files, options.strategies, options.batch
        ):
            most = max(options.evaluations)
            jobs = [
                Job(path, strategy, seed, most, batch, options.pairs)
                for seed in range(options.seeds)
            ]
            runs = list(pool.map(replay, jobs))
            cells = " ".join(f"{_median_after(n, runs):.3f}" for n in options.evaluations)
            ms = statistics.mean(run.ms_per_proposal for run in runs)
            print(f"{path.name.partition('.')[0]} {strategy} {batch} {cells} {ms:.1f}", flush=True)


def _median_after(evaluations: int, runs: list[Replay]) -> float:
    return statistics.median(
        float(run.fractions[min(evaluations, len(run.fractions)) - 1]) for run in runs
    )


if __name__ == "__main__":
    main()

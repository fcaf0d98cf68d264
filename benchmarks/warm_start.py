"""Replays warm starts on the FP32 recordings that ship: trials until 98 % of the optimum.

Each recording is searched with the results of the others in the database and without, with the
seeds of the family's YAML and without any (a family of one's own, or another kind of GPU), for
several seeds of the search. Every time is a recorded one; the optimum is the best recorded config.

    python benchmarks/warm_start.py [--seeds 10] [--out FILE]
"""

import argparse
import itertools
import os
import statistics
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from autogemm.model.problem import Problem
from autogemm.space import Family, load_family
from autogemm.store import Store, open_store
from autogemm.support.resources import data_folder
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning import SearchStarted, TuneRequest, tune

SHARE = 0.98
MOST_TRIALS = 200
# Trials of the runs whose results are stored before.
STORED_TRIALS = 60


def recordings() -> list[Path]:
    """Those of one family, layout and type: the results of one are starts for another."""
    return sorted(data_folder("db/recordings").glob("sgemm_simt_*_nn.json.gz"))


def problem_of(path: Path) -> Problem:
    with closing(RecordedTarget(path)) as target:
        return target.recording.problem


def optimum_us(path: Path) -> float:
    with closing(RecordedTarget(path)) as target:
        return min(time for time in target.recording.time_us if time is not None)


def search(  # noqa: PLR0913  # one search's circumstances
    path: Path, family: Family, store: Store, seed: int, *, warm: bool, trials: int
) -> tuple[list[float], tuple[str, ...]]:
    """The times in order, and what the search started from."""
    started: list[tuple[str, ...]] = []

    def listen(event: object) -> None:
        if isinstance(event, SearchStarted):
            started.append(event.started_from)

    request = TuneRequest(
        problem=problem_of(path),
        families=(family,),
        seed=seed,
        trials=trials,
        warm_start=warm,
        fresh=True,
    )
    with closing(RecordedTarget(path)) as target:
        # Reaching the share ends the search: what comes after is not asked for.
        goal = target.recording.baseline.time_us / optimum_us(path) * SHARE
        if trials == MOST_TRIALS:
            request = replace(request, until_ratio=goal)
        result = tune(request, target, None, store, listen)
    times = [outcome.time_us or float("inf") for outcome in result.outcomes]
    return times, started[0]


def trials_to_goal(times: list[float], best_us: float) -> int:
    reached = (number for number, own in enumerate(times, 1) if own <= best_us / SHARE)
    return next(reached, MOST_TRIALS)


def stored_results(folder: Path, without: Path, family: Family) -> Path:
    """A database with the results of all recordings but one."""
    place = folder / f"{without.name}.db"
    with open_store(str(place)) as store:
        for path in recordings():
            if path != without:
                search(path, family, store, 0, warm=False, trials=STORED_TRIALS)
    return place


def row(path: Path, family: Family, seeds: int, place: Path) -> tuple[list[int], list[int], str]:
    best_us = optimum_us(path)
    counts: dict[bool, list[int]] = {True: [], False: []}
    origin = ""
    for seed, warm in itertools.product(range(seeds), (False, True)):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            copy.write_bytes(place.read_bytes())
            with open_store(str(copy)) as store:
                times, started = search(path, family, store, seed, warm=warm, trials=MOST_TRIALS)
        counts[warm].append(trials_to_goal(times, best_us))
        origin = "; ".join(one.split(" nn ")[0] for one in started) or origin
    return counts[False], counts[True], origin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    gpus = ", ".join(sorted({RecordedTarget(path).device.name for path in recordings()}))
    lines = [
        f"trials until {100 * SHARE:.0f} % of the optimum of a recording (replayed, {gpus}), "
        f"median of {options.seeds} searches, worst in brackets; at most {MOST_TRIALS}",
        f"{'size':16}{'configs':>8}  {'seeds of the YAML':>18}  {'cold':>10}  {'warm':>10}  from",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for path in recordings():
            shipped = load_family(RecordedTarget(path).recording.family)
            place = stored_results(Path(folder), path, shipped)
            bare = replace(shipped, seeds=(), seed_origins=(), seed_sizes=())
            for name, family in (("tried", shipped), ("none", bare)):
                cold, warm, origin = row(path, family, options.seeds, place)
                shown = [f"{statistics.median(one):g} ({max(one)})" for one in (cold, warm)]
                num_configs = len(RecordedTarget(path).recording)
                lines.append(
                    f"{problem_of(path).size_label:16}{num_configs:>8}  {name:>18}  "
                    f"{shown[0]:>10}  {shown[1]:>10}  {origin}"
                )
                print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    # Searches begin with nothing but seeds, whatever ships.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    main()

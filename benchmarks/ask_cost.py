"""Shows what a proposal costs the thread of the search, with INVENTED times and no GPU.

    OMP_NUM_THREADS=1 python benchmarks/ask_cost.py --dtype bf16 --dtype f32

A search at 4096 on an H200, with all families that fit: a config is asked for and rendered each
25 ms, and told when 20 others are out, as on a host with 16 cores. The model is fitted in a thread
of its own, as on a GPU. Figures are milliseconds of processor time for each proposal, means over
the 100 before so many proposals (40 before 50); other programs hardly change them.
"""

import argparse
import math
import time
from collections import deque

import numpy as np

from autogemm.catalogue.gpus import known_devices
from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Measurement, Outcome, Provenance, Status
from autogemm.search import Search
from autogemm.space import Space, build_space
from autogemm.support.errors import EmptySpaceError
from autogemm.tuning import TuneOptions, request_for
from autogemm.tuning.loop.joint import JointSearch, opening_for
from autogemm.tuning.task.build import Builder

SIZE = 4096
STEP_S = 0.025
IN_FLIGHT = 20
MARKS = (50, 200, 1000)
COLUMNS = ("ask", "render", "tell", "other threads")


class Landscape:
    """Invented times of a space: its expected times, and waves across its features."""

    def __init__(self, space: Space) -> None:
        self.space = space
        rows = np.unique(np.linspace(0, len(space) - 1, 2000, dtype=np.int64))
        names, columns = space.features(rows)
        self._mean, self._spread = columns.mean(axis=0), columns.std(axis=0) + 1e-9
        rng = np.random.default_rng(7)
        self._waves = 0.35 * rng.normal(size=(columns.shape[1], 12))
        self._phases = rng.uniform(0.0, 2.0 * math.pi, 12)
        self._expected = names.index("expected_time") if "expected_time" in names else None

    def time_us(self, index: int) -> float:
        columns = self.space.features(np.array([index]))[1][0]
        waves = (columns - self._mean) / self._spread @ self._waves + self._phases
        log_time = 0.12 * float(np.cos(waves).sum())
        if self._expected is not None:
            log_time += 0.5 * math.log(2.0) * float(columns[self._expected])
        return math.exp(log_time)


def spaces_of(dtype: str) -> list[Space]:
    problem = Problem(SIZE, SIZE, SIZE, dtype=next(one for one in DType if one.label == dtype))
    spaces = []
    for family in request_for(problem, TuneOptions(), (), "").families:
        try:
            spaces.append(build_space(family, problem, known_devices()["h200"], {}))
        except EmptySpaceError:
            continue
    return spaces


def outcome_of(landscape: Landscape, index: int) -> Outcome:
    """One of 20 is rejected."""
    config = landscape.space.config(index)
    if int(config.sha256, 16) % 20 == 0:
        return Outcome(config, Status.REJECTED, "invented")
    measured = Measurement((landscape.time_us(index),), Provenance.RECORDED)
    return Outcome(config, Status.OK, measurement=measured)


def rows_for(dtype: str, count: int) -> "list[tuple[int, list[float]]]":
    """Milliseconds by column at each mark."""
    spaces = spaces_of(dtype)
    searches = {one.family.name: Search(one, meanwhile=True) for one in spaces}
    most_seeds = max(len(one.seeds) for one in spaces)
    joint = JointSearch(searches, opening=opening_for(None, len(spaces), most_seeds))
    families = tuple(one.family for one in spaces)
    builder = Builder(families, spaces[0].problem, spaces[0].device, None)
    landscapes = {one.family.name: Landscape(one) for one in spaces}
    waiting: deque[tuple[object, Outcome]] = deque()
    spent: list[list[float]] = []
    rows = []
    for number in range(1, count + 1):
        began, clocks = time.monotonic(), [time.thread_time()]
        all_threads_s = time.process_time()
        proposal = joint.ask()
        clocks.append(time.thread_time())
        assert proposal is not None
        builder.render(proposal.config)
        clocks.append(time.thread_time())
        landscape = landscapes[proposal.config.family]
        outcome = outcome_of(landscape, proposal.index)
        waiting.append((proposal, outcome))
        before_s = time.thread_time()
        if len(waiting) > IN_FLIGHT:
            joint.tell(*waiting.popleft())  # type: ignore[arg-type]
        told_s = time.thread_time() - before_s
        time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))
        own_s = time.thread_time() - clocks[0]
        others_s = time.process_time() - all_threads_s - own_s
        spent.append([*np.diff(clocks), told_s, others_s])
        if number in MARKS or number == count:
            last = spent[-(40 if number <= 50 else 100) :]
            rows.append((number, [1e3 * float(one) for one in np.mean(last, axis=0)]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--proposals", type=int, default=MARKS[-1])
    asked = parser.parse_args()
    print(f"{'':>8}{'proposals':>12}" + "".join(f"{name:>16}" for name in COLUMNS))
    for dtype in asked.dtype or ["bf16", "f32"]:
        for number, figures in rows_for(dtype, asked.proposals):
            cells = "".join(f"{one:>16.2f}" for one in figures)
            print(f"{dtype:>8}{number:>12}{cells}", flush=True)


if __name__ == "__main__":
    main()

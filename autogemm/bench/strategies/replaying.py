"""Replays: strategies on recorded spaces, in parallel processes."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from autogemm.bench.strategies.plan import Job, Plan, is_kernel_tuner
from autogemm.model.config import Config
from autogemm.model.results.outcome import Measurement, Outcome, Provenance, Status
from autogemm.search import Search
from autogemm.targets.recorded import RecordedSpace, open_recorded_space

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Replay:
    """The result of a job. ``fractions[i]`` is best time of the space / best time after i + 1
    evaluations (0 while nothing worked), ``spent_s[i]`` the recorded seconds until then, of
    compiling and verifying too if ``includes_compiling``.

    A strategy that ends early, or has seen all configs, keeps its last value.
    """

    job: Job
    fractions: Floats
    spent_s: Floats | None
    includes_compiling: bool
    ms_per_proposal: float


def replay(job: Job, recorded: RecordedSpace) -> Replay:
    """Run the job. Raises AutogemmError when Kernel Tuner cannot work on the space."""
    if is_kernel_tuner(job.strategy):
        from autogemm.bench.strategies.kernel_tuner import tried

        tries, search_s = tried(job, recorded)
    else:
        tries, search_s = _tried(job, recorded)
    best_us = np.minimum.accumulate(recorded.times_us[tries])
    missing = (0, job.evaluations - len(tries))
    spent_s = None
    if recorded.spent_s is not None:
        spent_s = np.pad(np.cumsum(recorded.spent_s[tries]), missing, mode="edge")
    fractions = np.pad(recorded.best_us / best_us, missing, mode="edge")
    ms_per_proposal = search_s / len(tries) * 1e3
    return Replay(job, fractions, spent_s, recorded.includes_compiling, ms_per_proposal)


def _tried(job: Job, recorded: RecordedSpace) -> tuple[list[int], float]:
    """Indices of the configs in the order of trying, and the seconds that the search took."""
    began = time.perf_counter()
    search = Search(recorded.space, job.strategy, job.seed)
    search_s = time.perf_counter() - began
    tries: list[int] = []
    wanted = min(job.evaluations, len(recorded.space))
    while len(tries) < wanted:
        room = min(job.batch, wanted - len(tries))
        began = time.perf_counter()
        asked = [search.ask() for _ in range(room)]
        search_s += time.perf_counter() - began
        for proposal in asked:
            assert proposal is not None, "there are unseen configs left"
            tries.append(proposal.index)
            outcome = _outcome(proposal.config, float(recorded.times_us[proposal.index]))
            began = time.perf_counter()
            search.tell(proposal, outcome)
            search_s += time.perf_counter() - began
    return tries, search_s


def _outcome(config: Config, time_us: float) -> Outcome:
    if np.isinf(time_us):
        return Outcome(config, Status.LAUNCH_FAILED, "failed in the recording")
    return Outcome(config, Status.OK, measurement=Measurement((time_us,), Provenance.RECORDED))


def replays(plan: Plan, processes: int | None = None) -> Iterator[Replay]:
    """Every replay of the plan, as soon as it is done; by default on all cores.

    The results do not depend on the number of processes; their order does. Raises NotFoundError,
    RecordingError, and AutogemmError when Kernel Tuner cannot work on a space.
    """
    jobs = plan.jobs()
    cores = processes or len(os.sched_getaffinity(0))
    if min(cores, len(jobs)) == 1:
        yield from map(_replay, jobs)
        return
    # Not forked: the parent may have threads (a progress bar).
    spawning = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(min(cores, len(jobs)), spawning, _prepare_worker)
    try:
        for future in as_completed([pool.submit(_replay, job) for job in jobs]):
            yield future.result()
    except BaseException:
        # After Ctrl-C or an error, replays that have begun are not awaited.
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    # The parent decides which work Ctrl-C ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One process per core; threads of the linear algebra library would compete for the cores.
    threadpool_limits(1)


def _replay(job: Job) -> Replay:
    return replay(job, _recorded(job.path))


@lru_cache(maxsize=4)
def _recorded(path: Path) -> RecordedSpace:
    return open_recorded_space(path)

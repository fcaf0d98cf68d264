"""Replays in parallel processes."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path

from threadpoolctl import threadpool_limits

from autogemm.bench.strategies.plan import Job, Plan
from autogemm.bench.strategies.replaying import Replay, replay
from autogemm.targets.recorded import RecordedSpace, open_recorded_space


def replays(plan: Plan, processes: int | None = None) -> Iterator[Replay]:
    """Every replay of the plan, as soon as it is done; by default on all cores.

    What comes does not depend on the number of processes, its order does. Raises NotFoundError,
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
        # Ctrl-C, or an error: nobody waits for what has begun.
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    # The parent decides what Ctrl-C ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One process a core: threads of the linear algebra library would fight over the cores.
    threadpool_limits(1)


def _replay(job: Job) -> Replay:
    return replay(job, _recorded(job.path))


@lru_cache(maxsize=4)
def _recorded(path: Path) -> RecordedSpace:
    return open_recorded_space(path)

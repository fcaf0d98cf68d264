"""Kernel Tuner's strategies on a recorded space, in its own simulation mode."""

import random
import tempfile
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from autogemm.bench.strategies.plan import KERNEL_TUNER, Job
from autogemm.formats import write_kernel_tuner_cache
from autogemm.model.config import Config
from autogemm.support.errors import AutogemmError
from autogemm.targets.recorded import RecordedSpace


def tried(job: Job, recorded: RecordedSpace) -> tuple[list[int], float]:
    """Indices of the configs in the order of trying, each once, and the seconds of searching.

    The space is the recording's list, configs that failed included, for which Kernel Tuner finds
    an error in the cache: it learns what the project's own samplers learn. Raises AutogemmError
    when Kernel Tuner gives up.
    """
    with tempfile.TemporaryDirectory(prefix="autogemm-bench-") as folder:
        path = Path(folder) / "cache.json"
        write_kernel_tuner_cache(replace(recorded.listed, problem_size=(1,)), path)
        try:
            results = _results(job, recorded, path)
        except Exception as error:
            raise AutogemmError(f"{job.strategy} failed on {recorded.name}: {error}") from error
    # As Kernel Tuner counts it, without the time for reading the cache.
    search_s = sum(result.get("strategy_time", 0.0) for result in results) / 1e3
    tries = dict.fromkeys(_index(recorded, result) for result in results)
    return list(tries)[: job.evaluations], search_s


def _results(job: Job, recorded: RecordedSpace, path: Path) -> list[dict[str, Any]]:
    import kernel_tuner
    from constraint import FunctionConstraint

    listed = {entry.values for entry in recorded.listed.entries}
    random.seed(job.seed)
    np.random.seed(job.seed)  # that is where Kernel Tuner draws from
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            kernel_name=recorded.listed.kernel_name,
            kernel_source="",
            problem_size=(1,),
            arguments=[],
            tune_params={name: list(v) for name, v in recorded.listed.parameters.items()},
            restrictions=[FunctionConstraint(lambda *values: values in listed)],
            strategy=job.strategy.removeprefix(KERNEL_TUNER),
            strategy_options={"max_fevals": job.evaluations},
            cache=str(path),
            simulation_mode=True,
            quiet=True,
            seed=job.seed,
        )
    return list(results)


def _index(recorded: RecordedSpace, result: dict[str, Any]) -> int:
    space = recorded.space
    values = {name: result[name] for name in recorded.listed.parameters}
    index = space.index(Config.of(space.family.name, values))
    assert index is not None, "Kernel Tuner simulates what is in the cache"
    return index

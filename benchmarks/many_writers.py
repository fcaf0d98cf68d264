"""Several tuners write to one database at the same time: is anything lost, or there twice?

Every process runs the tuner on a shipped recording; two at a time have the same seed, so that they
meet the same kernels at the same moment. Each says what it stored: afterwards the database must
hold exactly that.

    python benchmarks/many_writers.py --db /tmp/many.db
    python benchmarks/many_writers.py --db postgresql+psycopg://user@host/name
"""

import multiprocessing
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

import click

from autogemm.cli.table import print_table
from autogemm.model.problem import Problem
from autogemm.space import load_family
from autogemm.store import BestQuery, Store, open_store
from autogemm.support.errors import AutogemmError
from autogemm.support.messages import message
from autogemm.targets import choose_target
from autogemm.tuning import Event, TrialDone, TuneRequest, tune

FAMILY = "sgemm_simt"
PROBLEM = Problem(4096, 4096, 4096)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of one process."""

    db: str
    seed: int
    trials: int
    sampler: str


@dataclass(frozen=True, slots=True)
class Written:
    """The trials that one process says it stored: trial number -> sha256 of the config."""

    run_id: int
    told: dict[int, str]
    num_told: int


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--db", required=True, help="As `autogemm tune --db`; a new one.")
@click.option("--processes", default=8, show_default=True)
@click.option("--trials", default=200, show_default=True, help="Of each process.")
@click.option("--sampler", default="random", show_default=True)
def main(db: str, processes: int, trials: int, sampler: str) -> None:
    """Run the tuners, compare, print a table; exit code 1 if anything is lost or double."""
    # Forked: all is imported already, and everybody begins at the same moment.
    context = multiprocessing.get_context("fork")
    family = load_family(FAMILY)
    # Once for all, as it takes a second: which recorded kernels are others today.
    with closing(choose_target("recorded", [FAMILY], problem=PROBLEM).target) as target:
        target.caveats(family)
    jobs = [Job(db, seed // 2, trials, sampler) for seed in range(processes)]
    try:
        with context.Pool(processes, _remember, (context.Barrier(processes),)) as pool:
            began = time.monotonic()
            written = pool.map(_write, jobs, chunksize=1)
            seconds = time.monotonic() - began
        with open_store(db, create=False) as store:
            faults = [fault for one in written for fault in _faults(store, one)]
            stored = store.trial_rows()
            kind = store.url.partition(":")[0]
    except AutogemmError as error:
        raise click.ClickException(message(str(error))) from error
    if len(stored) != processes * trials:
        faults.append(f"{processes * trials} trials were asked for, {len(stored)} are stored")
    row = {
        "database": kind,
        "processes": processes,
        "trials each": trials,
        "told": sum(one.num_told for one in written),
        "stored": len(stored),
        "kernels": len({trial.kernel_id for trial in stored}),
        "faults": len(faults),
        "seconds": seconds,
        "trials/s": len(stored) / seconds,
    }
    print_table([row], tuple(row))
    for fault in faults:
        click.echo(fault, err=True)
    sys.exit(1 if faults else 0)


start: Barrier


def _remember(barrier: Barrier) -> None:
    global start  # noqa: PLW0603  # a barrier reaches a pool's process in no other way
    start = barrier


def _write(job: Job) -> Written:
    """One process: a run of its own."""
    told: list[tuple[int, str]] = []

    def note(event: Event) -> None:
        if isinstance(event, TrialDone):
            told.append((event.number, event.outcome.config.sha256))

    request = TuneRequest(
        problem=PROBLEM,
        families=(load_family(FAMILY),),
        sampler=job.sampler,
        seed=job.seed,
        trials=job.trials,
        fresh=True,
    )
    start.wait()
    with (
        open_store(job.db) as store,
        closing(choose_target("recorded", [FAMILY]).target) as target,
    ):
        result = tune(request, target, None, store, note)
    return Written(result.run_id, dict(told), len(told))


def _faults(store: Store, written: Written) -> list[str]:
    run = f"run {written.run_id}"
    rows = store.trial_rows(BestQuery(run_id=written.run_id))
    stored = {row.number: row.outcome.config.sha256 for row in rows}
    faults = []
    if len(written.told) != written.num_told or stored != written.told:
        faults.append(f"{run}: {written.num_told} trials were told, other ones are stored")
    if len(rows) != len(stored):
        faults.append(f"{run}: {len(rows) - len(stored)} trials are there twice")
    if any(row.outcome.measurement is None for row in rows if row.outcome.time_us is not None):
        faults.append(f"{run}: a time is missing")
    return faults


if __name__ == "__main__":
    main()

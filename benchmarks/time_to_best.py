"""The time that `tune` takes, from an empty database, to come within 2 % of the exhaustive best.

The exhaustive best is that of a recording that ships: every config of a narrowed space. It and
every config that was the best of a search for a while are timed again at the end, interleaved, so
that the drift of the clocks is in none of the ratios.

    python benchmarks/time_to_best.py --seeds 3 --trials 300
    python benchmarks/time_to_best.py --seeds 3 --without-seed-configs
"""

import dataclasses
import os
import shutil
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from autogemm.cli.table import print_table
from autogemm.compile import Compiler
from autogemm.formats import Recording, read_recording
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry
from autogemm.space import Family, broken_constraints, load_family
from autogemm.store import open_store
from autogemm.support.errors import AutogemmError
from autogemm.support.messages import message
from autogemm.targets import Target, choose_target
from autogemm.targets.recorded import recording_folder
from autogemm.tuning import Event, TrialDone, TuneRequest, TuneResult, tune
from autogemm.tuning.task.build import Builder

DEFAULT_RECORDING = "sgemm_simt_h200_4096_nn.json.gz"
COLUMNS = (
    *("seed", "trials", "search s", "trials/s", "busy", "pruned", "reached after s"),
    *("with start-up", "after trials", "best / exhaustive"),
)


@dataclass(frozen=True)
class Step:
    """A config that was the best of a search from that moment on."""

    config: Config
    after_s: float
    after_trials: int


@dataclass(frozen=True)
class Run:
    """One search. ``start_up_s`` went by before its first question: inputs, references, space."""

    seed: int
    result: TuneResult
    steps: list[Step]
    start_up_s: float


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--recording", default=DEFAULT_RECORDING, show_default=True)
@click.option("--gpu", default="auto", show_default=True, help="As `autogemm tune --gpu`.")
@click.option("--seeds", default=3, show_default=True, help="Searches, with seeds from 0.")
@click.option("--trials", default=300, show_default=True)
@click.option("--budget", "budget_s", default=30.0, show_default=True, help="Seconds a search.")
@click.option("--within", default=0.02, show_default=True, help="Share that may be missing.")
@click.option("--rounds", default=20, show_default=True, help="Rounds of the last comparison.")
@click.option("--sampler", default="surrogate", show_default=True)
@click.option(
    "--without-seed-configs", is_flag=True, help="Forget the configs that the family starts with."
)
def main(
    recording: str, gpu: str, seeds: int, within: float, rounds: int, **options: object
) -> None:
    """Run the searches, time their bests again, and print when each was close enough."""
    try:
        path = Path(recording)
        recorded = read_recording(path if path.exists() else recording_folder() / recording)
        family = load_family(recorded.family)
        if options.pop("without_seed_configs"):
            family = dataclasses.replace(family, seeds=(), seed_origins=(), seed_sizes=())
        chosen = choose_target(gpu, [family.name])
        with closing(chosen.target) as target:
            runs = [
                search(target, family, recorded.problem, seed, options) for seed in range(seeds)
            ]
            best = exhaustive_best(recorded, target)
            finals = compare(target, family, recorded.problem, [best, *all_steps(runs)], rounds)
            report(runs, finals, best, within, chosen.notice)
    except AutogemmError as error:
        raise SystemExit(f"Error: {message(str(error))}") from error


def search(
    target: Target, family: Family, problem: Problem, seed: int, options: dict[str, object]
) -> Run:
    """One search from nothing: an empty database, an empty cubin cache."""
    folder = Path(tempfile.mkdtemp())
    steps: list[Step] = []

    def note(event: Event) -> None:
        if isinstance(event, TrialDone) and event.improved:
            steps.append(Step(event.outcome.config, event.elapsed_s, event.num_trials))

    request = TuneRequest(problem, (family,), seed=seed, finalists=1, rounds=1, **options)  # type: ignore[arg-type]
    began = time.monotonic()
    try:
        with (
            closing(Compiler(folder / "cache")) as compiler,
            open_store(str(folder / "db")) as store,
        ):
            result = tune(request, target, compiler, store, note)
    finally:
        shutil.rmtree(folder)
    start_up_s = time.monotonic() - began - result.search_s - result.finals_s
    return Run(seed, result, steps, start_up_s)


def exhaustive_best(recorded: Recording, target: Target) -> Config:
    """The fastest config of the recording.

    A parameter that the family got later has the value of the first seed that makes it legal.
    """
    family = load_family(recorded.family)
    times_us = [time_us or float("inf") for time_us in recorded.time_us]
    values = recorded.values(times_us.index(min(times_us)))
    for seed in family.seeds:
        config = Config.of(family.name, seed.as_dict() | values)
        if not broken_constraints(family, config, recorded.problem, target.device):
            return config
    raise AutogemmError("the recording's best config is not legal any more: make a new recording")


def all_steps(runs: list[Run]) -> list[Config]:
    """Every config that was a best, once."""
    return list(dict.fromkeys(step.config for run in runs for step in run.steps))


def compare(
    target: Target, family: Family, problem: Problem, configs: list[Config], rounds: int
) -> Finals:
    """All of them, once each a round, in random order."""
    with tempfile.TemporaryDirectory() as cache, closing(Compiler(Path(cache))) as compiler:
        builder = Builder((family,), problem, target.device, compiler)
        buildings = [builder.start(builder.render(config)) for config in dict.fromkeys(configs)]
        return target.finals([building.candidate() for building in buildings], rounds, seed=0)


def report(runs: list[Run], finals: Finals, best: Config, within: float, notice: str) -> None:
    """A row a search, and medians."""
    entries = {entry.config: entry for entry in finals.entries}
    if best not in entries:
        raise AutogemmError("the exhaustive best does not run here any more: make a new recording")
    if notice:
        click.echo(notice)
    ratios = {config: ratio(entries[best], entry) for config, entry in entries.items() if config}
    reached = [first_within(run, ratios, within) for run in runs]
    rows = [row(run, step, ratios) for run, step in zip(runs, reached, strict=True)]
    us, cublas = entries[best].time_us, finals.baseline.time_us
    title = (
        f"within {100 * within:g} % of the exhaustive best, {us:.5g} us (cuBLAS {cublas:.5g} us)"
    )
    print_table(rows, COLUMNS, title=title)
    after = [step.after_s for step in reached if step is not None]
    rate = statistics.median(run.result.trials_per_s for run in runs)
    click.echo(
        f"{len(after)} of {len(runs)} searches came so close"
        + (f", the median one after {statistics.median(after):.1f} s" if after else "")
        + f"; {rate:.1f} trials/s"
    )


def first_within(run: Run, ratios: dict[Config, float], within: float) -> Step | None:
    """The step after which the search was close enough."""
    return next((s for s in run.steps if ratios.get(s.config, 0.0) >= 1.0 - within), None)


def ratio(best: FinalsEntry, own: FinalsEntry) -> float:
    """Time of the exhaustive best / own time, of the same rounds: above 1 is faster."""
    pairs = zip(best.samples_us, own.samples_us, strict=True)
    return statistics.median(theirs / mine for theirs, mine in pairs)


def row(run: Run, step: Step | None, ratios: dict[Config, float]) -> dict[str, object]:
    """One search in figures."""
    result = run.result
    return {
        "seed": run.seed,
        "trials": result.num_trials,
        "search s": f"{result.search_s:.1f}",
        "trials/s": f"{result.trials_per_s:.1f}",
        "busy": f"{100 * result.gpu_busy:.0f} %",
        "pruned": result.num_pruned,
        "reached after s": f"{step.after_s:.1f}" if step else None,
        "with start-up": f"{step.after_s + run.start_up_s:.1f}" if step else None,
        "after trials": step.after_trials if step else None,
        "best / exhaustive": f"{max(ratios.get(s.config, 0.0) for s in run.steps):.4f}",
    }


if __name__ == "__main__":
    # Searches begin with nothing but seeds, whatever ships.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    main()

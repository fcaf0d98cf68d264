"""Measures every legal config of a compact space on a GPU and writes a recording.

The recording lets machines without a GPU replay the search (``autogemm tune --gpu recorded``). The
configs are measured in random order, so that drift of the clocks is not mistaken for an effect of a
parameter, and cuBLAS is timed again in between. Stopped early, the same command goes on: what was
measured is in the state database.

    python benchmarks/record.py --size 4096 --fix BM=64,128 --fix BK=8,16 --out h100-4096.json.gz
"""

import itertools
import json
import math
import random
import shlex
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import click

from autogemm import __version__
from autogemm.cli.options import family_option, fix_option, problem_options
from autogemm.compile import Compiler
from autogemm.formats import (
    SHORT_SHA256,
    Baseline,
    RecordedFinals,
    Recording,
    RecordingSource,
    write_recording,
)
from autogemm.model.results.outcome import CacheState, Finals, Outcome, Status
from autogemm.search import Proposal
from autogemm.space import Space, build_space, load_family, parse_fix
from autogemm.store import RunSpec, RunState, Store, open_store
from autogemm.support.errors import AutogemmError
from autogemm.support.interrupt import stop_on_ctrl_c
from autogemm.support.messages import message
from autogemm.targets import MeasureOptions, Target
from autogemm.targets.cuda import CudaTarget
from autogemm.tuning import TrialDone, TuneRequest
from autogemm.tuning.finals import finalists
from autogemm.tuning.loop.gpus import Gpus
from autogemm.tuning.loop.joint import JointSearch
from autogemm.tuning.loop.ledger import Ledger
from autogemm.tuning.loop.pipeline import Limits, Pipeline
from autogemm.tuning.task.build import Builder
from autogemm.tuning.tuner import run_spec

SAY_EVERY_S = 15.0


class Everything:
    """Proposes each config that the run has not recorded yet, in random order."""

    def __init__(self, space: Space, ledger: Ledger, seed: int) -> None:
        order = list(range(len(space)))
        random.Random(seed).shuffle(order)
        measured = {outcome.config for outcome in ledger.outcomes}
        self._space = space
        self._left = [
            (number, index)
            for number, index in enumerate(order)
            if space.config(index) not in measured
        ]
        self._left.reverse()

    def ask(self) -> Proposal | None:
        if not self._left:
            return None
        number, index = self._left.pop()
        return Proposal(number, index, self._space.config(index))

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """Nothing is learnt: everything is measured anyway."""


@dataclass
class BaselineLog:
    """cuBLAS's times in the course of the recording, kept beside the state database."""

    path: Path
    samples: list[tuple[int, float]]

    @classmethod
    def at(cls, path: Path) -> "BaselineLog":
        return cls(path, json.loads(path.read_text()) if path.exists() else [])

    def note(self, after_configs: int, time_us: float | None) -> None:
        """Keep a time if it is a new one."""
        if time_us is not None and (not self.samples or self.samples[-1][1] != time_us):
            self.samples.append((after_configs, time_us))

    def save(self) -> None:
        self.path.write_text(json.dumps(self.samples))


class Report:
    """A line now and then."""

    def __init__(self, num_legal: int, num_before: int, baseline: BaselineLog) -> None:
        self._num_legal = num_legal
        self._num_before = num_before
        self._baseline = baseline
        self._last_line = time.monotonic()

    def on_trial(self, event: TrialDone) -> None:
        self._baseline.note(event.num_trials, event.baseline_us)
        if time.monotonic() - self._last_line < SAY_EVERY_S:
            return
        self._last_line = time.monotonic()
        rate = (event.num_trials - self._num_before) / event.elapsed_s
        best = event.best.time_us if event.best is not None else None
        click.echo(
            f"{event.num_trials} of {self._num_legal} configs, {rate:.1f}/s, best {best} us, "
            f"cuBLAS {event.baseline_us} us"
        )


def shown_command(words: list[str]) -> str:
    """The command that is kept in the recording: files by name, without this machine's folders."""
    files = {"--out", "--state"}
    names = [
        Path(word).name if before in files else word for before, word in itertools.pairwise(words)
    ]
    return shlex.join(["python", f"benchmarks/{Path(words[0]).name}", *names])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@problem_options
@family_option
@fix_option
@click.option("--gpu", "gpu_index", default=0, show_default=True, help="Number of the GPU.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Database of what was measured so far. Default: OUT with .db appended.",
)
@click.option("--limit-seconds", type=float, default=540.0, show_default=True)
@click.option("--max-samples", default=10, show_default=True, help="Timed launches of a config.")
@click.option(
    "--hopeless",
    default=10.0,
    show_default=True,
    help="A config slower than this multiple of the best is recorded as too slow.",
)
@click.option("--rounds", default=60, show_default=True, help="Rounds of cuBLAS at the end.")
@click.option("--l2", type=click.Choice(["warm", "cold"]), default="warm", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--commit", default="", help="Commit of this project, where git cannot tell.")
def main(**options: Any) -> None:
    """Measure all configs of a space and write them to OUT."""
    try:
        record(options)
    except AutogemmError as error:
        raise SystemExit(f"Error: {message(str(error))}") from error


@dataclass
class Job:
    """One recording being made."""

    request: TuneRequest
    target: Target
    compiler: Compiler
    space: Space
    spec: RunSpec
    ledger: Ledger
    baseline: BaselineLog


def record(options: dict[str, Any]) -> None:
    request = request_from(options)
    out: Path = options["out"]
    state: Path = options["state"] or out.with_name(f"{out.name}.db")
    with (
        closing(CudaTarget(options["gpu_index"])) as target,
        closing(Compiler()) as compiler,
        open_store(str(state)) as store,
    ):
        target.prepare(request.problem, request.measure)
        space = build_space(request.families[0], request.problem, target.device, request.fix)
        spec = run_spec(request, target, compiler, request.families, request.fix)
        run_id = begin_or_resume(store, spec)
        ledger = Ledger(store, run_id, spec)
        baseline = BaselineLog.at(Path(f"{state}.cublas.json"))
        job = Job(request, target, compiler, space, spec, ledger, baseline)
        try:
            measure_all(job)
            write(job, out)
        finally:
            # Never finished: with the state at hand the same command goes on, or writes it again.
            store.finish_run(run_id, RunState.INTERRUPTED)


def request_from(options: dict[str, Any]) -> TuneRequest:
    family = load_family(options["family"])
    return TuneRequest(
        problem=options["problem"].value,
        families=(family,),
        fix=parse_fix(family, options["fix"]),
        sampler="exhaustive",
        seed=options["seed"],
        budget_s=options["limit_seconds"],
        rounds=options["rounds"],
        measure=MeasureOptions(
            l2=CacheState(options["l2"]),
            max_samples=options["max_samples"],
            hopeless_ratio=options["hopeless"],
        ),
        command=shown_command(sys.argv),
    )


def measure_all(job: Job) -> None:
    """Raises AutogemmError when the time was up before the last config."""
    request, ledger, num_legal = job.request, job.ledger, len(job.space)
    num_before = len(ledger.outcomes)
    click.echo(f"{request.problem.label}: {num_legal} legal configs, {num_before} measured before")
    job.baseline.note(num_before, job.target.baseline_us)
    gpus = Gpus([job.target])
    pipeline = Pipeline(
        Builder(request.families, request.problem, job.target.device, job.compiler),
        gpus,
        cast(JointSearch, Everything(job.space, ledger, request.seed)),
        ledger,
        limits=Limits(budget_s=request.budget_s or math.inf, ahead=2 * job.compiler.threads),
        on_trial=Report(num_legal, num_before, job.baseline).on_trial,
    )
    try:
        with stop_on_ctrl_c() as stop:
            pipeline.run(stop)
    finally:
        job.baseline.save()
    done = len(ledger.outcomes)
    rate = (done - num_before) / pipeline.elapsed_s
    busy = 100 * gpus.busy_s / pipeline.elapsed_s
    click.echo(f"{done} of {num_legal} configs; {rate:.1f}/s, GPU busy {busy:.0f} % of the time")
    if done < num_legal:
        raise AutogemmError(
            f"stopped after {done} of {num_legal} configs and nothing was written: the same "
            "command goes on"
        )


def write(job: Job, out: Path) -> None:
    request = job.request
    builder = Builder(request.families, request.problem, job.target.device, job.compiler)
    candidates = finalists(builder, job.ledger.outcomes, request.finalists)
    finals = job.target.finals(candidates, request.rounds, request.seed)
    recording = recording_of(job, finals)
    write_recording(recording, out)
    click.echo(f"{out}: {len(recording)} configs, {out.stat().st_size / 1024:.0f} KB")
    winner = finals.winner
    click.echo(
        f"best {winner.config}: {winner.time_us:.5g} us, {winner.ratio:.3f} x cuBLAS "
        f"({winner.ratio_low:.3f}..{winner.ratio_high:.3f}) in {finals.rounds} rounds"
    )


def begin_or_resume(store: Store, spec: RunSpec) -> int:
    run_id = store.find_unfinished_run(spec)
    if run_id is None:
        return store.begin_run(spec)
    store.resume_run(run_id)
    return run_id


def recording_of(job: Job, finals: Finals) -> Recording:
    """The recording, in the order of parameter values so that it compresses well."""
    request, family = job.request, job.request.families[0]
    names = [parameter.name for parameter in family.parameters]
    rows = sorted(job.ledger.outcomes, key=lambda outcome: outcome.config.as_json())
    end = [(len(rows), time_us) for time_us in finals.baseline.samples_us]
    baseline = [*job.baseline.samples, *end]
    checked, winner = finals.baseline.verification, finals.winner
    methods = sorted({row.measurement.method for row in rows if row.measurement is not None})
    return Recording(
        complete=True,
        source=RecordingSource(
            device=job.target.device,
            environment=job.spec.environment,
            date=datetime.now(UTC).date().isoformat(),
            autogemm_version=__version__,
            autogemm_commit=commit(),
            command=request.command,
            protocol=protocol(request),
            method=" or ".join(methods),
            l2=request.measure.l2,
        ),
        family=family.name,
        yaml_sha256=family.yaml_sha256,
        template_sha256=family.template_sha256,
        problem=request.problem,
        fix={name: list(values) for name, values in request.fix.items()},
        baseline=Baseline(
            samples_us=[digits(time_us) for _, time_us in baseline],
            after_configs=[after for after, _ in baseline],
            max_error_ratio=digits(checked.max_error_ratio, 3) if checked else None,
            error=digits(checked.error, 3) if checked else None,
        ),
        parameters={name: [row.config[name] for row in rows] for name in names},
        status=[row.status for row in rows],
        **timing_columns(rows),
        **resource_columns(rows),
        **error_columns(rows),
        kernel_sha256=[row.kernel_sha256[:SHORT_SHA256] for row in rows],
        finals=RecordedFinals(
            row=next(place for place, row in enumerate(rows) if row.config == winner.config),
            rounds=finals.rounds,
            time_us=digits(winner.time_us),
            ratio=digits(winner.ratio),
            ratio_low=digits(winner.ratio_low),
            ratio_high=digits(winner.ratio_high),
        ),
    )


def protocol(request: TuneRequest) -> str:
    options = request.measure
    return (
        "Every config was checked on the GPU against a float64-accumulated reference, then timed: "
        f"median of up to {options.max_samples} samples, L2 {options.l2}; those slower than "
        f"{options.hopeless_ratio:g} times the best so far are too_slow. Configs in random order; "
        f"cuBLAS timed again in between, and {request.rounds} rounds of it interleaved with the "
        "best configs at the end."
    )


def timing_columns(rows: list[Outcome]) -> dict[str, Any]:
    samples = [
        row.measurement.samples_us if row.time_us is not None and row.measurement else None
        for row in rows
    ]
    return {
        "time_us": [s and digits(statistics.median(s)) for s in samples],
        "num_samples": [s and len(s) for s in samples],
        "iqr_us": [s and digits(interquartile_range(s), 3) for s in samples],
    }


def resource_columns(rows: list[Outcome]) -> dict[str, Any]:
    used = [row.resources[0] if row.resources else None for row in rows]
    return {
        "registers": [u and u.registers for u in used],
        "spill_bytes": [u and u.spill_store_bytes + u.spill_load_bytes for u in used],
        "static_smem_bytes": [u and u.static_smem_bytes for u in used],
    }


def error_columns(rows: list[Outcome]) -> dict[str, Any]:
    checked = [row.verification if row.status is Status.OK else None for row in rows]
    return {
        "max_error_ratio": [c and digits(c.max_error_ratio, 3) for c in checked],
        "error": [c and digits(c.error, 3) for c in checked],
    }


def interquartile_range(samples: tuple[float, ...]) -> float:
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return high - low


def digits(value: float, number: int = 6) -> float:
    """Rounded to so many significant digits: the rest is noise and does not compress."""
    return float(f"{value:.{number}g}")


def commit() -> str:
    """The checkout's commit, with a mark if it has been changed since; else ``unknown``."""
    chosen = click.get_current_context().params["commit"]
    if chosen:
        return str(chosen)
    folder = Path(__file__).resolve().parent
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        said = subprocess.run(describe, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


if __name__ == "__main__":
    main()

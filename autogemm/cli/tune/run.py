"""``autogemm tune``: searches, and prints the result."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NoReturn

import click

from autogemm.cli import command_line
from autogemm.cli.options import is_typed
from autogemm.cli.output import Form
from autogemm.cli.prose import say
from autogemm.cli.tune.facts import result_as_csv, result_as_json
from autogemm.cli.tune.gpus import tune_on_gpus
from autogemm.cli.tune.many import SweepProgress, print_sweep, sweep_as_csv, sweep_as_json
from autogemm.cli.tune.progress import progress_listener
from autogemm.cli.tune.report import print_result
from autogemm.cli.tune.rounds import Decided, check_rounds_file, write_rounds
from autogemm.cluster import ClusterRequest, Place, Spread, helped
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Outcome
from autogemm.store import database_place
from autogemm.support.errors import AutogemmError, ClusterError, UsageError
from autogemm.support.interrupt import interrupted_code
from autogemm.tuning import Opened, Sweeper, TuneOptions, TuneRequest, TuneResult, open_run
from autogemm.tuning import tune as run_tuner

__all__ = ["ClusterRequest", "TuneCommand", "TuneOptions", "run"]


@dataclass(frozen=True, slots=True)
class TuneCommand:
    """One call of the command.

    ``resized`` makes the problem of a size that a recording brings, None where sizes were given.
    ``budgets_s`` are shares of a total time, empty without one.
    """

    problems: tuple[Problem, ...]
    resized: Callable[[str], Problem] | None
    options: TuneOptions
    cluster: ClusterRequest
    cross: bool
    rounds_file: str | None
    db: str | None
    quiet: bool
    form: Form
    budgets_s: Mapping[Problem, float]

    def budget_s(self, problem: Problem) -> float | None:
        """Return the time for a problem's search: its share of ``--total``, or ``--budget``."""
        return self.budgets_s.get(problem, self.options.budget_s)


def run(command: TuneCommand) -> None:
    """Tune and print. Raises AutogemmError where no candidate ran correctly."""
    check_rounds_file(command.rounds_file)
    with ExitStack() as stack:
        try:
            if command.cluster.is_running or len(command.problems) > 1:
                _tune_many(stack, command)
                return
            request, result = _tune_one(stack, command)
        except KeyboardInterrupt:
            _exit_interrupted()
    if result.finals is not None:
        _keep_rounds(command, result.device_name, [(result.run_id, result.problem, result.finals)])
    _print(command, request, result)
    if result.interrupted:
        _exit_interrupted()
    if result.best is None:
        raise AutogemmError(_nothing_ran(result.outcomes))


def _tune_one(stack: ExitStack, command: TuneCommand) -> tuple[TuneRequest, TuneResult]:
    if command.cross:
        raise UsageError("--cross is for many problems: give several sizes, or a preset")
    parts = _opened(stack, command, prepares=True)
    budget_s = command.budget_s(command.problems[0])
    request, target = replace(parts.request, budget_s=budget_s), parts.target
    on_event = stack.enter_context(progress_listener(request, target.provenance, command.quiet))
    run = (request, target, parts.compiler, parts.store)
    return request, run_tuner(*run, on_event, parts.prepared, more_targets=parts.more_targets)


def _opened(stack: ExitStack, command: TuneCommand, *, prepares: bool = False) -> Opened:
    opened = open_run(
        stack,
        command.problems[0],
        command.options,
        command.db,
        command=command_line(),
        notify=lambda notice: say(notice, err=True, bold=True),
        resized=command.resized,
        prepares=prepares,
    )
    stack.enter_context(helped(opened.compiler, command.cluster.compilers))
    return opened


def _print(command: TuneCommand, request: TuneRequest, result: TuneResult) -> None:
    if command.form is Form.JSON:
        click.echo(result_as_json(result, database_place(command.db)))
    elif command.form is Form.CSV:
        click.echo(result_as_csv(result), nl=False)
    else:
        has_kernel = request.families[0].template_path is not None
        next_command = _export_command(result.run_id, command.db) if has_kernel else None
        print_result(result, request.families, database_place(command.db), next_command)


def _tune_many(stack: ExitStack, command: TuneCommand) -> None:
    spread = _tuned_over(command) if command.cluster.is_wanted else _tuned_in_turn(stack, command)
    sweep = spread.sweep
    decided = [(one.run_id, one.problem, one.finals) for one in sweep.problems if one.finals]
    _keep_rounds(command, spread.gpus, decided)
    show = (sweep, spread.gpus, spread.places[0].provenance, database_place(command.db))
    if command.form is Form.JSON:
        click.echo(sweep_as_json(*show))
    elif command.form is Form.CSV:
        click.echo(sweep_as_csv(*show[:3]), nl=False)
    else:
        print_sweep(*show)
    if sweep.interrupted:
        _exit_interrupted()
    if spread.failure:
        raise ClusterError(spread.failure)
    if not any(one.finals is not None for one in sweep.problems):
        raise AutogemmError("no problem has a result: the lines above say why")


def _tuned_over(command: TuneCommand) -> Spread:
    if command.budgets_s:
        raise UsageError("--total works with one GPU: with several give --budget")
    if command.cross:
        raise UsageError(
            "--cross compares kernels on one GPU: tune with several, then use --cross with one"
        )
    return tune_on_gpus(
        command.problems,
        command.options,
        command.cluster,
        command.db,
        command_line(),
        quiet=command.quiet,
    )


def _tuned_in_turn(stack: ExitStack, command: TuneCommand) -> Spread:
    parts = _opened(stack, command)
    target = parts.target
    requests = [
        replace(parts.request, problem=problem, budget_s=command.budget_s(problem))
        for problem in command.problems
    ]
    by_problem = {request.problem: request for request in requests}
    progress = SweepProgress(by_problem, target.provenance, command.quiet, sys.stderr.isatty())
    sweeper = Sweeper(
        target, parts.compiler, parts.store, on_step=progress.on_step, on_swept=progress.on_swept
    )
    if command.cross:
        sweeper.require_gpu()
    sweep = sweeper.run(requests)
    if command.cross and not sweep.interrupted:
        sweep = sweeper.cross(sweep, requests[0])
    return Spread(sweep, (Place(target.device, target.environment, target.provenance),))


def _keep_rounds(command: TuneCommand, gpu: str, found: Sequence[Decided]) -> None:
    """Write the raw rounds if a file was named. Raises AutogemmError where that fails."""
    if command.rounds_file is None:
        return
    try:
        write_rounds(command.rounds_file, gpu, found)
    except OSError as error:
        why = error.strerror or error
        raise AutogemmError(f"--rounds-file {command.rounds_file}: {why}") from error


def _exit_interrupted() -> NoReturn:
    say("interrupted; the same command resumes", err=True)
    sys.exit(interrupted_code())


def _export_command(run_id: int, db: str | None) -> str:
    """Return the command to type next. A database that is set in the environment is found again
    without an option."""
    parts = ["autogemm", "export", "best.cu", "--run", str(run_id)]
    return shlex.join([*parts, "--db", db] if is_typed("db") and db else parts)


def _nothing_ran(outcomes: Sequence[Outcome]) -> str:
    """Return why there is no winner, with the first reason of the most frequent status."""
    if not outcomes:
        return "no candidate was tried before the time was up: give more with --budget"
    ends = Counter(outcome.status for outcome in outcomes)
    status, _ = ends.most_common(1)[0]
    first = next(outcome for outcome in outcomes if outcome.status is status)
    counts = ", ".join(f"{count} {status}" for status, count in ends.most_common())
    return f"no candidate ran correctly: {counts}; first {status}: {first.reason} ({first.config})"

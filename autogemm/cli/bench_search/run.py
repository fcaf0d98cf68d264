"""``autogemm bench-search``: search strategies compared on recorded spaces."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autogemm.bench.strategies import (
    Curve,
    Plan,
    Replay,
    Summary,
    known_strategies,
    replays,
    summarise,
)
from autogemm.cli import command_line
from autogemm.cli.files import write_output
from autogemm.cli.options import names_of
from autogemm.cli.output import Form, print_rows
from autogemm.cli.progress import watched
from autogemm.cli.prose import say
from autogemm.cli.table import print_table
from autogemm.insight.plots import check_plot, strategies_picture
from autogemm.support.errors import UsageError
from autogemm.support.version import __version__
from autogemm.targets.recorded import recording_folder, recording_paths


@dataclass(frozen=True, slots=True)
class BenchSearchCommand:
    """One call of the command."""

    strategies: str | None
    recordings: tuple[Path, ...]
    more: tuple[Path, ...]
    seeds: int
    evaluations: int
    batches: tuple[int, ...]
    processes: int | None
    plot: Path | None
    save: str | None
    force: bool
    quiet: bool
    form: Form


def run(command: BenchSearchCommand) -> None:
    """Replay the strategies, print the curves, and draw and write them where asked to."""
    plan = _plan(command)
    if command.plot is not None:
        check_plot(command.plot)
    found = replays(plan, command.processes)
    shown = watched(found, len(plan.jobs()), "replays", _Best().note, quiet=command.quiet)
    summary = summarise(plan, shown)
    if command.form is Form.TABLE:
        _print_tables(plan, summary)
    else:
        rows = [_row(curve, summary) for curve in (*summary.curves, *summary.by_space)]
        print_rows(rows, list(rows[0]), command.form)
    if command.save is not None:
        _save(command.save, plan, summary, force=command.force)
    if command.plot is not None:
        content = strategies_picture(command.plot.suffix, summary, _title(plan))
        write_output(str(command.plot), content, force=True)


@dataclass(slots=True)
class _Best:
    """The strategy that came nearest to the optimum in the mean of its replays so far."""

    by_strategy: dict[str, list[float]] = field(default_factory=dict)

    def note(self, done: Replay) -> str:
        """Take a replay in, and return the best so far in words."""
        self.by_strategy.setdefault(done.job.strategy, []).append(float(done.fractions[-1]))
        mean, name = max((sum(one) / len(one), name) for name, one in self.by_strategy.items())
        return f"best {name} at {mean:.3f} of the optimum"


def _plan(command: BenchSearchCommand) -> Plan:
    names = names_of(command.strategies) or known_strategies()
    files = (*command.recordings, *command.more) or recording_paths(recording_folder())
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise UsageError(f"no such recording: {missing[0]}")
    return Plan(
        recordings=tuple(dict.fromkeys(files)),
        strategies=tuple(dict.fromkeys(names)),
        seeds=command.seeds,
        evaluations=command.evaluations,
        batches=tuple(dict.fromkeys(command.batches)),
    )


def _print_tables(plan: Plan, summary: Summary) -> None:
    say(f"{_title(plan)}; the fraction of the optimum after so many evaluations, median")
    columns = [name for name in _row(summary.curves[0], summary) if name != "recording"]
    rows = [_shown(_row(curve, summary)) for curve in summary.curves]
    print_table(rows, columns)
    if len(plan.recordings) > 1:
        say("\neach recording")
        rows = [_shown(_row(curve, summary)) for curve in summary.by_space]
        print_table(rows, ["recording", *columns])


def _row(curve: Curve, summary: Summary) -> dict[str, Any]:
    row: dict[str, Any] = {
        "recording": curve.space or "median",
        "strategy": curve.strategy,
        "batch": curve.batch,
    }
    row |= {str(mark): curve.after(mark) for mark in summary.marks}
    return row | {"ms_per_proposal": curve.ms_per_proposal}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return fractions with the same number of digits, so that they compare at a glance."""
    return {name: f"{v:.3f}" if name.isdigit() else v for name, v in row.items()}


def _title(plan: Plan) -> str:
    what = "recording" if len(plan.recordings) == 1 else "recordings"
    return f"{len(plan.recordings)} {what}, {plan.seeds} seeds, recorded times"


def _save(path: str, plan: Plan, summary: Summary, *, force: bool) -> None:
    content = {
        "format": "autogemm-bench-search",
        "autogemm": __version__,
        "command": command_line(),
        "seeds": plan.seeds,
        "evaluations": plan.evaluations,
        "recordings": [recording.name for recording in plan.recordings],
        "seconds_include_compiling": summary.includes_compiling,
        "seconds": _rounded(summary.seconds),
        "curves": [_curve(curve) for curve in (*summary.curves, *summary.by_space)],
    }
    text = json.dumps(content, separators=(",", ":")) + "\n"
    write_output(path, text.encode(), force=force, ours='{"format":"autogemm-bench-search"')


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "strategy": curve.strategy,
        "batch": curve.batch,
        "recording": curve.space,
        "ms_per_proposal": float(f"{curve.ms_per_proposal:.3g}"),
        "median": _rounded(curve.median),
        "low": _rounded(curve.low),
        "high": _rounded(curve.high),
        "by_seconds": _rounded(curve.by_seconds),
    }


def _rounded(values: Any) -> list[float] | None:
    return None if values is None else [float(f"{value:.5g}") for value in values]

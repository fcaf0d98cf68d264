"""``autogemm record``: runs a program, writes the products it called, and estimates the gain from
stored results."""

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from autogemm.cli.files import require_output, write_output
from autogemm.cli.output import Form, print_rows
from autogemm.model.called import FORMAT, MAX_BYTES, Recorded, called_text, parsed_called
from autogemm.programs import Worth, recorded_program, worth_of
from autogemm.support.errors import UsageError
from autogemm.support.files import read_bounded

_OURS = f'{{"format": "{FORMAT}"'

COLUMNS = ("problem", "ops", "calls", "batch", "time_us", "ratio", "saved_us", "verdict")
_CALLED = ("problem", "ops", "calls", "batch", "time_us", "share")


@dataclass(frozen=True, slots=True)
class RecordCommand:
    """One call of the command."""

    program: tuple[str, ...]
    out: str
    force: bool
    report: str | None
    gpu: str | None
    db: str | None
    form: Form


def run(command: RecordCommand) -> None:
    """Record, or report. Ends with the program's exit status where that is not 0."""
    if command.report is not None:
        if command.program:
            raise UsageError("--report reads a recording: leave the program out")
        _report(command, _read(command.report))
        return
    if not command.program:
        raise UsageError("name a program: autogemm record -- python serve.py")
    require_output(command.out, force=command.force, ours=_OURS)
    recorded, status = recorded_program(command.program)
    write_output(command.out, called_text(recorded).encode(), force=command.force, ours=_OURS)
    _show(command, recorded)
    if status:
        sys.exit(1)


def _show(command: RecordCommand, recorded: Recorded) -> None:
    total = recorded.time_us or 1.0
    rows = [
        {
            "problem": one.label,
            "ops": one.ops,
            "calls": one.calls,
            "batch": one.batch,
            "time_us": _short(one.time_us, command.form),
            "share": _short(one.time_us / total, command.form),
        }
        for one in recorded.gemms
    ]
    print_rows(rows, _CALLED, command.form)
    if command.form is Form.TABLE:
        where = recorded.gpu or "this CPU: they are not GPU times and only weight the problems"
        click.echo(f"times are of {where}")
        click.echo(f"next: autogemm tune --problems {command.out}")


def _report(command: RecordCommand, recorded: Recorded) -> None:
    worth = worth_of(recorded, command.gpu, command.db)
    rows = [
        {
            "problem": line.label,
            "ops": line.ops,
            "calls": line.calls,
            "batch": line.batch,
            "time_us": _short(line.time_us, command.form),
            "ratio": _short(line.ratio, command.form),
            "saved_us": _short(line.saved_us, command.form),
            "verdict": line.verdict,
        }
        for line in worth.lines
    ]
    print_rows(rows, COLUMNS, command.form)
    if command.form is Form.TABLE:
        click.echo(_sum_line(worth))


def _sum_line(worth: Worth) -> str:
    line = f"on {worth.gpu}: {worth.saved_us:.4g} of {worth.time_us:.4g} us in products saved"
    if worth.speedup is None:
        return f"{line}, by times in the database; record on the GPU to estimate the program"
    return f"{line}; expected for the whole program: {worth.speedup:.3f} times the speed"


def _short(value: float | None, form: Form) -> float | None:
    if value is None or form is not Form.TABLE:
        return value
    return float(f"{value:.4g}")


def _read(place: str) -> Recorded:
    try:
        text = read_bounded(Path(place), MAX_BYTES).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"--report {place}: cannot be read: {error}") from error
    return parsed_called(text, f"--report {place}")

"""``autogemm db check``: are stored winners still what they were?"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from autogemm.cli import command_line
from autogemm.cli import rows as db_rows
from autogemm.cli.db.run.changes import print_words, speed_up
from autogemm.cli.db.run.gate import Gate
from autogemm.cli.output import Form
from autogemm.cli.progress import watched
from autogemm.cli.prose import say
from autogemm.cli.rows import Columns, FlatRow, open_database, print_rows_as
from autogemm.model.results.columns import PLACE, RATIO, row_of, under
from autogemm.model.results.outcome import Provenance
from autogemm.space import Family, default_families, list_families, load_family
from autogemm.store import BestQuery, ResultRow, Store
from autogemm.support.errors import AutogemmError
from autogemm.targets import MeasureOptions
from autogemm.tuning import (
    Rechecked,
    Rechecker,
    StoredWinner,
    TuneRequest,
    open_target,
    tune,
)

TABLE: Columns = (
    *("problem", "provenance", "verdict", "speed_up", "speed_up_low", "speed_up_high", "by"),
    *("before_time_us", "time_us", "before_ratio", "ratio", "changed", "note"),
)
SHORT: Columns = ("problem", "provenance", "verdict", "speed_up", "changed", "note")
ALL: Columns = (
    *(*PLACE, *db_rows.PROBLEM, "l2", "fill", "verdict", "speed_up", "speed_up_low"),
    *("speed_up_high", "by", "before_time_us", "time_us", "before_ratio", *RATIO),
    *("changed", "reason", "kernel_id", "before_run_id", "run_id", "retuned_run_id"),
    "retuned_ratio",
)


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """One call of the command. ``everything`` measures winners where nothing has changed too."""

    gpu: str
    size: str | None
    layout: str | None
    family: tuple[str, ...]
    everything: bool
    rounds: int
    retune: bool
    trials: int
    budget_s: float | None
    certify: bool
    gate: Gate
    db: str | None
    form: Form


def run(command: CheckCommand) -> None:
    """Measure the winners again, tune where asked to, print the verdicts, and apply the gate."""
    command.gate.require()
    with ExitStack() as stack:
        store = stack.enter_context(open_database(command.db))
        named = tuple(load_family(name) for name in command.family)
        families = named or tuple(default_families())
        rechecker = _checker(stack, store, families, command)
        stored = rechecker.winners(BestQuery(size=command.size, layout=command.layout))
        rows, checked = [], []
        winners = _wanted(stored, rechecker, command)
        for winner in watched(winners, len(winners), "winners", lambda one: one.row.problem.label):
            rechecked = rechecker.recheck(winner)
            checked.append(rechecked)
            row = _row(rechecked)
            if command.retune and rechecked.moved:
                row |= _retuned(rechecker, winner.row, families, command)
            rows.append(row)
    print_rows_as(rows, ALL, TABLE, command.form, short=SHORT)
    if rows and command.form is Form.TABLE:
        print_words(rows)
    command.gate.finish(checked, len(stored))


def _checker(
    stack: ExitStack, store: Store, families: Sequence[Family], command: CheckCommand
) -> Rechecker:
    shipped = {name: load_family(name) for name in list_families()}
    at_hand = shipped | {family.name: family for family in families}
    chosen, compiler = open_target(
        stack,
        command.gpu,
        list(at_hand),
        # A recording never changes: without a GPU it is replayed only if it is asked for.
        require_gpu=command.gpu == "auto",
        notify=lambda notice: say(notice, err=True, bold=True),
    )
    rounds = command.rounds
    return Rechecker(store, chosen.target, compiler, at_hand, rounds, command=command_line())


def _wanted(
    found: list[StoredWinner], rechecker: Rechecker, command: CheckCommand
) -> list[StoredWinner]:
    """Return the winners to measure; say how many are left out."""
    wanted = [winner for winner in found if winner.changes or command.everything]
    name = ", ".join(dict.fromkeys(winner.row.device.name for winner in found))
    if not found:
        is_replay = rechecker.target.provenance is Provenance.RECORDED
        name = "a recorded GPU" if is_replay else rechecker.target.device.name
        say(f"no winner of {name} is stored: run autogemm tune first", err=True)
    elif len(wanted) < len(found):
        count = len(found) - len(wanted)
        say(
            f"{count} of {len(found)} winners of {name}: nothing has changed since they were "
            "measured (--all measures them too)",
            err=True,
        )
    return wanted


def _row(rechecked: Rechecked) -> FlatRow:
    row, entry = rechecked.winner.row, rechecked.entry
    now = row_of(entry, under("", ("time_us", *RATIO)))
    return {
        **db_rows.best_row(row),
        "before_time_us": row.time_us,
        "before_ratio": row.ratio,
        "before_run_id": row.run_id,
        **now,
        **speed_up(rechecked.compared, rechecked.by),
        "changed": ", ".join(rechecked.winner.changes),
        "reason": rechecked.reason,
        "note": rechecked.reason,
        "run_id": rechecked.run_id,
    }


def _retuned(
    rechecker: Rechecker, row: ResultRow, families: tuple[Family, ...], command: CheckCommand
) -> FlatRow:
    request = TuneRequest(
        problem=row.problem,
        families=families,
        trials=command.trials,
        budget_s=command.budget_s,
        rounds=command.rounds,
        measure=MeasureOptions(l2=row.l2, fill=row.fill, objective=row.objective),
        max_error=rechecker.store.run(row.run_id).spec.max_error,
        certify=command.certify,
        command=rechecker.command,
    )
    try:
        result = tune(request, rechecker.target, rechecker.compiler, rechecker.store)
    except AutogemmError as error:
        return {"note": f"not tuned: {error}", "reason": str(error)}
    winner = result.finals.winner if result.finals is not None else None
    said = f"run {result.run_id}"
    if winner is not None:
        said += f": {winner.ratio:.4g} times cuBLAS"
    return {
        "note": f"tuned again, {said}",
        "retuned_run_id": result.run_id,
        "retuned_ratio": winner.ratio if winner is not None else None,
    }

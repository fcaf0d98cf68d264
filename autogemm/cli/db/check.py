"""``autogemm db check``: are stored winners still what they were?"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.db.changes import print_words, speed_up
from autogemm.cli.filters import print_rows_as
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options
from autogemm.cli.rows import Columns, FlatRow
from autogemm.cli.tune.command import seconds
from autogemm.model.columns import PLACE, RATIO, row_of, under

if TYPE_CHECKING:
    from autogemm.space import Family
    from autogemm.store import ResultRow
    from autogemm.tuning import Checked, Checker, TuneResult, Winner

TABLE: Columns = (
    *("problem", "provenance", "verdict", "speed_up", "speed_up_low", "speed_up_high", "by"),
    *("before_time_us", "time_us", "before_ratio", "ratio", "changed", "note"),
)
ALL: Columns = (
    *(*PLACE, *db_rows.PROBLEM, "l2", "fill", "verdict", "speed_up", "speed_up_low"),
    *("speed_up_high", "by", "before_time_us", "time_us", "before_ratio", *RATIO),
    *("changed", "reason", "kernel_id", "before_run_id", "run_id", "retuned_run_id"),
    "retuned_ratio",
)


@click.command()
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="The GPU whose winners are measured, as of `autogemm tune`.",
)
@click.option("--size", metavar="SIZE", help="Only this one: 4096 or MxNxK.")
@click.option("--layout", metavar="LAYOUT", help="Only this one: nn, nt, tn or tt.")
@click.option(
    "--family",
    metavar="NAME|PATH",
    multiple=True,
    help="Families besides those that ship; --retune searches these alone. Repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="Also winners of which nothing changed.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=30, show_default=True, help="Beside cuBLAS."
)
@click.option("--retune", is_flag=True, help="Tune those that moved again.")
@click.option(
    "--trials", type=click.IntRange(min=1), default=300, show_default=True, help="Of --retune."
)
@click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    callback=seconds,
    default="2m",
    show_default=True,
    help="Of --retune, for each problem: 90s, 2m, 1h, none.",
)
@click.option("--no-certify", is_flag=True, help="Do not check new winners further.")
@db_option
@listing_options
def check(
    everything: bool, retune: bool, as_json: bool, as_csv: bool, db: str | None, **options: Any
) -> None:
    """Measure stored winners again after a new driver, compiler, ...

    Those of this GPU, where something has changed since: the driver, CUDA, the compiler, cuBLAS,
    another version, or the family's template. The stored kernel and cuBLAS run in turn, and what
    came of it is kept as a run of its own. FAST and SLOW: the winner moved, see `autogemm db
    compare -h` for the words; one that does not run any more moved too. --retune tunes only these.
    Without a GPU that is an error.

    \b
    Examples:
      autogemm db check
      autogemm db check --all --size 4096
      autogemm db check --retune --budget 1m
    """
    from autogemm.store import open_store

    with ExitStack() as stack:
        store = stack.enter_context(open_store(db, create=False))
        families = _families(options["family"])
        checker = _checker(stack, store, families, options)
        rows = []
        winners = _winners(checker, options, everything)
        for winner in _with_progress(winners):
            checked = checker.check(winner)
            row = _row(checked)
            if retune and checked.moved:
                row |= _retuned(checker, winner.row, families, options)
            rows.append(row)
    print_rows_as(rows, ALL, TABLE, as_json=as_json, as_csv=as_csv)
    if rows and not (as_json or as_csv):
        print_words(rows)


def _families(named: Sequence[str]) -> tuple[Family, ...]:
    """Those to tune with: the named ones, or all that are searched by themselves."""
    from autogemm.space import default_families, load_family

    return tuple(load_family(name) for name in named) or tuple(default_families())


def _checker(
    stack: ExitStack, store: Any, families: Sequence[Family], options: dict[str, Any]
) -> Checker:
    from autogemm.cli.tune.setup import command_line, compiler_for
    from autogemm.space import list_families, load_family
    from autogemm.tuning import Checker, choose_target

    shipped = {name: load_family(name) for name in list_families()}
    at_hand = shipped | {family.name: family for family in families}
    # A recording is always what it was: without a card it is replayed only if it is asked for.
    chosen = choose_target(options["gpu"], list(at_hand), options["gpu"] == "auto")
    target = stack.enter_context(closing(chosen.target))
    if chosen.notice:
        click.secho(chosen.notice, err=True, bold=True)
    compiler = compiler_for(target)
    if compiler is not None:
        stack.enter_context(closing(compiler))
    rounds = options["rounds"]
    return Checker(store, target, compiler, at_hand, rounds, command=command_line())


def _winners(checker: Checker, options: dict[str, Any], everything: bool) -> list[Winner]:
    """Those to measure; says what is left out."""
    from autogemm.store import BestQuery

    found = checker.winners(BestQuery(size=options["size"], layout=options["layout"]))
    wanted = [winner for winner in found if winner.changes or everything]
    name = checker.target.device.name
    if not found:
        click.echo(f"no winner of {name} is stored: autogemm tune makes some", err=True)
    elif len(wanted) < len(found):
        count = len(found) - len(wanted)
        click.echo(
            f"{count} of {len(found)} winners of {name}: nothing has changed since they were "
            "measured (--all measures them too)",
            err=True,
        )
    return wanted


def _with_progress(winners: list[Winner]) -> Iterator[Winner]:
    """A bar on a terminal; click draws none elsewhere, but for its label."""
    with click.progressbar(
        winners, label="measuring", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        yield from bar


def _row(checked: Checked) -> FlatRow:
    row, entry = checked.winner.row, checked.entry
    now = row_of(entry, under("", ("time_us", *RATIO)))
    return {
        **db_rows.best_row(row),
        "before_time_us": row.time_us,
        "before_ratio": row.ratio,
        "before_run_id": row.run_id,
        **now,
        **speed_up(checked.compared, checked.by),
        "changed": ", ".join(checked.winner.changes),
        "reason": checked.reason,
        "note": checked.reason,
        "run_id": checked.run_id,
    }


def _retuned(
    checker: Checker, row: ResultRow, families: tuple[Family, ...], options: dict[str, Any]
) -> FlatRow:
    from autogemm.support.errors import AutogemmError
    from autogemm.targets import MeasureOptions
    from autogemm.tuning import TuneRequest, tune

    budget_s = options["budget_s"]
    request = TuneRequest(
        problem=row.problem,
        families=families,
        trials=options["trials"],
        budget_s=None if math.isinf(budget_s) else budget_s,
        rounds=options["rounds"],
        measure=MeasureOptions(l2=row.l2, fill=row.fill, objective=row.objective),
        max_error=checker.store.run(row.run_id).spec.max_error,
        certify=not options["no_certify"],
        command=checker.command,
    )
    try:
        result = tune(request, checker.target, checker.compiler, checker.store)
    except AutogemmError as error:
        return {"note": f"not tuned: {error}", "reason": str(error)}
    return _of_result(result)


def _of_result(result: TuneResult) -> FlatRow:
    winner = result.finals.winner if result.finals is not None else None
    said = f"run {result.run_id}"
    if winner is not None:
        said += f": {winner.ratio:.4g} times cuBLAS"
    return {
        "note": f"tuned again, {said}",
        "retuned_run_id": result.run_id,
        "retuned_ratio": winner.ratio if winner is not None else None,
    }

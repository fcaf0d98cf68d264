"""Options and help of the commands of ``autogemm db`` that only read."""

from typing import Any

import click

from autogemm.cli.options import (
    MAX_NUMBER,
    db_option,
    is_typed,
    query_options,
    status_option,
    stored_options,
    time_option,
)
from autogemm.cli.output import Form
from autogemm.store import BestQuery, database_place
from autogemm.support.errors import UsageError

# How many rows a table shows unless told otherwise.
TABLE_ROWS = 20


@click.command()
@click.option(
    "--catalogue",
    "of_catalogue",
    is_flag=True,
    help="List the winners that ship with autogemm instead of the database's.",
)
@query_options
def best(query: BestQuery, db: str | None, form: Form, *, of_catalogue: bool) -> None:
    """Show the best kernel for each GPU and problem.

    This is the winner of finals with the highest ratio to cuBLAS in the newest environment (driver,
    compiler, versions), or the fastest trial if there were no finals. The ratio and its interval
    come from the newest finals of that kernel. ratio is cuBLAS time / own time: above 1 is faster
    than cuBLAS.

    The winners that ship were recorded on the GPUs in the table, not measured on this machine.
    text says whether this version emits the text that was timed: this, earlier or unknown.

    \b
    Examples:
      autogemm db best
      autogemm db best --gpu h100 --size 4096 --json
      autogemm db best --catalogue --gpu h200 --dtype bf16
    """
    from autogemm.cli.db.run.results import run_best, run_catalogue

    if of_catalogue:
        if is_typed("db"):
            raise UsageError("--catalogue lists the winners that ship, --db a database: choose one")
        run_catalogue(query, form)
    else:
        run_best(query, db, form)


@click.command("list")
@click.option("--trials", "of_trials", is_flag=True, help="List trials instead of runs.")
@status_option
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_NUMBER),
    help=f"Show only so many, the newest. Default: {TABLE_ROWS} in a table, all in JSON and CSV.",
)
@query_options
def list_(*, limit: int | None, form: Form, **values: Any) -> None:
    """List runs, or with --trials their trials, newest first.

    \b
    Examples:
      autogemm db list
      autogemm db list --trials --status wrong_result
      autogemm db list --trials --run 1 --limit 100
    """
    from autogemm.cli.db.run.results import ListCommand, run_list

    if limit is None and form is Form.TABLE:
        limit = TABLE_ROWS
    run_list(ListCommand(limit=limit, form=form, **values))


@click.command()
@click.argument("identifier", metavar="ID")
@stored_options
def show(identifier: str, db: str | None, form: Form) -> None:
    """Show a kernel by number or sha256, run:N or trial:N.

    The ID of a kernel is its number or the beginning of its sha256. JSON also contains the finals
    of a run and the trials of a kernel.

    \b
    Examples:
      autogemm db show 12
      autogemm db show run:1
      autogemm db show trial:345 --json
    """
    from autogemm.cli.db.run.results import run_show

    run_show(identifier, db, form)


@click.command()
@db_option
def path(db: str | None) -> None:
    """Print the location of the database, even if it does not exist yet.

    \b
    Examples:
      sqlite3 "$(autogemm db path)" "SELECT count(*) FROM run_trials"
    """
    click.echo(database_place(db))


@click.command()
@click.argument("identifier", metavar="ID")
@click.option(
    "--short", is_flag=True, help="Show only the contents of the database, without the explanation."
)
@stored_options
def why(identifier: str, short: bool, db: str | None, form: Form) -> None:
    """Explain the speed of a kernel by its neighbours and static facts.

    ID is the number of the kernel or the beginning of its sha256. The output has the rank of the
    kernel in its run, every trial of the run that differs in one parameter (`autogemm db compare
    -h` explains the words; speed_up is how many times as fast the neighbour is), and the
    explanation of `autogemm explain`. CSV has only the neighbours.

    \b
    Examples:
      autogemm db why 12
      autogemm db why 3f9c --short
      autogemm db why 12 --json
    """
    from autogemm.cli.db.run.why import run

    run(identifier, db, form, short=short)


@click.command()
@query_options
def history(query: BestQuery, db: str | None, form: Form) -> None:
    """Show the best kernels over drivers and versions, oldest first.

    There is one row for each environment (driver, compiler, versions) in which a problem was tuned.
    Each row is compared with the previous one; `autogemm db compare -h` explains the words.

    \b
    Examples:
      autogemm db history --gpu h100 --size 4096
    """
    from autogemm.cli.db.run.changes import run_history

    run_history(query, db, form)


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--by",
    type=click.Choice(["time", "cublas"]),
    help="Compare times, or ratios to cuBLAS in the same rounds. Default: cublas if both sides "
    "have the same cuBLAS and GPU, because clocks drift between sessions.",
)
@stored_options
def compare(first: str, second: str, by: str | None, db: str | None, form: Form) -> None:
    """Show the best kernels of two runs, GPUs or versions side by side.

    There is one row for each problem that both have. A and B are run:N, gpu:NAME or the beginning
    of a version: driver:580, cuda:13.0, nvrtc:, cublas:, cupy:, python:, autogemm:. speed_up is how
    many times as fast B is, with a 95 % interval from the samples. SAME: the interval lies within
    1 % of 1. FAST or SLOW: it lies above or below 1. AMBG (ambiguous): none of these, or one side
    has fewer than six samples (a recording has one).

    \b
    Examples:
      autogemm db compare run:3 run:8
      autogemm db compare gpu:a100 gpu:h100
      autogemm db compare driver:570 driver:580 --json
    """
    from autogemm.cli.db.run.changes import run_compare

    run_compare(first, second, by, db, form)


# How many rows a table shows unless told otherwise.
SQL_ROWS = 100


@click.command()
@query_options
def stats(query: BestQuery, db: str | None, form: Form) -> None:
    """Show the number of runs, trials and kernels for each GPU.

    \b
    Examples:
      autogemm db stats
      autogemm db stats --gpu h100 --json
    """
    from autogemm.cli.db.run.results import run_stats

    run_stats(query, db, form)


@click.command()
@click.argument("query", metavar="SELECT")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_NUMBER),
    help=f"Show at most this many rows. Default: {SQL_ROWS} in a table, all in JSON and CSV.",
)
@time_option("--timeout", "timeout_s", "30s", "Give up after this time: 90s, 2m, 1h.")
@stored_options
def sql(*, limit: int | None, form: Form, **values: Any) -> None:
    """Run an SQL SELECT, which cannot change the database.

    The SELECT - is read from standard input. db/README.md describes tables and columns and has
    queries to start from.

    \b
    Examples:
      autogemm db sql "SELECT status, count(*) FROM run_trials GROUP BY status"
      autogemm db sql - --csv < query.sql
    """
    from autogemm.cli.db.run.results import run_sql

    if limit is None and form is Form.TABLE:
        limit = SQL_ROWS
    run_sql(limit=limit, form=form, **values)


@click.command()
@click.option(
    "--all",
    "of_all",
    is_flag=True,
    help="Show all kernels with a measured energy, not only the front.",
)
@click.option(
    "--plot",
    metavar="FILE",
    help="Plot all of them, and the front as a line, into a .png, .svg or .pdf file.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@query_options
def pareto(**values: Any) -> None:
    """Show the kernels that no other kernel beats in both time and energy.

    The run is the newest one that measured energy (`tune --objective energy` or `edp`), or the one
    that --run names. The fastest kernel comes first, cuBLAS last. Energy is that of the whole GPU.

    \b
    Examples:
      autogemm db pareto
      autogemm db pareto --run 3 --plot front.png
      autogemm db pareto --all --json
    """
    from autogemm.cli.db.run.pareto import ParetoCommand, run

    run(ParetoCommand(**values))

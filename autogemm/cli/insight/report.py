"""``autogemm report``: one HTML file that explains a run, a benchmark or the database."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from autogemm.cli.files import require_output, write_output
from autogemm.cli.filters import bench_id_of, bench_option, filter_options, open_database
from autogemm.cli.options import db_option
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.insight.report import Page
    from autogemm.store import BestQuery, Store


@click.command()
@click.argument("file")
@bench_option("--bench", help="A benchmark, instead of a run.")
@click.option("--all", "of_all", is_flag=True, help="The winners of all runs that match.")
@click.option("--no-explain", is_flag=True, help="Leave out why the winner is as fast as it is.")
@click.option("--force", is_flag=True, help="Replace a file that is no earlier report.")
@filter_options
@db_option
def report(  # noqa: PLR0913, PLR0917  # one parameter for each option
    file: str,
    query: BestQuery,
    db: str | None,
    bench: int | str | None,
    of_all: bool,
    no_explain: bool,
    force: bool,
) -> None:
    """Write one HTML FILE that explains a run: words, tables, plots, source; it loads nothing.

    Of the newest run that matches, or the one that --run names. --bench is of a benchmark instead,
    --all of the best kernels of all runs that match. Why the winner is as fast as it is comes from
    `autogemm explain` and takes some seconds.

    \b
    Examples:
      autogemm report report.html
      autogemm report run3.html --run 3
      autogemm report ladder.html --bench last
      autogemm report winners.html --all --gpu h100
    """
    from autogemm.insight.report import (
        BEGINNING,
        bench_report,
        database_report,
        render_page,
        require_packages,
    )

    require_packages()
    require_output(file, force=force, ours=BEGINNING)
    if bench and of_all:
        raise UsageError("--bench and --all exclude each other: choose one")
    with open_database(db) as store:
        if bench:
            page = bench_report(store, bench_id_of(bench))
        elif of_all:
            page = database_report(store, query)
        else:
            page = _run_page(store, query, explain=not no_explain)
    content = render_page(page)
    write_output(file, content, force=force, ours=BEGINNING)
    click.echo(f"{file}: {page.title}, {page.subtitle}, {len(content) / 1e6:.1f} MB")


def _run_page(store: Store, query: BestQuery, *, explain: bool) -> Page:
    from rich.console import Console

    from autogemm.insight.explain import Tools
    from autogemm.insight.report import run_report

    if not explain:
        return run_report(store, query, None)
    waiting = Console(stderr=True).status("explaining the winner")
    with waiting, closing(Tools.open()) as tools:
        return run_report(store, query, tools)

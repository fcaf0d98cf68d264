"""``autogemm report``: one HTML file that explains a run, a benchmark or the database."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from autogemm.cli.db_filters import filter_options, open_database
from autogemm.cli.files import write_output
from autogemm.cli.options import db_option

if TYPE_CHECKING:
    from autogemm.report import Page
    from autogemm.store import BestQuery, Store

# With what every report begins, so that one may replace another.
OURS = "<!DOCTYPE html>"


@click.command()
@click.argument("file")
@click.option("--no-explain", is_flag=True, help="Leave out why the winner is as fast as it is.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
def report(file: str, query: BestQuery, db: str | None, no_explain: bool, force: bool) -> None:
    """Write one HTML FILE that explains a run.

    \b
    Examples:
      autogemm report report.html
      autogemm report run3.html --run 3
    """
    from autogemm.report import render_page, require_packages

    require_packages()
    with open_database(db) as store:
        page = _page(store, query, explain=not no_explain)
    content = render_page(page)
    write_output(file, content, force=force)
    click.echo(f"{file}: {page.title}, {page.subtitle}, {len(content) / 1e6:.1f} MB")


def _page(store: Store, query: BestQuery, *, explain: bool) -> Page:
    from autogemm.explain import Tools
    from autogemm.report import run_report

    if not explain:
        return run_report(store, query, None)
    with closing(Tools.open()) as tools:
        return run_report(store, query, tools)

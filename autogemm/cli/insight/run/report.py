"""``autogemm report``: one HTML file that explains a run, a benchmark or the database."""

from contextlib import closing
from dataclasses import dataclass

import click
from rich.console import Console

from autogemm.cli.files import require_output, write_output
from autogemm.cli.options import bench_id_of
from autogemm.cli.rows import open_database
from autogemm.insight.explain import Tools
from autogemm.insight.report import (
    BEGINNING,
    Page,
    bench_report,
    database_report,
    render_page,
    require_packages,
    run_report,
)
from autogemm.store import BestQuery, Store
from autogemm.support.errors import UsageError


@dataclass(frozen=True, slots=True)
class ReportCommand:
    """One call of the command. ``bench`` is the number of a stored benchmark, or ``last``."""

    file: str
    bench: int | str | None
    of_all: bool
    no_explain: bool
    force: bool
    query: BestQuery
    db: str | None


def run(command: ReportCommand) -> None:
    """Write the report."""
    require_packages()
    require_output(command.file, force=command.force, ours=BEGINNING)
    if command.bench and command.of_all:
        raise UsageError("--bench and --all exclude each other: choose one")
    with open_database(command.db) as store:
        if command.bench:
            page = bench_report(store, bench_id_of(command.bench))
        elif command.of_all:
            page = database_report(store, command.query)
        else:
            page = _run_page(store, command.query, explain=not command.no_explain)
    content = render_page(page)
    write_output(command.file, content, force=command.force, ours=BEGINNING)
    click.echo(f"{command.file}: {page.title}, {page.subtitle}, {len(content) / 1e6:.1f} MB")


def _run_page(store: Store, query: BestQuery, *, explain: bool) -> Page:
    if not explain:
        return run_report(store, query, None)
    waiting = Console(stderr=True).status("explaining the winner")
    with waiting, closing(Tools.open()) as tools:
        return run_report(store, query, tools)

"""``autogemm report``: one HTML file that explains a run, a benchmark or the database."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from autogemm.cli.files import require_output, write_output
from autogemm.cli.options import BenchName, bench_id_of
from autogemm.cli.prose import say
from autogemm.cli.rows import open_database
from autogemm.formats import read_bench_listing
from autogemm.insight.explain import Tools
from autogemm.insight.report import (
    BEGINNING,
    Page,
    bench_page,
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
    bench: BenchName | None
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
    page = _page(command)
    content = render_page(page)
    write_output(command.file, content, force=command.force, ours=BEGINNING)
    say(f"{command.file}: {page.title}, {page.subtitle}, {len(content) / 1e6:.1f} MB")


def _page(command: ReportCommand) -> Page:
    if isinstance(command.bench, Path):
        return bench_page(read_bench_listing(command.bench, command.query.gpu), None)
    with open_database(command.db) as store:
        if command.bench:
            return bench_report(store, bench_id_of(command.bench))
        if command.of_all:
            return database_report(store, command.query)
        return _run_page(store, command.query, explain=not command.no_explain)


def _run_page(store: Store, query: BestQuery, *, explain: bool) -> Page:
    if not explain:
        return run_report(store, query, None)
    waiting = Console(stderr=True).status("explaining the winner")
    with waiting, closing(Tools.open()) as tools:
        return run_report(store, query, tools)

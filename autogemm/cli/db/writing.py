"""Options and help of the commands of ``autogemm db`` that change a database or write files."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from autogemm.cli.options import (
    count_option,
    db_option,
    filter_options,
    off_option,
    query_options,
    status_option,
    stored_options,
    time_option,
)
from autogemm.cli.output import Form


@click.command()
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="The GPU whose winners are measured, as in `autogemm tune`.",
)
@click.option("--size", metavar="SIZE", help="Only this size: 4096 or MxNxK.")
@click.option("--layout", metavar="LAYOUT", help="Only this layout: nn, nt, tn or tt.")
@click.option(
    "--family",
    metavar="NAME|PATH",
    multiple=True,
    help="Families besides those that ship; --retune searches these alone. Repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="Also winners where nothing has changed.")
@count_option("--rounds", 30, "Rounds of measuring.")
@click.option("--retune", is_flag=True, help="Tune again where a winner moved.")
@count_option("--trials", 300, "For --retune.")
@time_option("--budget", "budget_s", "2m", "Time of --retune for each problem: 90s, 2m, 1h, none.")
@off_option("--no-certify", "Do not check new winners further.")
@stored_options
def check(**values: Any) -> None:
    """Measure stored winners again after a new driver, compiler, ...

    The winners are those of this GPU where something has changed since: the driver, CUDA, the
    compiler, cuBLAS, the version, or the family's template. The stored kernel and cuBLAS run in
    turn, and the result is kept as a run of its own. FAST and SLOW: the winner moved, see `autogemm
    db compare -h` for the words; one that does not run any more moved too. --retune tunes only
    these. Without a GPU the command is an error.

    \b
    Examples:
      autogemm db check
      autogemm db check --all --size 4096
      autogemm db check --retune --budget 1m
    """
    from autogemm.cli.db.run.check import CheckCommand, run

    run(CheckCommand(**values))


# The values of autogemm.exchange.Format, which help must not import.
FORMATS = ("jsonl", "csv", "json", "t4", "kernel-tuner", "wisdom", "optuna")
IMPORTED = ("jsonl", "csv", "t4", "kernel-tuner")
DEFAULT_FORMAT = "json"


@click.command()
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    default="-",
    help="Write to this file, gzip'd if its name ends in .gz; - is standard output.",
)
@click.option(
    *("-f", "--format", "file_format"),
    type=click.Choice(FORMATS),
    help=f"What to write. Default: what the name ends in, .csv or .jsonl, else {DEFAULT_FORMAT}.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--csv", "as_csv", is_flag=True, help="The same as --format csv.")
@click.option("--force", is_flag=True, help="Replace a file that is no earlier export.")
@status_option
@filter_options
@db_option
def export(**values: Any) -> None:
    """Write results to a file, oldest first.

    \b
    jsonl         all that is known: runs with sources, finals and certificates, benchmarks,
                  profiles; db import takes it back
    csv, json     one row a trial, without sources and finals; db import takes CSV back
    t4            the results format of the auto-tuning community, version 1.0.0
    kernel-tuner  a cache file, for Kernel Tuner's simulation mode
    wisdom        the best configs, for Kernel Launcher
    optuna        a study for each run and family, for optuna-dashboard

    t4 and kernel-tuner hold one kernel on one GPU for one problem, wisdom one kernel: narrow with
    the filters. docs/exchange.md says what each can hold. In JSON an infinite error is null.

    \b
    Examples:
      autogemm db export > trials.json
      autogemm db export --format jsonl -o results.jsonl.gz
      autogemm db export --csv --gpu h100 -o trials.csv
      autogemm db export --format t4 --run 3 -o run3.t4.json
      autogemm db export --format wisdom --family sgemm_simt --layout nn -o sgemm_simt_nn_f32.wisdom
      autogemm db export --format optuna -o studies.log
    """
    from autogemm.cli.db.run.exchange import ExportCommand, run_export

    run_export(ExportCommand(**values))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    *("-f", "--format", "file_format"),
    type=click.Choice(IMPORTED),
    help="The format of the file. Default: recognised from its content.",
)
@click.option("--size", metavar="SIZE", help="4096 or MxNxK, for a file that does not say it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken.")
@stored_options
def import_(**values: Any) -> None:
    """Take what a file holds and the database does not.

    All of it is taken or, on any fault, nothing. What is there already is left as it is: the same
    file again adds nothing. Times in files of other programs (t4, kernel-tuner) are recorded, not
    measured, and facts that such a file leaves out are printed. Nothing in a file is ever run.

    \b
    Examples:
      autogemm db import results.jsonl.gz --dry-run
      autogemm db import trials.csv --db shared.db
      autogemm db import RTX_3090.json.gz --size 4096
    """
    from autogemm.cli.db.run.exchange import ImportCommand, run_import

    run_import(ImportCommand(**values))


DAYS = {"d": 1, "w": 7, "y": 365}


@click.command()
@click.argument("other", metavar="OTHER.db")
@stored_options
def merge(other: str, db: str | None, form: Form) -> None:
    """Add what another database has and this one lacks.

    Its runs, trials, finals, kernels, certificates, benchmarks, profiles. OTHER is a SQLite
    file, which is not touched, or a URL. What both have stays once, and merging again adds nothing.
    All of it is added or, after an error, nothing. Optuna's studies stay where they are.

    \b
    Examples:
      autogemm db merge results-of-the-other-machine.db
      autogemm db merge ~/old.db --db postgresql://me@server/autogemm
    """
    from autogemm.cli.db.run.upkeep import run_merge

    run_merge(other, db, form)


def age(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Parse ``90d``, ``12w``, ``1y``. Raises click.BadParameter for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,4})([dwy])", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age: write 90d, 12w or 1y")
    return timedelta(days=int(match[1]) * DAYS[match[2]])


@click.command()
@click.option(
    "--older-than",
    metavar="AGE",
    callback=age,
    help="Runs that began longer ago than this: 90d, 12w, 1y.",
)
@click.option("--with-best", is_flag=True, help="Also runs that hold a best kernel.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@query_options
def prune(**values: Any) -> None:
    """Delete runs that are not needed any more.

    With them go their trials, finals, studies, and kernels that no other run has. Runs that hold
    the best kernel of a GPU and problem stay, and so do those that are being written and those with
    a failed certificate. Asks before it deletes. `autogemm db vacuum` then gives the space back.

    \b
    Examples:
      autogemm db prune --older-than 90d --dry-run
      autogemm db prune --gpu t4 --provenance recorded --yes
      autogemm db prune --run 3 --with-best
    """
    from autogemm.cli.db.run.upkeep import PruneCommand, run_prune

    run_prune(PruneCommand(**values))


@click.command()
@stored_options
def vacuum(db: str | None, form: Form) -> None:
    """Give back the space of what was deleted.

    The statistics of the tables are renewed too, so that queries stay fast.

    \b
    Examples:
      autogemm db vacuum
    """
    from autogemm.cli.db.run.upkeep import run_vacuum

    run_vacuum(db, form)

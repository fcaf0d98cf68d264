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

# The values of autogemm.cli.db.run.gate.FailOn, which help must not import.
FAIL_ON = ("slow", "moved")


def share(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """Parse ``2%`` into 0.02. Raises click.BadParameter for anything else, and from 100 % on."""
    match = re.fullmatch(r"(\d{1,2}(?:\.\d{1,6})?) ?%", text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a share below 100 %: write 2% or 0.5%")
    return float(match[1]) / 100


@click.command()
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="Measure the winners of this GPU; values as in `autogemm tune`.",
)
@click.option("--size", metavar="SIZE", help="Only this size: 4096 or MxNxK.")
@click.option("--layout", metavar="LAYOUT", help="Only this layout: nn, nt, tn or tt.")
@click.option(
    "--family",
    metavar="NAME|PATH",
    multiple=True,
    help="Also use this family; --retune then searches only the families named so. Repeatable.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Also measure winners for which nothing has changed."
)
@count_option("--rounds", 30, "Rounds of measurement.")
@click.option("--retune", is_flag=True, help="Tune again if a winner has moved.")
@count_option("--trials", 300, "Number of trials of --retune.")
@time_option("--budget", "budget_s", "2m", "Time of --retune per problem: 90s, 2m, 1h, none.")
@off_option("--no-certify", "Skip the final checks of new winners.")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    help="Exit with 1 if a winner is slower (slow), or slower or faster (moved), or does not run.",
)
@click.option(
    "--threshold",
    metavar="PERCENT",
    callback=share,
    default="0%",
    show_default=True,
    help="For --fail-on: changes up to this size pass.",
)
@click.option("--junit", metavar="FILE", help="Also write the verdicts as JUnit XML, for CI.")
@click.option("--force", is_flag=True, help="Overwrite a file that is not an earlier JUnit file.")
@stored_options
def check(
    fail_on: str | None, threshold: float, junit: str | None, force: bool, **values: Any
) -> None:
    """Measure stored winners again after a change of driver, compiler or version.

    A winner of this GPU is measured if something has changed since it was found: the driver, CUDA,
    the compiler, cuBLAS, the version of autogemm, or the template of its family. The stored kernel
    and cuBLAS run in turn, and the result is stored as a new run. FAST and SLOW mean that the
    winner moved (`autogemm db compare -h` explains the words); a winner that no longer runs has
    moved as well. --retune tunes only these. The command needs a GPU.

    With --fail-on the command is a gate: a winner fails whose whole 95 % interval lies beyond the
    threshold, or that does not run; AMBG does not fail, and is `skipped` in JUnit. Each check
    compares with the measurements of the previous one, so a gate starts from a copy of its
    database.

    \b
    Examples:
      autogemm db check
      autogemm db check --all --size 4096
      autogemm db check --retune --budget 1m
      autogemm db check --all --fail-on slow --threshold 2% --junit check.xml
    """
    from autogemm.cli.db.run.check import CheckCommand, run
    from autogemm.cli.db.run.gate import FailOn, Gate

    gate = Gate(FailOn(fail_on) if fail_on else None, threshold, junit, force)
    run(CheckCommand(gate=gate, **values))


# The values of autogemm.exchange.Format, which help must not import.
FORMATS = ("jsonl", "csv", "json", "t4", "kernel-tuner", "wisdom", "optuna")
IMPORTED = ("jsonl", "csv", "t4", "kernel-tuner")
DEFAULT_FORMAT = "json"


@click.command()
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    default="-",
    help="Output file, compressed if its name ends in .gz; - is standard output.",
)
@click.option(
    *("-f", "--format", "file_format"),
    type=click.Choice(FORMATS),
    help=f"File format. Default: that of the ending .csv or .jsonl, else {DEFAULT_FORMAT}.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--csv", "as_csv", is_flag=True, help="The same as --format csv.")
@click.option("--force", is_flag=True, help="Overwrite a file even if it is not an earlier export.")
@status_option
@filter_options
@db_option
def export(**values: Any) -> None:
    """Write results to a file, oldest first.

    \b
    jsonl         everything: runs with sources, finals and certificates,
                  benchmarks, profiles; db import reads it back
    csv, json     one row per trial, without sources and finals; db import
                  reads CSV back
    t4            the results format of the auto-tuning community, version 1.0.0
    kernel-tuner  a cache file, for Kernel Tuner's simulation mode
    wisdom        the best configs, for Kernel Launcher
    optuna        a study for each run and family, for optuna-dashboard

    A t4 or kernel-tuner file holds one kernel on one GPU for one problem, a wisdom file one kernel:
    select it with the filters. docs/exchange.md describes what each format can hold. In JSON an
    infinite error is null.

    \b
    Examples:
      autogemm db export > trials.json
      autogemm db export --format jsonl -o results.jsonl.gz
      autogemm db export --csv --gpu h100 -o trials.csv
      autogemm db export --format t4 --run 3 -o run3.t4.json
      autogemm db export --format wisdom --family sgemm_simt -o a.wisdom
      autogemm db export --format optuna -o studies.log
    """
    from autogemm.cli.db.run.exchange import ExportCommand, run_export

    run_export(ExportCommand(**values))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    *("-f", "--format", "file_format"),
    type=click.Choice(IMPORTED),
    help="Format of the file.  [default: recognised from its content]",
)
@click.option(
    "--size", metavar="SIZE", help="Size, 4096 or MxNxK, for a file that does not contain it."
)
@click.option("--dry-run", is_flag=True, help="Only report the records that would be added.")
@stored_options
def import_(**values: Any) -> None:
    """Add the records of a file that the database does not have.

    All of them are added, or none if anything is wrong. Existing records stay as they are:
    importing the same file again adds nothing. Times in files of other programs (t4, kernel-tuner)
    count as recorded, not measured, and facts that such a file leaves out are listed. Nothing in a
    file is ever executed.

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
    """Add the records of another database that this one does not have.

    These are runs, trials, finals, kernels, certificates, benchmarks and profiles. OTHER is a
    SQLite file, which is not changed, or a URL. Records that both have are kept once, and merging
    again adds nothing. All of them are added, or none if there is an error. Optuna studies are not
    merged.

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
    help="Delete runs that started longer ago than this: 90d, 12w, 1y.",
)
@click.option("--with-best", is_flag=True, help="Also delete runs that hold a best kernel.")
@click.option("--dry-run", is_flag=True, help="Only report the runs that would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@query_options
def prune(**values: Any) -> None:
    """Delete runs that are no longer needed.

    Their trials, finals and studies are deleted too, and kernels that no other run has. Runs that
    hold the best kernel for a GPU and problem are kept, and so are runs that are being written and
    runs with a failed certificate. The command asks before it deletes. `autogemm db vacuum` then
    frees the space.

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
    """Free the disk space of deleted records.

    The statistics of the tables are updated too, so that queries stay fast.

    \b
    Examples:
      autogemm db vacuum
    """
    from autogemm.cli.db.run.upkeep import run_vacuum

    run_vacuum(db, form)

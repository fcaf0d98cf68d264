"""Options and help of ``autogemm db export`` and ``import``."""

from pathlib import Path
from typing import Any

import click

from autogemm.cli.filters import filter_options
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options
from autogemm.model.outcome import Status

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
@click.option(
    "--status",
    metavar="STATUS",
    type=click.Choice([status.value for status in Status]),
    help="Trials that ended so: " + ", ".join(Status) + ".",
)
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
@db_option
@listing_options
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

"""``autogemm db``: ask the tuning database."""

import click

from autogemm.cli.db import reading, writing
from autogemm.cli.garbage import collect_rarely
from autogemm.cli.sections import InOrderOfUse


@click.group(cls=InOrderOfUse)
def db() -> None:
    """Query and maintain the tuning database: the best kernels, runs, trials.

    A time whose provenance is `recorded` was not measured by this run but read from a recording.
    db/README.md describes the tables, and SQL queries for everything else.

    \b
    Examples:
      autogemm db best --gpu h100
      autogemm db show run:1
      autogemm db compare gpu:a100 gpu:h100
      autogemm db check --retune
      autogemm db export --format jsonl -o results.jsonl.gz
      autogemm db import results.jsonl.gz --db shared.db
    """
    collect_rarely()


for _command in (
    *(reading.best, reading.list_, reading.show, reading.why, reading.history, reading.compare),
    *(writing.check, reading.stats, reading.sql, reading.pareto, writing.export, writing.import_),
    *(writing.merge, writing.prune, writing.vacuum, reading.path),
):
    db.add_command(_command)

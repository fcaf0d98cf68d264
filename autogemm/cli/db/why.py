"""Options and help of ``autogemm db why``."""

import click

from autogemm.cli.options import db_option
from autogemm.cli.output import Form, listing_options


@click.command()
@click.argument("identifier", metavar="ID")
@click.option("--short", is_flag=True, help="Only what the database knows, without the reasons.")
@db_option
@listing_options
def why(identifier: str, short: bool, db: str | None, form: Form) -> None:
    """Say why a kernel is as fast as it is: neighbours and facts.

    ID is the kernel's number or the beginning of its sha256. Shown are its place in its run, every
    trial there that differs in one parameter (see `autogemm db compare -h` for the words; speed_up
    is how many times as fast the neighbour is), and the explanation of `autogemm explain`. CSV has
    the neighbours only.

    \b
    Examples:
      autogemm db why 12
      autogemm db why 3f9c --short
      autogemm db why 12 --json
    """
    from autogemm.cli.db.run.why import run

    run(identifier, db, form, short=short)

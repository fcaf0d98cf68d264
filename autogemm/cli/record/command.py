"""Options and help of ``autogemm record``."""

from typing import Any

import click

from autogemm.cli.options import stored_options


@click.command()
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM...]")
@click.option("-o", "--out", default="shapes.jsonl", show_default=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Overwrite a file even if it is not a recording.")
@click.option(
    "--report",
    metavar="FILE",
    help="Estimate the time that results in the database would save in the recorded program.",
)
@click.option("--gpu", metavar="NAME", help="With --report: results of this GPU.")
@stored_options
def record(**values: Any) -> None:
    """Record which GEMMs a PyTorch program calls: sizes, layouts, types, epilogues, times.

    PROGRAM runs as it is, and so do the Python processes that it starts. Times are measured by CUDA
    events where tensors are on a GPU; otherwise they are wall time on this CPU, and only show which
    products matter. An activation or a bias that is the only reader of a product is recorded as its
    epilogue.

    `autogemm tune --problems FILE` then tunes these problems, the longest time first.

    \b
    Examples:
      autogemm record -- python serve.py --tokens 2048
      autogemm tune --problems shapes.jsonl --total 30m
      autogemm record --report shapes.jsonl
    """
    from autogemm.cli.record.run import RecordCommand, run

    run(RecordCommand(**values))

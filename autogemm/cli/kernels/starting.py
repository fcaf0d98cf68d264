"""Options and help of `autogemm new-family`."""

import click


@click.command()
@click.argument("name")
@click.option(
    "--in",
    "folder",
    type=click.Path(file_okay=False),
    default=".",
    help="Create the family's folder in this one.  [default: the current folder]",
)
def new_family(name: str, folder: str) -> None:
    """Create a working kernel family to start from: the folder NAME with NAME.yaml and
    NAME.cu.jinja.

    The search space and the template are small and complete: a tiled FP32 kernel with four
    parameters, for all layouts and sizes. docs/own-family.md explains both files and how to change
    them. An existing folder is not changed.

    \b
    Examples:
      autogemm new-family mine
      autogemm new-family mine --in ~/kernels
    """
    from autogemm.cli.kernels.run.starting import run

    run(name, folder)

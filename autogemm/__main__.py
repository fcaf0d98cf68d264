"""``python -m autogemm``: the command line without the installed script."""

from autogemm.cli import main

main(prog_name="autogemm")

"""Options and help of ``autogemm cache``."""

import click

from autogemm.cli.output import Form, listing_options
from autogemm.cli.sections import InOrderOfUse


@click.group(cls=InOrderOfUse, invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """Show, clear and limit the files that are kept on disk, such as compiled kernels.

    The folder (AUTOGEMM_CACHE, or the user's cache) contains only files that can be regenerated.
    Results are in the database instead. Without a subcommand, the size of the folder is shown.

    \b
    Examples:
      autogemm cache
      autogemm cache clear emulator
      autogemm cache limit 500MB
    """
    if context.invoked_subcommand is None:
        context.invoke(size)


@cache.command()
@listing_options
def size(form: Form) -> None:
    """Show the size of the files, by kind.

    \b
    Examples:
      autogemm cache size
      autogemm cache size --json
    """
    from autogemm.cli.cache.run import show_size

    show_size(form)


@cache.command()
@click.argument("kinds", metavar="[KIND]...", nargs=-1)
def clear(kinds: tuple[str, ...]) -> None:
    """Delete the files of each KIND (cubins, emulator, failed, cutlass), or all of them.

    \b
    Examples:
      autogemm cache clear
      autogemm cache clear emulator failed
    """
    from autogemm.cli.cache.run import run_clear

    run_clear(kinds)


@cache.command()
@click.argument("size", required=False, metavar="[SIZE]")
def limit(size: str | None) -> None:
    """Show or set the largest size of the folder: 500MB, 2GB, none.

    The next command that compiles or emulates deletes the least recently used files until the
    folder is below the limit. AUTOGEMM_CACHE_LIMIT takes precedence over the limit that is set
    here.

    \b
    Examples:
      autogemm cache limit
      autogemm cache limit 500MB
    """
    from autogemm.cli.cache.run import run_limit

    run_limit(size)

"""Progress of long work: a bar on a terminal, some lines elsewhere."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

Item = TypeVar("Item")
PLAIN_LINES = 10


def watched(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield the items; show on stderr how many of ``total`` there were."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), f"{what},", TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            yield from progress.track(items, total, description="")
        return
    for done, one in enumerate(items, 1):
        if done * PLAIN_LINES // total > (done - 1) * PLAIN_LINES // total:
            click.echo(f"{done} of {total} {what}", err=True)
        yield one

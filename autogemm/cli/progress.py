"""Progress of long work on stderr: a bar with percentage, rate and time left on a terminal that can
redraw, some lines elsewhere.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from autogemm.cli.prose import say

Item = TypeVar("Item")
# Lines in place of a bar: one per tenth of the work, but none within so many seconds of the last
# one or of the beginning.
PLAIN_LINES = 10
PLAIN_EVERY_S = 2.0
# Redraws a second: enough to look alive, too little to take time from the work.
REDRAWS_PER_S = 4.0


def is_live(console: Console) -> bool:
    """Whether a bar can be redrawn there: a terminal that is not dumb (``TERM=dumb``)."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def bars(console: Console) -> Iterator[Progress]:
    """Yield an empty display of bars with a percentage and a description each."""
    # Nothing here is markup: names come from files.
    columns = (
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False),
    )
    rate = REDRAWS_PER_S
    with Progress(*columns, console=console, refresh_per_second=rate, transient=True) as progress:
        yield progress


def time_left(seconds: float) -> str:
    """Return a time left as 45 s, 3 min 20 s or 2 h 5 min."""
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s left"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min left" if hours else f"{minutes} min {rest} s left"


@dataclass(slots=True)
class Meter:
    """Progress through ``total`` items, and its wording."""

    total: int
    what: str
    done: int = 0
    note: str = ""
    _begin: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin = time.monotonic()

    @property
    def line(self) -> str:
        """Items done, rate, the note and the time left."""
        elapsed_s = time.monotonic() - self._begin
        rate = self.done / elapsed_s if elapsed_s > 0 else 0.0
        parts = [f"{self.done:,} of {self.total:,} {self.what}", f"{rate:.3g}/s"]
        parts += [self.note] if self.note else []
        if rate and self.done < self.total:
            parts.append(time_left((self.total - self.done) / rate))
        return ", ".join(parts)


@contextmanager
def metered(total: int, what: str, *, quiet: bool = False) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that takes how many of ``total`` are done, and a note, and shows both."""
    console, meter = Console(stderr=True), Meter(total, what)
    if quiet or not total:
        yield lambda done, note: None
    elif is_live(console):
        with bars(console) as progress:
            task = progress.add_task(f"{total:,} {what}", total=total)
            yield lambda done, note: _redraw(progress, task, meter, done, note)
    else:
        last = time.monotonic()

        def print_line(done: int, note: str) -> None:
            nonlocal last
            before, meter.done, meter.note = meter.done, done, note
            is_tenth = done * PLAIN_LINES // total > before * PLAIN_LINES // total
            if is_tenth and time.monotonic() - last > PLAIN_EVERY_S:
                say(meter.line, err=True)
                last = time.monotonic()

        yield print_line


def _redraw(progress: Progress, task: TaskID, meter: Meter, done: int, note: str) -> None:
    meter.done, meter.note = done, note
    progress.update(task, completed=done, description=meter.line)


def watched(
    items: Iterable[Item],
    total: int,
    what: str,
    note: Callable[[Item], str] = lambda item: "",
    *,
    quiet: bool = False,
) -> Iterator[Item]:
    """Yield the items; show on stderr how many of ``total`` there were, and the last one's note."""
    with metered(total, what, quiet=quiet) as show:
        for done, one in enumerate(items, 1):
            show(done, note(one))
            yield one

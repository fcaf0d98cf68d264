"""Progress of a benchmark on stderr: a live line on a terminal, a line a size elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from autogemm.bench.kernels import BenchRequest, Listener, SizeDone
from autogemm.model.problem import Problem


class Lines(Listener):
    """Prints a line for each size that is done."""

    def __init__(self, request: BenchRequest) -> None:
        num_kernels, num_sizes = len(request.kernels), len(request.sizes)
        click.echo(f"{num_kernels} kernels, {num_sizes} sizes", err=True)

    def done(self, size: SizeDone) -> None:
        """Print the size, and how many kernels were timed."""
        num_timed = sum(entry.time_us is not None for entry in size.entries)
        label = size.entries[0].problem.size_label
        click.echo(
            f"{size.number} of {size.count}: {label}, {num_timed} of {len(size.entries)} timed",
            err=True,
        )


class LiveLine(Listener):
    """Shows a bar over kernels and sizes."""

    def __init__(self, request: BenchRequest, progress: Progress) -> None:
        self._progress = progress
        self._each = len(request.kernels)
        total = self._each * len(request.sizes)
        self._task = progress.add_task(f"{total} kernels to verify", total=total)

    def doing(self, number: int, problem: Problem, kernel: str) -> None:
        """Show the kernel that is verified."""
        what = f"verifying {kernel}" if kernel else "timing all in turn"
        self._progress.update(self._task, description=f"{problem.size_label}: {what}")
        if kernel:
            self._progress.advance(self._task)

    def done(self, size: SizeDone) -> None:
        """Advance the bar; libraries count when their size is done."""
        self._progress.update(self._task, completed=self._each * size.number)


@contextmanager
def live_line(request: BenchRequest) -> Iterator[LiveLine]:
    """Yield the live line while it is shown."""
    progress = Progress(
        BarColumn(bar_width=24),
        # Nothing here is markup: names come from files.
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    with progress:
        yield LiveLine(request, progress)

"""Progress of a tuning run on stderr: a live line on a terminal, plain lines elsewhere."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from autogemm.model.results.outcome import Provenance
from autogemm.tuning import (
    Certifying,
    Event,
    FinalsStarted,
    Notice,
    SearchResumed,
    SearchStarted,
    SustainedStarted,
    TrialDone,
    TuneRequest,
)

# Seconds between two plain lines while nothing better is found.
PLAIN_EVERY_S = 10.0
# Live redrawing rate: enough to look alive, too little to take time from the search.
REDRAWS_PER_S = 4.0


@contextmanager
def progress_listener(
    request: TuneRequest, provenance: Provenance, quiet: bool
) -> Iterator[Callable[[Event], None]]:
    """Yield a listener that shows the events of a run. Notices are shown even when quiet."""
    console = Console(stderr=True)
    if quiet:
        yield echo_notice
    elif console.is_terminal:
        # Nothing here is markup: names come from files.
        columns = BarColumn(bar_width=24), TextColumn("{task.description}", markup=False)
        rate = REDRAWS_PER_S
        with Progress(*columns, console=console, refresh_per_second=rate, transient=True) as bar:
            yield LiveLine(request, provenance, bar).on_event
    else:
        yield PlainLines(request, provenance).on_event


def echo_notice(event: Event) -> None:
    """Print a notice; ignore other events."""
    if isinstance(event, Notice):
        click.echo(event.text, err=True)


class State:
    """Facts kept between two events, and their wording."""

    def __init__(self, request: TuneRequest, provenance: Provenance) -> None:
        self._request = request
        self._is_recorded = provenance is Provenance.RECORDED
        self._mark = " (recorded)" if self._is_recorded else ""
        self._num_resumed = 0

    def opening(self, event: SearchStarted) -> str:
        """Return a line on the spaces to be searched."""
        self._num_resumed = event.num_resumed
        resumed = f", resumed with {event.num_resumed} trials" if event.num_resumed else ""
        spaces = ", ".join(
            f"{family.num_legal} legal configs of {family.num_raw} ({family.name})"
            for family in event.families
        )
        none = f", none of {', '.join(event.left_out)}" if event.left_out else ""
        text = f"{self._request.problem.label}: {spaces}{none}, run {event.run_id}{resumed}"
        if event.started_from:
            text += f"\nwarm start from {', '.join(event.started_from)}"
        return text

    def fraction(self, num_trials: int, elapsed_s: float) -> float:
        """Return the share of the search that is over: of trials or time, whichever is more."""
        trials, budget_s = self._request.trials, self._request.budget_s
        return min(1.0, max(num_trials / (trials or math.inf), elapsed_s / (budget_s or math.inf)))

    def line(self, event: TrialDone) -> str:
        """Return trials, rate, best so far and its provisional ratio to cuBLAS, time left."""
        rate = (event.num_trials - self._num_resumed) / max(event.elapsed_s, 1e-3)
        parts = [f"{event.num_trials} trials", f"{rate:.1f}/s", self.best(event)]
        left_s = self._left_s(event, rate)
        if math.isfinite(left_s):
            parts.append(f"{left_s:.0f} s left")
        return ", ".join(parts)

    def best(self, event: TrialDone) -> str:
        """Return the best so far in words."""
        if event.best is None or event.best.time_us is None:
            return "nothing ran yet"
        speed = self._request.problem.tflops(event.best.time_us)
        ratio = ""
        if event.baseline_us:
            ratio = f", about {event.baseline_us / event.best.time_us:.3f} x cuBLAS"
        measurement = event.best.measurement
        energy_mj = measurement.energy_mj if measurement is not None else None
        energy = f", {energy_mj:.4g} mJ" if energy_mj is not None else ""
        return f"best {event.best.time_us:.4g} us = {speed:.3g} TFLOP/s{energy}{ratio}{self._mark}"

    def finals(self, event: FinalsStarted) -> str:
        """Return a line on the finals."""
        how = "from the recording" if self._is_recorded else f"{event.rounds} rounds"
        return f"finals: {event.num_finalists} candidates and cuBLAS, {how}"

    @staticmethod
    def sustained(event: SustainedStarted) -> str:
        """Return a line on what runs alone, and for how long."""
        return f"sustained: winner and cuBLAS in turn, {event.seconds:g} s at a time"

    @staticmethod
    def resumed(event: SearchResumed) -> str:
        """Return why the search goes on after finals."""
        return (
            f"the finals give {event.finals.winner.ratio:.3f} x cuBLAS, short of "
            f"{event.until_ratio:g}: the search goes on"
        )

    def _left_s(self, event: TrialDone, rate: float) -> float:
        trials, budget_s = self._request.trials, self._request.budget_s
        by_time = budget_s - event.elapsed_s if budget_s else math.inf
        by_trials = (trials - event.num_trials) / rate if trials and rate else math.inf
        return max(0.0, min(by_time, by_trials))


class PlainLines:
    """Prints a line for each new best, and one every ten seconds in between."""

    def __init__(self, request: TuneRequest, provenance: Provenance) -> None:
        self._state = State(request, provenance)
        self._last_line = time.monotonic()

    def on_event(self, event: Event) -> None:
        """Print the event if it is worth a line."""
        match event:
            case Notice(text):
                click.echo(text, err=True)
            case SearchStarted():
                click.echo(self._state.opening(event), err=True)
            case TrialDone():
                overdue = time.monotonic() - self._last_line > PLAIN_EVERY_S
                if event.improved or overdue:
                    click.echo(self._state.line(event), err=True)
                    self._last_line = time.monotonic()
            case FinalsStarted():
                click.echo(self._state.finals(event), err=True)
            case SustainedStarted():
                click.echo(self._state.sustained(event), err=True)
            case SearchResumed():
                click.echo(self._state.resumed(event), err=True)
            case Certifying(step):
                click.echo(f"certifying the winner: {step}", err=True)


class LiveLine:
    """Redraws a bar and a line."""

    def __init__(self, request: TuneRequest, provenance: Provenance, progress: Progress) -> None:
        self._state = State(request, provenance)
        self._progress = progress
        self._task = progress.add_task("getting ready", total=None)

    def on_event(self, event: Event) -> None:
        """Redraw."""
        match event:
            case Notice(text):
                self._progress.console.print(text, markup=False, highlight=False)
            case SearchStarted():
                opening = self._state.opening(event)
                self._progress.console.print(opening, markup=False, highlight=False)
                self._progress.update(self._task, description="first candidates", total=1.0)
            case TrialDone():
                done = self._state.fraction(event.num_trials, event.elapsed_s)
                self._progress.update(
                    self._task, completed=done, description=self._state.line(event)
                )
            case FinalsStarted():
                self._progress.update(self._task, total=None, description=self._state.finals(event))
            case SustainedStarted():
                self._progress.update(self._task, description=self._state.sustained(event))
            case SearchResumed():
                text = self._state.resumed(event)
                self._progress.console.print(text, markup=False, highlight=False)
                self._progress.update(self._task, total=1.0)
            case Certifying(step):
                self._progress.update(self._task, description=f"certifying the winner: {step}")

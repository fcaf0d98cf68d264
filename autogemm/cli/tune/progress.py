"""Progress of a tuning run on stderr: a live line on a terminal, plain lines elsewhere."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from autogemm.cli import log
from autogemm.cli.log import note
from autogemm.cli.progress import bars, is_live, time_left
from autogemm.cli.prose import folded, say, terminal_width
from autogemm.model.results.outcome import Provenance
from autogemm.support.amounts import counted, short_count
from autogemm.tuning import (
    Certifying,
    Event,
    FinalsRound,
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


@contextmanager
def progress_listener(
    request: TuneRequest, provenance: Provenance, quiet: bool
) -> Iterator[Callable[[Event], None]]:
    """Yield a listener that shows the events of a run. Notices are shown even when quiet."""
    console = Console(stderr=True)
    if quiet:
        yield _noted(request, provenance, echo_notice)
    elif is_live(console):
        with bars(console) as bar:
            yield _noted(request, provenance, LiveLine(request, provenance, bar).on_event)
    else:
        yield _noted(request, provenance, PlainLines(request, provenance).on_event)


def _noted(
    request: TuneRequest, provenance: Provenance, show: Callable[[Event], None]
) -> Callable[[Event], None]:
    """Return a listener that shows an event, and writes every trial into a log if there is one."""

    def on_event(event: Event) -> None:
        if isinstance(event, TrialDone):
            outcome = event.outcome
            how = f"{outcome.time_us:.4g} us" if outcome.time_us is not None else outcome.reason
            recorded = " (recorded)" if provenance is Provenance.RECORDED else ""
            config = f"{outcome.config.family}: {outcome.config}"
            where = f"{request.problem.label}, trial {event.number}"
            note(f"{where}: {outcome.status}, {how}{recorded}, {config}")
        else:
            note(str(event), detail=True)
        show(event)

    return on_event


def echo_notice(event: Event) -> None:
    """Print a notice; ignore other events."""
    if isinstance(event, Notice):
        say(event.text, err=True)


class State:
    """Facts kept between two events, and their wording."""

    def __init__(self, request: TuneRequest, provenance: Provenance) -> None:
        self._request = request
        self.is_recorded = provenance is Provenance.RECORDED
        self._mark = " (recorded)" if self.is_recorded else ""
        self._num_resumed = 0
        self._by_gpu: Counter[int] = Counter()

    def opening(self, event: SearchStarted) -> str:
        """Return a line on the spaces to be searched."""
        self._num_resumed = event.num_resumed
        resumed = (
            f", resumed with {counted(event.num_resumed, 'trial')}" if event.num_resumed else ""
        )
        spaces = ", ".join(
            f"{short_count(family.num_legal)} legal of {short_count(family.num_raw)} configs "
            f"({family.name})"
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
        """Return trials, rate, best so far and its provisional ratio to cuBLAS, time left; where
        several GPUs measure, how many each has done.
        """
        rate = (event.num_trials - self._num_resumed) / max(event.elapsed_s, 1e-3)
        parts = [counted(event.num_trials, "trial"), f"{rate:.1f}/s", self.best(event)]
        left_s = self._left_s(event, rate)
        if math.isfinite(left_s):
            parts.append(time_left(left_s))
        if len(self._by_gpu) > 1:
            parts += (f"GPU {gpu}: {count}" for gpu, count in sorted(self._by_gpu.items()))
        return ", ".join(parts)

    def note(self, event: TrialDone) -> None:
        """Count a trial for the GPU that measured it, where there are several; call it before
        `line`."""
        number = event.outcome.gpu_number
        if number is not None and not event.reused:
            self._by_gpu[number] += 1

    def best(self, event: TrialDone) -> str:
        """Return the best so far in words."""
        best = event.best
        if best is None or best.time_us is None or best.comparable_us is None:
            return "nothing ran yet"
        speed = self._request.problem.tflops(best.time_us)
        ratio = ""
        if event.baseline_us:
            ratio = f", about {event.baseline_us / best.comparable_us:.3f} x cuBLAS"
        measurement = best.measurement
        energy_mj = measurement.energy_mj if measurement is not None else None
        energy = f", {energy_mj:.4g} mJ" if energy_mj is not None else ""
        return f"best {best.time_us:.4g} us = {speed:.3g} TFLOP/s{energy}{ratio}{self._mark}"

    def finals(self, event: FinalsStarted) -> str:
        """Return a line on the finals."""
        how = "from the recording" if self.is_recorded else counted(event.rounds, "round")
        return f"finals: {counted(event.num_finalists, 'candidate')} and cuBLAS, {how}"

    @staticmethod
    def sustained(event: SustainedStarted) -> str:
        """Return a line on the kernel that runs alone, and for how long."""
        return f"sustained: winner and cuBLAS in turn, {event.seconds:g} s at a time"

    @staticmethod
    def resumed(event: SearchResumed) -> str:
        """Return why the search goes on after finals."""
        return (
            f"the finals give {event.finals.winner.ratio:.3f} x cuBLAS, short of "
            f"{event.until_ratio:g}: the search continues"
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
                say(text, err=True)
            case SearchStarted():
                say(self._state.opening(event), err=True)
            case TrialDone():
                self._state.note(event)
                overdue = time.monotonic() - self._last_line > PLAIN_EVERY_S
                if event.improved or overdue:
                    say(self._state.line(event), err=True)
                    self._last_line = time.monotonic()
            case FinalsStarted():
                say(self._state.finals(event), err=True)
            case SustainedStarted():
                say(self._state.sustained(event), err=True)
            case SearchResumed():
                say(self._state.resumed(event), err=True)
            case Certifying(step, done=0):
                say(f"certifying the winner: {step}", err=True)


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
                self._print(text)
            case SearchStarted():
                opening = self._state.opening(event)
                self._print(opening)
                self._task_of("first candidates", 1.0)
            case TrialDone():
                self._state.note(event)
                done = self._state.fraction(event.num_trials, event.elapsed_s)
                self._progress.update(
                    self._task, completed=done, description=self._state.line(event)
                )
            case FinalsStarted():
                total = None if self._state.is_recorded else event.rounds
                self._task_of(self._state.finals(event), total)
            case FinalsRound(done, total):
                self._progress.update(self._task, completed=done, total=total)
            case SustainedStarted():
                self._task_of(self._state.sustained(event), None)
            case SearchResumed():
                text = self._state.resumed(event)
                self._print(text)
                self._task_of("first candidates", 1.0)
            case Certifying(step, done, total):
                self._task_of(f"certifying the winner: {step}", total or None, done)

    def _task_of(self, description: str, total: float | None, done: int = 0) -> None:
        """Show another task; ``total`` None is a bar without end."""
        # None would leave the total unchanged.
        self._progress.update(self._task, completed=done, description=description)
        self._progress.tasks[0].total = total

    def _print(self, text: str) -> None:
        """Print above the bar, folded between words."""
        log.printed(text)
        text = folded(text, terminal_width(err=True))
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

"""Progress of `autogemm.tune`: a bar in notebooks and terminals, or a function of the caller's."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autogemm.model.results.shown import speed_words
from autogemm.support.amounts import counted
from autogemm.support.errors import UsageError
from autogemm.tuning import (
    Certifying,
    Event,
    FinalsStarted,
    Notice,
    SearchStarted,
    SustainedStarted,
    TrialDone,
    TuneRequest,
)

Progress = bool | Callable[[Event], None] | None


@contextmanager
def listener_of(progress: Progress, request: TuneRequest) -> Iterator[Callable[[Event], None]]:
    """Yield what is told of each event: the caller's function, a bar, or nothing.

    None is a bar in a notebook or on a terminal, True a bar anywhere, False none.
    """
    if callable(progress):
        yield progress
    elif progress or (progress is None and _is_watched()):
        with _tqdm()(
            total=1.0, bar_format="{percentage:3.0f}% {bar} {desc}", desc="getting ready"
        ) as bar:
            yield _Bar(request, bar).on_event
    else:
        yield _nothing


def check_progress(progress: object) -> None:
    """Raise UsageError for what is neither True, False, None nor a function."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise UsageError(f"progress is True, False, None or a function, got {progress!r}")


def _nothing(event: Event) -> None:
    """Show nothing."""


def _is_watched() -> bool:
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def _tqdm() -> Any:
    with warnings.catch_warnings():
        # It falls back to text where ipywidgets is missing, and says so at each import.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    return tqdm


class _Bar:
    """Moves a bar of tqdm by the share of the search that is over."""

    def __init__(self, request: TuneRequest, bar: Any) -> None:
        self._request = request
        self._bar = bar

    def on_event(self, event: Event) -> None:
        """Redraw."""
        match event:
            case Notice(text):
                self._bar.write(text, file=sys.stderr)
            case SearchStarted():
                self._say(f"{self._request.problem.label}: first candidates")
            case TrialDone():
                share = self._request.share_done(event.num_trials, event.elapsed_s)
                self._bar.update(share - self._bar.n)
                self._say(self._best(event))
            case FinalsStarted():
                self._bar.update(1.0 - self._bar.n)
                self._say(f"finals of {event.num_finalists}, {counted(event.rounds, 'round')}")
            case SustainedStarted():
                self._say(f"winner and cuBLAS in turn, {event.seconds:g} s at a time")
            case Certifying(step):
                self._say(f"certifying the winner: {step}")

    def _best(self, event: TrialDone) -> str:
        time_us = event.best.time_us if event.best is not None else None
        ratio = event.baseline_us / time_us if event.baseline_us and time_us else None
        speed = speed_words(self._request.problem, time_us, ratio)
        return f"{counted(event.num_trials, 'trial')}, best {speed}"

    def _say(self, text: str) -> None:
        self._bar.set_description_str(text)

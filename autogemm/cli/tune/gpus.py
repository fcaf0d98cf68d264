"""``autogemm tune --gpu all``: problems over several GPUs, a line for each GPU while it goes on."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.progress import Progress, TaskID

from autogemm.cli.progress import bars, is_live
from autogemm.cli.prose import say
from autogemm.cli.tune.many import outcome_text
from autogemm.cli.tune.progress import State
from autogemm.cluster import ClusterRequest, Listener, Spread, label, tune_over
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance
from autogemm.store import open_store
from autogemm.support.errors import UsageError
from autogemm.tuning import (
    Certifying,
    Event,
    FinalsRound,
    FinalsStarted,
    Notice,
    SearchStarted,
    SustainedStarted,
    Swept,
    TrialDone,
    TuneOptions,
    TuneRequest,
    request_for,
)


def tune_on_gpus(  # noqa: PLR0913  # what the command has
    problems: Sequence[Problem],
    options: TuneOptions,
    cluster: ClusterRequest,
    db: str | None,
    command: str,
    *,
    quiet: bool,
) -> Spread:
    """Tune the problems over GPUs, with progress on stderr.

    Raises UsageError for options that need one GPU, and what `tune_over` raises.
    """
    if options.require_gpu and cluster.is_running:
        raise UsageError(
            "--require-gpu has no effect with a scheduler, whose workers need GPUs: leave it out"
        )
    first = request_for(problems[0], options, options.fix, command)
    requests = [replace(first, problem=problem) for problem in problems]
    with open_store(db) as store, _shown(requests, quiet) as lines:
        listener = Listener(lines.on_event, lines.on_swept, lines.on_notice)
        return tune_over(requests, cluster, store, db, listener)


@contextmanager
def _shown(requests: Sequence[TuneRequest], quiet: bool) -> Iterator["GpuLines"]:
    console = Console(stderr=True)
    if quiet or not is_live(console):
        yield GpuLines(requests, quiet)
        return
    with bars(console) as progress:
        yield GpuLines(requests, quiet, progress)


@dataclass(slots=True)
class GpuLines:
    """Shows a sweep over GPUs: a line for each finished problem, and on a terminal a live line for
    each GPU. Notices are shown even when quiet, each once.
    """

    requests: Sequence[TuneRequest]
    quiet: bool
    bars: Progress | None = None
    _by_problem: dict[Problem, TuneRequest] = field(init=False)
    _states: dict[tuple[str, Problem], State] = field(default_factory=dict)
    _tasks: dict[str, TaskID] = field(default_factory=dict)
    _problems: dict[str, Problem] = field(default_factory=dict)
    _noticed: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._by_problem = {request.problem: request for request in self.requests}

    def on_event(self, worker: str, problem: Problem, event: Event) -> None:
        """Redraw the line of a GPU."""
        with self._lock:
            if isinstance(event, Notice):
                self._say_once(event.text)
            if self.bars is None:
                return
            if worker not in self._tasks:
                self._tasks[worker] = self.bars.add_task(label(worker), total=1.0)
            self._problems[worker] = problem
            self._redraw(self.bars, worker, problem, event)

    def on_swept(self, swept: Swept, worker: str, num_done: int) -> None:
        """Print a line on a problem that is done."""
        if self.quiet:
            return
        place = f"tuning {num_done}/{len(self.requests)}"
        by = f" on {label(worker)}" if worker else ""
        with self._lock:
            if self.bars is not None and self._problems.get(worker) == swept.problem:
                task, text = self._tasks[worker], f"{label(worker)}: waiting"
                self.bars.update(task, completed=0.0, description=text)
        self._say(f"{place} {swept.problem.label}{by}: {outcome_text(swept)}")

    def on_notice(self, text: str) -> None:
        """Print a notice."""
        with self._lock:
            self._say_once(text)

    def _redraw(self, bars: Progress, worker: str, problem: Problem, event: Event) -> None:
        request = self._by_problem[problem]
        state = self._states.setdefault((worker, problem), State(request, Provenance.MEASURED))
        done: float | None = None
        match event:
            case SearchStarted():
                state.opening(event)
                text, done = "first candidates", 0.0
            case TrialDone():
                text = state.line(event)
                done = state.fraction(event.num_trials, event.elapsed_s)
            case FinalsStarted():
                text, done = state.finals(event), 0.0
            case FinalsRound(number, total):
                bars.update(self._tasks[worker], completed=number / total)
                return
            case SustainedStarted():
                text = state.sustained(event)
            case Certifying(step):
                text = f"certifying the winner: {step}"
            case _:
                return
        description = f"{label(worker)}: {problem.label}: {text}"
        bars.update(self._tasks[worker], completed=done, description=description)

    def _say_once(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._say(text)

    def _say(self, text: str) -> None:
        if self.bars is not None:
            self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            say(text, err=True)

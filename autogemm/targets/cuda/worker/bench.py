"""A bench on a GPU: candidates and libraries timed in interleaved rounds, slow ones in a few."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import count

from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import baseline_of
from autogemm.model.results.outcome import Status, Telemetry
from autogemm.support.errors import AutogemmError
from autogemm.targets.cuda.messages import RunBench
from autogemm.targets.cuda.worker.gpu.cublas import Cublas
from autogemm.targets.cuda.worker.gpu.telemetry import summary
from autogemm.targets.cuda.worker.interleave import (
    INTERLEAVED_SAMPLE_US,
    Report,
    Series,
    interleave,
)
from autogemm.targets.cuda.worker.libraries import LIBRARIES, NotHereError
from autogemm.targets.cuda.worker.problem.prepared import Checked, Contestant, PreparedProblem
from autogemm.targets.target import BenchCandidate, BenchTimes, ContestantTimes, rounds_of

# A compiler's message may fill pages.
MAX_REASON = 300


@dataclass(slots=True)
class TimedContestant:
    """A contestant with the problem that it runs on, and its samples so far."""

    name: str
    prepared: PreparedProblem
    runs: Contestant
    series: Series
    library: str = ""

    def times(self, checked: Checked) -> ContestantTimes:
        """The result, with what its last check said."""
        times = ContestantTimes(
            name=self.name,
            problem=self.prepared.problem,
            status=Status.OK,
            library=self.library,
            samples_us=tuple(self.series.samples_us),
            method=self.series.stopwatch.method.name,
            launches_per_sample=self.series.stopwatch.method.launches,
            verification=checked.verification,
        )
        if checked.complaint:
            return replace(
                times, status=Status.WRONG_RESULT, reason=checked.complaint, samples_us=()
            )
        return times


def run_bench(
    prepared: PreparedProblem,
    cublas: Cublas,
    request: RunBench,
    report: Report = lambda done, total: None,
) -> BenchTimes:
    """Time all that are right and check them again, in the order of the request.

    Candidates come first, then libraries. ``report`` is told after each round how many of how many
    are done. A crash ends the worker.
    """

    @cache
    def in_dtype(dtype: DType) -> PreparedProblem:
        return prepared if dtype is prepared.problem.dtype else prepared.in_dtype(dtype)

    times: dict[str, ContestantTimes] = {}
    with ExitStack() as loaded:
        timed = [timed_candidate(prepared, one, request, loaded) for one in request.candidates]
        for name in request.libraries:
            try:
                timed.append(timed_library(in_dtype, cublas, name, request))
            except Exception as error:  # code of others: whatever it raises, the others go on
                problem = replace(prepared.problem, dtype=LIBRARIES[name].dtype)
                times[name] = left_out(name, problem, error)
        telemetry = interleaved_telemetry(prepared, timed, request, report)
        times |= {one.name: one.times(one.prepared.check(one.runs)) for one in timed}
        # Graphs hold on to the kernels that are unloaded next.
        timed.clear()
    names = [*(one.name for one in request.candidates), *request.libraries]
    return BenchTimes(tuple(times[name] for name in names), telemetry)


class WrongError(Exception):
    """A library's result is not what it should be."""


def left_out(name: str, problem: Problem, error: Exception) -> ContestantTimes:
    """A library that does not take part, with the reason on one line."""
    status = Status.WRONG_RESULT if isinstance(error, WrongError) else Status.REJECTED
    is_ours = isinstance(error, NotHereError | WrongError | AutogemmError)
    reason = str(error) if is_ours else f"{type(error).__name__}: {error}"
    return ContestantTimes(name, problem, status, " ".join(reason.split())[:MAX_REASON])


def timed_candidate(
    prepared: PreparedProblem, candidate: BenchCandidate, request: RunBench, loaded: ExitStack
) -> TimedContestant:
    """A candidate that was verified before. Raises CandidateError when the context broke."""
    contestant = prepared.contestant(candidate.candidate)
    loaded.callback(contestant.unload)
    return ready_to_be_timed(candidate.name, prepared, contestant, candidate.launch_us, request)


def timed_library(
    in_dtype: Callable[[DType], PreparedProblem], cublas: Cublas, name: str, request: RunBench
) -> TimedContestant:
    """A library, verified. Raises NotHereError where it is not installed, WrongError."""
    library = LIBRARIES[name]
    prepared = in_dtype(library.dtype)
    if not prepared.problem.epilogue.is_plain and name not in map(baseline_of, DType):
        raise NotHereError("it is called for plain products only, and the problem has an epilogue")
    contestant, version = library.make(prepared, cublas)
    checked = prepared.check(contestant)
    if checked.complaint:
        raise WrongError(checked.complaint)
    # The first launch may have loaded code: the second tells the time.
    launch_us = prepared.batch_us(contestant, 1)
    timed = ready_to_be_timed(name, prepared, contestant, launch_us, request)
    timed.library = version
    return timed


def ready_to_be_timed(
    name: str,
    prepared: PreparedProblem,
    contestant: Contestant,
    launch_us: float,
    request: RunBench,
) -> TimedContestant:
    """A contestant with a stopwatch whose method fits it."""
    stopwatch = prepared.stopwatch_about(contestant, launch_us, INTERLEAVED_SAMPLE_US)
    sample_us = max(launch_us * stopwatch.method.launches, launch_us)
    series = Series(stopwatch, rounds_of(sample_us, request.rounds))
    return TimedContestant(name, prepared, contestant, series)


def interleaved_telemetry(
    prepared: PreparedProblem,
    timed: Sequence[TimedContestant],
    request: RunBench,
    report: Report,
) -> Telemetry:
    """Take the samples, and return the state of the GPU meanwhile; empty without contestants."""
    series = [one.series for one in timed]
    total = max((one.num_rounds for one in series), default=0)
    done = count(1)
    readings = interleave(
        series,
        prepared.gpu.telemetry.read,
        request.seed,
        request.rounds,
        lambda: report(next(done), total),
    ).readings
    return summary(readings) if readings else Telemetry()

"""A race on a GPU: everybody once a round, in a fresh random order, the slow in the first few."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from autogemm.model.dtypes import DType
from autogemm.model.outcome import Status, Telemetry
from autogemm.model.problem import Problem
from autogemm.support.errors import AutogemmError
from autogemm.targets.cuda.messages import RunRace
from autogemm.targets.cuda.worker.gpu import COOLING_S, Cublas, Stopwatch, is_throttled, summary
from autogemm.targets.cuda.worker.libraries import LIBRARIES, NotHereError
from autogemm.targets.cuda.worker.problem import Checked, Contestant, PreparedProblem
from autogemm.targets.racing import Race, Raced, Racer, rounds_of

# As in finals: a per cent decides.
RACE_SAMPLE_US = 2000.0
# A compiler's message may fill pages.
MAX_REASON = 300


@dataclass(slots=True)
class Runner:
    """One that takes part: how it runs and is timed, and its times so far."""

    name: str
    prepared: PreparedProblem
    runs: Contestant
    stopwatch: Stopwatch
    rounds: int
    library: str = ""
    samples_us: list[float] = field(default_factory=list)

    def raced(self, checked: Checked) -> Raced:
        """The result, with what its last check said."""
        outcome = Raced(
            name=self.name,
            problem=self.prepared.problem,
            status=Status.OK,
            library=self.library,
            samples_us=tuple(self.samples_us),
            method=self.stopwatch.method.name,
            launches_per_sample=self.stopwatch.method.launches,
            verification=checked.verification,
        )
        if checked.complaint:
            return replace(
                outcome, status=Status.WRONG_RESULT, reason=checked.complaint, samples_us=()
            )
        return outcome


class Track:
    """The benches of one problem's size, one for each dtype that somebody multiplies in."""

    def __init__(self, prepared: PreparedProblem, cublas: Cublas) -> None:
        self.cublas = cublas
        self._prepared = {prepared.problem.dtype: prepared}

    def prepared(self, dtype: DType) -> PreparedProblem:
        """Raises UsageError when another one does not fit."""
        if dtype not in self._prepared:
            self._prepared[dtype] = next(iter(self._prepared.values())).in_dtype(dtype)
        return self._prepared[dtype]


def run_race(prepared: PreparedProblem, cublas: Cublas, request: RunRace) -> Race:
    """Time all that are right, check them again, in the order of the request: ours, then others'.

    A crash ends the worker.
    """
    track = Track(prepared, cublas)
    out: dict[str, Raced] = {}
    with ExitStack() as loaded:
        runners = [our_runner(prepared, racer, request, loaded) for racer in request.racers]
        for name in request.libraries:
            try:
                runners.append(library_runner(track, name, request))
            except Exception as error:  # other people's code: whatever it raises, the others go on
                problem = replace(prepared.problem, dtype=LIBRARIES[name].dtype)
                out[name] = left_out(name, problem, error)
        readings = interleaved(prepared, runners, request)
        out |= {one.name: one.raced(one.prepared.check(one.runs)) for one in runners}
        # Graphs hold on to the kernels that are unloaded next.
        runners.clear()
    names = [*(racer.name for racer in request.racers), *request.libraries]
    return Race(tuple(out[name] for name in names), summary(readings) if readings else Telemetry())


class WrongError(Exception):
    """A library's result is not what it should be."""


def left_out(name: str, problem: Problem, error: Exception) -> Raced:
    """A library that does not take part, with the reason on one line."""
    status = Status.WRONG_RESULT if isinstance(error, WrongError) else Status.REJECTED
    is_ours = isinstance(error, NotHereError | WrongError | AutogemmError)
    reason = str(error) if is_ours else f"{type(error).__name__}: {error}"
    return Raced(name, problem, status, " ".join(reason.split())[:MAX_REASON])


def our_runner(
    prepared: PreparedProblem, racer: Racer, request: RunRace, loaded: ExitStack
) -> Runner:
    """A candidate that was verified before. Raises CandidateError when the context broke."""
    contestant = prepared.contestant(racer.candidate)
    loaded.callback(contestant.unload)
    return runner_of(racer.name, prepared, contestant, racer.launch_us, request)


def library_runner(track: Track, name: str, request: RunRace) -> Runner:
    """A library, verified. Raises NotHereError where it is not installed, WrongError."""
    library = LIBRARIES[name]
    prepared = track.prepared(library.dtype)
    contestant, version = library.make(prepared, track.cublas)
    checked = prepared.check(contestant)
    if checked.complaint:
        raise WrongError(checked.complaint)
    # The first launch may have loaded code: the second tells the time.
    launch_us = prepared.batch_us(contestant, 1)
    runner = runner_of(name, prepared, contestant, launch_us, request)
    runner.library = version
    return runner


def runner_of(
    name: str, prepared: PreparedProblem, contestant: Contestant, launch_us: float, request: RunRace
) -> Runner:
    """Ready to be timed by a method that fits it."""
    stopwatch = prepared.stopwatch_about(contestant, launch_us, RACE_SAMPLE_US)
    sample_us = max(launch_us * stopwatch.method.launches, launch_us)
    return Runner(name, prepared, contestant, stopwatch, rounds_of(sample_us, request.rounds))


def interleaved(
    prepared: PreparedProblem, runners: Sequence[Runner], request: RunRace
) -> list[Telemetry]:
    """One sample a round of each that still takes part; telemetry is read once a round.

    It ends with the rounds of the one that takes part in most: all may be too slow for as many as
    were asked for. A round in which the GPU was throttled is run again, as often as there are
    rounds at most.
    """
    readings: list[Telemetry] = []
    num_thrown = 0
    generator = np.random.default_rng(request.seed)

    def read() -> None:
        readings.append(prepared.gpu.telemetry.read())

    while running := [one for one in runners if len(readings) < one.rounds]:
        for place, index in enumerate(generator.permutation(len(running))):
            meanwhile = read if place == 0 else None
            running[index].samples_us += running[index].stopwatch.samples(1, meanwhile)
        if is_throttled(readings[-1]) and num_thrown < request.rounds:
            num_thrown += 1
            readings.pop()
            for runner in running:
                runner.samples_us.pop()
            time.sleep(COOLING_S[0])
    return readings

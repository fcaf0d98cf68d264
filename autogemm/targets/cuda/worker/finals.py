"""The finals on a GPU: contestants timed in interleaved rounds and checked after each of them."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from autogemm.model.config import Config
from autogemm.model.kernel import Candidate
from autogemm.model.results.finals import FinalsSamples, decide, fastest_call
from autogemm.model.results.outcome import (
    Call,
    Disqualified,
    Finals,
    FinalsEntry,
    Provenance,
    Status,
    Verification,
)
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.messages import RunFinals, disqualified
from autogemm.targets.cuda.worker.gpu.energy import EnergyMeter
from autogemm.targets.cuda.worker.gpu.launching import CandidateError
from autogemm.targets.cuda.worker.gpu.telemetry import summary
from autogemm.targets.cuda.worker.gpu.timing import Stopwatch
from autogemm.targets.cuda.worker.interleave import (
    INTERLEAVED_SAMPLE_US,
    Report,
    Rounds,
    Series,
    interleave,
)
from autogemm.targets.cuda.worker.problem.prepared import Contestant, PreparedProblem

# A kernel that is wrong once in ten launches passes so many with probability 0.9^44 < 1 %.
MIN_CHECKS = 44
# At the end, one after the other: between those after the rounds, which come at a steady pace, a
# fault at every tenth launch could fall for ever.
CHECKS_IN_A_ROW = 22
# Each takes a second for each finalist.
ENERGY_ROUNDS = 5


class Rechecks:
    """Compares results with the reference after each round, on both inputs in turn.

    Each check is a launch of its own on a poisoned C: what a timed launch left there says nothing
    of the one before it. ``complaints`` has, by the contestant's place, the first complaint.
    """

    def __init__(
        self,
        prepared: PreparedProblem,
        contestants: Sequence[Contestant],
        rounds: int,
        report: Report = lambda done, total: None,
    ) -> None:
        self._prepared_problem = prepared
        self._report, self._rounds, self._num_rounds = report, rounds, 0
        self._contestants = contestants
        per_round = math.ceil((MIN_CHECKS - CHECKS_IN_A_ROW) / rounds)
        # Each contestant has had so many once all rounds are over.
        self.num_checks = per_round * rounds + CHECKS_IN_A_ROW
        self._after_rounds = iter([per_round] * (rounds - 1) + [per_round + CHECKS_IN_A_ROW])
        self._done = 0
        self.complaints: dict[int, str] = {}

    def after_round(self) -> None:
        """Check those that were right so far, until all checks are made; report the round.

        Timing then goes on from the C that it began with.
        """
        for _ in range(next(self._after_rounds, 0)):
            self._done += 1
            for place, contestant in enumerate(self._contestants):
                if place not in self.complaints:
                    self._check(place, contestant)
        self._prepared_problem.result.reset(self._prepared_problem.timed[0])
        self._num_rounds += 1
        self._report(self._num_rounds, self._rounds)

    def _check(self, place: int, contestant: Contestant) -> None:
        complaint = self._prepared_problem.complaint_once(contestant, integers=self._done % 2 == 1)
        if complaint:
            self.complaints[place] = (
                f"wrong in check {self._done} of {self.num_checks} in the finals: {complaint}"
            )


@dataclass(slots=True)
class Finalist:
    """A contestant and what is found of it on the way; ``complaint`` is empty while it is right."""

    name: str
    config: Config | None
    kernel_sha256: str
    runs: Contestant
    launch_us: float
    registers: int | None = None
    complaint: str = ""
    verification: Verification | None = None
    samples_us: list[float] = field(default_factory=list)
    samples_mj: list[float] = field(default_factory=list)

    @property
    def key(self) -> str:
        """A unique key: two kernels differ in their text, two calls in their names."""
        return self.kernel_sha256 or self.name

    def samples(self) -> FinalsSamples:
        """Its times and energies for the statistics."""
        return FinalsSamples(
            name=self.name,
            config=self.config,
            kernel_sha256=self.kernel_sha256,
            samples_us=tuple(self.samples_us),
            verification=self.verification,
            registers=self.registers,
            samples_mj=tuple(self.samples_mj),
        )


def run_finals(
    prepared: PreparedProblem, request: RunFinals, report: Report = lambda done, total: None
) -> Finals:
    """Time and verify all in rounds. A candidate that is wrong at any time is disqualified.

    ``report`` is told after each round how many of how many are done.

    All calls of the library that are near its fastest take part in all rounds; the fastest over the
    rounds is the baseline. Raises DeviceError when no candidate is left, or no call is right. A
    crash ends the worker: the parent then asks each candidate by itself.
    """
    with ExitStack() as loaded:
        candidates, lost = right_candidates(prepared, request.candidates, loaded)
        calls = [
            Finalist(one.name, None, "", one, prepared.batch_us(one, 1))
            for one in prepared.calls.near
        ]
        finalists = [*calls, *candidates]
        shortest = min(finalists, key=lambda one: one.launch_us)
        method = prepared.stopwatch_about(
            shortest.runs, shortest.launch_us, INTERLEAVED_SAMPLE_US
        ).method
        stopwatches = prepared.stopwatches([one.runs for one in finalists], method)
        timed = dict(zip((one.key for one in finalists), stopwatches, strict=True))
        # Graphs hold on to the kernels that are unloaded behind this.
        loaded.callback(timed.clear)
        loaded.callback(stopwatches.clear)
        used = stopwatches[0].method
        rechecks = Rechecks(prepared, [one.runs for one in candidates], request.rounds, report)
        rounds = timed_rounds(prepared, finalists, stopwatches, request, rechecks)
        conclude(prepared, calls, candidates, rechecks)
        baseline = chosen_baseline(calls)
        measure_energy(prepared, [baseline, *candidates], timed, request)
        lost += [
            Disqualified(one.config, one.kernel_sha256, one.complaint)
            for one in candidates
            if one.complaint and one.config is not None
        ]
        right = [one for one in candidates if not one.complaint]
        if not right:
            raise DeviceError(
                f"no finalist gives a correct result any more, the last one: {lost[-1].reason}"
            )
        entries, baseline_entry = decided(prepared, baseline, right, request)
        if prepared.spare_energy is not None:
            winner = next(one for one in right if one.key == entries[0].kernel_sha256)
            measure_spare_energy(prepared.spare_energy, [baseline, winner], timed)
            entries = (replace(entries[0], samples_mj=tuple(winner.samples_mj)), *entries[1:])
            baseline_entry = replace(baseline_entry, samples_mj=tuple(baseline.samples_mj))
    return Finals(
        entries=entries,
        baseline=baseline_entry,
        rounds=request.rounds,
        provenance=Provenance.MEASURED,
        telemetry=summary(rounds.readings),
        method=used.name,
        launches_per_sample=used.launches,
        throttled_rounds=rounds.num_thrown,
        num_checks=rechecks.num_checks,
        disqualified=tuple(lost),
        calls=other_calls(calls, baseline, prepared.calls.left_out),
    )


def decided(
    prepared: PreparedProblem, baseline: Finalist, right: Sequence[Finalist], request: RunFinals
) -> tuple[tuple[FinalsEntry, ...], FinalsEntry]:
    """The entries, best first, and the baseline's."""
    samples = [one.samples() for one in right]
    return decide(baseline.samples(), samples, request.seed, prepared.options.objective)


def chosen_baseline(calls: Sequence[Finalist]) -> Finalist:
    """The fastest over the rounds of the calls that are right; raises DeviceError without one."""
    right = [one for one in calls if not one.complaint]
    if not right:
        raise DeviceError(f"cuBLAS gives a wrong result here: {calls[0].complaint}")
    fastest = fastest_call([one.samples() for one in right])
    return next(one for one in right if one.name == fastest.name)


def other_calls(
    calls: Sequence[Finalist], baseline: Finalist, left_out: Sequence[Call]
) -> tuple[Call, ...]:
    """All calls but the baseline: the fastest first, then those without times."""
    others = [
        Call(one.name, Status.WRONG_RESULT, one.complaint)
        if one.complaint
        else Call(one.name, samples_us=tuple(one.samples_us))
        for one in calls
        if one is not baseline
    ]
    others.sort(key=lambda call: call.time_us or math.inf)
    return (*others, *left_out)


def right_candidates(
    prepared: PreparedProblem, candidates: Sequence[Candidate], loaded: ExitStack
) -> tuple[list[Finalist], list[Disqualified]]:
    """Load and verify, ``loaded`` unloads them; and those that are out, with the reason.

    Raises CandidateError when the context broke.
    """
    finalists, lost = [], []
    for candidate in candidates:
        try:
            contestant = prepared.contestant(candidate)
            loaded.callback(contestant.unload)
            checked = prepared.check(contestant)
        except CandidateError as error:
            if error.poisoned:
                raise
            lost.append(disqualified(candidate, error.reason, error.status))
            continue
        if checked.complaint:
            lost.append(disqualified(candidate, checked.complaint))
            continue
        resources = candidate.compiled.resources if candidate.compiled is not None else ()
        finalists.append(
            Finalist(
                name=candidate.config.sha256[:12],
                config=candidate.config,
                kernel_sha256=candidate.source.sha256,
                runs=contestant,
                launch_us=checked.launch_us,
                registers=max((used.registers for used in resources), default=None),
            )
        )
    return finalists, lost


def timed_rounds(
    prepared: PreparedProblem,
    finalists: Sequence[Finalist],
    stopwatches: Sequence[Stopwatch],
    request: RunFinals,
    rechecks: Rechecks,
) -> Rounds:
    """Give every finalist a sample in each round, and compare results after each."""
    series = [
        Series(stopwatch, request.rounds, finalist.samples_us)
        for finalist, stopwatch in zip(finalists, stopwatches, strict=True)
    ]
    read = prepared.gpu.telemetry.read
    return interleave(series, read, request.seed, request.rounds, rechecks.after_round)


def conclude(
    prepared: PreparedProblem,
    calls: Sequence[Finalist],
    candidates: Sequence[Finalist],
    rechecks: Rechecks,
) -> None:
    """Note the verdict of all checks; the library's calls were not checked between rounds."""
    for one in (*calls, *candidates):
        checked = prepared.check(one.runs)
        one.complaint, one.verification = checked.complaint, checked.verification
    for place, complaint in rechecks.complaints.items():
        candidates[place].complaint = complaint


def measure_energy(
    prepared: PreparedProblem,
    finalists: Sequence[Finalist],
    stopwatches: Mapping[str, Stopwatch],
    request: RunFinals,
) -> None:
    """Rounds of their own, because a sample takes far longer than one of time does."""
    if prepared.energy is None:
        return
    generator = np.random.default_rng(request.seed)
    for _ in range(min(ENERGY_ROUNDS, request.rounds)):
        for index in generator.permutation(len(finalists)):
            if not finalists[index].complaint:
                _take_energy(prepared.energy, finalists[index], stopwatches)


def measure_spare_energy(
    meter: EnergyMeter, finalists: Sequence[Finalist], stopwatches: Mapping[str, Stopwatch]
) -> None:
    """Energy where time is minimised: of baseline and winner, after all times were taken.

    A counter that does not move is no error here: then neither has an energy.
    """
    try:
        for one in finalists:
            _take_energy(meter, one, stopwatches)
    except DeviceError:
        for one in finalists:
            one.samples_mj.clear()


def _take_energy(
    meter: EnergyMeter, finalist: Finalist, stopwatches: Mapping[str, Stopwatch]
) -> None:
    stopwatch = stopwatches[finalist.key]
    sample_us = finalist.samples_us[0] * stopwatch.method.launches
    finalist.samples_mj.append(meter.energy_mj(stopwatch, sample_us))

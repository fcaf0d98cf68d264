"""The finals on a GPU: every contestant once a round, in a fresh random order."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from autogemm.model.config import Config
from autogemm.model.finals import FinalsSamples, decide
from autogemm.model.kernel import Candidate
from autogemm.model.outcome import Disqualified, Finals, Provenance, Telemetry, Verification
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.messages import RunFinals, disqualified
from autogemm.targets.cuda.worker.gpu import (
    COOLING_S,
    CandidateError,
    Stopwatch,
    is_throttled,
    summary,
)
from autogemm.targets.cuda.worker.problem import Contestant, PreparedProblem
from autogemm.targets.cuda.worker.rechecks import Rechecks

# Longer than while searching: here a per cent decides.
FINALS_SAMPLE_US = 2000.0
# Each takes several tenths of a second.
ENERGY_ROUNDS = 5


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


def run_finals(prepared: PreparedProblem, request: RunFinals) -> Finals:
    """Time and verify all, round after round. Who is wrong at any time is disqualified.

    Raises DeviceError when nobody is left, or the baseline is wrong. A crash ends the worker: the
    parent then asks each candidate by itself.
    """
    with ExitStack() as loaded:
        candidates, lost = right_candidates(prepared, request.candidates, loaded)
        finalists = [baseline_finalist(prepared), *candidates]
        shortest = min(finalists, key=lambda one: one.launch_us)
        method = prepared.stopwatch_about(
            shortest.runs, shortest.launch_us, FINALS_SAMPLE_US
        ).method
        stopwatches = prepared.stopwatches([one.runs for one in finalists], method)
        rechecks = Rechecks(prepared, [one.runs for one in candidates], request.rounds)
        readings, num_thrown = interleaved(prepared, finalists, stopwatches, request, rechecks)
        conclude(prepared, finalists, rechecks)
        used = stopwatches[0].method
        measure_energy(prepared, finalists, stopwatches, request)
        # Graphs hold on to the kernels that are unloaded next.
        stopwatches.clear()
    baseline = finalists[0]
    if baseline.complaint:
        raise DeviceError(f"cuBLAS gives a wrong result here: {baseline.complaint}")
    lost += [
        Disqualified(one.config, one.kernel_sha256, one.complaint)
        for one in candidates
        if one.complaint and one.config is not None
    ]
    timed = [one.samples() for one in candidates if not one.complaint]
    if not timed:
        raise DeviceError(
            f"no finalist gives the right result any more, the last one: {lost[-1].reason}"
        )
    objective = prepared.options.objective
    entries, baseline_entry = decide(baseline.samples(), timed, request.seed, objective)
    return Finals(
        entries=entries,
        baseline=baseline_entry,
        rounds=request.rounds,
        provenance=Provenance.MEASURED,
        telemetry=summary(readings),
        method=used.name,
        launches_per_sample=used.launches,
        throttled_rounds=num_thrown,
        num_checks=rechecks.num_checks,
        disqualified=tuple(lost),
    )


def baseline_finalist(prepared: PreparedProblem) -> Finalist:
    """cuBLAS takes part like everybody else."""
    baseline = prepared.baseline
    return Finalist(baseline.name, None, "", baseline, prepared.check(baseline).launch_us)


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


def interleaved(
    prepared: PreparedProblem,
    finalists: Sequence[Finalist],
    stopwatches: Sequence[Stopwatch],
    request: RunFinals,
    rechecks: Rechecks,
) -> tuple[list[Telemetry], int]:
    """One sample of each per round; telemetry is read once a round, while the GPU works.

    A round in which the GPU was throttled is thrown away and run again, as many as were asked for
    at most; the last value counts them.
    """
    readings: list[Telemetry] = []
    num_thrown = 0
    generator = np.random.default_rng(request.seed)

    def read() -> None:
        readings.append(prepared.gpu.telemetry.read())

    while len(readings) < request.rounds:
        for place, index in enumerate(generator.permutation(len(stopwatches))):
            meanwhile = read if place == 0 else None
            finalists[index].samples_us += stopwatches[index].samples(1, meanwhile)
        if is_throttled(readings[-1]) and num_thrown < request.rounds:
            num_thrown += 1
            readings.pop()
            for finalist in finalists:
                finalist.samples_us.pop()
            time.sleep(COOLING_S[0])
        else:
            rechecks.after_round()
    return readings, num_thrown


def conclude(prepared: PreparedProblem, finalists: Sequence[Finalist], rechecks: Rechecks) -> None:
    """What all checks say of each; the baseline, in front, was not checked between rounds."""
    for place, finalist in enumerate(finalists):
        checked = prepared.check(finalist.runs)
        finalist.complaint = rechecks.complaints.get(place - 1) or checked.complaint
        finalist.verification = checked.verification


def measure_energy(
    prepared: PreparedProblem,
    finalists: Sequence[Finalist],
    stopwatches: Sequence[Stopwatch],
    request: RunFinals,
) -> None:
    """Rounds of their own, because a sample takes far longer than one of time does."""
    if prepared.energy is None:
        return
    generator = np.random.default_rng(request.seed)
    for _ in range(min(ENERGY_ROUNDS, request.rounds)):
        for index in generator.permutation(len(stopwatches)):
            finalist, stopwatch = finalists[index], stopwatches[index]
            if not finalist.complaint:
                sample_us = finalist.samples_us[0] * stopwatch.method.launches
                finalist.samples_mj.append(prepared.energy.energy_mj(stopwatch, sample_us))

"""The finals on a card: every contestant once a round, in a fresh random order."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from autogemm.config import Config
from autogemm.errors import DeviceError
from autogemm.kernel import Candidate
from autogemm.outcome import Dropped, Finals, Provenance, Telemetry, Verification
from autogemm.targets.cuda.bench import Bench, Contestant
from autogemm.targets.cuda.launching import CandidateError
from autogemm.targets.cuda.messages import RunFinals
from autogemm.targets.cuda.telemetry import is_throttled, summary
from autogemm.targets.cuda.timing import COOLING_S, Stopwatch
from autogemm.targets.finals import Contestant as Timed
from autogemm.targets.finals import decide

BASELINE_NAME = "cuBLAS SGEMM"
# Longer than while searching: here a per cent decides.
FINALS_SAMPLE_US = 2000.0
# A kernel that is wrong once in ten launches passes so many with a chance of 0.9^44 < 1 %.
CHECKED_LAUNCHES = 44
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

    def timed(self) -> Timed:
        """What the statistics need."""
        return Timed(
            name=self.name,
            config=self.config,
            kernel_sha256=self.kernel_sha256,
            samples_us=tuple(self.samples_us),
            verification=self.verification,
            registers=self.registers,
            samples_mj=tuple(self.samples_mj),
        )


def run_finals(bench: Bench, request: RunFinals) -> Finals:
    """Time all, verifying them again and again. Who is wrong, even once, is left out.

    Raises DeviceError when nobody is left, or the baseline is wrong. A crash ends the worker: the
    parent then asks each candidate by itself.
    """
    with ExitStack() as loaded:
        everybody = [baseline_finalist(bench)]
        everybody += loaded_candidates(bench, request.candidates, loaded)
        finalists = right(everybody)
        shortest = min(finalists, key=lambda one: one.launch_us)
        method = bench.stopwatch_about(shortest.runs, shortest.launch_us, FINALS_SAMPLE_US).method
        stopwatches = bench.stopwatches([one.runs for one in finalists], method)
        readings, num_thrown = interleaved(bench, finalists, stopwatches, request)
        for one in finalists:
            check_again(bench, one)
        used = stopwatches[0].method
        measure_energy(bench, finalists, stopwatches, request)
        # Graphs hold on to the kernels that are unloaded next.
        stopwatches.clear()
    baseline, *rest = everybody
    if baseline.complaint:
        raise DeviceError(f"cuBLAS gives a wrong result here: {baseline.complaint}")
    timed = [one.timed() for one in right(rest)]
    if not timed:
        raise DeviceError("no finalist gives the right result any more")
    objective = bench.options.objective
    entries, baseline_entry = decide(baseline.timed(), timed, request.seed, objective)
    return Finals(
        entries=entries,
        baseline=baseline_entry,
        rounds=request.rounds,
        provenance=Provenance.MEASURED,
        telemetry=summary(readings),
        method=used.name,
        launches_per_sample=used.launches,
        dropped=tuple(
            Dropped(one.config, one.kernel_sha256, f"wrong in the finals: {one.complaint}")
            for one in rest
            if one.complaint and one.config is not None
        ),
        throttled_rounds=num_thrown,
    )


def right(finalists: Sequence[Finalist]) -> list[Finalist]:
    """Those against whom nothing is known."""
    return [one for one in finalists if not one.complaint]


def baseline_finalist(bench: Bench) -> Finalist:
    """cuBLAS takes part like everybody else."""
    checked = bench.check(bench.baseline)
    return Finalist(BASELINE_NAME, None, "", bench.baseline, checked.launch_us)


def loaded_candidates(
    bench: Bench, candidates: Sequence[Candidate], loaded: ExitStack
) -> list[Finalist]:
    """Load and verify; ``loaded`` unloads them. Raises CandidateError when the context broke."""
    finalists = []
    for candidate in candidates:
        try:
            contestant = bench.contestant(candidate)
            loaded.callback(contestant.unload)
            checked = bench.check(contestant)
        except CandidateError as error:
            if error.poisoned:
                raise
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
                complaint=checked.complaint,
            )
        )
    return finalists


def interleaved(
    bench: Bench,
    finalists: Sequence[Finalist],
    stopwatches: Sequence[Stopwatch],
    request: RunFinals,
) -> tuple[list[Telemetry], int]:
    """One sample of each per round; telemetry is read once a round, while the card works.

    A round in which the card was throttled is thrown away and run again, as many as were asked for
    at most; the last value counts them.
    """
    readings: list[Telemetry] = []
    num_thrown = 0
    generator = np.random.default_rng(request.seed)

    def read() -> None:
        readings.append(bench.card.telemetry.read())

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
    return readings, num_thrown


def check_again(bench: Bench, finalist: Finalist) -> None:
    """Verify CHECKED_LAUNCHES launches; one check is two."""
    for _ in range(math.ceil(CHECKED_LAUNCHES / 2)):
        if finalist.complaint:
            return
        checked = bench.check(finalist.runs)
        finalist.complaint, finalist.verification = checked.complaint, checked.verification


def measure_energy(
    bench: Bench,
    finalists: Sequence[Finalist],
    stopwatches: Sequence[Stopwatch],
    request: RunFinals,
) -> None:
    """Rounds of their own, because a sample takes far longer than one of time does."""
    if bench.energy is None:
        return
    generator = np.random.default_rng(request.seed)
    for _ in range(min(ENERGY_ROUNDS, request.rounds)):
        for index in generator.permutation(len(stopwatches)):
            finalist, stopwatch = finalists[index], stopwatches[index]
            if not finalist.complaint:
                sample_us = finalist.samples_us[0] * stopwatch.method.launches
                finalist.samples_mj.append(bench.energy.energy_mj(stopwatch, sample_us))

"""The finals on a card: every contestant once a round, in a fresh random order."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from autogemm.config import Config
from autogemm.errors import DeviceError
from autogemm.kernel import Candidate
from autogemm.outcome import Dropped, Finals, Provenance, Telemetry
from autogemm.targets.cuda.bench import Bench, Checked, Contestant
from autogemm.targets.cuda.launching import CandidateError
from autogemm.targets.cuda.messages import RunFinals, dropped
from autogemm.targets.cuda.rechecks import Rechecks
from autogemm.targets.cuda.telemetry import is_throttled, summary
from autogemm.targets.cuda.timing import COOLING_S, Stopwatch
from autogemm.targets.finals import Contestant as Timed
from autogemm.targets.finals import decide

BASELINE_NAME = "cuBLAS SGEMM"
# Longer than while searching: here a per cent decides.
FINALS_SAMPLE_US = 2000.0


@dataclass(frozen=True, slots=True)
class Finalist:
    """A contestant with what the result says of it."""

    name: str
    config: Config | None
    kernel_sha256: str
    runs: Contestant
    launch_us: float


def run_finals(bench: Bench, request: RunFinals) -> Finals:
    """Time and verify all, round after round. Who is wrong at any time is dropped.

    Raises DeviceError when nobody is left, or the baseline is wrong. A crash ends the worker: the
    parent then asks each candidate by itself.
    """
    with ExitStack() as loaded:
        right, lost = right_candidates(bench, request.candidates, loaded)
        finalists = [baseline_finalist(bench), *right]
        shortest = min(finalists, key=lambda one: one.launch_us)
        method = bench.stopwatch_about(shortest.runs, shortest.launch_us, FINALS_SAMPLE_US).method
        stopwatches = bench.stopwatches([one.runs for one in finalists], method)
        rechecks = Rechecks(bench, [one.runs for one in right], request.rounds)
        samples_us, readings, num_thrown = interleaved(
            bench, stopwatches, request, rechecks.after_round
        )
        checks = [bench.check(one.runs) for one in finalists]
        # The baseline is in front.
        complaints = [checks[0].complaint] + [
            rechecks.complaints.get(place) or check.complaint
            for place, check in enumerate(checks[1:])
        ]
        timed = [
            timed_finalist(one, samples, check)
            for one, samples, check, complaint in zip(
                finalists, samples_us, checks, complaints, strict=True
            )
            if not complaint
        ]
        lost += [
            Dropped(one.config, one.kernel_sha256, complaint)
            for one, complaint in zip(finalists, complaints, strict=True)
            if complaint and one.config is not None
        ]
        used = stopwatches[0].method
        # Graphs hold on to the kernels that are unloaded next.
        stopwatches.clear()
    if checks[0].complaint:
        raise DeviceError(f"cuBLAS gives a wrong result here: {checks[0].complaint}")
    if len(timed) == 1:
        raise DeviceError(
            f"no finalist gives the right result any more, the last one: {lost[-1].reason}"
        )
    entries, baseline = decide(timed[0], timed[1:], request.seed)
    return Finals(
        entries=entries,
        baseline=baseline,
        rounds=request.rounds,
        provenance=Provenance.MEASURED,
        telemetry=summary(readings),
        method=used.name,
        launches_per_sample=used.launches,
        num_checks=rechecks.num_checks,
        dropped=tuple(lost),
        throttled_rounds=num_thrown,
    )


def baseline_finalist(bench: Bench) -> Finalist:
    """cuBLAS takes part like everybody else."""
    return Finalist(BASELINE_NAME, None, "", bench.baseline, bench.check(bench.baseline).launch_us)


def right_candidates(
    bench: Bench, candidates: Sequence[Candidate], loaded: ExitStack
) -> tuple[list[Finalist], list[Dropped]]:
    """Load and verify, ``loaded`` unloads them; and those that are out, with the reason.

    Raises CandidateError when the context broke.
    """
    finalists, lost = [], []
    for candidate in candidates:
        try:
            contestant = bench.contestant(candidate)
            loaded.callback(contestant.unload)
            checked = bench.check(contestant)
        except CandidateError as error:
            if error.poisoned:
                raise
            lost.append(dropped(candidate, error.reason))
            continue
        if checked.complaint:
            lost.append(dropped(candidate, checked.complaint))
            continue
        config, sha256 = candidate.config, candidate.source.sha256
        finalists.append(
            Finalist(config.sha256[:12], config, sha256, contestant, checked.launch_us)
        )
    return finalists, lost


def interleaved(
    bench: Bench,
    stopwatches: Sequence[Stopwatch],
    request: RunFinals,
    after_round: Callable[[], None] = lambda: None,
) -> tuple[list[list[float]], list[Telemetry], int]:
    """One sample of each per round; telemetry is read once a round, while the card works.

    A round in which the card was throttled is thrown away and run again, as many as were asked for
    at most; the last value counts them.
    """
    samples_us: list[list[float]] = [[] for _ in stopwatches]
    readings: list[Telemetry] = []
    num_thrown = 0
    generator = np.random.default_rng(request.seed)

    def read() -> None:
        readings.append(bench.card.telemetry.read())

    while len(readings) < request.rounds:
        for place, index in enumerate(generator.permutation(len(stopwatches))):
            meanwhile = read if place == 0 else None
            samples_us[index] += stopwatches[index].samples(1, meanwhile)
        after_round()
        if is_throttled(readings[-1]) and num_thrown < request.rounds:
            num_thrown += 1
            readings.pop()
            for samples in samples_us:
                samples.pop()
            time.sleep(COOLING_S[0])
    return samples_us, readings, num_thrown


def timed_finalist(finalist: Finalist, samples_us: Sequence[float], check: Checked) -> Timed:
    """What the statistics need."""
    return Timed(
        name=finalist.name,
        config=finalist.config,
        kernel_sha256=finalist.kernel_sha256,
        samples_us=tuple(samples_us),
        verification=check.verification,
    )

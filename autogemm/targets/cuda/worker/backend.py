"""The worker's answers: prepare a problem, measure candidates, run finals."""

import gc
import math
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from autogemm.model.hardware.device import Ceilings
from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import (
    CacheState,
    Environment,
    Fill,
    Finals,
    Outcome,
    Status,
    Sustained,
)
from autogemm.support.errors import DeviceError, UsageError
from autogemm.support.phases import Phases
from autogemm.support.version import __version__
from autogemm.targets import BenchTimes, MeasureOptions
from autogemm.targets.cuda.messages import (
    KnownCalls,
    Measure,
    Measured,
    Prepare,
    Prepared,
    RunBench,
    RunCeilings,
    RunFinals,
    RunSustained,
    Start,
    Started,
    outcome_without_times,
)
from autogemm.targets.cuda.worker.bench import run_bench
from autogemm.targets.cuda.worker.ceilings import measured_ceilings
from autogemm.targets.cuda.worker.finals import run_finals
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, forget_overrides
from autogemm.targets.cuda.worker.gpu.gpu import Gpu
from autogemm.targets.cuda.worker.gpu.launching import CandidateError
from autogemm.targets.cuda.worker.gpu.telemetry import is_throttled
from autogemm.targets.cuda.worker.gpu.timing import (
    MIN_SAMPLES,
    SHORT_LAUNCH_US,
    Method,
    Sampled,
    Sampling,
)
from autogemm.targets.cuda.worker.interleave import Report
from autogemm.targets.cuda.worker.libraries import near_calls
from autogemm.targets.cuda.worker.problem.prepared import (
    BASELINE_SAMPLES,
    Checked,
    KernelContestant,
    PreparedProblem,
)
from autogemm.targets.cuda.worker.sustained import run_sustained

# The baseline is timed again after each new best, and after so many candidates at the latest: the
# GPU is warm then, and their times are of the same clocks.
BASELINE_INTERVAL = 20
# Share of the deadline that a candidate may use up: past it the worker would be killed.
USABLE_DEADLINE = 0.8
LAUNCHES_PER_SAMPLE = 2


class CudaBackend:
    """The worker's side of :class:`autogemm.targets.cuda.CudaTarget`."""

    def __init__(self) -> None:
        self.report: Report = lambda done, total: None
        """Told how far a long answer is."""
        self._gpu: Gpu | None = None
        self._cublas: Cublas | None = None
        self._prepared_problem: PreparedProblem | None = None
        self._baseline_us: float | None = None
        self._num_since_baseline = 0

    def start(self, request: Start) -> Started:
        """Make the context."""
        forget_overrides()
        self._gpu = Gpu(request.device_index)
        self._cublas = Cublas(self._gpu)
        return Started(self._gpu.device, self._environment(self._gpu, self._cublas))

    def prepare(self, request: Prepare) -> Prepared:
        """Inputs, references and a first time of the baseline."""
        if self._gpu is None or self._cublas is None:
            raise DeviceError("the worker has no GPU")
        # Frees the last problem's memory before it is counted; its calls refer back to it.
        self._prepared_problem = None
        gc.collect()
        find_calls = partial(near_calls, request.known)
        prepared = PreparedProblem(
            self._gpu, self._cublas, request.problem, request.options, find_calls
        )
        if not request.options.compares:
            self._prepared_problem, self._baseline_us = prepared, None
            return Prepared(None)
        checked = prepared.check(prepared.baseline)
        if checked.complaint:
            raise DeviceError(f"cuBLAS gives a wrong result here: {checked.complaint}")
        self._prepared_problem = prepared
        self._num_since_baseline = 0
        self._baseline_us = prepared.baseline_us()
        error = checked.verification.error if checked.verification else None
        calls = prepared.calls
        near = tuple(one.name for one in calls.near)
        known = KnownCalls(request.problem, near, calls.left_out)
        return Prepared(self._baseline_us, error, known)

    def measure(self, request: Measure) -> Measured:
        """Verify and time. Raises UsageError before prepare()."""
        prepared, phases = self._ready_problem(), Phases()
        prepared.phases, prepared.launches_us = phases, 0.0
        begin = time.perf_counter()
        try:
            with blamed_on_candidate(prepared.gpu):
                outcome = measured_outcome(prepared, request, begin, phases)
                launches_s = 1e-6 * prepared.launches_us
                with phases.during("baseline"):
                    self._follow_baseline(prepared, request, outcome, begin)
        except CandidateError as error:
            outcome = outcome_without_times(request.candidate, error.status, error.reason)
            return Measured(outcome, self._baseline_us, error.poisoned, phases.seconds)
        poisoned = outcome.status is Status.WRONG_RESULT and not prepared.intact()
        return Measured(outcome, self._baseline_us, poisoned, phases.seconds, launches_s)

    def _follow_baseline(
        self, prepared: PreparedProblem, request: Measure, outcome: Outcome, begin: float
    ) -> None:
        """Time the baseline again if that is due and the candidate's deadline leaves room."""
        self._num_since_baseline += 1
        time_us = outcome.time_us
        if time_us is None or self._baseline_us is None:
            return
        is_best = request.best_us is None or time_us < request.best_us
        if not is_best and self._num_since_baseline < BASELINE_INTERVAL:
            return
        left_s = left_of_deadline_s(prepared.options, begin)
        if 2e-6 * BASELINE_SAMPLES * self._baseline_us < left_s:
            self._baseline_us = prepared.baseline_us()
            self._num_since_baseline = 0

    def finals(self, request: RunFinals) -> Finals:
        """Interleaved rounds. Raises DeviceError when no candidate is right any more."""
        return run_finals(self._ready_problem(), request, self.report)

    def sustained(self, request: RunSustained) -> Sustained:
        """Winner and baseline each alone. Raises CandidateError, DeviceError."""
        return run_sustained(self._ready_problem(), request)

    def bench(self, request: RunBench) -> BenchTimes:
        """Interleaved rounds of all that are right."""
        assert self._cublas is not None
        return run_bench(self._ready_problem(), self._cublas, request, self.report)

    def ceilings(self, request: RunCeilings) -> Ceilings:
        """Kernels that multiply-add only, or copy only."""
        assert self._gpu is not None
        return measured_ceilings(self._gpu, request.compiled)

    def _ready_problem(self) -> PreparedProblem:
        if self._prepared_problem is None:
            raise UsageError("prepare() the target for a problem first")
        return self._prepared_problem

    @staticmethod
    def _environment(gpu: Gpu, cublas: Cublas) -> Environment:
        return Environment(
            driver=gpu.telemetry.driver_version or cuda_version(gpu.runtime.driverGetVersion()),
            cuda_runtime=cuda_version(gpu.runtime.runtimeGetVersion()),
            cublas=cublas.version,
            cupy=gpu.cupy.__version__,
            python=platform.python_version(),
            autogemm=__version__,
        )


def measured_outcome(
    prepared: PreparedProblem, request: Measure, begin: float, phases: Phases
) -> Outcome:
    """The outcome of a candidate that breaks nothing. Raises CandidateError otherwise."""
    with phases.during("load"):
        contestant = prepared.contestant(request.candidate)
    try:
        checked = prepared.check(contestant)
        if checked.complaint:
            return ended(request.candidate, Status.WRONG_RESULT, checked, checked.complaint)
        with phases.during("time"):
            return timed_outcome(prepared, request, contestant, checked, begin)
    finally:
        contestant.unload()


def timed_outcome(
    prepared: PreparedProblem,
    request: Measure,
    contestant: KernelContestant,
    checked: Checked,
    begin: float,
) -> Outcome:
    """Time a candidate whose result is right."""
    options, telemetry = prepared.options, prepared.gpu.telemetry
    once = prepared.measurement(Sampled((checked.launch_us,), telemetry.read(), 0), Method())
    left_s = left_of_deadline_s(options, begin)
    if LAUNCHES_PER_SAMPLE * 1e-6 * checked.launch_us > left_s:
        reason = (
            f"one launch takes {1e-6 * checked.launch_us:.3g} s, no time to repeat it within "
            f"the deadline of {options.deadline_s:g} s"
        )
        return replace(ended(request.candidate, Status.TOO_SLOW, checked, reason), measurement=once)
    outcome = ended(request.candidate, Status.OK, checked)
    is_comparable = was_timed_alike(checked.launch_us, options)
    hopeless_us = options.hopeless_ratio * (request.best_us or math.inf)
    if is_comparable and checked.launch_us > hopeless_us and not is_throttled(once.telemetry):
        return replace(outcome, measurement=once)
    stopwatch = prepared.stopwatch_about(contestant, checked.launch_us)
    first = MIN_SAMPLES if is_comparable else 1
    sampling = Sampling(stopwatch, telemetry.read)
    if stopwatch.probed_us is not None:
        sampling.note(stopwatch.probed_us, once.telemetry)
    sampled = sampling.adaptive(options, request.best_us, first)
    measurement = prepared.measurement(sampled, stopwatch.method)
    if prepared.energy is not None and measurement.time_us <= hopeless_us:
        sample_us = measurement.time_us * stopwatch.method.launches
        energy_mj = prepared.energy.energy_mj(stopwatch, sample_us)
        measurement = replace(measurement, energy_mj=energy_mj)
    return replace(outcome, measurement=measurement)


def left_of_deadline_s(options: MeasureOptions, begin: float) -> float:
    """Seconds that a candidate, begun at that time, may still take."""
    return USABLE_DEADLINE * options.deadline_s - (time.perf_counter() - begin)


def was_timed_alike(launch_us: float, options: MeasureOptions) -> bool:
    """Whether the verified launch, timed too, can show that a candidate is hopeless.

    Not where it was not timed the way candidates are: short, with another L2 or on other inputs.
    """
    is_default = options.l2 is CacheState.WARM and options.fill is Fill.UNIFORM
    return is_default and launch_us >= SHORT_LAUNCH_US


def ended(candidate: Candidate, status: Status, checked: Checked, reason: str = "") -> Outcome:
    """The outcome of a candidate that was verified."""
    return replace(
        outcome_without_times(candidate, status, reason), verification=checked.verification
    )


@contextmanager
def blamed_on_candidate(gpu: Gpu) -> Iterator[None]:
    """Take an unexpected CUDA error after a candidate ran to mean that it broke the context."""
    try:
        yield
    except gpu.cuda_errors as error:
        raise CandidateError(
            Status.CRASHED, f"the kernel crashed: {error}", poisoned=True
        ) from error


def cuda_version(number: int) -> str:
    """``13.0`` for 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"

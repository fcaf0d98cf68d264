"""One problem prepared on a GPU: inputs, references, baseline, and contestants to run on them."""

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from autogemm.codegen import worker_text
from autogemm.model.accuracy.short_sums import Promise, promise_of
from autogemm.model.dtypes import DType
from autogemm.model.elements import Stored, arrays_of_groups, neutral_array
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    CacheState,
    Call,
    Fill,
    Measurement,
    Objective,
    Provenance,
    Status,
    Verification,
)
from autogemm.space import output_rules
from autogemm.support.errors import DeviceError
from autogemm.support.phases import Phases
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.worker.gpu.cublas import Cublas
from autogemm.targets.cuda.worker.gpu.energy import EnergyMeter
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, Helpers
from autogemm.targets.cuda.worker.gpu.launching import (
    Arguments,
    CandidateError,
    LoadedKernel,
    gemm_arguments,
)
from autogemm.targets.cuda.worker.gpu.timing import (
    SAMPLE_US,
    SHORT_LAUNCH_US,
    Method,
    Sampled,
    Stopwatch,
    method_for,
)
from autogemm.targets.cuda.worker.problem.inputs import GUARD, InputSet, num_rotated, require_memory
from autogemm.targets.cuda.worker.problem.reference import Reference
from autogemm.targets.cuda.worker.problem.verification import CheckResult, Result

BASELINE_SAMPLES = 5
UNSURE_LAUNCH_US = 1000.0


class Contestant(Protocol):
    """Something that computes the problem's GEMM into the bench's C."""

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream."""


class Baseline(Contestant, Protocol):
    """The contestant that all others are compared with."""

    @property
    def name(self) -> str:
        """The library and which of its calls."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A contestant's verification: ``complaint`` is empty when it is right.

    ``launch_us`` is the time of the launch on real inputs.
    """

    complaint: str
    verification: Verification | None
    launch_us: float


@dataclass(frozen=True, slots=True)
class LibraryCalls:
    """The calls of a library of which one is the baseline: those that are near the fastest in an
    order of merit, and those that are left out, with the reason.
    """

    near: tuple[Baseline, ...]
    left_out: tuple[Call, ...] = ()


FindCalls = Callable[["PreparedProblem", Cublas], LibraryCalls]


class PreparedProblem:
    """Buffers of one problem. Raises UsageError when they do not fit, DeviceError otherwise.

    ``find_calls`` is asked once, when a baseline is needed, and leaves the GPU warm.
    """

    def __init__(  # the GPU, its library, what to prepare on it and how
        self,
        gpu: Gpu,
        cublas: Cublas,
        problem: Problem,
        options: MeasureOptions,
        find_calls: FindCalls,
    ) -> None:
        num_sets = num_rotated(problem, options.l2, gpu.device.l2_bytes)
        is_verified_on = num_sets == 1 and options.fill in (Fill.INTEGERS, Fill.UNIFORM)
        require_memory(problem, gpu.free_bytes(), 0 if is_verified_on else num_sets)
        self.gpu, self.problem, self.options = gpu, problem, options
        seeds = (2 * options.seed, 2 * options.seed + 1)
        self.integers = InputSet(gpu, problem, seeds[0], Fill.INTEGERS)
        self.reals = InputSet(gpu, problem, seeds[1], Fill.UNIFORM)
        self.timed = self._timed_sets(num_sets, seeds[1])
        is_plain = problem.epilogue.is_plain
        self.fused = None if is_plain else gpu.helpers_with(worker_text(problem))
        self.exact = Reference(gpu, cublas, problem, self.integers, self.fused)
        self.close = Reference(gpu, cublas, problem, self.reals, self.fused)
        self.result = Result(gpu, problem)
        self.second = None
        if problem.epilogue.output is not None:
            self.second = Result(gpu, problem.of_output, problem.epilogue.output.name)
            for one in self.input_sets:
                one.output_address = self.second.address
        self.flush = self._flusher() if options.l2 is CacheState.COLD else None
        needs_energy = options.objective is not Objective.TIME
        self.energy = EnergyMeter(gpu.telemetry.energy_mj) if needs_energy else None
        self._cublas, self._find_calls = cublas, find_calls
        # What the checks of one candidate took by phase, and the GPU's time for its launches: kept
        # by those who ask.
        self.phases = Phases()
        self.launches_us = 0.0

    @functools.cached_property
    def spare_energy(self) -> EnergyMeter | None:
        """For finals that minimise time, where the driver tells energy.

        None where launches are not back to back.
        """
        if self.energy is not None or self.options.l2 is CacheState.COLD:
            return None
        with suppress(DeviceError):
            return EnergyMeter(self.gpu.telemetry.energy_mj)
        return None

    @functools.cached_property
    def calls(self) -> LibraryCalls:
        """The calls of cuBLAS to compare candidates with. Raises DeviceError when all are wrong."""
        return self._find_calls(self, self._cublas)

    @property
    def baseline(self) -> Baseline:
        """The call that was the fastest at first: provisional, because the finals choose."""
        return self.calls.near[0]

    def in_dtype(self, dtype: DType) -> "PreparedProblem":
        """The same sizes in another dtype. Raises UsageError when they do not fit beside these."""
        problem = replace(self.problem, dtype=dtype)
        return PreparedProblem(self.gpu, self._cublas, problem, self.options, self._find_calls)

    @property
    def input_sets(self) -> tuple[InputSet, ...]:
        """All sets of inputs that a contestant may be run on."""
        return (self.integers, self.reals, *self.timed)

    @functools.cached_property
    def rounded(self) -> Reference:
        """For the library's calls, which may round a sum to C's type before the epilogue."""
        problem = self.problem.spelled_out
        return Reference(
            *(self.gpu, self._cublas, problem, self.reals, self.behind_product), rounds_sums=True
        )

    @functools.cached_property
    def behind_product(self) -> Helpers:
        """The kernels of a pass over C, behind a product of the library's."""
        return self.fused or self.gpu.helpers_with(worker_text(self.problem.spelled_out))

    def contestant(self, candidate: Candidate) -> "KernelContestant":
        """The candidate, loaded. Raises CandidateError."""
        return KernelContestant(self, candidate)

    def check(self, contestant: Contestant) -> Checked:
        """Run on both sets of inputs, and with few products where they are FP32's, and compare
        every element.
        """
        if getattr(contestant, "rounds_sums", False):
            rounded, launch_us = self._run_checked(contestant, self.reals, self.rounded)
            return Checked(rounded.complaint("real"), rounded.verification, launch_us)
        exact, _ = self._run_checked(contestant, self.integers, self.exact)
        complaint = exact.complaint("integer")
        if complaint:
            return Checked(complaint, None, 0.0)
        close, launch_us = self._run_checked(contestant, self.reals, self.close)
        complaint = close.complaint("real")
        if not complaint and self._inputs_changed():
            complaint = "the kernel writes to its inputs, or next to them"
        # The products that are kept of each dot product are as far apart in all groups of rows;
        # where groups divide K, some groups would keep none.
        has_few = self.problem.epilogue.is_plain and not self.problem.divides_k
        if not complaint and self.problem.dtype.has_fp32_products and has_few:
            complaint = self._complaint_of_few(contestant)
        return Checked(complaint, close.verification, launch_us)

    def complaint_once(self, contestant: Contestant, *, integers: bool) -> str:
        """Run once more on one set of inputs: what is wrong, empty when nothing is."""
        inputs, reference = (self.integers, self.exact) if integers else (self.reals, self.close)
        result, _ = self._run_checked(contestant, inputs, reference)
        return result.complaint("integer" if integers else "real")

    def intact(self) -> bool:
        """Whether inputs and references survived a wrong kernel: the baseline still passes.

        Without a baseline that is not known.
        """
        if not self.options.compares:
            return False
        return not self._inputs_changed() and not self.check(self.baseline).complaint

    def _inputs_changed(self) -> bool:
        with self.phases.during("inputs"):
            return self.reals.changed() or self.integers.changed()

    def stopwatches(self, contestants: Sequence[Contestant], method: Method) -> list[Stopwatch]:
        """For timing on the inputs that the options ask for; all by one method, so that times
        compare.

        Where a graph cannot be captured of one of them (a library may refuse), all are timed by
        events around as many launches.
        """
        try:
            return [self._stopwatch(contestant, method) for contestant in contestants]
        except (DeviceError, *self.gpu.cuda_errors):
            if method.name != "graph":
                raise
            plain = Method("events", method.launches)
            return [self._stopwatch(contestant, plain) for contestant in contestants]

    def stopwatch_about(
        self, contestant: Contestant, launch_us: float, sample_us: float = SAMPLE_US
    ) -> Stopwatch:
        """A stopwatch whose method fits a contestant of which one launch took ``launch_us``.

        A short launch timed alone looks longer than it is: up to UNSURE_LAUNCH_US may be the time
        that this process took. A first graph tells; it may come out too short, or not be needed,
        and another stopwatch is then made from what it showed.
        """
        l2, num_sets = self.options.l2, len(self.timed)
        is_unsure = SHORT_LAUNCH_US <= launch_us < UNSURE_LAUNCH_US
        if is_unsure:
            launch_us = 0.99 * SHORT_LAUNCH_US
        method = method_for(launch_us, l2, sample_us, num_sets)
        first = self.stopwatches([contestant], method)[0]
        if first.method.name != "graph":
            return first
        better = method_for(first.probe(), l2, sample_us, num_sets)
        is_long = is_unsure and better.name != "graph"
        if not is_long and better.launches <= 1.5 * first.method.launches:
            return first
        return self.stopwatches([contestant], better)[0]

    def measurement(self, sampled: Sampled, method: Method) -> Measurement:
        """The value that outcomes keep."""
        return Measurement(
            samples_us=sampled.samples_us,
            provenance=Provenance.MEASURED,
            method=method.name,
            launches_per_sample=method.launches,
            l2=self.options.l2,
            telemetry=sampled.telemetry,
            throttled_samples=sampled.throttled_samples,
        )

    @functools.cached_property
    def baseline_stopwatch(self) -> Stopwatch:
        """Made on a GPU that the baseline has warmed up. Kept, so that following the baseline's
        drift costs only the launches.
        """
        baseline = self.baseline
        return self.stopwatch_about(baseline, self.batch_us(baseline, 1))

    def baseline_us(self) -> float:
        """A quick, provisional time of the baseline, now."""
        return statistics.median(self.baseline_stopwatch.samples(BASELINE_SAMPLES))

    def batch_us(self, contestant: Contestant, launches: int) -> float:
        """Microseconds of so many launches, one behind the other."""
        begin = self.gpu.event()
        for _ in range(launches):
            contestant.queue(self.reals)
        return self.gpu.microseconds(begin, self.gpu.event())

    def _complaint_of_few(self, contestant: Contestant) -> str:
        """The fault in results with few products per element of C; empty if there is none."""
        with self.phases.during("sparse"), self.reals.few_products(self.problem):
            self.result.reset(self.reals)
            begin = self.gpu.event()
            contestant.queue(self.reals)
            end = self.gpu.event()
            few = self.result.check_few(self.problem, self.reals)
            self._note_launches(self.gpu.microseconds(begin, end))
        return few.complaint("sparse")

    def _note_launches(self, launches_us: float) -> None:
        self.launches_us += launches_us

    def _run_checked(
        self, contestant: Contestant, inputs: InputSet, reference: Reference
    ) -> tuple[CheckResult, float]:
        with self.phases.during("verify"):
            self._reset(inputs)
            begin = self.gpu.event()
            contestant.queue(inputs)
            end = self.gpu.event()
            launch_us = self.gpu.microseconds(begin, end)
        self._note_launches(launch_us)
        with self.phases.during("compare"):
            promise = self._promise_of(contestant) if reference is self.close else None
            found = self.result.check(reference, promise)
            if self.second is not None and reference.second is not None:
                other = self.second.check(reference.second)
                found = other if other.complaint("") and not found.complaint("") else found
        return found, launch_us

    def _promise_of(self, contestant: Contestant) -> Promise | None:
        """How exact its sums of 8-bit floats are as a whole; libraries do not say."""
        if not isinstance(contestant, KernelContestant):
            return None
        problem, plan = self.problem, contestant.candidate.plan
        num_results = problem.used_rows * problem.num_products * problem.n
        return promise_of(problem, num_results, plan.fp32_every)

    def _reset(self, inputs: InputSet) -> None:
        """The memory that kernels write, as it is before a launch."""
        self.result.reset(inputs)
        if self.second is not None:
            self.second.reset(inputs)

    def _stopwatch(self, contestant: Contestant, method: Method) -> Stopwatch:
        # Timing starts from the C of the inputs, whatever a check left there.
        self._reset(self.timed[0])
        turns = itertools.cycle(self.timed)
        return Stopwatch(
            *(self.gpu, lambda: contestant.queue(next(turns)), method, self.flush),
            self._note_launches,
        )

    def _timed_sets(self, num_sets: int, seed: int) -> tuple[InputSet, ...]:
        """The inputs that kernels are timed on, in turn. C is one of them unless beta = 0."""
        fill, problem = self.options.fill, self.problem
        if num_sets == 1:
            known = (one for one in (self.reals, self.integers) if one.fill is fill)
            return (next(known, None) or InputSet(self.gpu, problem, seed, fill),)
        sets = tuple(InputSet(self.gpu, problem, seed, fill) for _ in range(num_sets))
        for one in sets if problem.reads_c else ():
            one.give_own_c(problem)
        return sets

    def _flusher(self) -> Callable[[], None]:
        gpu, num_bytes = self.gpu, 2 * self.gpu.device.l2_bytes
        scratch = gpu.allocate(num_bytes)
        return lambda: gpu.runtime.memsetAsync(scratch.ptr, 0, num_bytes, gpu.stream.ptr)


class KernelContestant:
    """A candidate with its arguments and workspace. Raises CandidateError."""

    def __init__(self, prepared: PreparedProblem, candidate: Candidate) -> None:
        self.candidate = candidate
        self._gpu = prepared.gpu
        self._workspace = self._zeroed(candidate.plan.workspace_bytes)
        self._buffers: list[Any] = []
        self._extras = {
            extra.argument.name: self._guarded(neutral_array(extra, prepared.problem.dtype))
            for extra in candidate.plan.arrays
            if not extra.is_given
        }
        for name, rows in arrays_of_groups(prepared.problem).items():
            self._extras[name] = self._guarded(rows)
        self._kernel = LoadedKernel(prepared.gpu, candidate)
        self._arguments = {
            inputs: self._arguments_for(prepared, inputs) for inputs in prepared.input_sets
        }

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM, all launches of the plan, on the stream."""
        self._kernel.queue(self._arguments[inputs])

    def unload(self) -> None:
        """Give the machine code's memory back. The stream must be idle."""
        self._kernel.unload()

    def _zeroed(self, num_bytes: int) -> Any:
        """A workspace, zero once: its counters are what kernels leave zero for the next launch."""
        if not num_bytes:
            return None
        workspace = self._allocated(num_bytes, "a workspace")
        self._gpu.runtime.memsetAsync(workspace.ptr, 0, num_bytes, self._gpu.stream.ptr)
        return workspace

    def _guarded(self, values: Stored) -> int:
        """The address of a family's own array, NaN around it."""
        guard = np.full(GUARD * values.itemsize, 0xFF, np.uint8).view(values.dtype)
        guarded = np.concatenate([guard, values, guard])
        self._buffers.append(self._allocated(guarded.nbytes, "an argument"))
        address = int(self._buffers[-1].ptr)
        self._gpu.write(address, guarded)
        return address + guard.nbytes

    def _allocated(self, num_bytes: int, what: str) -> Any:
        try:
            return self._gpu.allocate(num_bytes)
        except DeviceError as error:
            reason = f"no room for {what} of {num_bytes} bytes: {error}"
            raise CandidateError(Status.LAUNCH_FAILED, reason) from error

    def _arguments_for(self, prepared: PreparedProblem, inputs: InputSet) -> Arguments:
        places = {
            "A": inputs.a.address,
            "B": inputs.b.address,
            "C": inputs.own_c or prepared.result.address,
            "workspace": self._workspace.ptr if self._workspace is not None else 0,
            **self._extras,
            **{name: matrix.address for name, matrix in inputs.extras.items()},
            **{rule.name: inputs.output_address for rule in output_rules(prepared.problem)},
        }
        factors = (inputs.alpha, inputs.beta)
        return gemm_arguments(self.candidate.plan, prepared.problem, factors, places)

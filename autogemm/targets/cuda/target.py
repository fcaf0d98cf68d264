"""The CUDA target: a GPU behind a worker process that candidates may hang, crash or poison."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from autogemm.model.hardware.device import Ceilings
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Check
from autogemm.model.results.outcome import (
    Disqualified,
    Finals,
    Objective,
    Outcome,
    Provenance,
    Status,
    Sustained,
)
from autogemm.support import errors
from autogemm.support.child_process import (
    ChildDiedError,
    ChildError,
    ChildHungError,
    ChildProcess,
    Progress,
)
from autogemm.support.errors import AutogemmError, DeviceError, UsageError
from autogemm.targets import GpuTarget, MeasureOptions
from autogemm.targets.cuda import messages
from autogemm.targets.cuda.ceilings import ceilings_source
from autogemm.targets.cuda.messages import Reply, disqualified, outcome_without_times
from autogemm.targets.cuda.tools.sanitizer import Job, sanitize
from autogemm.targets.target import BenchCandidate, BenchTimes, rounds_of

if TYPE_CHECKING:
    from autogemm.compile import Compiler

CUDA_BACKEND = "autogemm.targets.cuda.worker.backend:CudaBackend"

# Generous: a first start reads CuPy and the CUDA libraries from a cold disk.
START_DEADLINE_S = 180.0
PREPARE_DEADLINE_S = 180.0
# Requests of which no candidate is part, as messages name them.
DOING = {
    messages.Start: "start",
    messages.Prepare: "prepare the problem",
    messages.RunCeilings: "measure ceilings",
}
# Waits before the GPU is tried again for a new worker: what the dead one held is freed late.
RESTART_PAUSES_S = (0.5, 2.0, 8.0)
FINALS_ATTEMPTS = 3
# The float64 reference is two GEMMs; a GPU with few float64 units does 0.1 TFLOP/s and more.
SLOW_F64_FLOPS_PER_S = 1e11
# A library may have to be loaded from a cold disk, or to compile its kernels.
LIBRARY_S = 120.0
# One contestant takes five samples, each ten times as long as it should be.
ENERGY_FINALS_S = 25.0
# A contestant runs alone twice; as long again may pass for the last batches.
SUSTAINED_RUNS = 4


class CudaTarget(GpuTarget):
    """Runs candidates on one GPU. This process never makes a CUDA context nor imports CuPy.

    A worker that hung, crashed or was poisoned is replaced, and the problem prepared again, before
    the next request. Raises DeviceError when there is no usable GPU.
    """

    provenance = Provenance.MEASURED
    needs_cubin = True
    can_sanitize = True

    def __init__(self, device_index: int = 0, *, backend: str = CUDA_BACKEND) -> None:
        self.number: int = device_index
        self._backend = backend
        self._worker: ChildProcess | None = None
        self._prepare: messages.Prepare | None = None
        self.baseline_us: float | None = None
        self.baseline_error: float | None = None
        self.phase_s: Mapping[str, float] = {}
        self.launches_s = 0.0
        self._closed = False
        started = self._start_worker()
        self.device = started.device
        self.environment = started.environment

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        """Make inputs, float64 reference and baseline on the GPU."""
        self._prepare = None
        self.baseline_us = self.baseline_error = None
        request = messages.Prepare(problem, options)
        self._ready_worker()
        known = self._send_prepare(request)
        # A worker that replaces this one need not search for the baseline again.
        self._prepare = replace(request, known=known)

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        """Verify, then time. Errors of the candidate are reported as the outcome's status."""
        begin = time.perf_counter()
        self.phase_s, self.launches_s = {}, 0.0
        outcome, is_final = self._measure(candidate, best_us)
        if not is_final:
            # Without a new worker this outcome stays, and the next candidate meets the error.
            with suppress(DeviceError, UsageError):
                outcome, _ = self._measure(candidate, best_us)
        return replace(outcome, measure_seconds=time.perf_counter() - begin)

    def _measure(self, candidate: Candidate, best_us: float | None) -> tuple[Outcome, bool]:
        """The outcome, and whether it is this candidate's own doing.

        Where inputs or references turn out spoiled, an earlier candidate may have done it; where
        the process ended, the system.
        """
        options = self._prepared().options
        worker = self._ready_worker()
        try:
            reply = worker.ask(
                messages.Measure(candidate, best_us), options.deadline_s, options.host_memory_bytes
            )
            outcome = self._outcome_of(worker, reply, candidate)
        except ChildHungError as error:
            outcome = outcome_without_times(candidate, Status.TIMED_OUT, f"{error} (the deadline)")
        except ChildError as error:
            outcome = outcome_without_times(candidate, Status.CRASHED, str(error))
            return outcome, self._closed or not isinstance(error, ChildDiedError)
        return outcome, worker.alive or outcome.status is not Status.WRONG_RESULT

    def revive(self) -> None:
        """Replace a worker that is gone, so that another candidate can be measured."""
        self._ready_worker()

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        """Re-time candidates and baseline interleaved, in random order, round after round.

        A candidate that fails now is disqualified. Raises UsageError without candidates or rounds,
        DeviceError when none is left.
        """
        if not candidates or rounds < 1:
            raise UsageError(
                f"finals need a candidate and a round, got {len(candidates)} and {rounds}"
            )
        left, lost = tuple(candidates), tuple[Disqualified, ...]()
        for _ in range(FINALS_ATTEMPTS):
            try:
                finals = self._finals(left, rounds, seed)
            except ChildError as error:
                # One of them breaks the worker. Alone, each answers for itself.
                failure = error
                left, more = self._finish_alone(left, rounds, seed)
                lost += more
            else:
                return replace(finals, disqualified=(*lost, *finals.disqualified))
            if not left:
                raise DeviceError(f"no finalist ran a second time, the last one: {lost[-1].reason}")
        raise DeviceError(f"the finals aborted {FINALS_ATTEMPTS} times: {failure}") from failure

    def sustained(self, candidate: Candidate, finals: Finals, seconds: float) -> Sustained | None:
        """Run the winner of finals and their baseline each alone, twice for ``seconds``, in turn.

        Raises DeviceError where that breaks off.
        """
        options = self._prepared().options
        request = messages.RunSustained(candidate, finals.baseline.name, seconds)
        deadline_s = 2 * options.deadline_s + 2 * SUSTAINED_RUNS * seconds
        worker = self._ready_worker()
        try:
            reply = worker.ask(request, deadline_s, options.host_memory_bytes)
        except ChildError as error:
            raise DeviceError(f"the sustained runs were aborted: {error}") from error
        if isinstance(reply, Sustained):
            return reply
        raise self._unexpected(reply)

    def bench(
        self, candidates: Sequence[BenchCandidate], libraries: Sequence[str], rounds: int, seed: int
    ) -> BenchTimes:
        """Time candidates and libraries in turn, in random order, round after round.

        ``candidates`` were right when measured one by one. ``libraries`` are names of
        `autogemm.targets.cuda.worker.libraries`; one that is not installed or wrong says so. Raises
        DeviceError when the bench breaks off.
        """
        options = self._prepared().options
        request = messages.RunBench(tuple(candidates), tuple(libraries), rounds, seed)
        rounds_s = (
            sum(rounds_of(one.launch_us, rounds) * one.launch_us for one in candidates) * 1e-6
        )
        # Twice, because each sample is led by a run that is not timed; checks, and references of
        # other dtypes.
        others_s = len(libraries) * (LIBRARY_S + PREPARE_DEADLINE_S)
        deadline_s = options.deadline_s * (len(candidates) + 1) + 4 * rounds_s + others_s
        worker = self._ready_worker()
        try:
            reply = worker.ask(request, deadline_s, on_progress=self._tell_round)
        except ChildError as error:
            raise DeviceError(f"the benchmark was aborted: {error}") from error
        if isinstance(reply, BenchTimes):
            return reply
        raise self._unexpected(reply)

    def ceilings(self, compiler: "Compiler") -> Ceilings:
        """Measure what the GPU reaches in multiply-adds and in reading each memory."""
        compiled = compiler.compile(ceilings_source(), self.device.sm)
        self._ready_worker()
        reply = self._ask_or_fail(messages.RunCeilings(compiled), PREPARE_DEADLINE_S)
        if isinstance(reply, Ceilings):
            return reply
        raise self._unexpected(reply)

    def compiler(self) -> "Compiler":
        """NVRTC, in processes of its own."""
        from autogemm.compile import Compiler

        return Compiler()

    def sanitize(
        self, candidate: Candidate, problem: Problem, deadline_s: float
    ) -> tuple[Check, ...]:
        """The candidate's machine code under compute-sanitizer's tools, in processes of their own.

        The plan must be that of ``problem``, which should be small: the tools are slow.
        """
        return sanitize(Job(candidate, problem, self.number), deadline_s)

    def close(self) -> None:
        """Free the GPU and end the worker. May be called twice."""
        self._closed = True
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _finals(self, candidates: tuple[Candidate, ...], rounds: int, seed: int) -> Finals:
        options = self._prepared().options
        worker = self._ready_worker()
        sample_s = 0.05 + 10e-6 * (self.baseline_us or 0.0)
        known = self._prepared().known
        num_calls = len(known.near) if known is not None else 1
        num_samples = rounds * (len(candidates) + num_calls)
        deadline_s = options.deadline_s * (len(candidates) + 2) + num_samples * sample_s
        if options.objective is not Objective.TIME:
            deadline_s += ENERGY_FINALS_S * (len(candidates) + 1)
        else:
            deadline_s += ENERGY_FINALS_S
        reply = worker.ask(
            messages.RunFinals(candidates, rounds, seed),
            deadline_s,
            options.host_memory_bytes,
            self._tell_round,
        )
        if isinstance(reply, Finals):
            return reply
        if isinstance(reply, messages.Broken):
            worker.kill()
            raise ChildDiedError(reply.message)
        raise self._unexpected(reply)

    def _tell_round(self, progress: Progress) -> None:
        if self.on_round is not None:
            self.on_round(progress.done, progress.total)

    def _finish_alone(
        self, candidates: tuple[Candidate, ...], rounds: int, seed: int
    ) -> tuple[tuple[Candidate, ...], tuple[Disqualified, ...]]:
        """The candidates that pass finals of their own, and the others with the reason.

        Raises DeviceError when there is no usable GPU any more, for which no candidate pays.
        """
        left, lost = [], []
        for candidate in candidates:
            self._ready_worker()
            try:
                self._finals((candidate,), rounds, seed)
            except ChildError as error:
                lost.append(disqualified(candidate, str(error), Status.CRASHED))
            except DeviceError as error:
                lost.append(disqualified(candidate, str(error)))
            else:
                left.append(candidate)
        return tuple(left), tuple(lost)

    def _outcome_of(self, worker: ChildProcess, reply: Reply, candidate: Candidate) -> Outcome:
        match reply:
            case messages.Measured():
                self.baseline_us = reply.baseline_us
                self.phase_s, self.launches_s = reply.seconds, reply.launches_s
                if reply.poisoned:
                    worker.kill()
                return reply.outcome
            # Nothing but this candidate ran since the problem was ready: if it is the GPU that
            # is broken, the next worker will not start.
            case messages.Broken() | messages.Refused(error="DeviceError"):
                worker.kill()
                return outcome_without_times(candidate, Status.CRASHED, reply.message)
            case _:
                raise self._unexpected(reply)

    def _prepared(self) -> messages.Prepare:
        if self._prepare is None:
            raise UsageError("prepare() the target for a problem first")
        return self._prepare

    def _ready_worker(self) -> ChildProcess:
        """A live worker, prepared for the problem; a new one if the last one is gone."""
        if self._closed:
            raise UsageError("this target is closed: make a new one")
        if self._worker is None or not self._worker.alive:
            self._replace_worker()
        assert self._worker is not None
        return self._worker

    def _replace_worker(self) -> None:
        for pause_s in (*RESTART_PAUSES_S, None):
            try:
                self._start_worker()
                if self._prepare is not None:
                    self._send_prepare(self._prepare)
            except (DeviceError, UsageError):
                if self._worker is not None:
                    self._worker.kill()
                if pause_s is None:
                    raise
                time.sleep(pause_s)
            else:
                return

    def _start_worker(self) -> messages.Started:
        if self._worker is not None:
            self._worker.kill()
        self._worker = ChildProcess(
            "autogemm.targets.cuda.worker.process", [self._backend], replies=get_args(Reply)
        )
        reply = self._ask_or_fail(messages.Start(self.number), START_DEADLINE_S)
        if not isinstance(reply, messages.Started):
            self._worker.kill()
            raise self._unexpected(reply)
        return reply

    def _send_prepare(self, request: messages.Prepare) -> messages.KnownCalls | None:
        assert self._worker is not None
        deadline_s = PREPARE_DEADLINE_S + 2 * request.problem.flops / SLOW_F64_FLOPS_PER_S
        reply = self._ask_or_fail(request, deadline_s)
        if not isinstance(reply, messages.Prepared):
            raise self._unexpected(reply)
        self.baseline_us = reply.baseline_us
        self.baseline_error = reply.baseline_error
        return reply.known

    def _ask_or_fail(self, request: messages.Request, deadline_s: float) -> Reply:
        """The answer where no candidate can be to blame: failures are the GPU's or ours."""
        assert self._worker is not None
        doing = DOING[type(request)]
        try:
            reply: Reply = self._worker.ask(request, deadline_s)
        except ChildError as error:
            raise DeviceError(f"the GPU worker failed to {doing}: {error}") from error
        return reply

    def _unexpected(self, reply: Reply) -> AutogemmError:
        """The error to raise for an answer that is none to the question."""
        if isinstance(reply, messages.Refused):
            error_class = getattr(errors, reply.error, DeviceError)
            error: AutogemmError = error_class(reply.message)
            return error
        assert self._worker is not None
        self._worker.kill()
        if isinstance(reply, messages.Broken):
            return DeviceError(f"the GPU worker broke: {reply.message}")
        return DeviceError(f"the GPU worker answered with {type(reply).__name__} out of turn")

"""A bench of kernels: each size is verified, timed in interleaved rounds and stored."""

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from autogemm.bench.kernels.names import NamedKernel, NotForThisError, render_named
from autogemm.catalogue.presets import Size
from autogemm.compile import Compiler
from autogemm.model.batch import ONE, Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.benchmark import (
    NOT_STORED,
    Bench,
    BenchEntry,
    BenchSpec,
    KernelKind,
    baseline_of,
)
from autogemm.model.results.finals import PairedRatio, paired_ratio
from autogemm.model.results.outcome import Status, Telemetry
from autogemm.store import Store
from autogemm.support.errors import KernelCompileError
from autogemm.targets import BenchCandidate, ContestantTimes, GpuTarget, MeasureOptions

# A kernel that is a thousand times slower than another must get through its checks.
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """The kernels to time: every one on every size, all packed, in one layout and dtype;
    libraries with another dtype in their name use that one.

    ``measure`` says how; its deadline applies to each kernel.
    """

    kernels: tuple[NamedKernel, ...]
    sizes: tuple[Size, ...]
    layout: Layout = Layout.NN
    dtype: DType = DType.F32
    rounds: int = 20
    preset: str = ""
    command: str = ""
    epilogue: Epilogue = PLAIN
    batch: Batch = ONE
    measure: MeasureOptions = field(default_factory=lambda: MeasureOptions(deadline_s=DEADLINE_S))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """One for each size."""
        return tuple(
            Problem(*size, self.layout, self.dtype, epilogue=self.epilogue, batch=self.batch)
            for size in self.sizes
        )


@dataclass(frozen=True, slots=True)
class SizeDone:
    """All entries of one size; ``number`` of ``count`` sizes."""

    number: int
    count: int
    entries: tuple[BenchEntry, ...]


class Listener:
    """Told how far a benchmark is. Does nothing: override what is of interest."""

    def verifying(self, problem: Problem, kernel: str) -> None:
        """A kernel is being verified."""

    def timing(self, problem: Problem, done: int, total: int) -> None:
        """``done`` of ``total`` rounds in which all kernels are timed are over."""

    def done(self, size: SizeDone) -> None:
        """A size is done and stored."""


def run_bench(  # noqa: PLR0913  # what is run, where, and what is done with it
    request: BenchRequest,
    target: GpuTarget,
    compiler: Compiler,
    store: Store | None,
    listener: Listener,
    *,
    keep: bool = True,
) -> Bench:
    """Run it; size by size into the store, if there is one and the times are to be kept.

    Sizes that were finished before an error or Ctrl-C are stored. Raises UsageError for a size that
    does not fit the GPU.
    """
    spec = BenchSpec(
        device=target.device,
        environment=replace(target.environment, compiler=compiler.version),
        provenance=target.provenance,
        command=request.command,
        preset=request.preset,
        seed=request.measure.seed,
        l2=request.measure.l2,
        fill=request.measure.fill,
    )
    started_at = datetime.now(UTC)
    kept = store if keep else None
    bench_id = kept.begin_bench(spec) if kept is not None else NOT_STORED
    all_entries: list[BenchEntry] = []
    for number, problem in enumerate(request.problems, 1):
        size = _Size(request, problem, target, compiler, store)
        entries = size.run(listener)
        if kept is not None:
            kept.record_entries(bench_id, entries, size.sources)
        all_entries += entries
        listener.done(SizeDone(number, len(request.sizes), entries))
    if kept is not None:
        kept.finish_bench(bench_id)
    return Bench(bench_id, spec, started_at, datetime.now(UTC), tuple(all_entries))


@dataclass(frozen=True, slots=True)
class _Size:
    """All kernels of a bench on one problem."""

    request: BenchRequest
    problem: Problem
    target: GpuTarget
    compiler: Compiler
    store: Store | None
    candidates: dict[str, Candidate] = field(default_factory=dict)
    failed: dict[str, BenchEntry] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, KernelSource]:
        """The sources of all kernels but the libraries, by sha256."""
        return {one.source.sha256: one.source for one in self.candidates.values()}

    def run(self, listener: Listener) -> tuple[BenchEntry, ...]:
        """Their entries, in the order of the request."""
        self.target.prepare(self.problem, self.request.measure)
        ours = [one for one in self.request.kernels if one.kind is not KernelKind.LIBRARY]
        compiling = [(one, found) for one in ours if (found := self._started(one)) is not None]
        candidates = []
        for kernel, (rendered, future) in compiling:
            listener.verifying(self.problem, kernel.name)
            candidate = self._verified(kernel, rendered, future)
            if candidate is not None:
                candidates.append(candidate)
        request = self.request
        others = [one.name for one in request.kernels if one.kind is KernelKind.LIBRARY]
        self.target.on_round = partial(listener.timing, self.problem)
        timed = self.target.bench(candidates, others, request.rounds, request.measure.seed)
        times = {one.name: one for one in timed.contestants}
        baseline = times.get(baseline_of(request.dtype))
        return tuple(
            self.failed.get(one.name)
            or self._entry(one, times[one.name], baseline, timed.telemetry)
            for one in request.kernels
        )

    def _started(self, kernel: NamedKernel) -> tuple[Candidate, Future[CompiledKernel]] | None:
        """Begin to compile a kernel; None if there is none of that name here."""
        try:
            rendered = render_named(kernel, self.problem, self.target.device, self.store)
        except NotForThisError as error:
            self._fail(kernel, Status.REJECTED, str(error))
            return None
        return rendered, self.compiler.submit(rendered.source, self.target.device.sm)

    def _verified(
        self, kernel: NamedKernel, rendered: Candidate, compiling: Future[CompiledKernel]
    ) -> BenchCandidate | None:
        """Ready to be timed, None if it does not compile or is wrong."""
        try:
            candidate = replace(rendered, compiled=compiling.result())
        except KernelCompileError as error:
            self._fail(kernel, Status.COMPILE_FAILED, str(error))
            return None
        self.candidates[kernel.name] = candidate
        # Against the baseline, so that a slow one is timed once here.
        outcome = self.target.measure(candidate, self.target.baseline_us)
        if outcome.time_us is None:
            self._fail(kernel, outcome.status, outcome.reason)
            return None
        return BenchCandidate(kernel.name, candidate, outcome.time_us)

    def _fail(self, kernel: NamedKernel, status: Status, reason: str) -> None:
        entry = BenchEntry(kernel.name, kernel.kind, self.problem, status, reason)
        self.failed[kernel.name] = self._with_kernel(entry)

    def _entry(
        self,
        kernel: NamedKernel,
        times: ContestantTimes,
        baseline: ContestantTimes | None,
        telemetry: Telemetry,
    ) -> BenchEntry:
        ratio = _ratio(baseline, times, self.request.measure.seed)
        entry = BenchEntry(
            kernel=kernel.name,
            kind=kernel.kind,
            problem=times.problem,
            status=times.status,
            reason=times.reason,
            library=times.library,
            samples_us=times.samples_us,
            method=times.method,
            launches_per_sample=times.launches_per_sample,
            ratio=ratio.ratio if ratio else None,
            ratio_low=ratio.low if ratio else None,
            ratio_high=ratio.high if ratio else None,
            verification=times.verification,
            telemetry=telemetry,
        )
        return self._with_kernel(entry)

    def _with_kernel(self, entry: BenchEntry) -> BenchEntry:
        """The entry with config, source and registers of its kernel, as far as they are known."""
        candidate = self.candidates.get(entry.kernel)
        if candidate is None:
            return entry
        used = candidate.compiled.resources if candidate.compiled is not None else ()
        return replace(
            entry,
            config=candidate.config,
            kernel_sha256=candidate.source.sha256,
            registers=max((one.registers for one in used), default=None),
        )


def _ratio(
    baseline: ContestantTimes | None, times: ContestantTimes, seed: int
) -> PairedRatio | None:
    """Time of the baseline / own time over the rounds of both; None if one was not timed."""
    if baseline is None:
        return None
    rounds = min(len(baseline.samples_us), len(times.samples_us))
    if rounds == 0:
        return None
    return paired_ratio(baseline.samples_us[:rounds], times.samples_us[:rounds], seed)

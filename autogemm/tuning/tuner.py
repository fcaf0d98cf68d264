"""One tuning run from request to winner."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from autogemm.certificate import Certificate
from autogemm.compile import Compiler
from autogemm.config import Value
from autogemm.errors import CompilerMissingError, KernelCompileError, UsageError
from autogemm.kernel import Candidate
from autogemm.outcome import Environment, Finals, Outcome, Provenance
from autogemm.problem import Problem
from autogemm.search import Search
from autogemm.space import Family, Space, build_space
from autogemm.store import RunSpec, RunState, Store
from autogemm.targets import Target
from autogemm.tuning.certify import Certifier, certified
from autogemm.tuning.events import Certifying, Event, FinalsStarted, Notice, SearchStarted
from autogemm.tuning.interrupt import wish_to_stop
from autogemm.tuning.ledger import Ledger
from autogemm.tuning.making import Maker
from autogemm.tuning.pipeline import Limits, Pipeline
from autogemm.tuning.request import TuneRequest, TuneResult

Listener = Callable[[Event], None]


@runtime_checkable
class Replaying(Protocol):
    """A target that knows some configs only (:class:`autogemm.targets.recorded.RecordedTarget`)."""

    def restriction(self, family: Family) -> Mapping[str, tuple[Value, ...]]:
        """The values that it knows, by parameter."""

    def caveats(self, family: Family) -> tuple[str, ...]:
        """What a person must know before believing its times, a line each."""


@runtime_checkable
class Listing(Protocol):
    """A target that brings its configs, and neither kernels nor a baseline
    (:class:`autogemm.targets.recorded.ListedTarget`).
    """

    def space(self, problem: Problem, fix: Mapping[str, Sequence[Value]]) -> Space:
        """The configs that it lists."""

    def caveats(self, family: Family) -> tuple[str, ...]:
        """What a person must know before believing its times, a line each."""


def tune(
    request: TuneRequest,
    target: Target,
    compiler: Compiler | None,
    store: Store,
    on_event: Listener = lambda event: None,
) -> TuneResult:
    """Search, record every trial, re-time the best beside cuBLAS, and say what was found.

    With ``request.certify`` the winner is the fastest finalist that passes the checks of
    `autogemm.tuning.certify`.

    There are no finals where the target lists configs without kernels. The same request resumes a
    run that was interrupted or killed. Ctrl-C ends the search after the candidate on the card and
    skips the finals; a second one raises KeyboardInterrupt.

    Raises UsageError, EmptySpaceError, FamilyError, CompilerMissingError, DeviceError,
    RecordingError, StoreError, and CertificationError when no finalist passes; a candidate that
    fails is a trial, not an error.
    """
    if target.needs_cubin and compiler is None:
        raise CompilerMissingError("this target runs compiled kernels and there is no compiler")
    target.prepare(request.problem, request.measure)
    fix = dict(request.fix)
    if isinstance(target, Replaying):
        fix = _within(target.restriction(request.family), fix)
    if isinstance(target, Replaying | Listing):
        for caveat in target.caveats(request.family):
            on_event(Notice(caveat))
    if isinstance(target, Listing):
        space = target.space(request.problem, fix)
    else:
        space = build_space(request.family, request.problem, target.device, fix)
    spec = run_spec(request, target, compiler, fix)
    run_id = None if request.fresh else store.find_unfinished_run(spec)
    if run_id is None:
        run_id = store.begin_run(spec)
    else:
        store.resume_run(run_id)
    run = _Run(request, target, compiler, store, on_event, space, spec, run_id)
    try:
        result = run.go()
    except BaseException:
        # What is recorded stays; the same command goes on from there.
        with suppress(Exception):
            store.finish_run(run_id, RunState.INTERRUPTED)
        raise
    store.finish_run(run_id, RunState.INTERRUPTED if result.interrupted else RunState.FINISHED)
    return result


def run_spec(
    request: TuneRequest,
    target: Target,
    compiler: Compiler | None,
    fix: Mapping[str, Sequence[Value]],
) -> RunSpec:
    """The identity of a run: what must be the same for one call to resume another."""
    family = request.family
    files = family.yaml_sha256 + family.template_sha256
    return RunSpec(
        problem=request.problem,
        device=target.device,
        environment=_environment(target, compiler),
        family=family.name,
        family_sha256=hashlib.sha256(files.encode()).hexdigest(),
        fix=tuple((name, tuple(values)) for name, values in fix.items()),
        sampler=request.sampler,
        seed=request.seed,
        provenance=target.provenance,
        command=request.command,
        l2=request.measure.l2,
        fill=request.measure.fill,
    )


def _environment(target: Target, compiler: Compiler | None) -> Environment:
    """Recorded times belong to the compiler of the recording, measured ones to this one."""
    if target.provenance is Provenance.RECORDED or compiler is None:
        return target.environment
    return replace(target.environment, compiler=compiler.version)


def _within(
    known: Mapping[str, tuple[Value, ...]], fix: Mapping[str, tuple[Value, ...]]
) -> dict[str, tuple[Value, ...]]:
    """The user's restriction within the target's. Raises UsageError if nothing is left."""
    both = {}
    for name, values in known.items():
        both[name] = tuple(value for value in fix.get(name, values) if value in values)
        if not both[name]:
            asked, held = (",".join(map(str, v)) for v in (fix[name], values))
            raise UsageError(f"the recording holds {name}={held} only, not {name}={asked}")
    return both


@dataclass(frozen=True, slots=True)
class _Run:
    """What one call has in hand once the run has its number."""

    request: TuneRequest
    target: Target
    compiler: Compiler | None
    store: Store
    on_event: Listener
    space: Space
    spec: RunSpec
    run_id: int

    def go(self) -> TuneResult:
        """Search, then finals unless Ctrl-C came."""
        request, spec = self.request, self.spec
        maker = Maker(request.family, request.problem, self.target.device, self.compiler)
        ledger = Ledger(self.store, self.run_id, spec)
        num_resumed = len(ledger.outcomes)
        self.on_event(
            SearchStarted(
                run_id=self.run_id,
                num_resumed=num_resumed,
                num_legal=len(self.space),
                num_raw=self.space.raw_count,
                baseline_us=self.target.baseline_us,
                best=ledger.best,
            )
        )
        pipeline, interrupted = self._search(maker, ledger)
        began = time.monotonic()
        finals, certificate = None, None
        if not interrupted and not isinstance(self.target, Listing):
            try:
                finals, certificate = self._finals(maker, ledger.outcomes)
            except KeyboardInterrupt:
                interrupted = True
        return TuneResult(
            run_id=self.run_id,
            problem=request.problem,
            device_name=self.target.device.name,
            environment=spec.environment,
            provenance=spec.provenance,
            finals=finals,
            certificate=certificate,
            outcomes=tuple(ledger.outcomes),
            num_resumed=num_resumed,
            num_reused=pipeline.num_reused,
            num_pruned=pipeline.num_pruned,
            num_legal=len(self.space),
            search_s=pipeline.elapsed_s,
            finals_s=time.monotonic() - began,
            gpu_busy=pipeline.busy_s / pipeline.elapsed_s if pipeline.elapsed_s else 0.0,
            interrupted=interrupted,
        )

    def _search(self, maker: Maker, ledger: Ledger) -> tuple[Pipeline, bool]:
        request = self.request
        search = Search(
            self.space,
            request.sampler,
            request.seed,
            self.store.url,
            # Readable, because optuna-dashboard shows it.
            f"run {self.run_id}: {request.family.name} {request.problem.label}",
        )
        limits = Limits(
            trials=math.inf if request.trials is None else request.trials,
            budget_s=math.inf if request.budget_s is None else request.budget_s,
            ahead=2 * self.compiler.threads if self.compiler is not None else 2,
        )
        with closing(search):
            # The store is the truth: what a killed process recorded, the study may lack.
            for outcome in ledger.outcomes:
                search.remember(outcome)
            pipeline = Pipeline(
                maker,
                self.target,
                search,
                ledger,
                limits=limits,
                on_trial=self.on_event,
                prune=request.prune,
            )
            with wish_to_stop() as stop:
                pipeline.run(stop)
        return pipeline, stop.is_set()

    def _finals(
        self, maker: Maker, outcomes: Sequence[Outcome]
    ) -> tuple[Finals | None, Certificate | None]:
        candidates = finalists(maker, outcomes, self.request.finalists)
        if not candidates:
            return None, None
        self.on_event(FinalsStarted(len(candidates), self.request.rounds))
        finals = self.target.finals(candidates, self.request.rounds, self.request.seed)
        certificate = None
        if self.request.certify and finals.provenance is Provenance.MEASURED:
            finals, certificate = self._certified(finals, candidates)
        sources = {candidate.source.sha256: candidate.source for candidate in candidates}
        self.store.record_finals(self.run_id, finals, sources)
        return finals, certificate

    def _certified(
        self, finals: Finals, candidates: Sequence[Candidate]
    ) -> tuple[Finals, Certificate]:
        certifier = Certifier(
            self.request.family,
            self.target,
            self.compiler,
            progress=lambda step: self.on_event(Certifying(step)),
        )

        def keep(kernel_sha256: str, certificate: Certificate) -> None:
            self.store.record_certificate(self.run_id, kernel_sha256, certificate)

        return certified(
            certifier, finals, candidates, self.request.problem, self.request.seed, keep
        )


def finalists(maker: Maker, outcomes: Sequence[Outcome], num_finalists: int) -> list[Candidate]:
    """The fastest candidates with different kernels, made again (from the cubin cache)."""
    timed = [outcome for outcome in outcomes if outcome.time_us is not None]
    chosen: dict[str, Candidate] = {}
    for outcome in sorted(timed, key=lambda outcome: outcome.time_us or math.inf):
        source = maker.render(outcome.config)
        if source.sha256 in chosen:
            continue
        # It compiled during the search; should it not now, the next best takes its place.
        with suppress(KernelCompileError):
            chosen[source.sha256] = maker.start(source).candidate()
        if len(chosen) == num_finalists:
            break
    return list(chosen.values())

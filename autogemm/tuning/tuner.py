"""One tuning run from request to winner."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from autogemm.compile import Compiler
from autogemm.config import Value
from autogemm.errors import CompilerMissingError, KernelCompileError
from autogemm.kernel import Candidate
from autogemm.outcome import Environment, Finals, Objective, Outcome, Provenance, StopRule
from autogemm.search import Search
from autogemm.space import Family
from autogemm.store import RunSpec, RunState, Store
from autogemm.targets import Target
from autogemm.tuning.events import (
    Event,
    FinalsStarted,
    Notice,
    SearchResumed,
    SearchStarted,
    TrialDone,
)
from autogemm.tuning.interrupt import Wish, wish_to_stop
from autogemm.tuning.joint import JointSearch, opening_for
from autogemm.tuning.ledger import Ledger
from autogemm.tuning.making import Maker
from autogemm.tuning.pipeline import Limits, Pipeline
from autogemm.tuning.request import TuneRequest, TuneResult, ranked
from autogemm.tuning.spaces import Spaces, spaces_for
from autogemm.tuning.stopping import StopRules

Listener = Callable[[Event], None]


def tune(
    request: TuneRequest,
    target: Target,
    compiler: Compiler | None,
    store: Store,
    on_event: Listener = lambda event: None,
) -> TuneResult:
    """Search, record every trial, re-time the best beside cuBLAS, and say what was found.

    The same request resumes a run that was interrupted or killed. Ctrl-C ends the search after the
    candidate on the card and skips the finals; a second one raises KeyboardInterrupt.

    Raises UsageError, EmptySpaceError, FamilyError, CompilerMissingError, DeviceError,
    RecordingError and StoreError; a candidate that fails is a trial, not an error.
    """
    if target.needs_cubin and compiler is None:
        raise CompilerMissingError("this target runs compiled kernels and there is no compiler")
    target.prepare(request.problem, request.measure)
    spaces = spaces_for(request, target)
    for caveat in spaces.caveats:
        on_event(Notice(caveat))
    spec = run_spec(request, target, compiler, spaces.families, spaces.fix)
    run_id = None if request.fresh else store.find_unfinished_run(spec)
    if run_id is None:
        run_id = store.begin_run(spec)
    else:
        store.resume_run(run_id)
    run = _Run(request, target, compiler, store, on_event, spaces, spec, run_id)
    try:
        result = run.go()
    except BaseException:
        # What is recorded stays; the same command goes on from there.
        with suppress(Exception):
            store.finish_run(run_id, RunState.INTERRUPTED)
        raise
    state = RunState.INTERRUPTED if result.interrupted else RunState.FINISHED
    store.finish_run(run_id, state, result.stopped_by)
    return result


def run_spec(
    request: TuneRequest,
    target: Target,
    compiler: Compiler | None,
    families: Sequence[Family],
    fix: Mapping[str, Sequence[Value]],
) -> RunSpec:
    """The identity of a run: what must be the same for one call to resume another."""
    files = "".join(family.yaml_sha256 + family.template_sha256 for family in families)
    return RunSpec(
        problem=request.problem,
        device=target.device,
        environment=_environment(target, compiler),
        families=tuple(family.name for family in families),
        family_sha256=hashlib.sha256(files.encode()).hexdigest(),
        fix=tuple((name, tuple(values)) for name, values in fix.items()),
        sampler=request.sampler,
        seed=request.seed,
        provenance=target.provenance,
        command=request.command,
        l2=request.measure.l2,
        objective=request.measure.objective,
        fill=request.measure.fill,
    )


def _environment(target: Target, compiler: Compiler | None) -> Environment:
    """Recorded times belong to the compiler of the recording, measured ones to this one."""
    if target.provenance is Provenance.RECORDED or compiler is None:
        return target.environment
    return replace(target.environment, compiler=compiler.version)


@dataclass(slots=True)
class _Spent:
    """What the searches of one call took, which may be several with finals between them."""

    search_s: float = 0.0
    busy_s: float = 0.0
    finals_s: float = 0.0
    num_reused: int = 0
    num_pruned: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    """What one call has in hand once the run has its number."""

    request: TuneRequest
    target: Target
    compiler: Compiler | None
    store: Store
    on_event: Listener
    spaces: Spaces
    spec: RunSpec
    run_id: int

    def go(self) -> TuneResult:
        """Search, then finals unless Ctrl-C came."""
        request = self.request
        maker = Maker(self.spaces.families, request.problem, self.target.device, self.compiler)
        ledger = Ledger(self.store, self.run_id, self.spec)
        num_resumed = len(ledger.outcomes)
        self.on_event(
            SearchStarted(
                run_id=self.run_id,
                num_resumed=num_resumed,
                families=self.spaces.sizes,
                left_out=self.spaces.left_out,
                baseline_us=self.target.baseline_us,
                best=ledger.best,
            )
        )
        spent = _Spent()
        finals, stopped_by = self._search_and_finals(maker, ledger, spent)
        return TuneResult(
            run_id=self.run_id,
            problem=request.problem,
            device_name=self.target.device.name,
            environment=self.spec.environment,
            provenance=self.spec.provenance,
            objective=self.spec.objective,
            finals=finals,
            outcomes=tuple(ledger.outcomes),
            num_resumed=num_resumed,
            num_reused=spent.num_reused,
            num_pruned=spent.num_pruned,
            families=self.spaces.sizes,
            search_s=spent.search_s,
            finals_s=spent.finals_s,
            gpu_busy=spent.busy_s / spent.search_s if spent.search_s else 0.0,
            stopped_by=stopped_by,
        )

    def _search_and_finals(
        self, maker: Maker, ledger: Ledger, spent: _Spent
    ) -> tuple[Finals | None, StopRule]:
        """Until finals confirm the ratio to stop at, or another rule ends the search."""
        rules = StopRules(self.request.until_ratio, self.request.until_gain)
        while True:
            stopped_by = self._search(maker, ledger, rules, spent)
            if stopped_by is StopRule.INTERRUPTED:
                return None, stopped_by
            shown, baseline_us = ledger.best, self.target.baseline_us
            try:
                finals = self._finals(maker, ledger, spent)
            except KeyboardInterrupt:
                return None, StopRule.INTERRUPTED
            if stopped_by is not StopRule.RATIO or finals is None:
                return finals, stopped_by
            if rules.confirm(finals, shown, baseline_us):
                return finals, stopped_by
            assert self.request.until_ratio is not None, "the rule that ended the search"
            self.on_event(SearchResumed(finals, self.request.until_ratio))

    def _search(self, maker: Maker, ledger: Ledger, rules: StopRules, spent: _Spent) -> StopRule:
        request = self.request
        budget_s = math.inf if request.budget_s is None else request.budget_s - spent.search_s
        searches = self._searches()
        joint = JointSearch(
            searches,
            opening=opening_for(request.trials, len(searches)),
            objective=self.spec.objective,
            before=ledger.outcomes,
        )
        limits = Limits(
            trials=math.inf if request.trials is None else request.trials,
            budget_s=budget_s,
            ahead=2 * self.compiler.threads if self.compiler is not None else 2,
        )
        with ExitStack() as open_searches, wish_to_stop() as wish:
            for search in searches.values():
                open_searches.callback(search.close)
            watch = _Watch(rules, ledger, self.target, joint, wish)

            def on_trial(trial: TrialDone) -> None:
                self.on_event(replace(trial, elapsed_s=trial.elapsed_s + spent.search_s))
                watch.look()

            watch.look()
            pipeline = Pipeline(
                maker,
                self.target,
                joint,
                ledger,
                limits=limits,
                on_trial=on_trial,
                prune=request.prune,
            )
            pipeline.run(wish)
        spent.num_reused += pipeline.num_reused
        spent.num_pruned += pipeline.num_pruned
        spent.busy_s += pipeline.busy_s
        spent.search_s += pipeline.elapsed_s
        if wish.by_user:
            return StopRule.INTERRUPTED
        if watch.reached is not None:
            return watch.reached
        if len(ledger.outcomes) >= limits.trials:
            return StopRule.TRIALS
        return StopRule.BUDGET if pipeline.elapsed_s >= budget_s else StopRule.USED_UP

    def _searches(self) -> dict[str, Search]:
        """One for each family. What a former search left unfinished may be proposed again."""
        request = self.request
        return {
            space.family.name: Search(
                space,
                request.sampler,
                request.seed,
                self.store.url,
                # Readable, because optuna-dashboard shows it.
                f"run {self.run_id}: {space.family.name} {request.problem.label}",
            )
            for space in self.spaces.spaces
        }

    def _finals(self, maker: Maker, ledger: Ledger, spent: _Spent) -> Finals | None:
        request = self.request
        began = time.monotonic()
        candidates = finalists(maker, ledger.outcomes, request.finalists, self.spec.objective)
        if not candidates:
            return None
        self.on_event(FinalsStarted(len(candidates), request.rounds))
        finals = self.target.finals(candidates, request.rounds, request.seed)
        sources = {candidate.source.sha256: candidate.source for candidate in candidates}
        self.store.record_finals(self.run_id, finals, sources)
        ledger.reload()
        spent.finals_s += time.monotonic() - began
        return finals


@dataclass(slots=True)
class _Watch:
    """Sets the wish to stop when a rule is reached, and remembers which."""

    rules: StopRules
    ledger: Ledger
    target: Target
    joint: JointSearch
    wish: Wish
    reached: StopRule | None = None

    def look(self) -> None:
        """After a trial."""
        if self.reached is None:
            gain = self.joint.expected_improvement
            self.reached = self.rules.reached(self.ledger.best, self.target.baseline_us, gain)
        if self.reached is not None:
            self.wish.set()


def finalists(
    maker: Maker,
    outcomes: Sequence[Outcome],
    num_finalists: int,
    objective: Objective = Objective.TIME,
) -> list[Candidate]:
    """The best candidates with different kernels, made again (from the cubin cache)."""
    chosen: dict[str, Candidate] = {}
    for outcome in ranked(outcomes, objective):
        source = maker.render(outcome.config)
        if source.sha256 in chosen:
            continue
        # It compiled during the search; should it not now, the next best takes its place.
        with suppress(KernelCompileError):
            chosen[source.sha256] = maker.start(source).candidate()
        if len(chosen) == num_finalists:
            break
    return list(chosen.values())

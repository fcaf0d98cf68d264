"""One tuning run from request to winner."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from autogemm.compile import Compiler
from autogemm.model.config import Value
from autogemm.model.hardware.device import Device
from autogemm.model.results.outcome import (
    Environment,
    Finals,
    Objective,
    Outcome,
    Provenance,
    StopRule,
)
from autogemm.search import Search
from autogemm.space import Family
from autogemm.store import RunSpec, RunState, Store, shipped_rows
from autogemm.support.errors import CompilerMissingError, DeviceError
from autogemm.support.interrupt import stop_on_ctrl_c
from autogemm.targets import Target
from autogemm.tuning.finals import FinalsResult, FinalsStage
from autogemm.tuning.loop.gpus import Gpus, prepared_gpus
from autogemm.tuning.loop.joint import JointSearch, opening_for
from autogemm.tuning.loop.ledger import Ledger
from autogemm.tuning.loop.pipeline import Limits, Pipeline
from autogemm.tuning.loop.stopping import StopRules
from autogemm.tuning.loop.warm import WarmStart, nearest_starts, warmed
from autogemm.tuning.task.accuracy import Accuracy, accuracy_for
from autogemm.tuning.task.ahead import Ahead
from autogemm.tuning.task.build import Builder
from autogemm.tuning.task.events import Event, Notice, SearchResumed, SearchStarted, TrialDone
from autogemm.tuning.task.request import TuneRequest, TuneResult
from autogemm.tuning.task.spaces import Spaces

Listener = Callable[[Event], None]

# Configs that wait for a compiler, at most.
MOST_WAITING = 8


class Placed(Protocol):
    """A place that results belong to: a target, or what is known of one elsewhere."""

    @property
    def device(self) -> Device:
        """The GPU."""

    @property
    def environment(self) -> Environment:
        """Driver and libraries; of a target without the compiler."""

    @property
    def provenance(self) -> Provenance:
        """Whether its times are measured there."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The interface that a search needs of GPUs that are ready for its problem.

    ``left_out`` has a line for each GPU that could not be made ready, ``ahead`` what has begun with
    the first candidates.
    """

    gpus: Gpus
    left_out: Sequence[str]
    accuracy: Accuracy
    spaces: Spaces
    ahead: Ahead


def prepare(
    request: TuneRequest,
    target: Target,
    more_targets: Sequence[Target] = (),
    compiler: Compiler | None = None,
    ahead: Ahead | None = None,
) -> Prepared:
    """Make the targets ready for the problem and build the spaces; nothing is stored yet.

    ``compiler`` begins with the seeds meanwhile. ``ahead`` has begun with all of this already.

    Raises UsageError, NotFoundError, EmptySpaceError, FamilyError, DeviceError, RecordingError.
    """
    begun = ahead or Ahead(request, target, compiler)
    try:
        gpus, left_out = prepared_gpus([target, *more_targets], request.problem, request.measure)
        accuracy = accuracy_for(request.max_error, gpus.first)
        return Prepared(gpus, left_out, accuracy, begun.spaces(), begun)
    except BaseException:
        begun.close()
        raise


def tune(  # noqa: PLR0913, PLR0917  # what a run consists of
    request: TuneRequest,
    target: Target,
    compiler: Compiler | None,
    store: Store,
    on_event: Listener = lambda event: None,
    prepared: Prepared | None = None,
    *,
    more_targets: Sequence[Target] = (),
) -> TuneResult:
    """Search, record every trial, re-time the best beside cuBLAS, and say what was found.

    ``more_targets`` are other GPUs of the same model, which measure candidates, too; finals are on
    one of them. One that is lost is told, and the rest go on.

    With ``request.certify`` the winner is the fastest finalist that passes the checks of
    `autogemm.verify.certify`. There are no finals where the target lists configs without kernels.

    The same request resumes a run that was interrupted or killed. Ctrl-C ends the search after the
    candidate on the GPU and skips the finals; a second one raises KeyboardInterrupt. ``prepared``
    is what `prepare` returned for this request, where it was called before.

    Raises UsageError, EmptySpaceError, FamilyError, CompilerMissingError, DeviceError,
    RecordingError, StoreError, and CertificationError when no finalist passes; a candidate that
    fails is a trial, not an error.
    """
    if target.needs_cubin and compiler is None:
        raise CompilerMissingError("this target runs compiled kernels and there is no compiler")
    prepared = prepared or prepare(request, target, more_targets, compiler)
    gpus, accuracy, spaces = prepared.gpus, prepared.accuracy, prepared.spaces
    target = gpus.first
    for notice in prepared.left_out:
        on_event(Notice(notice))
    for caveat in spaces.caveats:
        on_event(Notice(caveat))
    spec = run_spec(request, target, compiler, spaces.families, spaces.fix)
    run_id = None if request.fresh else store.find_unfinished_run(spec)
    if run_id is None:
        run_id = store.begin_run(spec)
    else:
        store.resume_run(run_id)
    starts: tuple[WarmStart, ...] = ()
    if request.warm_start:
        shipped = shipped_rows([family.name for family in spaces.families])
        starts = nearest_starts(store, shipped, spec, spaces.families, run_id)
        spaces = warmed(spaces, starts)
    run = _Run(request, gpus, compiler, store, on_event, spaces, spec, run_id, accuracy, starts)
    try:
        result = run.go()
    except BaseException:
        # Recorded trials are kept; the same command continues from there.
        with suppress(Exception):
            store.finish_run(run_id, RunState.INTERRUPTED)
        raise
    finally:
        prepared.ahead.close()
    state = RunState.INTERRUPTED if result.interrupted else RunState.FINISHED
    store.finish_run(run_id, state, result.stopped_by)
    return result


def run_spec(
    request: TuneRequest,
    target: Placed,
    compiler: Compiler | None,
    families: Sequence[Family],
    fix: Mapping[str, Sequence[Value]],
) -> RunSpec:
    """The identity of a run: what must be the same for one call to resume another."""
    return RunSpec(
        problem=request.problem,
        device=target.device,
        environment=environment_of(target, compiler),
        families=tuple(family.name for family in families),
        family_sha256=families_sha256(families),
        fix=tuple((name, tuple(values)) for name, values in fix.items()),
        sampler=request.sampler,
        seed=request.seed,
        provenance=target.provenance,
        command=request.command,
        l2=request.measure.l2,
        objective=request.measure.objective,
        fill=request.measure.fill,
        max_error=request.max_error,
    )


def families_sha256(families: Sequence[Family]) -> str:
    """Return the hash of the search spaces and templates of these families, in their order."""
    files = "".join(family.yaml_sha256 + family.template_sha256 for family in families)
    return hashlib.sha256(files.encode()).hexdigest()


def environment_of(target: Placed, compiler: Compiler | None) -> Environment:
    """Return the environment of a run on that target.

    Recorded times belong to the compiler of the recording, measured ones to this one.
    """
    if target.provenance is Provenance.RECORDED or compiler is None:
        return target.environment
    return replace(target.environment, compiler=compiler.version)


def in_flight_for(threads: int) -> int:
    """Most configs in flight with that many kernels compiling at a time: those, and a few that the
    next free compiler takes. More would be asked for in ignorance of results and wait in vain.
    """
    return threads + min(threads, MOST_WAITING)


@dataclass(slots=True)
class _Spent:
    """Totals of the searches of one call, which may be several with finals between them."""

    search_s: float = 0.0
    finals_s: float = 0.0
    num_reused: int = 0
    num_pruned: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    """One call of `tune`, once the run has its number."""

    request: TuneRequest
    gpus: Gpus
    compiler: Compiler | None
    store: Store
    on_event: Listener
    spaces: Spaces
    spec: RunSpec
    run_id: int
    accuracy: Accuracy
    starts: tuple[WarmStart, ...]

    def go(self) -> TuneResult:
        """Search, then finals unless Ctrl-C came."""
        request, device, gpus = self.request, self.spec.device, self.gpus
        builder = Builder(self.spaces.families, request.problem, device, self.compiler)
        ledger = Ledger(self.store, self.run_id, self.spec, self.accuracy)
        num_resumed = len(ledger.outcomes)
        self.on_event(
            SearchStarted(
                run_id=self.run_id,
                num_resumed=num_resumed,
                families=self.spaces.sizes,
                left_out=self.spaces.left_out,
                baseline_us=gpus.baseline_us,
                best=ledger.best,
                started_from=tuple(map(str, self.starts)),
            )
        )
        spent = _Spent()
        result, stopped_by = self._search_and_finals(builder, ledger, spent)
        return TuneResult(
            run_id=self.run_id,
            problem=request.problem,
            device_name=device.name,
            environment=self.spec.environment,
            provenance=self.spec.provenance,
            objective=self.spec.objective,
            finals=result.finals if result is not None else None,
            certificate=result.certificate if result is not None else None,
            outcomes=tuple(ledger.outcomes),
            num_resumed=num_resumed,
            num_reused=spent.num_reused,
            num_pruned=spent.num_pruned,
            families=self.spaces.sizes,
            search_s=spent.search_s,
            finals_s=spent.finals_s,
            gpu_busy=gpus.busy_s / (spent.search_s * gpus.num_at_start) if spent.search_s else 0.0,
            stopped_by=stopped_by,
            phase_s=gpus.phases.seconds,
            max_error=None if math.isinf(self.accuracy.limit) else self.accuracy.limit,
        )

    def _search_and_finals(
        self, builder: Builder, ledger: Ledger, spent: _Spent
    ) -> tuple[FinalsResult | None, StopRule]:
        """Until finals confirm the ratio to stop at, or another rule ends the search."""
        request = self.request
        rules = StopRules(request.until_ratio, request.until_gain)
        while True:
            stopped_by = self._search(builder, ledger, rules, spent)
            if stopped_by is StopRule.INTERRUPTED or self.gpus.first.own_family is not None:
                return None, stopped_by
            best = ledger.best
            began = time.monotonic()

            def is_last(
                finals: Finals, rule: StopRule = stopped_by, best: Outcome | None = best
            ) -> bool:
                return rule is not StopRule.RATIO or rules.confirm(finals, best)

            try:
                decided = self._decided(builder, ledger, is_last)
            except KeyboardInterrupt:
                return None, StopRule.INTERRUPTED
            if decided is None:
                return None, stopped_by
            result, is_final = decided
            if result.finals.disqualified or not is_final:
                # A disqualified candidate is no trial's success any more.
                ledger.reload()
            spent.finals_s += time.monotonic() - began
            if is_final:
                return result, stopped_by
            assert request.until_ratio is not None, "the rule that ended the search"
            self.on_event(SearchResumed(result.finals, request.until_ratio))

    def _decided(
        self, builder: Builder, ledger: Ledger, is_last: Callable[[Finals], bool]
    ) -> tuple[FinalsResult, bool] | None:
        """Finals on one GPU, stored, and whether they are the last; None without a candidate.

        Where that GPU is lost meanwhile they are held on the next one.
        """
        while True:
            stage = FinalsStage(
                *(self.request, self.gpus.first, self.store, builder, self.run_id, self.on_event),
                self.accuracy,
            )
            try:
                result = stage.run(ledger.outcomes)
                if result is None:
                    return None
                if is_final := is_last(result.finals):
                    result = stage.certify(stage.sustain(result))
            except DeviceError as error:
                if not self.gpus.lose_first(error):
                    raise
                self._tell_news()
            else:
                stage.record(result)
                return result, is_final

    def _tell_news(self) -> None:
        for line in self.gpus.news():
            self.on_event(Notice(line))

    def _search(
        self, builder: Builder, ledger: Ledger, rules: StopRules, spent: _Spent
    ) -> StopRule:
        request = self.request
        budget_s = math.inf if request.budget_s is None else request.budget_s - spent.search_s
        # Configs that an earlier search left unfinished may be proposed again.
        searches = {
            space.family.name: Search(
                *(space, request.sampler, request.seed),
                # A replay depends on nothing but its seed.
                meanwhile=self.spec.provenance is Provenance.MEASURED,
            )
            for space in self.spaces.spaces
        }
        if not math.isinf(self.accuracy.limit):
            for search in searches.values():
                search.keep_error(self.accuracy.limit)
        joint = JointSearch(
            searches,
            opening=opening_for(
                request.trials, len(searches), max(len(space.seeds) for space in self.spaces.spaces)
            ),
            objective=self.spec.objective,
            before=ledger.outcomes,
            accuracy=self.accuracy,
        )
        limits = Limits(
            trials=math.inf if request.trials is None else request.trials,
            budget_s=budget_s,
            ahead=in_flight_for(self.compiler.threads) if self.compiler is not None else 2,
        )
        ended_by: StopRule | None = None
        with stop_on_ctrl_c() as stop:

            def look() -> None:
                nonlocal ended_by
                gain = joint.expected_improvement
                ended_by = ended_by or rules.reached(ledger.best, self.gpus.baseline_us, gain)
                if ended_by is not None:
                    stop.set()

            def on_trial(trial: TrialDone) -> None:
                self._tell_news()
                self.on_event(replace(trial, elapsed_s=trial.elapsed_s + spent.search_s))
                look()

            look()
            pipeline = Pipeline(
                builder,
                self.gpus,
                joint,
                ledger,
                limits=limits,
                on_trial=on_trial,
                # A slow kernel may still use little energy.
                accuracy=self.accuracy,
                prune=request.prune and self.spec.objective is Objective.TIME,
            )
            pipeline.run(stop)
        self._tell_news()
        spent.num_reused += pipeline.num_reused
        spent.num_pruned += pipeline.num_pruned
        spent.search_s += pipeline.elapsed_s
        if stop.by_user:
            return StopRule.INTERRUPTED
        if ended_by is not None:
            return ended_by
        if len(ledger.outcomes) >= limits.trials:
            return StopRule.TRIALS
        return StopRule.BUDGET if pipeline.elapsed_s >= budget_s else StopRule.USED_UP

"""Many problems in one run of the program: tuned one after the other, then each with the winners
of the others.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate, KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, Provenance
from autogemm.model.similarity import distance
from autogemm.space import fitted, nearest_legal
from autogemm.store import BestQuery, DecidedRow, Store
from autogemm.support.errors import (
    CertificationError,
    EmptySpaceError,
    KernelCompileError,
    NotFoundError,
    UsageError,
)
from autogemm.targets import Target
from autogemm.tuning.finals import failed_in_finals
from autogemm.tuning.loop.static_checks import why_not_launchable
from autogemm.tuning.task.ahead import Begun
from autogemm.tuning.task.build import Builder, Building
from autogemm.tuning.task.events import Event, FinalsStarted
from autogemm.tuning.task.request import TuneRequest
from autogemm.tuning.tuner import Placed, families_sha256, prepare, run_spec, tune

# Winners that every problem of a sweep is timed with.
MAX_CROSSED = 12
# Errors that make one problem of many impossible, and not the others.
_ONE_PROBLEM = (EmptySpaceError, UsageError, CertificationError, NotFoundError)


@dataclass(frozen=True, slots=True)
class Swept:
    """One problem of a sweep. ``finals`` is None where there are none; ``reason`` says why.

    ``num_trials``, ``num_wrong`` of them with wrong results, and ``seconds``, of search and finals,
    are 0 for a result that was there before (``is_known``).
    """

    problem: Problem
    run_id: int | None = None
    finals: Finals | None = None
    num_trials: int = 0
    seconds: float = 0.0
    is_known: bool = False
    reason: str = ""
    num_wrong: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a sweep: ``doing`` is ``tuning`` or ``crossing``, ``number`` counts from 1."""

    doing: str
    number: int
    count: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class Sweep:
    """All problems of one call, as far as it got. ``interrupted``: Ctrl-C ended it."""

    problems: tuple[Swept, ...]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Tunes the requests in turn on one target, with one compiler and one store.

    A request with finals in the same place is not tuned again, but with ``fresh``; so the same call
    resumes. A problem that cannot be tuned is told and the next one begun.

    ``following`` is asked for the request behind the last one, of another sweeper on that target;
    what begins for it is in ``begun``, which both have, and whose owner closes it.
    """

    target: Target
    compiler: Compiler | None
    store: Store
    on_step: Callable[[Step], Callable[[Event], None]]
    on_swept: Callable[[Swept], None]
    following: Callable[[], TuneRequest | None] | None = None
    begun: Begun = field(default_factory=Begun)

    def run(self, requests: Sequence[TuneRequest]) -> Sweep:
        """Tune each. Raises what `tune` raises where the next request would meet it too.

        While the GPU holds the finals of one, and the winner's checks, the processor makes the
        seeds of the next.
        """
        try:
            return self._run(requests)
        finally:
            if self.following is None:
                self.begun.close()

    def _run(self, requests: Sequence[TuneRequest]) -> Sweep:
        done: list[Swept] = []
        for number, request in enumerate(requests, 1):
            on_event = self.on_step(Step("tuning", number, len(requests), request.problem))
            row = self._known(request)
            if row is not None:
                swept = Swept(request.problem, row.run_id, row.finals, is_known=True)
            else:
                rest = requests[number:]
                swept, interrupted = self._tuned(request, self._looking_ahead(on_event, rest))
                if interrupted:
                    return Sweep((*done, swept), interrupted=True)
            done.append(swept)
            self.on_swept(swept)
        return Sweep(tuple(done), interrupted=False)

    def cross(self, sweep: Sweep, request: TuneRequest) -> Sweep:
        """Every problem again in finals of its winner with up to MAX_CROSSED of the others'.

        They are stored as newer finals of its run: the times of one kernel at many sizes, and the
        winner, if another's is faster. ``request`` is any of the sweep's. Ctrl-C ends it.
        """
        self.require_gpu()
        decided = [one for one in sweep.problems if one.finals is not None]
        kernels = spread_winners(decided, self.target.device, MAX_CROSSED)
        crossings = [
            _Crossing(self.target, self.compiler, one, replace(request, problem=one.problem))
            for one in decided
        ]
        # All that will be compiled is begun at once; the GPU waits for nothing but the first.
        for crossing in crossings:
            crossing.begin(kernels)
        done = {one.problem: one for one in sweep.problems}
        try:
            for number, crossing in enumerate(crossings, 1):
                problem = crossing.swept.problem
                self.on_step(Step("crossing", number, len(crossings), problem))
                done[problem] = crossing.finish(self.store)
                self.on_swept(done[problem])
        except KeyboardInterrupt:
            return Sweep(tuple(done.values()), interrupted=True)
        return Sweep(tuple(done.values()), interrupted=False)

    def require_gpu(self) -> None:
        """Raises UsageError where `cross` cannot work."""
        if self.target.provenance is not Provenance.MEASURED:
            raise UsageError("--cross times kernels at sizes that no recording contains: use a GPU")

    def _known(self, request: TuneRequest) -> DecidedRow | None:
        if request.fresh:
            return None
        known = self.store.decided(BestQuery.of(request.problem))
        return known_row(request, self.target, self.compiler, known)

    def _looking_ahead(
        self, on_event: Callable[[Event], None], rest: Sequence[TuneRequest]
    ) -> Callable[[Event], None]:
        """Pass events on; at the first finals, begin with the next request unless it is known."""

        def look(event: Event) -> None:
            if isinstance(event, FinalsStarted):
                following = rest[0] if rest else self.following and self.following()
                if following is not None and self._known(following) is None:
                    self.begun.begin(following, self.target, self.compiler)
            on_event(event)

        return look

    def _tuned(self, request: TuneRequest, on_event: Callable[[Event], None]) -> tuple[Swept, bool]:
        begin = time.monotonic()
        try:
            begun = self.begun.take(request)
            prepared = prepare(request, self.target, (), self.compiler, begun)
            result = tune(request, self.target, self.compiler, self.store, on_event, prepared)
        except _ONE_PROBLEM as error:
            return Swept(request.problem, reason=str(error)), False
        failure = "" if result.best is not None else "no candidate ran correctly"
        seconds, found = time.monotonic() - begin, (result.run_id, result.finals)
        swept = Swept(
            *(request.problem, *found, result.num_trials, seconds),
            reason=failure,
            num_wrong=len(result.wrong),
        )
        return swept, result.interrupted


def known_row(
    request: TuneRequest, place: Placed, compiler: Compiler | None, known: Sequence[DecidedRow]
) -> DecidedRow | None:
    """Return the newest result of the same request in the same place, None if there is none."""
    families = request.families
    asked = run_spec(request, place, compiler, families, request.fix)
    asked = replace(asked, fix=tuple(sorted(asked.fix)))
    for row in reversed(known):
        spec = row.spec
        there = [family for family in families if family.name in spec.families]
        # The GPU goes by its name. A run leaves out families without a legal config.
        wanted = replace(
            asked,
            device=spec.device,
            command=spec.command,
            families=spec.families,
            family_sha256=families_sha256(there),
        )
        if place.provenance is Provenance.RECORDED:
            # Each recording has an environment and a restriction of its own.
            wanted = replace(wanted, environment=spec.environment, fix=spec.fix)
        if wanted == spec and spec.device.name == place.device.name:
            return row
    return None


class _Crossing:
    """One problem with the winners of others."""

    def __init__(
        self, target: Target, compiler: Compiler | None, swept: Swept, request: TuneRequest
    ) -> None:
        self.swept = swept
        self._target = target
        self._request = request
        self._families = {family.name: family for family in request.families}
        self._builder = Builder(request.families, request.problem, target.device, compiler)
        self._buildings: list[Building] = []

    def begin(self, kernels: Sequence[Config]) -> None:
        """Render and begin to compile; different configs of one text count once."""
        assert self.swept.finals is not None
        winner = self.swept.finals.winner.config
        assert winner is not None, "a winner has a config"
        sources: dict[str, KernelSource] = {}
        problem, device = self._request.problem, self._target.device
        for config in (winner, *kernels):
            family = self._families.get(config.family)
            if family is None:
                continue
            # The winner as it won; the others as they would be run here.
            move = nearest_legal if config is winner else fitted
            legal = move(family, config, problem, device)
            if legal is not None:
                source = self._builder.render(legal)
                sources.setdefault(source.sha256, source)
        met = {entry.kernel_sha256 for entry in self.swept.finals.entries}
        if not sources.keys() <= met:
            self._buildings = [self._builder.start(source) for source in sources.values()]

    def finish(self, store: Store) -> Swept:
        """The finals, stored; as it was where all have met already."""
        swept = self.swept
        candidates = list(self._candidates())
        if not candidates or swept.run_id is None:
            return swept
        target, request = self._target, self._request
        target.prepare(request.problem, request.measure)
        finals = target.finals(candidates, request.rounds, request.seed)
        store.record_finals(
            swept.run_id, finals, {one.source.sha256: one.source for one in candidates}
        )
        for lost in finals.disqualified:
            # It won elsewhere, and must not go on doing so; a text that is new here did not.
            with suppress(NotFoundError):
                store.record_certificate(swept.run_id, lost.kernel_sha256, failed_in_finals(lost))
        return replace(swept, finals=finals)

    def _candidates(self) -> Iterator[Candidate]:
        for building in self._buildings:
            with suppress(KernelCompileError):
                candidate = building.candidate()
                compiled, device = candidate.compiled, self._target.device
                if compiled is None or not why_not_launchable(compiled, building.plan, device):
                    yield candidate


def spread_winners(decided: Sequence[Swept], device: Device, count: int) -> tuple[Config, ...]:
    """Winners of problems as unlike each other as can be: the largest first, then each time the one
    farthest from all before it (Gonzalez, Clustering to minimize the maximum intercluster distance,
    1985). Times play no part, so that leaving a problem out leaves out what it brought.
    """
    left = sorted(decided, key=lambda one: (-one.problem.flops, one.problem.label))
    chosen: list[Swept] = []
    kernels: dict[Config, None] = {}

    def least_distance(one: Swept) -> float:
        to_others = (distance(one.problem, device, other.problem, device) for other in chosen)
        return min(to_others, default=math.inf)

    while left and len(kernels) < count:
        farthest = max(left, key=least_distance)
        left.remove(farthest)
        chosen.append(farthest)
        assert farthest.finals is not None and farthest.finals.winner.config is not None
        kernels[farthest.finals.winner.config] = None
    return tuple(kernels)

"""The finals of a run: the candidates in them, the winner, and whether it passes all checks."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autogemm.model.config import Config
from autogemm.model.kernel import Candidate
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.model.results.finals import without_winner
from autogemm.model.results.outcome import (
    Disqualified,
    Finals,
    Objective,
    Outcome,
    Provenance,
    Status,
)
from autogemm.store import Store
from autogemm.support.errors import CertificationError, DeviceError, KernelCompileError
from autogemm.targets import Target
from autogemm.tuning.task.accuracy import Accuracy
from autogemm.tuning.task.build import Builder
from autogemm.tuning.task.events import (
    Certifying,
    Event,
    FinalsRound,
    FinalsStarted,
    Notice,
    SustainedStarted,
)
from autogemm.tuning.task.request import TuneRequest, ranked
from autogemm.verify import Certifier

# One place in so many in the finals is for a candidate unlike the others, within this factor of
# the best.
UNLIKE_SHARE = 3
NEAR = 1.03


@dataclass(frozen=True, slots=True)
class FinalsResult:
    """Finals with the candidates in them, and the winner's certificate once it has one."""

    finals: Finals
    candidates: tuple[Candidate, ...]
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class FinalsStage:
    """Holds the finals of one run on its target, and keeps what they say."""

    request: TuneRequest
    target: Target
    store: Store
    builder: Builder
    run_id: int
    on_event: Callable[[Event], None]
    accuracy: Accuracy

    def run(self, outcomes: Sequence[Outcome]) -> FinalsResult | None:
        """The best outcomes in finals, None if there is no candidate for them.

        Raises CertificationError when none of them is accurate enough a second time.
        """
        request = self.request
        candidates = finalists(self.builder, outcomes, request.finalists, request.measure.objective)
        if not candidates:
            return None
        self.on_event(FinalsStarted(len(candidates), request.rounds))
        self.target.on_round = lambda done, total: self.on_event(FinalsRound(done, total))
        finals = self.target.finals(candidates, request.rounds, request.seed)
        finals = self.accuracy.kept(finals, request.seed, request.measure.objective)
        return FinalsResult(finals, tuple(candidates))

    def sustain(self, result: FinalsResult) -> FinalsResult:
        """Run winner and baseline each alone, if that was asked for.

        Runs that break off are told and take nothing from the finals.
        """
        seconds, finals = self.request.sustained_s, result.finals
        if seconds is None:
            return result
        if finals.provenance is not Provenance.MEASURED:
            self.on_event(Notice("no sustained times: nothing runs on a recording"))
            return result
        self.on_event(SustainedStarted(seconds))
        winner = _candidate_of(result.candidates, finals.winner.kernel_sha256)
        try:
            sustained = self.target.sustained(winner, finals, seconds)
        except DeviceError as error:
            self.on_event(Notice(f"no sustained times: {error}"))
            return result
        return replace(result, finals=replace(finals, sustained=sustained))

    def certify(self, result: FinalsResult) -> FinalsResult:
        """Make the first finalist that passes all checks the winner, if that was asked for.

        A winner that fails is disqualified and the next one checked. Every certificate is kept,
        also of kernels that the finals themselves disqualified.

        Raises CertificationError when none does. The target is left prepared for another problem.
        """
        if not self.request.certify or result.finals.provenance is not Provenance.MEASURED:
            return result
        finals, request = result.finals, self.request
        for lost in finals.disqualified:
            if lost.status is not Status.INACCURATE:  # right all the same: elsewhere it may win
                lasting = failed_in_finals(lost)
                self.store.record_certificate(self.run_id, lost.kernel_sha256, lasting)
        what = f"{finals.num_checks} more results, every element compared with the reference"
        before = [Check("finals", Verdict.PASSED, what)] if finals.num_checks else []
        for _ in result.finals.entries:
            certificate = self._certificate(result, finals.winner.kernel_sha256, before)
            if certificate.verdict is not Verdict.FAILED:
                return FinalsResult(finals, result.candidates, certificate)
            if len(finals.entries) == 1:
                break
            objective = request.measure.objective
            finals = without_winner(finals, certificate.reason, request.seed, objective)
        raise CertificationError(
            f"no finalist passes the checks of a winner, the last one: "
            f"{certificate.reason}; all are stored (autogemm db show), --no-certify skips the "
            "checks"
        )

    def _certificate(
        self, result: FinalsResult, kernel_sha256: str, before: Sequence[Check]
    ) -> Certificate:
        """Check one of the candidates further, and keep what was found."""
        candidate = _candidate_of(result.candidates, kernel_sha256)
        certifier = Certifier(
            self.builder.family_of(candidate.config),
            self.target,
            self.builder.compiler,
            progress=lambda step: self.on_event(Certifying(step)),
            on_case=lambda step, done, total: self.on_event(Certifying(step, done, total)),
        )
        certificate = certifier.certify(candidate, self.request.problem, before)
        self.store.record_certificate(self.run_id, kernel_sha256, certificate)
        return certificate

    def record(self, result: FinalsResult) -> None:
        """Write the finals into the store."""
        sources = {one.source.sha256: one.source for one in result.candidates}
        self.store.record_finals(self.run_id, result.finals, sources)


def _candidate_of(candidates: Sequence[Candidate], kernel_sha256: str) -> Candidate:
    return next(one for one in candidates if one.source.sha256 == kernel_sha256)


def finalists(
    builder: Builder,
    outcomes: Sequence[Outcome],
    num_finalists: int,
    objective: Objective = Objective.TIME,
) -> list[Candidate]:
    """The best candidates with different kernels, made again (from the cubin cache).

    The search timed each alone, on a GPU that was mostly idle; near its power limit the order is
    another one, and kernels of one kind move together. So a third of the places are for those near
    the best that are least like the others.
    """
    order = ranked(outcomes, objective)
    num_near = _num_near(order, objective)
    taken: set[int] = set()
    chosen: dict[str, Candidate] = {}
    num_by_cost = num_finalists - num_finalists // UNLIKE_SHARE
    while len(chosen) < num_finalists and len(taken) < len(order):
        place = next(i for i in range(len(order)) if i not in taken)
        near = [i for i in range(num_near) if i not in taken]
        if near and len(chosen) >= num_by_cost:
            place = max(near, key=lambda i: _distance(order[i].config, chosen.values()))
        taken.add(place)
        source = builder.render(order[place].config)
        if source.sha256 not in chosen:
            # It compiled during the search; should it not now, the next one takes its place.
            with suppress(KernelCompileError):
                chosen[source.sha256] = builder.start(source).candidate()
    return list(chosen.values())


def _num_near(order: Sequence[Outcome], objective: Objective) -> int:
    """Count those within NEAR of the first; they stand by their cost."""
    costs = [cost for one in order if (cost := one.cost(objective)) is not None]
    return sum(cost <= NEAR * costs[0] for cost in costs)


def _distance(config: Config, others: Iterable[Candidate]) -> int:
    """Count the parameters that differ from the nearest of others; all of another family's."""

    def differing(other: Config) -> int:
        if other.family != config.family:
            return len(config.as_dict())
        return sum(config[name] != value for name, value in other.as_dict().items())

    return min(differing(other.config) for other in others)


def failed_in_finals(lost: Disqualified) -> Certificate:
    """Return the certificate of a kernel that was wrong, or crashed, in the finals."""
    found = Check("finals", Verdict.FAILED, lost.reason)
    return Certificate((found,), datetime.now(UTC))

"""Whether stored winners are still what they were: measured again, beside cuBLAS."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

from autogemm.compile import Compiler
from autogemm.model.kernel import Candidate
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.model.results.change import Change, Compared, Figure, Rounds, compare_rounds, fairest
from autogemm.model.results.outcome import (
    Environment,
    Finals,
    FinalsEntry,
    Outcome,
    Provenance,
    Status,
)
from autogemm.space import Family
from autogemm.store import BestQuery, ResultRow, RunSpec, RunState, Store
from autogemm.support.errors import DeviceError, KernelCompileError, NotFoundError, UsageError
from autogemm.targets import MeasureOptions, Target
from autogemm.tuning.loop.static_checks import why_not_launchable
from autogemm.tuning.task.build import Builder
from autogemm.tuning.tuner import environment_of, families_sha256

# Stands for the sampler of a run that only measured a winner again.
SAMPLER = "check"


@dataclass(frozen=True, slots=True)
class StoredWinner:
    """A stored winner, and what is no more as it was when it was measured, in words."""

    row: ResultRow
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rechecked:
    """A winner measured again, in a run of its own.

    ``entry`` holds its times of today; None if it did not run, and then ``reason`` says why.
    ``compared`` says how it is now beside how it was.
    """

    winner: StoredWinner
    run_id: int | None = None
    entry: FinalsEntry | None = None
    compared: Compared | None = None
    by: Figure | None = None
    reason: str = ""

    @property
    def moved(self) -> bool:
        """Whether it is shown to be faster or slower than it was, or does not run any more."""
        return self.compared is None or self.compared.change in (Change.FAST, Change.SLOW)


@dataclass(frozen=True, slots=True)
class Rechecker:
    """Measures winners of the target's GPU again. ``families`` by name are those at hand."""

    store: Store
    target: Target
    compiler: Compiler | None
    families: Mapping[str, Family]
    rounds: int
    seed: int = 0
    command: str = ""

    def winners(self, query: BestQuery) -> list[StoredWinner]:
        """All of this GPU that match, the changed and the unchanged, with their kernels; those of
        every recorded GPU where recordings are replayed.
        """
        return [
            StoredWinner(row, tuple(self._changes(row)))
            for row in self.store.best(query)
            if row.provenance is self.target.provenance and self._is_of_its_gpu(row)
        ]

    def _is_of_its_gpu(self, row: ResultRow) -> bool:
        if self.target.provenance is Provenance.RECORDED:
            # Each recording has a GPU of its own: that of this problem counts, if there is one.
            try:
                self.target.prepare(row.problem, self._options(row))
            except (NotFoundError, UsageError):
                return False
        device = self.target.device
        return (row.device.name, row.device.num_sms) == (device.name, device.num_sms)

    def _options(self, row: ResultRow) -> MeasureOptions:
        return MeasureOptions(l2=row.l2, fill=row.fill, seed=self.seed)

    def recheck(self, winner: StoredWinner) -> Rechecked:
        """Measure it again, keep what came of it, and compare.

        Raises DeviceError when there is no usable GPU any more.
        """
        row = winner.row
        try:
            self.target.prepare(row.problem, self._options(row))
            candidate = self._candidate(row)
        except (UsageError, KernelCompileError) as error:
            return Rechecked(winner, reason=str(error))
        run_id = self.store.begin_run(self._spec(row))
        try:
            finals, reason = self._measured(run_id, candidate)
        except BaseException:
            with suppress(Exception):
                self.store.finish_run(run_id, RunState.INTERRUPTED)
            raise
        self.store.finish_run(run_id, RunState.FINISHED)
        if finals is None:
            return Rechecked(winner, run_id, reason=reason)
        after = Rounds(finals.winner.samples_us, finals.baseline.samples_us)
        by = fairest(row.rounds, after, row.environment.cublas == self._environment.cublas)
        compared = compare_rounds(row.rounds, after, by)
        return Rechecked(winner, run_id, finals.winner, compared, by)

    @property
    def _environment(self) -> Environment:
        return environment_of(self.target, self.compiler)

    def _changes(self, row: ResultRow) -> Iterator[str]:
        for field in fields(Environment):
            before = getattr(row.environment, field.name)
            now = getattr(self._environment, field.name)
            if before != now:
                yield f"{field.name} {before or '-'} -> {now or '-'}"
        family = self.families.get(row.family)
        if family is None or row.template_sha256 in (None, family.template_sha256):
            return
        run = self.store.run(row.run_id).spec
        # The old text has been measured since, and is still the best.
        if (run.sampler, run.family_sha256) != (SAMPLER, families_sha256([family])):
            yield f"template of {row.family}"

    def _candidate(self, row: ResultRow) -> Candidate:
        """The stored kernel, compiled by today's compiler, launched as today's family says."""
        family = self.families.get(row.family)
        if family is None:
            raise UsageError(f"the family {row.family!r} is not known: name it with --family")
        if row.kernel_id is None:
            raise UsageError("its source was not stored")
        try:
            family.completed(row.config)
        except UsageError as error:
            raise UsageError(f"the family {row.family!r} has other parameters now") from error
        source = self.store.stored_kernel(row.kernel_id).source
        builder = Builder((family,), row.problem, self.target.device, self.compiler)
        candidate = builder.start(source).candidate()
        if not candidate.plan.takes(source.text):
            raise UsageError("this version gives its groups to TMA in another way: tune again")
        if candidate.compiled is not None and (
            why := why_not_launchable(candidate.compiled, candidate.plan, self.target.device)
        ):
            raise UsageError(why)
        return candidate

    def _measured(self, run_id: int, candidate: Candidate) -> tuple[Finals | None, str]:
        """Its finals alone with the baseline, or why there are none. All of it is kept."""
        source = candidate.source
        outcome = self.target.measure(candidate, None)
        finals = None
        if outcome.time_us is not None:
            outcome, finals = self._finals(candidate, outcome)
        self.store.record_trial(run_id, 0, outcome, source)
        if finals is not None:
            self.store.record_finals(run_id, finals, {source.sha256: source})
        elif outcome.status is Status.WRONG_RESULT:
            # Wrong here and now: never the best again, until a certificate says otherwise.
            check = Check("db check", Verdict.FAILED, outcome.reason)
            certificate = Certificate((check,), datetime.now(UTC))
            self.store.record_certificate(run_id, source.sha256, certificate)
        return finals, f"{outcome.status}: {outcome.reason}"

    def _finals(self, candidate: Candidate, outcome: Outcome) -> tuple[Outcome, Finals | None]:
        """The finals, or the outcome that it has after all."""
        try:
            finals = self.target.finals([candidate], self.rounds, self.seed)
        except DeviceError as error:
            failed = replace(outcome, status=Status.CRASHED, reason=str(error), measurement=None)
            return failed, None
        if not finals.disqualified:
            return outcome, finals
        lost = finals.disqualified[0]
        return replace(outcome, status=lost.status, reason=lost.reason, measurement=None), None

    def _spec(self, row: ResultRow) -> RunSpec:
        family = self.families[row.family]
        return replace(
            self.store.run(row.run_id).spec,
            device=self.target.device,
            environment=self._environment,
            families=(family.name,),
            family_sha256=families_sha256([family]),
            fix=tuple((name, (value,)) for name, value in row.config.values),
            sampler=SAMPLER,
            seed=self.seed,
            command=self.command,
        )

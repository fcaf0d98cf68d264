"""The best kernel, and everything known about it.

A kernel whose newest certificate is a failure is never the best.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import case, select
from sqlalchemy.orm import Session

from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.columns import RATIO
from autogemm.model.results.outcome import Provenance, Status
from autogemm.model.results.stored import StoredKernel
from autogemm.store.queries.benches import kernel_outside_runs
from autogemm.store.queries.certificates import newest_certificate
from autogemm.store.queries.timings import GROUP, BestPlace, Timing, best_places, run_of, timings_at
from autogemm.store.tables.convert import kernel_of, sustained_of, value_of, verification_of
from autogemm.store.tables.models import (
    DeviceRecord,
    FinalsEntryRecord,
    FinalsRecord,
    KernelRecord,
    ProblemRecord,
    RunRecord,
    TrialRecord,
)
from autogemm.store.tables.records import BestQuery, ResultRow
from autogemm.support.errors import NotFoundError, UsageError

# Ids have 32 bits; longer digits are the beginning of a sha256.
_MAX_DIGITS = 10
_MEASURED_FIRST = case((RunRecord.provenance == Provenance.MEASURED.value, 0), else_=1)


def best_rows(session: Session, query: BestQuery) -> list[ResultRow]:
    """One row for each device, problem, provenance, cache state and fill, sorted by these."""
    return _result_rows(session, _in_order(session, best_places(session, query)))


def history_rows(session: Session, query: BestQuery, limit: int | None) -> list[ResultRow]:
    """As `best_rows`, one row for each environment too; of one place the oldest first.

    At most the first ``limit`` of them; no more is read.
    """
    places = best_places(session, query, (*GROUP, RunRecord.environment_id))
    return _result_rows(session, _in_order(session, places)[:limit])


def _in_order(session: Session, places: Iterable[BestPlace]) -> list[BestPlace]:
    """Order by the names and figures that stand for the numbers of a group, then by age."""
    devices = {one.id: one.name for one in session.scalars(select(DeviceRecord))}
    problems = {one.id: value_of(Problem, one) for one in session.scalars(select(ProblemRecord))}

    def key(place: BestPlace) -> tuple[object, ...]:
        device_id, problem_id, provenance, l2, fill, *_ = place.group
        problem = problems[problem_id]
        what = (devices[device_id], problem.flops, problem.label)
        return (*what, provenance, l2, fill, place.measured_at)

    return sorted(places, key=key)


def best_kernel(session: Session, query: BestQuery) -> StoredKernel:
    """The best kernel of the newest match; a measured one before a recorded one, and before both
    none whose source was not kept.

    Raises NotFoundError when nothing matches, or there is no source of anything that does.
    """
    timings = timings_at(session, best_places(session, query))
    if not timings:
        raise NotFoundError("no result matches: autogemm db best lists what there is")
    chosen = max(
        timings,
        key=lambda timing: (
            timing.kernel is not None,
            run_of(timing).provenance == Provenance.MEASURED,
            _measured_at(timing),
        ),
    )
    if chosen.kernel is None:
        raise NotFoundError(
            f"run {run_of(chosen).id} has times but no source of its best kernel (a recording from "
            "elsewhere has none): tune a family that ships, or one of your own"
        )
    return _stored_kernel(session, chosen, chosen.kernel)


def kernel_by_id(session: Session, kernel_id: int) -> StoredKernel:
    """A kernel with its newest finals, else its newest trial that ran well, else its newest; of one
    that was in no run what a benchmark or a profile knows.
    """
    kernel = session.get(KernelRecord, kernel_id)
    if kernel is None:
        raise NotFoundError(f"no kernel {kernel_id}: autogemm db best shows kernels")
    in_finals = (
        select(FinalsEntryRecord)
        .join(FinalsEntryRecord.finals)
        .join(FinalsRecord.run)
        .where(FinalsEntryRecord.kernel_id == kernel_id)
        .order_by(_MEASURED_FIRST, FinalsRecord.measured_at.desc(), FinalsRecord.id.desc())
        .limit(1)
    )
    tried = (
        select(TrialRecord)
        .join(TrialRecord.run)
        .where(TrialRecord.kernel_id == kernel_id)
        .order_by(
            case((TrialRecord.status == Status.OK.value, 0), else_=1),
            _MEASURED_FIRST,
            TrialRecord.finished_at.desc(),
            TrialRecord.id.desc(),
        )
        .limit(1)
    )
    timing = session.scalar(in_finals) or session.scalar(tried)
    if timing is not None:
        return _stored_kernel(session, timing, kernel)
    outside = kernel_outside_runs(session, kernel)
    if outside is None:
        raise NotFoundError(f"kernel {kernel_id} is stored, but no measurement of it")
    return outside


def find_kernel_id(session: Session, text: str) -> int:
    """The id that ``text`` is, or the kernel whose sha256 begins with it.

    Raises NotFoundError when there is none, UsageError when there are several.
    """
    if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS:
        return int(text)
    begins = KernelRecord.kernel_sha256.startswith(text.lower(), autoescape=True)
    found = list(session.scalars(select(KernelRecord.id).where(begins).limit(2)))
    if not found or not text:
        raise NotFoundError(
            f"no kernel {text!r}: give its number or the beginning of its sha256 "
            "(autogemm db best shows kernels)"
        )
    if len(found) > 1:
        raise UsageError(
            f"several kernels have a sha256 that begins with {text!r}: give more of it"
        )
    return found[0]


def _measured_at(timing: Timing) -> datetime:
    return timing.finished_at if isinstance(timing, TrialRecord) else timing.finals.measured_at


def _found(timing: Timing) -> dict[str, Any]:
    """The place and date of a timing, and the ratio with its interval; only finals have one."""
    ratios = {name: getattr(timing, name, None) for name in RATIO}
    return ratios | {"run_id": run_of(timing).id, "measured_at": _measured_at(timing)}


def _time_us(timing: Timing) -> float | None:
    if isinstance(timing, FinalsEntryRecord):
        return timing.time_us
    if timing.status == Status.OK.value and timing.measurement is not None:
        return timing.measurement.time_us
    return None


def _result_rows(session: Session, places: Sequence[BestPlace]) -> list[ResultRow]:
    found = timings_at(session, places)
    finals = {timing.finals_id for timing in found if isinstance(timing, FinalsEntryRecord)}
    entry = FinalsEntryRecord
    columns = select(entry.finals_id, entry.name, entry.energy_mj, entry.samples_us)
    rows = session.execute(columns.where(entry.place == 0, entry.finals_id.in_(finals)))
    baselines = {
        finals_id: {
            "baseline": name,
            "baseline_energy_mj": energy_mj,
            "baseline_samples_us": tuple(samples_us),
        }
        for finals_id, name, energy_mj, samples_us in rows
    }
    return [_result_row(timing, baselines) for timing in found]


def _result_row(timing: Timing, baselines: Mapping[int, Mapping[str, Any]]) -> ResultRow:
    """``baselines`` are the baseline's name, energy and samples, by finals."""
    run, time_us = run_of(timing), _time_us(timing)
    family, config = timing.family, timing.config
    if time_us is None or config is None or family is None:
        raise ValueError(f"the best of run {run.id} has no time or no config")
    return value_of(
        ResultRow,
        run,
        family=family,
        config=Config.of(family, config),
        time_us=time_us,
        **_found(timing),
        kernel_id=timing.kernel_id,
        template_sha256=timing.kernel.template_sha256 if timing.kernel is not None else None,
        samples_us=_samples_us(timing),
        **_beside(timing, baselines),
    )


def _beside(timing: Timing, baselines: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The baseline of the same finals, and energies; a trial has none."""
    nothing = dict.fromkeys(("baseline", "energy_mj", "baseline_energy_mj", "sustained"))
    if isinstance(timing, TrialRecord):
        return nothing | {"baseline_samples_us": ()}
    return {
        **nothing,
        "baseline_samples_us": (),
        **baselines.get(timing.finals_id, {}),
        "energy_mj": timing.energy_mj,
        # Only the winner has them: a kernel may be known by finals that another one won.
        "sustained": sustained_of(timing.finals) if timing.place == 1 else None,
    }


def _samples_us(timing: Timing) -> tuple[float, ...]:
    if isinstance(timing, FinalsEntryRecord):
        return tuple(timing.samples_us)
    return tuple(timing.measurement.samples_us) if timing.measurement is not None else ()


def _stored_kernel(session: Session, timing: Timing, kernel: KernelRecord) -> StoredKernel:
    run = run_of(timing)
    return value_of(
        StoredKernel,
        run,
        kernel_id=kernel.id,
        source=kernel_of(kernel),
        time_us=_time_us(timing),
        **_found(timing),
        verification=verification_of(timing),
        certificate=newest_certificate(session, kernel.id, run.device_id),
        baseline=_baseline_of(session, timing),
        kept_error=None,
    )


def _baseline_of(session: Session, timing: Timing) -> str | None:
    """The call of cuBLAS that a ratio is to; a trial has no ratio."""
    if isinstance(timing, TrialRecord):
        return None
    entry = FinalsEntryRecord
    of_baseline = select(entry.name).where(entry.finals_id == timing.finals_id, entry.place == 0)
    return session.scalar(of_baseline)

"""Estimates what results of the database are worth to a recorded program before it is changed."""

from dataclasses import dataclass

from autogemm.model.called import CalledGemm, Recorded
from autogemm.model.results.outcome import AgainstBaseline
from autogemm.programs.results import Results, results_on
from autogemm.support.errors import UsageError


@dataclass(frozen=True, slots=True)
class WorthLine:
    """One kind of product. ``ratio`` is baseline time / kernel time, None without a result.

    ``time_us`` is that of all calls: as recorded on a GPU; otherwise the baseline's in the result.
    ``saved_us`` is 0 where the result is not shown to be faster than the baseline.
    """

    label: str
    ops: str
    calls: int
    batch: int
    time_us: float | None
    ratio: float | None
    saved_us: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Worth:
    """All products of a program, and what is saved: of the products, and of the whole program.

    The whole is None where the program was not recorded on a GPU.
    """

    gpu: str
    lines: tuple[WorthLine, ...]
    time_us: float
    saved_us: float
    speedup: float | None


def worth_of(recorded: Recorded, gpu: str | None, db: str | None) -> Worth:
    """Return what the results on ``gpu`` are worth, by default on the GPU of the recording.

    Raises UsageError where there is neither.
    """
    name = gpu or recorded.gpu
    if not name:
        raise UsageError(
            "the recording was made on a CPU: name the GPU on which it will run with --gpu"
        )
    results = results_on(name, db)
    is_timed = recorded.clock == "cuda"
    lines = tuple(_line(one, results, is_timed) for one in recorded.gemms)
    time_us = sum(line.time_us or 0.0 for line in lines)
    saved_us = sum(line.saved_us for line in lines)
    whole_us = recorded.wall_us
    speedup = whole_us / (whole_us - saved_us) if is_timed and saved_us < whole_us else None
    return Worth(name, lines, time_us, saved_us, speedup)


def _line(one: CalledGemm, results: Results, is_timed: bool) -> WorthLine:
    row = None if one.problem is None else results.of(one.problem)
    seen = (one.label, one.ops, one.calls, one.batch)
    if row is None:
        verdict = "no kernels" if one.problem is None else "not tuned"
        return WorthLine(*seen, one.time_us if is_timed else None, None, 0.0, verdict)
    finals = row.finals
    baseline_us = finals.baseline.time_us * one.calls * one.batch
    time_us = one.time_us if is_timed else baseline_us
    against, ratio = finals.against_baseline, finals.winner.ratio
    saved_us = time_us * (1 - 1 / ratio) if against is AgainstBaseline.FASTER else 0.0
    return WorthLine(*seen, time_us, ratio, saved_us, str(against.value))

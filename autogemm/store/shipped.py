"""The catalogue of winners as rows of a database: recorded, and of no run."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

from autogemm.catalogue.gpus import find_device
from autogemm.catalogue.winners import TimedKernel, Winner, winners
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, Environment, Finals, FinalsEntry, Provenance
from autogemm.model.results.stored import StoredKernel, TimedText
from autogemm.store.tables.records import BestQuery, DecidedRow, RunSpec

EVERYTHING = BestQuery()
# Numbers of runs begin at 1.
NO_RUN = 0
_TEXTS = {
    TimedText.THIS: "",
    TimedText.EARLIER: ", as an earlier text",
    TimedText.UNKNOWN: ", whose source was not kept",
}


def shipped_winners(query: BestQuery) -> list[Winner]:
    """The catalogue's entries that match, in its order; they belong to no run, and are recorded.

    Raises ExchangeError for a broken file.
    """
    if query.run_id is not None or query.provenance is Provenance.MEASURED:
        return []
    return [
        one
        for one in winners()
        if query.is_about(one.problem, one.config.family)
        and (query.gpu or "").casefold() in one.gpu.casefold()
        and all(getattr(_environment(one), name).startswith(text) for name, text in query.versions)
    ]


def shipped_rows(
    families: Collection[str],
    arch: int | None = None,
    query: BestQuery = EVERYTHING,
    *,
    same_text: bool = False,
) -> list[DecidedRow]:
    """The catalogue's entries whose winner is of these families, one for each GPU and problem:
    where there are several, of warm caches rather than of others, then the one furthest ahead of
    its baseline. ``arch`` is a compute capability (90): GPUs of another major one are left out.
    With ``same_text`` only entries count whose text is the one that is emitted today.

    Raises ExchangeError for a broken file.
    """
    chosen = chosen_winners(families, query, same_text=same_text)
    rows = map(_row, chosen)
    return [row for row in rows if arch is None or row.spec.device.arch // 10 == arch // 10]


def chosen_winners(
    families: Collection[str], query: BestQuery, *, same_text: bool = False
) -> list[Winner]:
    """The entries that `shipped_rows` makes rows of.

    Raises ExchangeError for a broken file.
    """
    chosen: dict[tuple[str, Problem], Winner] = {}
    for one in shipped_winners(query):
        if one.config.family not in families or (same_text and one.text is not TimedText.THIS):
            continue
        place = (one.gpu, one.problem)
        if place not in chosen or _rank(one) > _rank(chosen[place]):
            chosen[place] = one
    return list(chosen.values())


def _rank(one: Winner) -> tuple[bool, float]:
    return (one.l2 is CacheState.WARM, one.kernels[0].ratio)


def _row(one: Winner) -> DecidedRow:
    spec = RunSpec(
        problem=one.problem,
        device=find_device(one.gpu),
        environment=_environment(one),
        families=tuple({kernel.config.family: None for kernel in one.kernels}),
        family_sha256="",
        fix=(),
        sampler="",
        seed=0,
        provenance=Provenance.RECORDED,
        command=one.command,
        l2=one.l2,
        max_error=one.max_error,
    )
    winner, *others = (_entry(kernel) for kernel in one.kernels)
    entries = (replace(winner, kernel_sha256=one.kernel_sha256), *others)
    baseline = FinalsEntry(
        one.baseline, None, "", (one.baseline_us,), *(1.0,) * 3, tied=False, verification=None
    )
    finals = Finals(entries, baseline, one.rounds, Provenance.RECORDED)
    return DecidedRow(NO_RUN, spec, finals, _day(one), origin_of(one))


def origin_of(one: Winner) -> str:
    """Where an entry comes from, in words."""
    return f"the catalogue, {one.date}{_TEXTS[one.text]}"


def shipped_kernel(one: Winner, source: KernelSource) -> StoredKernel:
    """An entry's winner, of which ``source`` is the text: recorded, of no run, without a number."""
    best = one.kernels[0]
    return StoredKernel(
        kernel_id=0,
        source=source,
        problem=one.problem,
        device=find_device(one.gpu),
        environment=_environment(one),
        provenance=Provenance.RECORDED,
        l2=one.l2,
        time_us=best.time_us,
        ratio=best.ratio,
        ratio_low=best.ratio_low,
        ratio_high=best.ratio_high,
        run_id=None,
        measured_at=_day(one),
        verification=None,
        baseline=one.baseline,
        kept_error=one.error,
    )


def _day(one: Winner) -> datetime:
    return datetime.fromisoformat(one.date).replace(tzinfo=UTC)


def _environment(one: Winner) -> Environment:
    return Environment(driver=one.driver, compiler=one.compiler, cublas=one.cublas)


def _entry(kernel: TimedKernel) -> FinalsEntry:
    ratios = (kernel.ratio, kernel.ratio_low, kernel.ratio_high)
    return FinalsEntry(
        str(kernel.config), kernel.config, "", (kernel.time_us,), *ratios, tied=False
    )

"""Reports of kernels side by side: a benchmark, or the winners of a whole database."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from autogemm.catalogue.ladder import Library, Rung, libraries, rungs
from autogemm.insight.analysis import Comparison, Timed, compare
from autogemm.insight.analysis.comparison import comparison_of
from autogemm.insight.report.data import comparison_data
from autogemm.insight.report.page import Page, Plot, Section, Table, filled, table
from autogemm.insight.report.run import facts_table, place_tables, profile_sections
from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.results.benchmark import Bench, BenchEntry, KernelKind
from autogemm.model.results.stored import Profile
from autogemm.store import BestQuery, RunLine, Store

SIZES = Plot("sizes", "Speed against size", "One panel per kernel, with the others as thin lines")
SHARES = Plot("shares", "All kernels and sizes", "One number per kernel and size")
LADDER = Plot("ladder", "The ladder", "One bar per kernel, in the order of the benchmark")
ROOFLINE = Plot("roofline", "Roofline", "One point per kernel and size, below the GPU's limits")


def bench_report(store: Store, bench_id: int | None) -> Page:
    """A benchmark, the newest without an id. Raises NotFoundError if there is none."""
    bench = store.bench(bench_id)
    kernels = {entry.kernel_sha256 for entry in bench.entries}
    profiles = [one for one in store.profiles() if one.kernel_sha256 in kernels]
    return bench_page(bench, store.ceilings(bench.spec.device), profiles)


def bench_page(bench: Bench, ceilings: Ceilings | None, profiles: Sequence[Profile] = ()) -> Page:
    """A benchmark, stored or not. ``profiles`` are newest first.

    Raises NotFoundError if it timed nothing.
    """
    comparison = comparison_of(bench, ceilings)
    spec = bench.spec
    facts: dict[str, Any] = {
        "benchmark": bench.bench_id or "not stored",
        "command": spec.command,
        "preset": spec.preset,
        "times": spec.provenance.value,
        "L2 before each launch": spec.l2.value,
        "matrices": spec.fill.value,
        "order of the rounds, seed": spec.seed,
    }
    sections = (
        _summary(comparison, ("Slower than the rung before", tuple(losses(comparison)))),
        Section("plots", "Pictures", plots=(LADDER, SHARES, SIZES, ROOFLINE)),
        Section("figures", "Figures", tables=_figures(comparison)),
        Section("kernels", "Kernels", tables=_kernels(bench)),
        *profile_sections(profiles, spec.device),
        Section(
            "environment",
            "Environment",
            tables=filled(
                facts_table("Benchmark", facts),
                facts_table("Ceilings as measured", asdict(ceilings) if ceilings else {}),
                *place_tables(spec.environment, spec.device),
            ),
        ),
    )
    return Page(
        f"{len({one.kernel for one in comparison.timed()})} kernels on {spec.device.name}",
        f"autogemm {comparison.source}, {bench.when('%Y-%m-%d %H:%M UTC')}",
        spec.provenance,
        sections,
        {"kernels": comparison_data(comparison), "meanings": {}},
    )


def database_report(store: Store, query: BestQuery) -> Page:
    """All runs that match, and the best kernels of the GPU of the newest.

    Raises NotFoundError when nothing matches.
    """
    comparison = compare(store, query, None, winners=True)
    runs = store.runs(query)
    place = place_tables(runs[0].spec.environment, comparison.device)
    sections = (
        _summary(comparison),
        Section("plots", "Pictures", plots=(SHARES, SIZES, ROOFLINE)),
        Section("figures", "Figures", tables=_figures(comparison)),
        Section("runs", "Runs", tables=(_runs(runs),)),
        Section("environment", "Environment", tables=place),
    )
    return Page(
        f"Tuned kernels on {comparison.device.name}",
        f"autogemm database, {len(runs)} run{'' if len(runs) == 1 else 's'}",
        comparison.provenance,
        sections,
        {"kernels": comparison_data(comparison), "meanings": {}},
    )


def _summary(comparison: Comparison, *more: tuple[str, tuple[str, ...]]) -> Section:
    """The comparison in words; ``more`` are lists with their headings."""
    limits = ("What limits them", tuple(limits_of_kernels(comparison)))
    return Section("summary", "Summary", tuple(bench_words(comparison)), (limits, *more))


def _figures(comparison: Comparison) -> tuple[Table, ...]:
    timed = comparison.timed()
    return tuple(
        table(
            f"{size}, {comparison.provenance} times",
            [_figure(one) for one in timed if one.problem.size_label == size],
        )
        for size in comparison.sizes()
    )


def _figure(one: Timed) -> dict[str, Any]:
    found = one.metrics
    return {
        "kernel": one.kernel,
        "dtype": one.problem.dtype.label,
        "time us": found.time_us,
        "GFLOP/s": found.gflops,
        "% of cuBLAS": found.percent_of_cublas,
        "interval": found.interval(" to "),
        "x naive": found.speedup_over_naive,
        "GB/s": found.bandwidth_gb_s,
        "FLOP/byte": found.flop_per_byte,
        "% of roof": found.percent_of_roof,
    }


def _kernels(bench: Bench) -> tuple[Table, ...]:
    climbed = {one.name: one for one in rungs(variants=True)}
    known: dict[str, Rung | Library] = {**climbed, **{one.name: one for one in libraries()}}
    kernels: dict[str, BenchEntry] = {}
    for entry in bench.entries:
        kernels.setdefault(entry.kernel, entry)
    rows = [
        {
            "kernel": name,
            "what it is": "; ".join(
                filter(None, (known[name].summary if name in known else "", entry.library))
            ),
            "registers": entry.registers,
            "limited by, on an H100": climbed[name].limit if name in climbed else None,
            "what helps": climbed[name].cure if name in climbed else None,
            "published, other GPUs": known[name].published if name in known else None,
            "config": entry.config.label if entry.config else None,
        }
        for name, entry in kernels.items()
    ]
    failed = [
        {
            "kernel": entry.kernel,
            "problem": entry.problem.label,
            "end": entry.status.value,
            "reason": entry.reason[:300],
        }
        for entry in bench.entries
        if entry.time_us is None
    ]
    return filled(table("What was compared", rows), table("Not timed", failed))


def _runs(runs: list[RunLine]) -> Table:
    rows = []
    for run in runs:
        rows.append(
            {
                "run": run.run_id,
                "GPU": run.spec.device.name,
                "problem": run.spec.problem.label,
                "times": run.spec.provenance.value,
                "families": " ".join(run.spec.families),
                "trials": run.num_trials,
                "best us": run.time_us,
                "TFLOP/s": run.spec.problem.tflops(run.time_us) if run.time_us else None,
                "x cuBLAS": None if run.ratio is None else f"{run.ratio:.3f}",
                "date": f"{run.started_at:%Y-%m-%d}",
            }
        )
    return table("All runs that match", rows, notes=("autogemm report --run ID has the details",))


# Below this share a rung counts as slower than the one before: clocks drift by a per cent.
SLOWER = 0.98


def bench_words(comparison: Comparison) -> list[str]:
    """The fastest FP32 kernel of our own of each size, and how it stands to cuBLAS and to naive."""
    found = [_fastest(size, each, comparison) for size, each in _by_size(comparison)]
    if comparison.ceilings is not None:
        found.append(_reached(comparison.ceilings, comparison.device))
    return found


def _reached(ceilings: Ceilings, device: Device) -> str:
    """Say how fast the GPU was with nothing else to do."""
    text = (
        f"The GPU reached {ceilings.fma_tflops:.3g} of {device.peak_f32_tflops:.3g} TFLOP/s with "
        f"independent multiply-adds, and copied at {ceilings.copy_gb_s:.4g} of "
        f"{device.peak_bandwidth_gb_s:.4g} GB/s"
    )
    if ceilings.l2_gb_s is not None:
        text += f"; it read data that stays in L2 at {ceilings.l2_gb_s:.4g} GB/s"
    return f"{text}."


def _by_size(comparison: Comparison) -> Iterator[tuple[str, list[Timed]]]:
    """The largest first. FP32 kernels only: others do less work for the same figure."""
    timed = [one for one in comparison.timed() if one.problem.dtype.has_fp32_products]
    for size in reversed(comparison.sizes()):
        each = [one for one in timed if one.problem.size_label == size]
        if each:
            yield size, each


def _best_own(timed: list[Timed]) -> Timed:
    """The fastest that is no library's; of libraries alone the fastest of them."""
    own = [one for one in timed if one.kind is not KernelKind.LIBRARY]
    return max(own or timed, key=lambda one: one.metrics.gflops)


def _fastest(size: str, timed: list[Timed], comparison: Comparison) -> str:
    best = _best_own(timed)
    text = f"{size}: {best.kernel} is the fastest with {best.tflops:.4g} TFLOP/s"
    found = best.metrics
    if found.percent_of_cublas is not None and not best.is_baseline:
        text += f", {found.percent_of_cublas:.4g} % of cuBLAS"
    if found.speedup_over_naive is not None:
        text += f" and {found.speedup_over_naive:.3g} times naive"
    return f"{text} ({comparison.provenance})."


def limits_of_kernels(comparison: Comparison) -> list[str]:
    """Describe which sizes memory bounds, and how far below the roof the fastest stay."""
    found = []
    for size, each in _by_size(comparison):
        best = _best_own(each)
        share, flop_per_byte = best.metrics.percent_of_roof, best.metrics.flop_per_byte
        roof = best.roof
        if share is None or roof is None:
            continue
        what = "memory" if flop_per_byte < roof.ridge_flop_per_byte else "arithmetic"
        found.append(
            f"{size}: {flop_per_byte:.3g} FLOP per byte that must move, so {what} is the limit; "
            f"{best.kernel} reaches {share:.3g} % of the roof."
        )
    return found


def losses(comparison: Comparison) -> list[str]:
    """Rungs that lost to the rung before, at the largest size: what did not pay on this GPU."""
    order = [rung.name for rung in rungs()]
    if not comparison.sizes():
        return []
    size = comparison.sizes()[-1]
    gflops = {
        one.kernel: one.metrics.gflops
        for one in comparison.timed()
        if one.problem.size_label == size and one.kernel in order
    }
    climbed = [name for name in order if name in gflops]
    return [
        f"{name}: {gflops[name] / gflops[before]:.3g} times the speed of {before} at {size}."
        for before, name in pairwise(climbed)
        if gflops[name] < SLOWER * gflops[before]
    ]

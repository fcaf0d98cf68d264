"""Kernels of one GPU side by side: those of a benchmark, or the winners in the database."""

from dataclasses import dataclass, replace

from autogemm.catalogue.gpus import roof_of
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Ceilings, Device, Roof
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import (
    Bench,
    BenchEntry,
    KernelKind,
    Metrics,
    baseline_of,
    metrics,
)
from autogemm.model.results.outcome import Provenance, Status
from autogemm.store import BestQuery, ResultRow, Store
from autogemm.support.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel that was timed, with its figures, and the roof above it if the GPU has one."""

    kernel: str
    kind: KernelKind
    problem: Problem
    metrics: Metrics
    roof: Roof | None
    is_baseline: bool

    @property
    def tflops(self) -> float:
        """Speed in TFLOP/s."""
        return 1e-3 * self.metrics.gflops


def role_of(one: Timed) -> str:
    """Return the role of a kernel in pictures: the name of a colour of the palette."""
    if one.is_baseline:
        return "baseline"
    return {KernelKind.LIBRARY: "library", KernelKind.STORED: "own"}.get(one.kind, "other")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``entries`` of one ``device``; ``source`` and ``date`` say which, ``ceilings`` if measured.

    Those of a benchmark were timed side by side. Winners were not: each is compared with the cuBLAS
    of its own run only.
    """

    device: Device
    provenance: Provenance
    source: str
    date: str
    entries: tuple[BenchEntry, ...]
    ceilings: Ceilings | None

    @property
    def caption(self) -> str:
        """GPU, source, date, and where the times come from."""
        return f"{self.device.name}, {self.source}, {self.date}, {self.provenance} times"

    def timed(self) -> list[Timed]:
        """All that have a time, as they stand."""
        found = []
        for entry in self.entries:
            roof = roof_of(self.device, entry.problem.dtype, entry.config)
            figures = metrics(entry, self.entries, roof)
            if figures is not None:
                found.append(
                    Timed(
                        *(entry.kernel, entry.kind, entry.problem, figures, roof),
                        is_baseline=entry.is_baseline,
                    )
                )
        return found

    def sizes(self) -> list[str]:
        """The sizes that were timed, the smallest amount of work first."""
        problems = {one.problem.size_label: one.problem.flops for one in self.timed()}
        return sorted(problems, key=lambda label: problems[label])


def compare(store: Store, query: BestQuery, bench_id: int | None, *, winners: bool) -> Comparison:
    """A benchmark (the newest one without an id); with ``winners``, or if there is none, winners.

    ``query`` narrows sizes and the rest. Raises NotFoundError when nothing is left.
    """
    if not winners and (bench_id is not None or store.benches(limit=1)):
        bench = store.bench(bench_id)
        return comparison_of(bench, store.ceilings(bench.spec.device), query.size)
    return best_kernels(store, query)


def comparison_of(bench: Bench, ceilings: Ceilings | None, size: str | None = None) -> Comparison:
    """A benchmark as a comparison. Raises NotFoundError if it timed nothing of that size."""
    extents = None if size is None else Problem.parse_size(size)
    entries = tuple(
        entry
        for entry in bench.entries
        if extents in (None, (entry.problem.m, entry.problem.n, entry.problem.k))
    )
    if not any(entry.time_us is not None for entry in entries):
        raise NotFoundError(
            f"benchmark {bench.bench_id} timed no kernel" + (f" of size {size}" if size else "")
        )
    return Comparison(
        device=bench.spec.device,
        provenance=bench.spec.provenance,
        source=f"benchmark {bench.bench_id}" if bench.bench_id else "benchmark",
        date=bench.when(),
        entries=entries,
        ceilings=ceilings,
    )


def best_kernels(store: Store, query: BestQuery) -> Comparison:
    """The best kernel of each problem, and its cuBLAS, on the GPU of the newest of them.

    Measured times come before recorded ones; the two are never mixed.
    """
    rows = store.best(query)
    if not rows:
        raise NotFoundError(
            "nothing matches in the database: autogemm db best shows what there is, autogemm tune "
            "and autogemm bench make more"
        )
    measured = [row for row in rows if row.provenance is Provenance.MEASURED]
    newest = max(measured or rows, key=lambda row: row.measured_at)
    chosen = [
        row
        for row in measured or rows
        if row.device.name == newest.device.name and (row.l2, row.fill) == (newest.l2, newest.fill)
    ]
    return Comparison(
        device=newest.device,
        provenance=newest.provenance,
        source="winners in the database",
        date=f"{newest.measured_at:%Y-%m-%d}",
        entries=tuple(entry for row in chosen for entry in _entries(row)),
        ceilings=store.ceilings(newest.device),
    )


def _entries(row: ResultRow) -> list[BenchEntry]:
    """The winner, and cuBLAS in the same finals."""
    winner = BenchEntry(
        kernel="winner",
        kind=KernelKind.STORED,
        problem=row.problem,
        status=Status.OK,
        config=row.config,
        samples_us=row.samples_us or (row.time_us,),
        ratio=row.ratio,
        ratio_low=row.ratio_low,
        ratio_high=row.ratio_high,
    )
    if row.ratio is None or not row.baseline_samples_us:
        return [winner]
    baseline = replace(
        winner,
        kernel=baseline_of(row.problem.dtype),
        kind=KernelKind.LIBRARY,
        config=None,
        samples_us=row.baseline_samples_us,
        ratio=1.0,
        ratio_low=1.0,
        ratio_high=1.0,
    )
    return [winner, baseline]


# One for each kind of products; what C is made of makes no difference.
TENSOR_DTYPES = tuple(one for one in DType.one_each() if not one.has_fp32_products)


@dataclass(frozen=True, slots=True)
class Slope:
    """A memory: ``tb_s`` is 1e12 bytes a second, which is TFLOP/s at one FLOP per byte."""

    name: str
    tb_s: float


@dataclass(frozen=True, slots=True)
class Ceiling:
    """An arithmetic unit at its most."""

    name: str
    tflops: float


def roofs(device: Device, measured: Ceilings | None) -> tuple[list[Slope], list[Ceiling]]:
    """Memory roofs and compute roofs, theory first; device memory is the first slope.

    The roof of L2 is that of matrices which stay there; what shared memory delivers bounds no
    kernel by the bytes that must move. Both are empty for a GPU of which only the name is known.
    """
    theory = roof_of(device)
    if theory is None:
        return [], []
    slopes = [Slope("DRAM", 1e-3 * theory.bandwidth_gb_s)]
    ceilings = [Ceiling("FP32, CUDA cores", theory.peak_tflops)]
    if measured is not None:
        slopes.append(Slope("copy as measured", 1e-3 * measured.copy_gb_s))
        ceilings.append(Ceiling("FP32 as measured", measured.fma_tflops))
        if measured.l2_gb_s is not None:
            slopes.append(Slope("L2 as measured", 1e-3 * measured.l2_gb_s))
    return slopes, ceilings + _tensor_cores(device)


def _tensor_cores(device: Device) -> list[Ceiling]:
    """Return the known ceilings; dtypes that are as fast as each other share one."""
    names: dict[float, list[str]] = {}
    for dtype in TENSOR_DTYPES:
        roof = roof_of(device, dtype)
        if roof is not None:
            names.setdefault(roof.peak_tflops, []).append(dtype.ab.label.upper())
    return [
        Ceiling(f"{' and '.join(labels)}, tensor cores", peak) for peak, labels in names.items()
    ]

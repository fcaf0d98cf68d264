"""A benchmark to store and to draw: made-up times of five kernels at two sizes."""

from dataclasses import replace
from datetime import UTC, datetime

from store_samples import ENVIRONMENT, H100, TELEMETRY, VERIFIED, source

from autogemm.model.hardware.device import Ceilings
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import BenchEntry, BenchSpec, KernelKind
from autogemm.model.results.outcome import Provenance, Status
from autogemm.model.results.stored import Profile
from autogemm.store import Store

SPEC = BenchSpec(
    device=H100,
    environment=ENVIRONMENT,
    provenance=Provenance.MEASURED,
    command="autogemm bench --preset ladder",
    preset="ladder",
    seed=7,
)

CEILINGS = Ceilings(
    63.0,
    3030.0,
    1980,
    datetime(2026, 11, 21, 9, tzinfo=UTC),
    l2_gb_s=5600.0,
    smem_gb_s=31000.0,
    l2_latency_cycles=270.0,
)

PROFILE = Profile(
    kernel="tiled",
    config=source(64).config,
    kernel_sha256=source(64).sha256,
    problem=Problem.of_size("1024"),
    device=H100,
    environment=ENVIRONMENT,
    profiler="Nsight Compute 2025.3",
    counters=(("sm__warps_active.avg.pct_of_peak_sustained_active", 99.5), ("gpu__time.sum", 3e-4)),
    made_at=datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
)


def timed(kernel: str, problem: Problem, time_us: float, ratio: float | None) -> BenchEntry:
    """A library's kernel: three samples about ``time_us``."""
    is_library = kernel.startswith("cublas")
    return BenchEntry(
        kernel=kernel,
        kind=KernelKind.LIBRARY if is_library else KernelKind.RUNG,
        problem=problem,
        status=Status.OK,
        library="cuBLAS 13.1" if is_library else "",
        samples_us=(0.9 * time_us, time_us, 1.2 * time_us),
        method="graph",
        launches_per_sample=20,
        ratio=ratio,
        ratio_low=None if ratio is None else 0.98 * ratio,
        ratio_high=None if ratio is None else 1.02 * ratio,
        verification=VERIFIED,
        telemetry=TELEMETRY,
    )


def entries(size: str) -> tuple[BenchEntry, ...]:
    """cuBLAS takes 100 us, naive 1000, tiled 400, our own 80; the last one was wrong."""
    problem = Problem.of_size(size)
    ours = source(64)
    own = replace(
        timed("kernel 1", problem, 80.0, 1.25),
        kind=KernelKind.STORED,
        config=ours.config,
        kernel_sha256=ours.sha256,
        registers=125,
    )
    wrong = BenchEntry(
        "coarsened", KernelKind.RUNG, problem, Status.WRONG_RESULT, "3 of 9 elements are wrong"
    )
    return (
        timed("naive", problem, 1000.0, 0.1),
        timed("tiled", problem, 400.0, 0.25),
        own,
        timed("cublas_f32", problem, 100.0, 1.0),
        wrong,
    )


def fill_bench(store: Store) -> int:
    """The finished benchmark of both sizes, its ceilings and a profile; the benchmark's id."""
    bench_id = store.begin_bench(SPEC)
    store.record_entries(bench_id, entries("1024"), {source(64).sha256: source(64)})
    store.record_entries(bench_id, entries("512x256x64"), {})
    store.finish_bench(bench_id)
    store.record_ceilings(H100, ENVIRONMENT, CEILINGS)
    store.record_profile(PROFILE, source(64))
    return bench_id

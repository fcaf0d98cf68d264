"""A benchmark as rows: one for each kernel and size, with every figure."""

from dataclasses import asdict

from autogemm.catalogue.gpus import roof_of
from autogemm.catalogue.ladder import published_percent
from autogemm.cli.output import Row
from autogemm.model.benchmark import Bench, BenchEntry, metrics
from autogemm.model.splitting import splitting_of

# All of them, for scripts.
COLUMNS = (
    *("kernel", "kind", "size", "dtype", "layout", "status", "reason", "time_us", "gflops"),
    *("percent_of_cublas", "percent_of_cublas_low", "percent_of_cublas_high", "confidence"),
    *("speedup_over_naive", "bandwidth_gb_s", "flop_per_byte", "percent_of_roof"),
    *("published_percent", "max_abs_error", "relative_frobenius", "rounds", "method", "registers"),
    *("library", "splitting", "config"),
)
# What fits a person's terminal.
SHOWN = (
    *("kernel", "dtype", "time_us", "gflops", "percent_of_cublas", "interval"),
    *("published_percent", "speedup_over_naive", "bandwidth_gb_s", "percent_of_roof"),
    "max_abs_error",
)


def bench_rows(done: Bench) -> list[Row]:
    """In the order of the benchmark."""
    return [_row(entry, done) for entry in done.entries]


def _row(entry: BenchEntry, done: Bench) -> Row:
    problem, verified = entry.problem, entry.verification
    splitting = splitting_of(entry.config)
    figures = metrics(entry, done.entries, roof_of(done.spec.device, problem.dtype, entry.config))
    row: dict[str, object] = {
        "kernel": entry.kernel,
        "kind": entry.kind.value,
        "size": problem.size_label,
        "dtype": problem.dtype.label,
        "layout": problem.layout.value,
        "status": entry.status.value,
        "reason": entry.reason,
        "rounds": len(entry.samples_us),
        "method": entry.method,
        "registers": entry.registers,
        "library": entry.library,
        "splitting": splitting.label if splitting is not None else "",
        "config": entry.config.label if entry.config is not None else "",
        "published_percent": published_percent(entry.kernel),
    }
    if verified is not None:
        row["max_abs_error"] = verified.max_abs_error
        row["relative_frobenius"] = verified.relative_frobenius
    if figures is not None:
        row |= asdict(figures)
        row["interval"] = figures.interval("..")
    return row

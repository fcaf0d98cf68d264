"""A benchmark as rows: one for each kernel and size, with every figure."""

from dataclasses import asdict

from autogemm.catalogue.gpus import roof_of
from autogemm.catalogue.ladder import published_percent
from autogemm.cli.output import Row
from autogemm.cli.rows import for_json
from autogemm.model.benchmark import Bench, BenchEntry, metrics
from autogemm.model.columns import ERRORS, RATIO, SPEED, Paths, row_of, under
from autogemm.model.splitting import splitting_of

# All of them, for scripts.
COLUMNS = (
    *("kernel", "kind", "size", "dtype", "layout", "status", "reason", *SPEED, *RATIO),
    *("confidence", "speedup_over_naive", "bandwidth_gb_s", "flop_per_byte", "percent_of_roof"),
    *("published_percent", *ERRORS, "rounds", "method", "registers"),
    *("library", "splitting", "config"),
)
# What fits a person's terminal.
SHOWN = (
    *("kernel", "dtype", *SPEED, "percent_of_cublas", "interval"),
    *("published_percent", "speedup_over_naive", "bandwidth_gb_s", "percent_of_roof"),
    "max_abs_error",
)
_ENTRY: Paths = {
    **under("", ("kernel", "kind", "status", "reason", "method", "registers", "library")),
    **under("problem", {"size": "size_label", "dtype": "dtype.label", "layout": "layout"}),
    **under("verification", ERRORS),
}


def bench_rows(done: Bench) -> list[Row]:
    """In the order of the benchmark."""
    return [_row(entry, done) for entry in done.entries]


def _row(entry: BenchEntry, done: Bench) -> Row:
    roof = roof_of(done.spec.device, entry.problem.dtype, entry.config)
    figures = metrics(entry, done.entries, roof)
    splitting = splitting_of(entry.config)
    row = {
        **row_of(entry, _ENTRY),
        "rounds": len(entry.samples_us),
        "splitting": splitting.label if splitting is not None else "",
        "config": entry.config.label if entry.config is not None else "",
        "published_percent": published_percent(entry.kernel),
    }
    if figures is not None:
        people = {"percent_of_cublas": figures.percent_of_cublas}
        row |= {**asdict(figures), **people, "interval": figures.interval("..")}
    return for_json(row)

"""``autogemm bench``: kernels timed side by side."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from autogemm.bench.kernels import (
    DEADLINE_S,
    BenchRequest,
    Listener,
    SizeDone,
    kernels_of,
    named_kernels,
    parse_sizes,
    run_bench,
)
from autogemm.bench.kernels import names_of as kernel_names
from autogemm.catalogue.gpus import roof_of
from autogemm.catalogue.ladder import published_percent
from autogemm.catalogue.presets import preset
from autogemm.cli import command_line
from autogemm.cli.files import require_output, write_output
from autogemm.cli.options import BenchName, bench_id_of, names_of
from autogemm.cli.output import Form, print_rows
from autogemm.cli.progress import Meter, bars, is_live
from autogemm.cli.prose import say
from autogemm.cli.rows import for_json, open_database
from autogemm.cli.table import Row, print_table
from autogemm.formats import read_bench_listing
from autogemm.insight.report import BEGINNING, bench_page, render_page, require_packages
from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.hardware.device import Ceilings
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.benchmark import Bench, BenchEntry, KernelKind, metrics
from autogemm.model.results.columns import ERRORS, RATIO, SPEED, Paths, row_of, under
from autogemm.model.results.outcome import CacheState, Fill
from autogemm.model.splitting import splitting_of
from autogemm.store import Store, open_store
from autogemm.support.amounts import counted
from autogemm.support.errors import DeviceError, NotFoundError, UsageError
from autogemm.targets import MeasureOptions, open_gpu, why_no_gpu

# All of them, for scripts.
COLUMNS = (
    *("kernel", "kind", "size", "dtype", "layout", "status", "reason", *SPEED, *RATIO),
    *("confidence", "speedup_over_naive", "bandwidth_gb_s", "flop_per_byte", "percent_of_roof"),
    *("published_percent", *ERRORS, "rounds", "method", "registers"),
    *("library", "splitting", "family", "config", "gpu", "measured_at"),
)
# Those of a table; SHORT without --wide.
SHOWN = (
    *("kernel", "dtype", *SPEED, "percent_of_cublas", "interval"),
    *("published_percent", "speedup_over_naive", "bandwidth_gb_s", "percent_of_roof"),
    "max_abs_error",
)
SHORT = ("kernel", "dtype", "time_us", "tflops", "percent_of_cublas", "interval")
_ENTRY: Paths = {
    **under("", ("kernel", "kind", "status", "reason", "method", "registers", "library")),
    **under("problem", {"size": "size_label", "dtype": "dtype.label", "layout": "layout"}),
    **under("verification", ERRORS),
}


@dataclass(frozen=True, slots=True)
class BenchCommand:
    """One call of the command. ``show`` is the number of a stored benchmark, or ``last``; without
    a ``layout`` it is nn, of 8-bit types nt.
    """

    kernels: str | None
    sizes: str | None
    preset: str | None
    layout: Layout | None
    dtype: str
    epilogue: str
    batch: str
    rounds: int
    seed: int
    l2: CacheState
    fill: Fill
    report: str | None
    no_store: bool
    show: BenchName | None
    as_list: bool
    quiet: bool
    db: str | None
    form: Form


def run(command: BenchCommand) -> None:
    """Measure or show a benchmark, or list the kernels."""
    if command.as_list:
        print_rows(_kernel_rows(), ("kernel", "kind", "summary"), command.form)
        return
    if command.report:
        require_packages()
        require_output(command.report, force=False, ours=BEGINNING)
    if command.show:
        done, ceilings = _stored(command)
    else:
        with ExitStack() as stack:
            done, ceilings = _measured(_request(command), command, stack)
    if command.report:
        _write_report(command.report, done, ceilings)
    rows = bench_rows(done)
    if command.form is Form.TABLE:
        _print(done, rows)
    else:
        print_rows(rows, COLUMNS, command.form)


def _stored(command: BenchCommand) -> tuple[Bench, Ceilings | None]:
    """Return a stored benchmark, or a file's. Raises NotFoundError for one that is not there."""
    if isinstance(command.show, Path):
        return read_bench_listing(command.show), None
    with open_database(command.db) as store:
        done = store.bench(bench_id_of(command.show))
        return done, store.ceilings(done.spec.device)


def _request(command: BenchCommand) -> BenchRequest:
    name, dtype = command.preset, DType.parse(command.dtype)
    sizes = parse_sizes(command.sizes) if command.sizes else preset(name) if name else ()
    if not sizes:
        raise UsageError("give --sizes (1024,4096x256x1024,128:8192:*2) or --preset ladder")
    kernels = names_of(command.kernels) or kernels_of(name, dtype)
    return BenchRequest(
        kernels=named_kernels(kernels),
        sizes=tuple(sizes),
        layout=command.layout or (Layout.NT if dtype.size_bytes == 1 else Layout.NN),
        dtype=dtype,
        rounds=command.rounds,
        preset=name or "",
        command=command_line(),
        epilogue=Epilogue.parse(command.epilogue),
        batch=Batch.parse(command.batch),
        measure=MeasureOptions(
            l2=command.l2, fill=command.fill, seed=command.seed, deadline_s=DEADLINE_S
        ),
    )


def _write_report(path: str, done: Bench, ceilings: Ceilings | None) -> None:
    page = render_page(bench_page(done, ceilings))
    write_output(path, page, force=False, ours=BEGINNING)
    say(f"{path}: {len(page) / 1e6:.1f} MB", err=True)


def _measured(
    request: BenchRequest, command: BenchCommand, stack: ExitStack
) -> tuple[Bench, Ceilings | None]:
    """Return the benchmark, and the GPU's ceilings if they are stored.

    Raises DeviceError without a GPU.
    """
    if why := why_no_gpu():
        raise DeviceError(f"a benchmark needs a GPU: {why}")
    store = _store(command)
    if store is not None:
        stack.enter_context(store)
    target = stack.enter_context(closing(open_gpu()))
    compiler = stack.enter_context(closing(target.compiler()))
    listener = stack.enter_context(_listener(request, command.quiet))
    done = run_bench(request, target, compiler, store, listener, keep=not command.no_store)
    return done, store.ceilings(done.spec.device) if store is not None else None


def _store(command: BenchCommand) -> Store | None:
    """Where times go and stored kernels are; None where nothing is to be stored and none is."""
    if not command.no_store:
        return open_store(command.db)
    with suppress(NotFoundError):
        return open_database(command.db)
    return None


@contextmanager
def _listener(request: BenchRequest, quiet: bool) -> Iterator[Listener]:
    """Yield what shows the progress: a bar on a terminal, lines elsewhere, nothing if quiet."""
    if quiet:
        yield Listener()
    elif is_live(console := Console(stderr=True)):
        with bars(console) as progress:
            yield LiveLine(request, progress)
    else:
        yield Lines(request)


def _kernel_rows() -> list[Row]:
    stored = {"kernel": "winner", "kind": "stored", "summary": "the best in the database, by size"}
    one = {"kernel": "kernel:ID", "kind": "stored", "summary": "a kernel in the database"}
    listed: list[Row] = [
        {"kernel": name, "kind": kind.value, "summary": summary}
        for kind in (KernelKind.RUNG, KernelKind.LIBRARY)
        for name, summary in kernel_names(kind)
    ]
    return [*listed, stored, one]


def _arithmetic(done: Bench) -> list[str]:
    """Return how kernels compute FP32 by products of other types, each way once."""
    found = ((entry.kernel, splitting_of(entry.config)) for entry in done.entries)
    return list(dict.fromkeys(f"{kernel}: {how.words}" for kernel, how in found if how is not None))


def _print(done: Bench, rows: list[Row]) -> None:
    spec = done.spec
    stored = f", benchmark {done.bench_id}" if done.bench_id else ""
    used = spec.environment
    say(f"{spec.device.name}, {done.when()}{stored}")
    # A listing from a file does not contain the versions.
    named = (("driver ", used.driver), ("cuBLAS ", used.cublas), ("", used.compiler))
    versions = ", ".join(name + version for name, version in named if version)
    say(f"{versions}: {spec.command}" if versions else spec.command)
    for size in dict.fromkeys(row["size"] for row in rows):
        say()
        chosen = [row for row in rows if row["size"] == size]
        print_table(chosen, SHOWN, title=f"M x N x K: {size}", short=SHORT)
    for words in _arithmetic(done):
        say(f"\n{words}")
    left_out = [row for row in rows if row["status"] != "ok"]
    if left_out:
        say()
        print_table(left_out, ("kernel", "size", "status", "reason"), title="Not timed")


def bench_rows(done: Bench) -> list[Row]:
    """Return the rows in the order of the benchmark."""
    return [_row(entry, done) for entry in done.entries]


def _row(entry: BenchEntry, done: Bench) -> Row:
    roof = roof_of(done.spec.device, entry.problem.dtype, entry.config)
    figures = metrics(entry, done.entries, roof)
    splitting = splitting_of(entry.config)
    row = {
        **row_of(entry, _ENTRY),
        "rounds": len(entry.samples_us),
        "splitting": splitting.label if splitting is not None else "",
        "family": entry.config.family if entry.config is not None else "",
        "config": entry.config.label if entry.config is not None else "",
        "published_percent": published_percent(entry.kernel),
        "gpu": done.spec.device.name,
        "measured_at": done.started_at,
    }
    if figures is not None:
        people = {"percent_of_cublas": figures.percent_of_cublas}
        row |= {**asdict(figures), **people, "interval": figures.interval("..")}
    return for_json(row)


class Lines(Listener):
    """Prints a line for each size that is done."""

    def __init__(self, request: BenchRequest) -> None:
        num_kernels, num_sizes = len(request.kernels), len(request.sizes)
        say(f"{counted(num_kernels, 'kernel')}, {counted(num_sizes, 'size')}", err=True)

    def done(self, size: SizeDone) -> None:
        """Print the size, and how many kernels were timed."""
        num_timed = sum(entry.time_us is not None for entry in size.entries)
        label = size.entries[0].problem.size_label
        say(
            f"{size.number} of {size.count}: {label}, {num_timed} of {len(size.entries)} timed",
            err=True,
        )


class LiveLine(Listener):
    """Shows a bar over verifications and rounds of all sizes."""

    def __init__(self, request: BenchRequest, progress: Progress) -> None:
        self._progress = progress
        ours = [one for one in request.kernels if one.kind is not KernelKind.LIBRARY]
        self._verifications = len(ours)
        self._each = len(ours) + request.rounds
        self._sizes_done = 0
        self._meter = Meter(self._each * len(request.sizes), "steps")
        self._best = ""
        total = self._meter.total
        self._task = progress.add_task(f"{total} verifications and rounds", total=total)

    def verifying(self, problem: Problem, kernel: str) -> None:
        """Show the kernel that is verified."""
        self._meter.note = f"{problem.size_label}: verifying {kernel}{self._best}"
        self._meter.done += 1
        self._redraw()

    def timing(self, problem: Problem, done: int, total: int) -> None:
        """Show how many rounds are done."""
        self._meter.note = f"{problem.size_label}: {done} of {total} rounds timed{self._best}"
        self._meter.done = self._sizes_done * self._each + self._verifications + done
        self._redraw()

    def done(self, size: SizeDone) -> None:
        """Advance the bar to the end of the size, whose rounds may have been fewer."""
        self._sizes_done = size.number
        self._meter.done = self._each * size.number
        timed = [entry for entry in size.entries if entry.time_us is not None]
        if timed:
            fastest = min(timed, key=lambda entry: entry.time_us or 0.0)
            self._best = f", best at {fastest.problem.size_label}: {fastest.kernel}"
        self._redraw()

    def _redraw(self) -> None:
        done, line = self._meter.done, self._meter.line
        self._progress.update(self._task, completed=done, description=line)

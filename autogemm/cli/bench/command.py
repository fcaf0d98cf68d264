"""``autogemm bench``: kernels timed side by side."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.bench.rows import COLUMNS, SHOWN, bench_rows
from autogemm.cli.files import require_output, write_output
from autogemm.cli.filters import bench_id_of, bench_option, open_database
from autogemm.cli.options import db_option, dtype_option
from autogemm.cli.output import Row, listing_options, print_rows, print_table
from autogemm.model.dtypes import DType
from autogemm.model.outcome import CacheState, Fill
from autogemm.model.problem import Layout
from autogemm.support.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogemm.bench.kernels import BenchRequest, Listener
    from autogemm.model.benchmark import Bench
    from autogemm.model.hardware.roofline import Ceilings


@click.command(short_help="Time kernels side by side: rungs, your own, libraries.")
@click.option(
    "--kernels",
    metavar="NAME,NAME",
    help="Rungs, `winner`, kernel:ID, libraries; the groups rungs, variants, libraries. Default: a "
    "few, all with --preset ladder.",
)
@click.option(
    "--sizes",
    metavar="SIZE,SIZE",
    help="4096, MxNxK, 128:8192:*2, 128:1024:+128, @FILE with one a line.",
)
@click.option(
    "--preset", metavar="NAME", help="Sizes by name: ladder, squares, transformer, suite."
)
@click.option(
    "--layout",
    type=click.Choice([one.value for one in Layout]),
    default="nn",
    show_default=True,
    help="op(A) then op(B): n as stored, t transposed.",
)
@dtype_option(default=DType.F32.label)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How often each kernel takes its turn.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the inputs and of the order within rounds.",
)
@click.option(
    "--l2",
    type=click.Choice([state.value for state in CacheState]),
    default=CacheState.WARM.value,
    show_default=True,
    help="L2 cache before each launch: warm, flushed, or full of other inputs.",
)
@click.option(
    "--fill",
    type=click.Choice([fill.value for fill in Fill]),
    default=Fill.UNIFORM.value,
    show_default=True,
    help="What the matrices hold while kernels are timed.",
)
@click.option("--report", metavar="FILE", help="Also write a report: one HTML file.")
@click.option("--no-store", is_flag=True, help="Keep nothing in the database.")
@bench_option("--show", help="Show a benchmark of the database, measure nothing.")
@click.option("--list", "as_list", is_flag=True, help="List the kernels that can be named.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
@db_option
@listing_options
def bench(as_json: bool, as_csv: bool, **options: Any) -> None:
    """Time any set of kernels over any set of sizes on the attached GPU, side by side.

    Every kernel is verified on random inputs before its time counts, then all of them run in turn,
    in random order, round after round; a slow one sits the later rounds out. Percent of cuBLAS, in
    the benchmark's element types, is the median of paired ratios, with a 95 % interval (with fewer
    than six rounds their extremes, and what these are worth); the published one is of other
    people's cards. Rungs are FP32; libraries have their element types in their names.
    Whoever is wrong, not installed or not made for a size is listed with the reason.

    \b
    Examples:
      autogemm bench --preset ladder --report ladder.html
      autogemm bench --kernels tiled,kernel:12,cublas_f32,torch_f32 --sizes 128:8192:*2
      autogemm bench --dtype bf16 --kernels winner,kernel:12,cublas_bf16 --sizes 4096
      autogemm bench --sizes 4096x256x1024,@sizes.txt --csv
      autogemm bench --show last --csv
      autogemm bench --list
    """
    if options["as_list"]:
        print_rows(_kernel_rows(), ("kernel", "kind", "summary"), as_json=as_json, as_csv=as_csv)
        return
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other: choose one")
    report = options["report"]
    if report:
        from autogemm.insight.report import BEGINNING, require_packages

        require_packages()
        require_output(report, force=False, ours=BEGINNING)
    if options["show"]:
        done, ceilings = _stored(options)
    else:
        with ExitStack() as stack:
            done, ceilings = _run(_request(options), options, stack)
    if report:
        _write_report(report, done, ceilings)
    rows = bench_rows(done)
    if as_json or as_csv:
        print_rows(rows, COLUMNS, as_json=as_json, as_csv=as_csv)
    else:
        _print(done, rows)


def _stored(options: dict[str, Any]) -> tuple[Bench, Ceilings | None]:
    """Raises NotFoundError for one that is not there."""
    with open_database(options["db"]) as store:
        done = store.bench(bench_id_of(options["show"]))
        return done, store.ceilings(done.spec.device)


def _request(options: dict[str, Any]) -> BenchRequest:
    from autogemm.bench.kernels import (
        DEADLINE_S,
        BenchRequest,
        kernels_of,
        named_kernels,
        parse_sizes,
    )
    from autogemm.catalogue.presets import preset
    from autogemm.cli.tune.setup import command_line
    from autogemm.targets import MeasureOptions

    name, given, dtype = options["preset"], options["sizes"], DType.parse(options["dtype"])
    sizes = list(preset(name)) if name and not given else []
    sizes += parse_sizes(given) if given else []
    if not sizes:
        raise UsageError("give --sizes (1024,4096x256x1024,128:8192:*2) or --preset ladder")
    named = options["kernels"]
    kernels = [one.strip() for one in named.split(",")] if named else kernels_of(name, dtype)
    return BenchRequest(
        kernels=named_kernels(kernels),
        sizes=tuple(sizes),
        layout=Layout(options["layout"]),
        dtype=dtype,
        rounds=options["rounds"],
        preset=name or "",
        command=command_line(),
        measure=MeasureOptions(
            l2=CacheState(options["l2"]),
            fill=Fill(options["fill"]),
            seed=options["seed"],
            deadline_s=DEADLINE_S,
        ),
    )


def _write_report(path: str, done: Bench, ceilings: Ceilings | None) -> None:
    from autogemm.insight.report import BEGINNING, bench_page, render_page

    page = render_page(bench_page(done, ceilings))
    write_output(path, page, force=False, ours=BEGINNING)
    click.echo(f"{path}: {len(page) / 1e6:.1f} MB", err=True)


def _run(
    request: BenchRequest, options: dict[str, Any], stack: ExitStack
) -> tuple[Bench, Ceilings | None]:
    """The benchmark, and the card's ceilings if they are stored. DeviceError without a GPU."""
    from autogemm.bench.kernels import run_bench
    from autogemm.store import open_store
    from autogemm.targets import open_gpu, why_no_gpu

    if why := why_no_gpu():
        raise DeviceError(f"a benchmark needs a GPU: {why}")
    store = None if options["no_store"] else stack.enter_context(open_store(options["db"]))
    target = stack.enter_context(closing(open_gpu()))
    compiler = stack.enter_context(closing(target.compiler()))
    listener = stack.enter_context(_listener(request, options["quiet"]))
    done = run_bench(request, target, compiler, store, listener)
    return done, store.ceilings(done.spec.device) if store is not None else None


@contextmanager
def _listener(request: BenchRequest, quiet: bool) -> Iterator[Listener]:
    from autogemm.bench.kernels import Listener
    from autogemm.cli.bench.progress import Lines, live_line

    if quiet:
        yield Listener()
    elif sys.stderr.isatty():
        with live_line(request) as line:
            yield line
    else:
        yield Lines(request)


def _kernel_rows() -> list[Row]:
    from autogemm.bench.kernels import names_of
    from autogemm.model.benchmark import KernelKind

    stored = {"kernel": "winner", "kind": "stored", "summary": "the best of the database, by size"}
    one = {"kernel": "kernel:ID", "kind": "stored", "summary": "a kernel of the database"}
    listed: list[Row] = [
        {"kernel": name, "kind": kind.value, "summary": summary}
        for kind in (KernelKind.RUNG, KernelKind.LIBRARY)
        for name, summary in names_of(kind)
    ]
    return [*listed, stored, one]


def _arithmetic(done: Bench) -> list[str]:
    """Of each kernel that makes FP32 of other products how it does, once."""
    from autogemm.model.splitting import splitting_of

    found = ((entry.kernel, splitting_of(entry.config)) for entry in done.entries)
    return list(dict.fromkeys(f"{kernel}: {how.words}" for kernel, how in found if how is not None))


def _print(done: Bench, rows: list[Row]) -> None:
    spec = done.spec
    stored = f", benchmark {done.bench_id}" if done.bench_id else ""
    used = spec.environment
    click.echo(f"{spec.device.name}, {done.started_at:%Y-%m-%d}{stored}")
    click.echo(f"driver {used.driver}, cuBLAS {used.cublas}, {used.compiler}: {spec.command}")
    for size in dict.fromkeys(row["size"] for row in rows):
        click.echo()
        print_table([row for row in rows if row["size"] == size], SHOWN, title=f"M x N x K: {size}")
    for words in _arithmetic(done):
        click.echo(f"\n{words}")
    left_out = [row for row in rows if row["status"] != "ok"]
    if left_out:
        click.echo()
        print_table(left_out, ("kernel", "size", "status", "reason"), title="Not timed")

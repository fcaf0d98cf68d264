"""``autogemm profile``: hardware counters of one kernel, in words."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autogemm.cli.files import require_output, write_output
from autogemm.cli.options import db_option, device_facts, dtype_option
from autogemm.cli.output import Row, listing_options, print_rows
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from autogemm.insight.profiling import Finding, ProfileRequest
    from autogemm.model.hardware.device import Device
    from autogemm.model.profile import Profile
    from autogemm.store import Store

COLUMNS = ("topic", "figure", "says", "usual_cause", "usual_cure", "turn")
MAX_PAGE_BYTES = 20_000_000


@click.command()
@click.argument("kernel")
@click.option("--size", default="4096", show_default=True, help="M=N=K as one number, or MxNxK.")
@click.option(
    "--layout",
    type=click.Choice([one.value for one in Layout]),
    default="nn",
    show_default=True,
    help="op(A) then op(B): n as stored, t transposed.",
)
@dtype_option(default=DType.F32.label)
@click.option(
    "--from",
    "page_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Read this page (ncu --csv --page raw --print-units base) instead of profiling.",
)
@click.option("--gpu", metavar="NAME", help="With --from: the GPU that the page was made on.")
@click.option("--save", metavar="FILE", help="Keep Nsight Compute's page, as CSV.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--no-store", is_flag=True, help="Keep nothing in the database.")
@db_option
@listing_options
def profile(  # noqa: PLR0913, PLR0917  # one parameter for each option
    kernel: str,
    size: str,
    layout: str,
    dtype: str,
    page_file: Path | None,
    gpu: str | None,
    save: str | None,
    force: bool,
    no_store: bool,
    db: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Say what limits a kernel, from the hardware's counters: NVIDIA's Nsight Compute (ncu).

    KERNEL is a rung of the ladder (see `autogemm bench --list`), `winner`, or kernel:ID of the
    database. It runs alone a few times; occupancy, use of cores and memory, stall reasons, bank
    conflicts and coalescing are said in words, each with its usual cause and cure and the
    parameters to turn.
    The counters are stored with the kernel. A time under a profiler is none to compare.

    \b
    Examples:
      autogemm profile tiled --size 1024
      autogemm profile kernel:12 --save page.csv
      autogemm profile winner --size 8192 --dtype bf16
      autogemm profile tiled --size 1024 --from page.csv --gpu h100
    """
    from autogemm.insight.profiling import findings
    from autogemm.store import open_store

    if gpu and page_file is None:
        raise UsageError("--gpu goes with --from: a profile is of the attached GPU")
    if save and page_file is not None:
        raise UsageError("--save is for a page that is made now: there is one already")
    if save:
        require_output(save, force=force)
    problem = Problem.of_size(size, Layout(layout), DType.parse(dtype))
    with open_store(db) as store:
        if page_file is None:
            found, page, request = _made(kernel, problem, store)
        else:
            found, page, request = _read(kernel, problem, store, page_file, gpu)
        if not no_store:
            store.record_profile(found, request.source)
    if save:
        write_output(save, page.encode(), force=force)
    rows = [_row(finding) for finding in findings(found)]
    if as_json or as_csv:
        print_rows(rows, COLUMNS, as_json=as_json, as_csv=as_csv)
        return
    click.echo(f"{kernel}, {problem.label}, {found.device.name}, {found.profiler}")
    for row in rows:
        _print(row)


def _row(finding: Finding) -> Row:
    return {
        "topic": finding.topic,
        "figure": finding.figure,
        "says": finding.says,
        "usual_cause": finding.cause,
        "usual_cure": finding.cure,
        "turn": " ".join(finding.parameters),
    }


def _print(row: Row) -> None:
    """Topic and figure on a line, and below what they mean, as far as something is to be said."""
    click.echo(f"\n{row['topic']}: {row['figure']}")
    if row["says"]:
        click.echo(f"  {row['says']}")
    for name in COLUMNS[3:]:
        if row[name]:
            click.echo(f"  {name.replace('_', ' ')}: {row[name]}")


def _made(kernel: str, problem: Problem, store: Store) -> tuple[Profile, str, ProfileRequest]:
    """Profiled now. Raises DeviceError without a GPU or Nsight Compute."""
    from dataclasses import replace

    from autogemm.insight.profiling import profile_kernel
    from autogemm.targets import open_gpu, why_no_gpu

    if why := why_no_gpu():
        raise DeviceError(f"a profile needs a GPU: {why}; --from FILE reads a page made elsewhere")
    with closing(open_gpu()) as target:
        device, environment = target.device, target.environment
    with closing(target.compiler()) as compiler:
        request = replace(
            _request(kernel, problem, store, device),
            environment=replace(environment, compiler=compiler.version),
        )
        found, page = profile_kernel(request, compiler)
    return found, page, request


def _read(
    kernel: str, problem: Problem, store: Store, page_file: Path, gpu: str | None
) -> tuple[Profile, str, ProfileRequest]:
    """From a page in a file."""
    from autogemm.insight.profiling import profile_of_page

    try:
        if page_file.stat().st_size > MAX_PAGE_BYTES:
            raise UsageError(f"{page_file} is larger than any page of Nsight Compute")
        page = page_file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {page_file}: {error.strerror}") from error
    request = _request(kernel, problem, store, device_facts(gpu or "auto"))
    found = profile_of_page(request, page, "Nsight Compute, read from a file")
    return found, page, request


def _request(kernel: str, problem: Problem, store: Store, device: Device) -> ProfileRequest:
    from autogemm.bench.kernels import NotForThisError, named_kernels, render_named
    from autogemm.insight.profiling import ProfileRequest
    from autogemm.model.benchmark import KernelKind
    from autogemm.model.outcome import Environment

    found = named_kernels((kernel,))
    if len(found) != 1 or found[0].kind is KernelKind.LIBRARY:
        raise UsageError(f"{kernel} is no kernel of ours: name a rung, winner or kernel:ID")
    try:
        ready = render_named(found[0], problem, device, store)
    except NotForThisError as error:
        raise UsageError(f"{kernel} at {problem.label}: {error}") from error
    return ProfileRequest(
        name=found[0].rung.name if found[0].rung is not None else "",
        source=ready.source,
        plan=ready.plan,
        problem=problem,
        device=device,
        environment=Environment(),
    )

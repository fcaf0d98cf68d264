"""``autogemm space``: what a family searches, and how much of it is legal here."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.files import write_output
from autogemm.cli.options import (
    device_facts,
    fix_option,
    gpu_option,
    problem_from,
    problem_options,
)
from autogemm.cli.output import listing_options, print_rows, print_table
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.space import Space

COLUMNS = ("kind", "name", "values", "doc", "configs")


@click.command()
@click.argument("family", metavar="NAME|PATH", default="sgemm_simt")
@problem_options
@gpu_option
@fix_option
@click.option(
    *("-f", "--format", "format_"),
    type=click.Choice(("t1", "yaml")),
    help="Write the space down: a family's as T1, a T1 space as the YAML of a family.",
)
@click.option(
    *("-o", "--output"), metavar="FILE", default="-", help="Where to; - is standard output."
)
@click.option("--force", is_flag=True, help="Replace a file that is no earlier output.")
@listing_options
def space(  # noqa: PLR0913, PLR0917  # one parameter for each option
    family: str,
    gpu: str,
    fix: Sequence[str],
    format_: str | None,
    output: str,
    force: bool,
    as_json: bool,
    as_csv: bool,
    **problem: Any,
) -> None:
    """Show a family's parameters and count its legal configs.

    PATH may also be a search space of other tuners, in the format T1: what it holds that cannot be
    said here is listed. Nothing in it is ever run. A T1 file that is written is for one problem and
    GPU, whose sizes and limits are put in place.

    A config is counted as removed by the first constraint that excludes it, in the order in which
    they are applied: as soon as the parameters that each reads are known.

    \b
    Examples:
      autogemm space sgemm_simt --size 4096 --gpu h100
      autogemm space ./mine --layout tt --fix BM=128,256 --fix STAGES=3
      autogemm space sgemm_simt --json
      autogemm space gemm.t1.json
      autogemm space gemm.t1.json --format yaml -o Xgemm.yaml
      autogemm space sgemm_simt --size 1024 --gpu h100 --format t1 -o sgemm_simt.t1.json
    """
    from autogemm.exchange import is_t1, read_t1, t1_text, yaml_text
    from autogemm.space import build_space, load_family, parse_fix

    wanted = problem_from(**problem)
    foreign = read_t1(Path(family)) if is_t1(Path(family)) else None
    loaded = foreign.family if foreign is not None else load_family(family)
    if format_ == "yaml":
        if foreign is None:
            raise UsageError(f"{family} has a YAML file already: {loaded.yaml_path}")
        write_output(output, yaml_text(foreign).encode(), force=force, ours="# From a T1 file.")
        return
    chosen = parse_fix(loaded, fix)
    device = device_facts(gpu)
    start = time.perf_counter()
    built = build_space(loaded, wanted, device, chosen)
    seconds = time.perf_counter() - start
    if format_ == "t1":
        text, left_out = t1_text(built)
        write_output(output, text.encode(), force=force, ours='{\n  "General"')
        _print_left_out(left_out)
        return
    left_out = foreign.left_out if foreign is not None else ()
    if as_json or as_csv:
        rows = _rows(built)
        rows += [{"kind": "left_out", "name": line} for line in left_out]
        print_rows(rows, COLUMNS, as_json=as_json, as_csv=as_csv)
        return
    click.echo(f"{loaded.name}: {loaded.summary}")
    click.echo(f"for {wanted.label} on {device.name}\n")
    print_table(_parameter_rows(built), ("parameter", "values", "meaning"))
    click.echo()
    print_table(_constraint_rows(built), ("constraint", "because", "removed"))
    click.echo(
        f"\n{built.raw_count} raw configs, {len(built)} legal, built in {seconds:.2f} s; "
        f"{len(built.seeds)} seeds"
    )
    _print_left_out(left_out)


def _print_left_out(lines: Sequence[str]) -> None:
    if lines:
        click.echo("not in it:", err=True)
    for line in lines:
        click.echo(f"  {line}", err=True)


def _parameter_rows(built: "Space") -> list[dict[str, object]]:
    return [
        {
            "parameter": parameter.name,
            "values": " ".join(map(str, parameter.values)),
            "meaning": parameter.doc,
        }
        for parameter in built.parameters
    ]


def _constraint_rows(built: "Space") -> list[dict[str, object]]:
    return [
        {"constraint": rule.require.text, "because": rule.because, "removed": removed}
        for rule, removed in built.removed
    ]


def _rows(built: "Space") -> list[dict[str, object]]:
    """One table for scripts: parameters, constraints with what they removed, seeds, counts."""
    parameters = [
        {
            "kind": "parameter",
            "name": row["parameter"],
            "values": row["values"],
            "doc": row["meaning"],
        }
        for row in _parameter_rows(built)
    ]
    constraints = [
        {
            "kind": "constraint",
            "name": row["constraint"],
            "doc": row["because"],
            "configs": row["removed"],
        }
        for row in _constraint_rows(built)
    ]
    counts = [
        {"kind": "count", "name": "raw", "configs": built.raw_count},
        {"kind": "count", "name": "legal", "configs": len(built)},
    ]
    return [*parameters, *constraints, *_seed_rows(built), *counts]


def _seed_rows(built: "Space") -> list[dict[str, object]]:
    """The family's seeds as they are written, each by its number for --seed-index."""
    family = built.family
    return [
        {"kind": "seed", "name": str(i), "values": seed.label, "doc": origin}
        for i, (seed, origin) in enumerate(zip(family.seeds, family.seed_origins, strict=False))
    ]

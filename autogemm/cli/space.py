"""``autogemm space``: what a family searches, and how much of it is legal here."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.options import (
    device_facts,
    fix_option,
    gpu_option,
    problem_from,
    problem_options,
)
from autogemm.cli.output import listing_options, print_rows, print_table

if TYPE_CHECKING:
    from autogemm.space import Space

COLUMNS = ("kind", "name", "values", "doc", "configs")


@click.command()
@click.argument("family", metavar="NAME|PATH", default="sgemm_simt")
@problem_options
@gpu_option
@fix_option
@listing_options
def space(
    family: str, gpu: str, fix: Sequence[str], as_json: bool, as_csv: bool, **problem: Any
) -> None:
    """Show a family's parameters and count its legal configs.

    A config is counted as removed by the first constraint that excludes it, in the order in which
    they are applied: as soon as the parameters that each reads are known.

    \b
    Examples:
      autogemm space sgemm_simt --size 4096 --gpu h100
      autogemm space ./mine --layout tt --fix BM=128,256 --fix STAGES=3
      autogemm space sgemm_simt --json
    """
    from autogemm.space import build_space, load_family, parse_fix

    wanted = problem_from(**problem)
    loaded = load_family(family)
    chosen = parse_fix(loaded, fix)
    device = device_facts(gpu)
    start = time.perf_counter()
    built = build_space(loaded, wanted, device, chosen)
    seconds = time.perf_counter() - start
    if as_json or as_csv:
        print_rows(_rows(built), COLUMNS, as_json=as_json, as_csv=as_csv)
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
    """One table for scripts: parameters, constraints with what they removed, and the counts."""
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
    return [*parameters, *constraints, *counts]

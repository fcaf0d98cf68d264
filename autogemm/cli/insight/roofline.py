"""``autogemm roofline``: where kernels stand below the roofs of their card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autogemm.cli.files import write_output
from autogemm.cli.filters import bench_id_of, filter_options, open_database
from autogemm.cli.insight.plot import comparison_options
from autogemm.cli.options import db_option
from autogemm.cli.output import Row, listing_options, print_rows, print_table

if TYPE_CHECKING:
    from autogemm.insight.analysis import Comparison, Timed
    from autogemm.store import BestQuery

COLUMNS = (
    *("kernel", "size", "dtype", "flop_per_byte", "bandwidth_gb_s", "tflops", "roof_tflops"),
    *("percent_of_roof", "bound_by", "provenance"),
)


@click.command()
@click.argument("file", required=False)
@comparison_options
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
@listing_options
def roofline(  # noqa: PLR0913, PLR0917  # one parameter for each option
    file: str | None,
    query: BestQuery,
    db: str | None,
    bench_id: int | str | None,
    winners: bool,
    force: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show how close kernels come to what their card can do, and draw it into FILE.

    FILE is a .png, .svg or .pdf; without it only the table is printed. Of the newest benchmark, or
    of the best kernels in the database where there is none. The roof of a kernel is the smaller of
    the card's peak for its dtype and the memory bandwidth times the FLOP per byte that must move.

    \b
    Examples:
      autogemm roofline
      autogemm roofline roofline.svg --bench 2
      autogemm roofline winners.png --winners --gpu h100
    """
    from autogemm.insight.analysis import compare
    from autogemm.insight.plots import check_plot, roofline_picture

    if file:
        check_plot(Path(file))
    with open_database(db) as store:
        comparison = compare(store, query, bench_id_of(bench_id), winners=winners)
    if file:
        write_output(file, roofline_picture(comparison, Path(file).suffix), force=force)
    rows = _rows(comparison)
    if as_json or as_csv:
        print_rows(rows, COLUMNS, as_json=as_json, as_csv=as_csv)
    else:
        _print_roofs(comparison)
        print_table(rows, COLUMNS[:-1])


def _rows(comparison: Comparison) -> list[Row]:
    return [_row(one, comparison) for one in comparison.timed()]


def _row(one: Timed, comparison: Comparison) -> Row:
    roof, flop_per_byte = one.roof, one.metrics.flop_per_byte
    is_below_ridge = roof is not None and flop_per_byte < roof.ridge_flop_per_byte
    return {
        "kernel": one.kernel,
        "size": one.problem.size_label,
        "dtype": one.problem.dtype.label,
        "flop_per_byte": flop_per_byte,
        "bandwidth_gb_s": one.metrics.bandwidth_gb_s,
        "tflops": one.tflops,
        "roof_tflops": roof.attainable_tflops(flop_per_byte) if roof else None,
        "percent_of_roof": one.metrics.percent_of_roof,
        "bound_by": ("memory" if is_below_ridge else "arithmetic") if roof else None,
        "provenance": comparison.provenance.value,
    }


def _print_roofs(comparison: Comparison) -> None:
    from autogemm.insight.analysis import roofs

    slopes, ceilings = roofs(comparison.device, comparison.ceilings)
    click.echo(comparison.caption)
    rows: list[Row] = [
        {"roof": slope.name, "gb_s": 1e3 * slope.tb_s, "tflops": None, "ridge_flop_per_byte": None}
        for slope in slopes
    ]
    rows += [
        {
            "roof": ceiling.name,
            "gb_s": None,
            "tflops": ceiling.tflops,
            "ridge_flop_per_byte": ceiling.tflops / slopes[0].tb_s,
        }
        for ceiling in ceilings
    ]
    print_table(rows, ("roof", "gb_s", "tflops", "ridge_flop_per_byte"))
    click.echo()

"""``autogemm plot`` and ``autogemm roofline``: pictures of runs and of kernels side by side."""

from dataclasses import dataclass
from pathlib import Path

from autogemm.cli.files import write_output
from autogemm.cli.options import BenchName, bench_id_of
from autogemm.cli.output import Form, print_rows
from autogemm.cli.prose import say
from autogemm.cli.rows import open_database
from autogemm.cli.table import Row, print_table
from autogemm.formats import read_bench_listing
from autogemm.insight import analysis, plots
from autogemm.insight.analysis import Comparison, RunTrials, Timed, compare, comparison_of, roofs
from autogemm.insight.plots import check_plot, roofline_picture
from autogemm.store import BestQuery, Store
from autogemm.support.errors import UsageError

OF_KERNELS = ("sizes", "ladder")


@dataclass(frozen=True, slots=True)
class PlotCommand:
    """One call of the command. Raises UsageError for options that ``kind`` does not have."""

    kind: str
    file: str
    x: str | None
    y: str | None
    bench_id: BenchName | None
    winners: bool
    theme: str
    force: bool
    query: BestQuery
    db: str | None

    def __post_init__(self) -> None:
        if (self.x or self.y) and self.kind != "heatmap":
            raise UsageError(f"--x and --y are for heatmap, not for {self.kind}")
        if (self.bench_id or self.winners) and self.kind not in OF_KERNELS:
            kinds = " and ".join(OF_KERNELS)
            raise UsageError(f"--bench and --winners are for {kinds}, not {self.kind}")

    @property
    def suffix(self) -> str:
        """The ending of the file's name, which says the format."""
        return Path(self.file).suffix


def run_plot(command: PlotCommand) -> None:
    """Draw the picture into the file."""
    plots.check_plot(Path(command.file))
    with plots.theme(command.theme):
        if command.kind in OF_KERNELS:
            content, caption = _of_kernels(command)
        else:
            with open_database(command.db) as store:
                content, caption = _of_a_run(store, command)
    write_output(command.file, content, force=command.force)
    say(f"{command.file}: {caption}")


def _of_a_run(store: Store, command: PlotCommand) -> tuple[bytes, str]:
    trials = analysis.read_run(store, command.query)
    family = command.query.family or trials.family()
    return _run_picture(command, trials, family), trials.caption


def _run_picture(command: PlotCommand, trials: RunTrials, family: str) -> bytes:
    match command.kind:
        case "history":
            return plots.history_picture(command.suffix, trials)
        case "distribution":
            return plots.distribution_picture(command.suffix, trials)
        case "importance":
            shares = analysis.importance(trials, family)
            return plots.importance_picture(command.suffix, trials, family, shares)
    cells = analysis.grid(trials, family, command.x, command.y)
    return plots.heatmap_picture(command.suffix, trials, family, cells)


def _compared(command: "PlotCommand | RooflineCommand") -> Comparison:
    """Return the kernels of a file, which needs no database, or of the database."""
    named, query = command.bench_id, command.query
    if isinstance(named, Path):
        return comparison_of(read_bench_listing(named, query.gpu), None, query.size)
    with open_database(command.db) as store:
        return compare(store, query, bench_id_of(named), winners=command.winners)


def _of_kernels(command: PlotCommand) -> tuple[bytes, str]:
    found = _compared(command)
    if command.kind == "sizes":
        return plots.sizes_picture(command.suffix, found), found.caption
    return plots.ladder_picture(command.suffix, found, found.sizes()[-1]), found.caption


COLUMNS = (
    *("kernel", "size", "dtype", "flop_per_byte", "bandwidth_gb_s", "tflops", "roof_tflops"),
    *("percent_of_roof", "bound_by", "provenance"),
)
# Without --wide.
SHORT = ("kernel", "size", "dtype", "tflops", "percent_of_roof", "bound_by")


@dataclass(frozen=True, slots=True)
class RooflineCommand:
    """One call of the command. Without ``file`` nothing is drawn."""

    file: str | None
    bench_id: BenchName | None
    winners: bool
    theme: str
    force: bool
    query: BestQuery
    db: str | None
    form: Form


def run_roofline(command: RooflineCommand) -> None:
    """Compare kernels with their roofs, draw and print them."""
    if command.file:
        check_plot(Path(command.file))
    comparison = _compared(command)
    if command.file:
        with plots.theme(command.theme):
            content = roofline_picture(Path(command.file).suffix, comparison)
        write_output(command.file, content, force=command.force)
    rows = [_row(one, comparison) for one in comparison.timed()]
    if command.form is Form.TABLE:
        _print_roofs(comparison)
        print_table(rows, COLUMNS[:-1], short=SHORT)
    else:
        print_rows(rows, COLUMNS, command.form)


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
    slopes, ceilings = roofs(comparison.device, comparison.ceilings)
    say(comparison.caption)
    rows: list[Row] = [{"roof": slope.name, "gb_s": 1e3 * slope.tb_s} for slope in slopes]
    rows += [
        {
            "roof": ceiling.name,
            "tflops": ceiling.tflops,
            "ridge_flop_per_byte": ceiling.tflops / slopes[0].tb_s,
        }
        for ceiling in ceilings
    ]
    print_table(rows, ("roof", "gb_s", "tflops", "ridge_flop_per_byte"))
    say()

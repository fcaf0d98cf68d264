"""``autogemm plot``: pictures of runs and benchmarks."""

from dataclasses import dataclass
from pathlib import Path

import click

from autogemm.cli.files import write_output
from autogemm.cli.options import bench_id_of
from autogemm.cli.rows import open_database
from autogemm.insight import analysis, plots
from autogemm.insight.analysis import RunTrials
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
    bench_id: int | str | None
    winners: bool
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


def run(command: PlotCommand) -> None:
    """Draw the picture into the file."""
    plots.check_plot(Path(command.file))
    draw = _of_kernels if command.kind in OF_KERNELS else _of_a_run
    with open_database(command.db) as store:
        content, caption = draw(store, command)
    write_output(command.file, content, force=command.force)
    click.echo(f"{command.file}: {caption}")


def _of_a_run(store: Store, command: PlotCommand) -> tuple[bytes, str]:
    trials = analysis.read_run(store, command.query)
    family = command.query.family or trials.family()
    return _run_picture(command, trials, family), trials.caption


def _run_picture(command: PlotCommand, trials: RunTrials, family: str) -> bytes:
    match command.kind:
        case "history":
            return plots.history_picture(trials, command.suffix)
        case "distribution":
            return plots.distribution_picture(trials, command.suffix)
        case "importance":
            shares = analysis.importance(trials, family)
            return plots.importance_picture(trials, family, shares, command.suffix)
    cells = analysis.grid(trials, family, command.x, command.y)
    return plots.heatmap_picture(trials, family, cells, command.suffix)


def _of_kernels(store: Store, command: PlotCommand) -> tuple[bytes, str]:
    bench_id = bench_id_of(command.bench_id)
    found = analysis.compare(store, command.query, bench_id, winners=command.winners)
    if command.kind == "sizes":
        return plots.sizes_picture(found, command.suffix), found.caption
    return plots.ladder_picture(found, found.sizes()[-1], command.suffix), found.caption

"""Pictures of one run: how it went, what was tried, which parameters matter, time and energy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autogemm.insight.analysis import Grid, RunTrials
from autogemm.insight.plots.drawing import PAPER_HEIGHT, PAPER_WIDTH, colours, picture, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CELLS_WITH_TEXT = 150


@picture
def history_picture(figure: "Figure", trials: RunTrials) -> None:
    """Draw the best so far against trials and against seconds, and each trial as a dot."""
    figure.set_size_inches(PAPER_WIDTH, 4.0)
    left, right = figure.subplots(1, 2, sharey=True)
    steps = trials.best_so_far()
    measured = list(trials.measured())
    merits = [merit for _, merit in measured]
    numbers = [float(trial.number) for trial, _ in measured]
    seconds = [trials.seconds(trial) for trial, _ in measured]
    when = "seconds of the replay" if trials.is_recorded else "seconds since the run began"
    for axes, x, at_steps, label in (
        (left, numbers, [float(step.number) for step in steps], "trial"),
        (right, seconds, [step.seconds for step in steps], when),
    ):
        axes.plot(x, merits, linestyle="", marker=".", color=colours().other, label="one trial")
        along = [*at_steps, max(x, default=0.0)]
        best = [step.merit for step in steps] + [steps[-1].merit] if steps else []
        axes.step(
            along[: len(best)],
            best,
            where="post",
            color=colours().own,
            linewidth=2,
            label="best so far",
        )
        _baseline(axes, trials, vertical=False)
        axes.set_xlabel(label)
        axes.grid()
    left.set_ylabel(trials.unit)
    titled(figure, "Search history", trials.caption)
    left.legend(loc="lower right" if trials.more_is_better else "upper right", fontsize="small")


@picture
def distribution_picture(figure: "Figure", trials: RunTrials) -> None:
    """Draw the distribution of the configs that ran."""
    axes = figure.subplots()
    merits = trials.merits()
    bins = int(min(60, max(10, 2 * len(merits) ** 0.5)))
    axes.hist(merits, bins=bins, color=colours().other, edgecolor=colours().ground, linewidth=0.6)
    if merits:
        best = max(merits) if trials.more_is_better else min(merits)
        axes.axvline(best, color=colours().own, linewidth=2, label="best")
        middle = float(np.median(merits))
        axes.axvline(middle, color=colours().marked, linestyle=":", linewidth=2, label="median")
    _baseline(axes, trials, vertical=True)
    failed = len(trials.trials) - len(merits)
    axes.set_xlabel(trials.unit)
    axes.set_ylabel("configs")
    axes.grid(axis="y")
    titled(
        figure, f"All configs that were tried: {len(merits)} ran, {failed} did not", trials.caption
    )
    axes.legend(fontsize="small")


@picture
def importance_picture(
    figure: "Figure", trials: RunTrials, family: str, shares: dict[str, float]
) -> None:
    """Draw a bar a parameter; ``shares`` are those of `autogemm.insight.analysis.importance`."""
    figure.set_size_inches(PAPER_WIDTH, 1.6 + 0.28 * len(shares))
    axes = figure.subplots()
    bars = axes.barh(list(shares), list(shares.values()), color=colours().own)
    axes.bar_label(bars, fmt="{:.0%}", padding=3, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("share in what distinguishes the fastest tenth")
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    titled(figure, f"Which parameters of {family} matter", trials.caption)


@picture
def heatmap_picture(figure: "Figure", trials: RunTrials, family: str, cells: Grid) -> None:
    """Draw the best config of each pair of values, bright for good ones."""
    width, height = 3.0 + 0.75 * len(cells.x_values), 2.2 + 0.5 * len(cells.y_values)
    figure.set_size_inches(min(max(width, 5.0), PAPER_WIDTH), min(max(height, 3.0), PAPER_HEIGHT))
    axes = figure.subplots()
    values = np.array([[np.nan if v is None else v for v in row] for row in cells.best])
    # Good is bright, whichever way the merit runs.
    scale = "cividis" if trials.more_is_better else "cividis_r"
    mesh = axes.imshow(values, cmap=scale, aspect="auto", origin="lower")
    figure.colorbar(mesh, ax=axes, label=trials.unit)
    axes.set_xticks(range(len(cells.x_values)), [str(value) for value in cells.x_values])
    axes.set_yticks(range(len(cells.y_values)), [str(value) for value in cells.y_values])
    axes.set_xlabel(cells.x)
    axes.set_ylabel(cells.y)
    if values.size <= MAX_CELLS_WITH_TEXT:
        _label_cells(axes, values, more_is_better=trials.more_is_better)
    titled(
        figure,
        f"The best config of {family} for each {cells.x} and {cells.y}",
        f"{trials.caption}; crossed out: none that ran",
    )


def _label_cells(axes: "Axes", values: NDArray[np.float64], *, more_is_better: bool) -> None:
    low, high = np.nanmin(values), np.nanmax(values)
    for (row, column), value in np.ndenumerate(values):
        if np.isnan(value):
            axes.text(column, row, "\u00d7", ha="center", va="center", color=colours().faint)
            continue
        share = (value - low) / (high - low) if high > low else 1.0
        is_bright = (share if more_is_better else 1 - share) > 0.5
        axes.text(
            *(column, row, f"{value:#.3g}"),
            ha="center",
            va="center",
            fontsize="small",
            color="black" if is_bright else "white",
        )


def _baseline(axes: "Axes", trials: RunTrials, *, vertical: bool) -> None:
    merit = trials.baseline_merit
    if merit is not None:
        line = axes.axvline if vertical else axes.axhline
        line(
            merit,
            color=colours().baseline,
            linestyle="--",
            linewidth=1.5,
            label="cuBLAS in the finals",
        )


LABELS = {False: "other kernels", True: "no other kernel beats it in both", None: "cuBLAS"}


def _looks(kind: bool | None) -> dict[str, Any]:
    palette = colours()
    looks: dict[bool | None, dict[str, Any]] = {
        False: {"color": palette.other, "marker": ".", "linestyle": ""},
        True: {"color": palette.own, "marker": "o", "drawstyle": "steps-post"},
        None: {"color": palette.baseline, "marker": "s", "markersize": 8, "linestyle": ""},
    }
    return looks[kind]


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel; ``on_front`` is None for the baseline."""

    time_us: float
    energy_mj: float
    on_front: bool | None


@picture
def front_picture(figure: "Figure", points: Sequence[Point], caption: str) -> None:
    """Draw the points, those of the front joined in the order given."""
    axes = figure.subplots()
    for kind, label in LABELS.items():
        chosen = [point for point in points if point.on_front is kind]
        if chosen:
            x, y = [one.time_us for one in chosen], [one.energy_mj for one in chosen]
            axes.plot(x, y, label=label, **_looks(kind))
    axes.set_xlabel("time of one GEMM, us")
    axes.set_ylabel("energy of one GEMM, whole GPU, mJ")
    titled(figure, "Time and energy", caption)
    axes.legend()
    axes.grid()

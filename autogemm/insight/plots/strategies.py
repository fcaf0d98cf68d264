"""Pictures of search strategies: the curves of `autogemm bench-search`."""

from typing import TYPE_CHECKING, Any

from autogemm.bench.strategies import Curve, Summary
from autogemm.insight.plots.drawing import (
    LINES,
    MARKERS,
    PAPER_WIDTH,
    colours,
    picture,
    plain_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOWEST = 0.7


@picture
def strategies_picture(figure: "Figure", summary: Summary, title: str) -> None:
    """Draw the fraction of the optimum against evaluations, and recorded seconds if known."""
    num_panels = 1 if summary.seconds is None else 2
    figure.set_size_inches(PAPER_WIDTH, 5.0)
    axes: Any = figure.subplots(1, num_panels, sharey=True, squeeze=False)[0]
    for place, curve in enumerate(summary.curves):
        evaluations = range(1, len(curve.median) + 1)
        _line(axes[0], place, curve, evaluations, curve.median)
        if summary.seconds is not None and curve.by_seconds is not None:
            _line(axes[1], place, curve, summary.seconds, curve.by_seconds)
    axes[0].set_xlabel("evaluations")
    axes[0].set_ylabel("best time of the space / best time found (median)")
    axes[0].set_ylim(LOWEST, 1.005)
    if num_panels == 2:
        what = "compiling, verifying, timing" if summary.includes_compiling else "timed launches"
        axes[1].set_xlabel(f"recorded seconds ({what})")
        axes[1].set_xscale("log")
        plain_numbers(axes[1].xaxis)
    for one in axes:
        one.grid()
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(title, fontsize="medium")


def _line(axes: "Axes", place: int, curve: Curve, x: Any, y: Any) -> None:
    roles = list(colours().roles())
    axes.plot(
        x,
        y,
        label=curve.label,
        color=roles[place % len(roles)],
        linestyle=LINES[place % len(LINES)],
        linewidth=1.4,
        marker=MARKERS[place % len(MARKERS)],
        markersize=4.5,
        # Not at the same places, so that markers of two curves do not hide each other.
        markevery=(place * 3, max(1, len(y) // 10)),
    )

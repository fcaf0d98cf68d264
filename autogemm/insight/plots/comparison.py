"""Pictures of kernels side by side: the roofline, speed against size, the ladder."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from autogemm.insight.analysis import Comparison, Timed
from autogemm.insight.analysis.comparison import Ceiling, Slope, role_of, roofs
from autogemm.insight.plots.drawing import (
    LINES,
    PAPER_HEIGHT,
    PAPER_WIDTH,
    ROLE_MARKERS,
    colours,
    picture,
    plain_numbers,
    role_legend,
    titled,
)
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import NAIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A roofline shows these at least, in FLOP per byte.
LOWEST_INTENSITY = 1.0
HIGHEST_INTENSITY = 1000.0
CLOSE = 1.07
DECADE = 10.0
# A bar that is longer than so many times cuBLAS is cut: tensor cores would flatten the ladder.
LONGEST_BAR = 1.6
# Narrower columns have no room for numbers.
MOST_COLUMNS_OF_NUMBERS = 12


def _by_kernel(timed: list[Timed]) -> dict[str, list[Timed]]:
    """In the order of the benchmark; within a kernel the smallest amount of work first."""
    found: dict[str, list[Timed]] = {}
    for one in timed:
        found.setdefault(one.kernel, []).append(one)
    return {
        kernel: sorted(each, key=lambda one: one.problem.flops) for kernel, each in found.items()
    }


@picture
def roofline_picture(figure: "Figure", comparison: Comparison) -> None:
    """Draw the roofs with all kernels as points, and how much of its roof each kernel reaches."""
    timed = comparison.timed()
    names = list(_by_kernel(timed))
    figure.set_size_inches(PAPER_WIDTH, min(PAPER_HEIGHT, 5.2 + 0.2 * len(names)))
    axes, shares = figure.subplots(2, 1, height_ratios=[4.0, 0.6 + 0.2 * len(names)])
    _roofs(axes, comparison, timed)
    _shares(shares, timed, names, comparison.sizes())
    titled(figure, "Roofline", comparison.caption)
    role_legend(figure, map(role_of, timed))


def _roofs(axes: "Axes", comparison: Comparison, timed: list[Timed]) -> None:
    slopes, ceilings = roofs(comparison.device, comparison.ceilings)
    intensities = [one.metrics.flop_per_byte for one in timed]
    low = min(LOWEST_INTENSITY, *(0.5 * x for x in intensities))
    high = max(HIGHEST_INTENSITY, *(2.0 * x for x in intensities))
    highest = max((ceiling.tflops for ceiling in ceilings), default=0.0)
    above = 0.0
    for ceiling in sorted(ceilings, key=lambda one: -one.tflops):
        _ceiling(
            axes, ceiling, slopes, (low, high), is_below=above > 0 and above < 2 * ceiling.tflops
        )
        above = ceiling.tflops
    bottom = 0.3 * min(one.tflops for one in timed)
    for place, slope in enumerate(slopes):
        _slope(axes, place, slope, highest, max(low, bottom / slope.tb_s))
    for one in timed:
        role = role_of(one)
        axes.plot(
            *([one.metrics.flop_per_byte], [one.tflops]),
            marker=ROLE_MARKERS[role],
            color=getattr(colours(), role),
            markersize=4.5,
            markeredgecolor=colours().ground,
            markeredgewidth=0.4,
            linestyle="",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(_decades(axes.get_ylim()))
    axes.set_xlabel("arithmetic intensity, FLOP per byte that must move")
    axes.set_ylabel("TFLOP/s")
    if not slopes:
        axes.set_title("no roofs: only the name of this GPU is known", fontsize="small")
    plain_numbers(axes.xaxis, axes.yaxis)
    _name_sizes(axes, timed)


def _shares(axes: "Axes", timed: list[Timed], names: list[str], sizes: list[str]) -> None:
    """A number for each kernel and size: percent of the roof, brighter for more."""
    values = np.full((len(names), len(sizes)), np.nan)
    for one in timed:
        share = one.metrics.percent_of_roof
        if share is not None:
            values[names.index(one.kernel), sizes.index(one.problem.size_label)] = share
    axes.imshow(values, cmap="cividis", aspect="auto", vmin=0, vmax=100)
    axes.set_xticks(range(len(sizes)), sizes, rotation=45 if len(sizes) > 6 else 0)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_xlabel("percent of the roof, for each kernel and size")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if len(sizes) <= MOST_COLUMNS_OF_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                ink = "black" if value > 50 else "white"
                text = _rounded(float(value))
                axes.text(column, row, text, ha="center", va="center", color=ink, fontsize="small")


def _decades(limits: tuple[float, float]) -> tuple[float, float]:
    """Return whole decades around: each end of the axis has its number."""
    low, high = limits
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def _ceiling(
    axes: "Axes",
    ceiling: Ceiling,
    slopes: list[Slope],
    ends: tuple[float, float],
    *,
    is_below: bool,
) -> None:
    """Draw the roof from the steepest slope on, and mark the ridge of device memory."""
    low, high = ends
    ridge = ceiling.tflops / slopes[0].tb_s
    begin = ceiling.tflops / max(slope.tb_s for slope in slopes)
    axes.plot([ridge], [ceiling.tflops], marker="|", color=colours().ink, markersize=9)
    axes.plot([begin, high], [ceiling.tflops] * 2, color=colours().ink, linewidth=1.2)
    axes.annotate(
        f"{ceiling.name}: {ceiling.tflops:.4g} TFLOP/s",
        (low, ceiling.tflops),
        xytext=(3, -3 if is_below else 3),
        textcoords="offset points",
        va="top" if is_below else "bottom",
        fontsize="x-small",
    )


def _slope(axes: "Axes", place: int, slope: Slope, highest: float, low: float) -> None:
    end = highest / slope.tb_s
    style = LINES[place % len(LINES)]
    color = colours().faint
    axes.plot([low, end], [low * slope.tb_s, highest], color=color, linestyle=style, linewidth=1.2)
    # Each name at a place of its own along its line.
    x = low * (end / low) ** (0.1 + 0.15 * place)
    axes.annotate(
        f"{slope.name}: {1e3 * slope.tb_s:.4g} GB/s",
        (x, x * slope.tb_s),
        xytext=(14, -7),
        textcoords="offset points",
        va="top",
        fontsize="x-small",
        color=color,
    )


def _name_sizes(axes: "Axes", timed: list[Timed]) -> None:
    """Kernels on one size stand above each other: the size is named once, at the top."""
    places = sorted({(one.metrics.flop_per_byte, _size_name(one.problem)) for one in timed})
    labels: dict[float, list[str]] = {}
    for flop_per_byte, label in places:
        axes.axvline(flop_per_byte, color=colours().line, linewidth=0.6, zorder=0)
        last = next(reversed(labels), 0.0)
        # Closer than a line of type is high: one place for both.
        place = last if flop_per_byte < CLOSE * last else flop_per_byte
        labels.setdefault(place, []).append(label)
    top = axes.secondary_xaxis("top")
    top.set_xticks(list(labels), [", ".join(names) for names in labels.values()])
    top.tick_params(rotation=90, labelsize="x-small", length=2)
    top.minorticks_off()


def _size_name(problem: Problem) -> str:
    """Small elements stand further to the right: their places are named for it."""
    size_bytes = problem.dtype.size_bytes
    return problem.size_label + (f" {8 * size_bytes}-bit" if size_bytes < 4 else "")


def _scale(values: "Sequence[float]", axes: "Axes") -> bool:
    """Logarithmic, but for values of one decade, in which such an axis has no numbers.

    Whether there are values.
    """
    if not values or max(values) > DECADE * min(values):
        axes.set_yscale("log")
    plain_numbers(axes.yaxis)
    return bool(values)


def _height(one: Timed) -> float:
    share = one.metrics.percent_of_roof
    return one.metrics.gflops if share is None else share


@picture
def sizes_picture(figure: "Figure", comparison: Comparison) -> None:
    """Draw speed against size: a panel for each kernel, all others thin behind it.

    In percent of the roof, or in GFLOP/s where the GPU has none that is known.
    """
    by_kernel, sizes = _by_kernel(comparison.timed()), comparison.sizes()
    columns = min(4, len(by_kernel))
    rows = math.ceil(len(by_kernel) / columns)
    figure.set_size_inches(PAPER_WIDTH, min(PAPER_HEIGHT, 1.6 + 1.25 * rows))
    panels: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    curves = {
        kernel: (
            [sizes.index(one.problem.size_label) for one in each],
            [_height(one) for one in each],
        )
        for kernel, each in by_kernel.items()
    }
    for (kernel, each), axes in zip(by_kernel.items(), panels.flat, strict=False):
        role = role_of(each[0])
        for other in curves.values():
            axes.plot(*other, color=colours().other, linewidth=0.5, alpha=0.6)
        look: dict[str, Any] = {"color": getattr(colours(), role), "marker": ROLE_MARKERS[role]}
        axes.plot(*curves[kernel], linewidth=2.0, markersize=3.5, **look)
        axes.set_title(kernel if len(kernel) < 25 else f"{kernel[:23]}...", fontsize="x-small")
        axes.grid(axis="y")
    for axes in panels.flat[len(by_kernel) :]:
        axes.set_visible(False)
    if comparison.timed()[0].roof is not None:
        panels.flat[0].set_ylim(0, 100)
        label = "percent of the roof"
    else:
        _scale([one.metrics.gflops for one in comparison.timed()], panels.flat[0])
        label = "GFLOP/s"
    angle = 90 if max(map(len, sizes)) > 5 or len(sizes) > 5 else 0
    for axes in panels.flat[max(0, len(by_kernel) - columns) : len(by_kernel)]:
        axes.set_xticks(range(len(sizes)), sizes, rotation=angle, fontsize="x-small")
        axes.tick_params(labelbottom=True)
    figure.supylabel(label, fontsize="medium")
    titled(figure, "Speed against size, the other kernels in grey", comparison.caption)
    role_legend(figure, map(role_of, comparison.timed()))


@picture
def ladder_picture(figure: "Figure", comparison: Comparison, size: str) -> None:
    """Draw a bar a kernel in the order of the benchmark, all on one size."""
    bars = [one for one in comparison.timed() if one.problem.size_label == size]
    figure.set_size_inches(PAPER_WIDTH, min(PAPER_HEIGHT, 1.6 + 0.27 * len(bars)))
    axes = figure.subplots()
    gflops = [one.metrics.gflops for one in bars]
    baseline = [one.metrics.gflops for one in bars if one.is_baseline]
    most = min(max(gflops), LONGEST_BAR * baseline[0]) if baseline else max(gflops)
    drawn = axes.barh(
        range(len(bars)),
        [min(value, most) for value in gflops],
        color=[getattr(colours(), role_of(one)) for one in bars],
    )
    texts = [_bar_text(one, is_cut=one.metrics.gflops > most) for one in bars]
    axes.bar_label(drawn, texts, padding=4, fontsize="x-small")
    axes.set_yticks(range(len(bars)), [one.kernel for one in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 2.1 * most)
    axes.margins(y=0.02)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel("GFLOP/s")
    axes.grid(axis="x")
    role_legend(figure, map(role_of, bars))
    titled(figure, f"The ladder at {size}", comparison.caption)


def _bar_text(one: Timed, *, is_cut: bool) -> str:
    parts = [f"{one.metrics.gflops:,.0f}" + (" (bar cut)" if is_cut else "")]
    if one.metrics.percent_of_cublas is not None:
        parts.append(f"{_rounded(one.metrics.percent_of_cublas)} % of cuBLAS")
    if one.metrics.speedup_over_naive is not None and one.kernel != NAIVE:
        parts.append(f"{_rounded(one.metrics.speedup_over_naive)} x naive")
    return ", ".join(parts)


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"

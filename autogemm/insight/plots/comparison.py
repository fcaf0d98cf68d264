"""Pictures of kernels side by side: the roofline, speed against size, the ladder."""

import math
from typing import TYPE_CHECKING, Any

from autogemm.insight.analysis import Comparison, Timed
from autogemm.insight.analysis.comparison import Ceiling, Slope, roofs
from autogemm.insight.plots.drawing import GREYS, GRID, LINES, MARKERS, picture, titled
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import NAIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# A roofline shows these at least, in FLOP per byte.
LOWEST_INTENSITY = 1.0
HIGHEST_INTENSITY = 1000.0
CLOSE = 1.07
DECADE = 10.0
# A bar that is longer than so many times cuBLAS is cut: tensor cores would flatten the ladder.
LONGEST_BAR = 1.6


def _looks(place: int) -> dict[str, Any]:
    """Return the looks of the kernel in that place; the first dozens all differ."""
    return {
        "marker": MARKERS[place % len(MARKERS)],
        "color": GREYS[place // len(MARKERS) % len(GREYS)],
        "markerfacecolor": "white" if place % 2 else GREYS[place // len(MARKERS) % len(GREYS)],
        "markersize": 6,
    }


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
    """Draw every roof of the GPU, the ridge points, and a mark a kernel and size; log-log."""
    figure.set_size_inches(10.0, 6.5)
    axes = figure.subplots()
    slopes, ceilings = roofs(comparison.device, comparison.ceilings)
    timed = comparison.timed()
    intensities = [one.metrics.flop_per_byte for one in timed]
    low = min(LOWEST_INTENSITY, *(0.5 * x for x in intensities))
    high = max(HIGHEST_INTENSITY, *(2.0 * x for x in intensities))
    highest = max((ceiling.tflops for ceiling in ceilings), default=0.0)
    lines = [_ceiling(axes, *each, slopes, high) for each in enumerate(ceilings)]
    lines += [_slope(axes, *each, highest, low) for each in enumerate(slopes)]
    marks = []
    for place, (kernel, each) in enumerate(_by_kernel(timed).items()):
        x, y = [one.metrics.flop_per_byte for one in each], [one.tflops for one in each]
        marks += axes.plot(x, y, label=kernel, linestyle="", **_looks(place))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(_decades(axes.get_ylim()))
    axes.set_xlabel("arithmetic intensity, FLOP per byte that must move")
    axes.set_ylabel("TFLOP/s")
    _plain_numbers(axes.xaxis, axes.yaxis)
    axes.grid(**GRID)
    _name_sizes(axes, timed)
    titled(figure, "Roofline", comparison.caption)
    figure.legend(handles=marks, loc="outside right upper", fontsize="small", title="kernels")
    title = "roofs" if lines else "no roofs: only the name of this GPU is known"
    figure.legend(handles=lines, loc="outside lower left", ncols=2, fontsize="small", title=title)


def _decades(limits: tuple[float, float]) -> tuple[float, float]:
    """Whole decades around: each end of the axis has its number."""
    low, high = limits
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def _ceiling(
    axes: "Axes", place: int, ceiling: Ceiling, slopes: list[Slope], high: float
) -> "Line2D":
    """From the steepest slope on; the ridge, which is marked, is the one of device memory."""
    ridge = ceiling.tflops / slopes[0].tb_s
    begin = ceiling.tflops / max(slope.tb_s for slope in slopes)
    axes.plot([ridge], [ceiling.tflops], marker="|", color="black", markersize=10)
    label = f"{ceiling.name}: {ceiling.tflops:.4g} TFLOP/s, ridge {ridge:.3g} FLOP/byte"
    look: dict[str, Any] = {
        "color": "black",
        "linestyle": LINES[place % len(LINES)],
        "linewidth": 1.4,
    }
    return axes.plot([begin, high], [ceiling.tflops] * 2, label=label, **look)[0]


def _slope(axes: "Axes", place: int, slope: Slope, highest: float, low: float) -> "Line2D":
    x, y = [low, highest / slope.tb_s], [low * slope.tb_s, highest]
    label = f"{slope.name}: {1e3 * slope.tb_s:.4g} GB/s"
    look: dict[str, Any] = {
        "color": "0.45",
        "linestyle": LINES[place % len(LINES)],
        "linewidth": 1.4,
    }
    return axes.plot(x, y, label=label, **look)[0]


def _name_sizes(axes: "Axes", timed: list[Timed]) -> None:
    """Kernels on one size stand above each other: the size is named once, at the top."""
    places = sorted({(one.metrics.flop_per_byte, _size_name(one.problem)) for one in timed})
    labels: dict[float, list[str]] = {}
    for flop_per_byte, label in places:
        axes.axvline(flop_per_byte, color="0.85", linewidth=0.6, zorder=0)
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


def _plain_numbers(*axes: "Axis") -> None:
    """1000 in place of ten to the third, at the decades only."""
    for axis in axes:
        axis.set_major_formatter("{x:,.10g}")
        axis.set_minor_formatter(lambda value, place: "")


def _scale(values: "Sequence[float]", axes: "Axes") -> bool:
    """Logarithmic, but for values of one decade, in which such an axis has no numbers.

    Whether there are values.
    """
    if not values or max(values) > DECADE * min(values):
        axes.set_yscale("log")
    _plain_numbers(axes.yaxis)
    return bool(values)


@picture
def sizes_picture(figure: "Figure", comparison: Comparison) -> None:
    """Draw GFLOP/s and percent of cuBLAS against size, a line a kernel."""
    figure.set_size_inches(12.0, 5.5)
    speed, share = figure.subplots(1, 2)
    sizes = comparison.sizes()
    for place, (kernel, each) in enumerate(_by_kernel(comparison.timed()).items()):
        look = {**_looks(place), "linestyle": LINES[place % len(LINES)], "linewidth": 1.0}
        x = [sizes.index(one.problem.size_label) for one in each]
        speed.plot(x, [one.metrics.gflops for one in each], label=kernel, **look)
        percents = [one.metrics.percent_of_cublas for one in each]
        known = [(at, value) for at, value in zip(x, percents, strict=True) if value is not None]
        share.plot([at for at, _ in known], [value for _, value in known], **look)
    speed.set_ylabel("GFLOP/s")
    share.set_ylabel("percent of cuBLAS")
    _scale([one.metrics.gflops for one in comparison.timed()], speed)
    shares = [one.metrics.percent_of_cublas for one in comparison.timed()]
    if not _scale([value for value in shares if value is not None], share):
        # cuBLAS was not timed, and an axis with one number on it has no scale.
        share.set_ylim(10.0, 1000.0)
    share.axhline(100.0, color="black", linewidth=1.0, zorder=0)
    for axes in (speed, share):
        angle = 45 if max(map(len, sizes)) > 5 else 0
        axes.set_xticks(range(len(sizes)), sizes, rotation=angle, ha="right" if angle else "center")
        axes.set_xlabel("M=N=K or MxNxK")
        axes.grid(**GRID)
    titled(figure, "Speed against size", comparison.caption)
    figure.legend(loc="outside right upper", fontsize="small")


@picture
def ladder_picture(figure: "Figure", comparison: Comparison, size: str) -> None:
    """Draw a bar a kernel in the order of the benchmark, all on one size."""
    bars = [one for one in comparison.timed() if one.problem.size_label == size]
    figure.set_size_inches(9.0, 1.6 + 0.3 * len(bars))
    axes = figure.subplots()
    gflops = [one.metrics.gflops for one in bars]
    baseline = [one.metrics.gflops for one in bars if one.is_baseline]
    most = min(max(gflops), LONGEST_BAR * baseline[0]) if baseline else max(gflops)
    drawn = axes.barh(
        range(len(bars)),
        [min(value, most) for value in gflops],
        color=["0.55" if one.is_baseline else "0.82" for one in bars],
        edgecolor="0.2",
        hatch=["//" if one.is_baseline else "" for one in bars],
    )
    texts = [_bar_text(one, is_cut=one.metrics.gflops > most) for one in bars]
    axes.bar_label(drawn, texts, padding=4, fontsize="small")
    axes.set_yticks(range(len(bars)), [one.kernel for one in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.85 * most)
    axes.margins(y=0.02)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel("GFLOP/s")
    axes.grid(axis="x", **GRID)
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

"""The curves as a picture that can also be read in black and white."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogemm.bench.summary import Curve, Summary
from autogemm.errors import AutogemmError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
# Told apart by line and marker, not by colour: greys only repeat after six curves.
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = "osD^vPX*<>hd"
GREYS = ("0.0", "0.35", "0.55")
LOWEST = 0.7


def check_plot(path: Path) -> None:
    """Raises UsageError if no plot can be written there: before the hours of replaying."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"a plot is one of {' '.join(FORMATS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: make it first")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "plots need matplotlib: pip install 'autogemm[plot]', or leave --plot out"
        ) from error


def draw(summary: Summary, title: str, path: Path) -> None:
    """Fraction of the optimum against evaluations, and against recorded seconds if they are known.

    Raises UsageError without matplotlib or for another format, AutogemmError when the file cannot
    be written.
    """
    check_plot(path)
    from matplotlib.figure import Figure

    num_panels = 1 if summary.seconds is None else 2
    figure = Figure(figsize=(6.5 * num_panels, 5.5), layout="constrained")
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
    for one in axes:
        one.grid(visible=True, color="0.85", linewidth=0.6)
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=2 * num_panels, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    try:
        figure.savefig(path, dpi=150, metadata=_undated(path))
    except OSError as error:
        raise AutogemmError(f"cannot write {path}: {error.strerror}") from error


def _line(axes: "Axes", place: int, curve: Curve, x: Any, y: Any) -> None:
    axes.plot(
        x,
        y,
        label=curve.label,
        color=GREYS[place // len(LINES) % len(GREYS)],
        linestyle=LINES[place % len(LINES)],
        linewidth=1.4,
        marker=MARKERS[place % len(MARKERS)],
        markersize=4.5,
        # Not at the same places, so that markers of two curves do not hide each other.
        markevery=(place * 3, max(1, len(y) // 10)),
    )


def _undated(path: Path) -> dict[str, None] | None:
    """The same curves give the same file."""
    return {"Date": None} if path.suffix.lower() == ".svg" else None

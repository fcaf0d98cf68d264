"""Time and energy of one run's kernels as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from autogemm.insight.plots.drawing import GRID, picture, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {False: "other kernels", True: "no other beats it in both", None: "cuBLAS"}
LOOKS: dict[bool | None, dict[str, Any]] = {
    False: {"color": "0.7", "marker": ".", "linestyle": ""},
    True: {"color": "black", "marker": "o", "linestyle": "-", "drawstyle": "steps-post"},
    None: {"color": "black", "marker": "*", "markersize": 12, "linestyle": ""},
}


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel; ``on_front`` is None for the baseline."""

    time_us: float
    energy_mj: float
    on_front: bool | None


def front_picture(points: Sequence[Point], caption: str, suffix: str) -> bytes:
    """The points, those of the front joined in the order given, as a .png, .svg or .pdf file."""
    return picture(partial(_draw, points, caption), suffix)


def _draw(points: Sequence[Point], caption: str, figure: "Figure") -> None:
    axes = figure.subplots()
    for kind, label in LABELS.items():
        chosen = [point for point in points if point.on_front is kind]
        if chosen:
            x, y = [one.time_us for one in chosen], [one.energy_mj for one in chosen]
            axes.plot(x, y, label=label, **LOOKS[kind])
    axes.set_xlabel("time of one GEMM, us")
    axes.set_ylabel("energy of one GEMM, whole card, mJ")
    titled(figure, "Time and energy", caption)
    axes.legend()
    axes.grid(**GRID)

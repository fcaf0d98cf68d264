"""Time and energy of one run's kernels as a picture."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def picture(points: Sequence[Point], title: str, suffix: str) -> bytes:
    """The points, those of the front joined in the order given, as a .png, .svg or .pdf file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for kind, label in LABELS.items():
        chosen = [point for point in points if point.on_front is kind]
        if chosen:
            x, y = [one.time_us for one in chosen], [one.energy_mj for one in chosen]
            axes.plot(x, y, label=label, **LOOKS[kind])
    axes.set_xlabel("time of one GEMM, us")
    axes.set_ylabel("energy of one GEMM, whole card, mJ")
    axes.set_title(title)
    axes.legend()
    axes.grid(visible=True, color="0.9")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix.removeprefix("."), dpi=150)
    return buffer.getvalue()

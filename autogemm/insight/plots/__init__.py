"""Draws pictures into PNG, SVG and PDF files; the only place that imports matplotlib.

All can be read in black and white and say what they are of.
"""

from autogemm.insight.plots.comparison import ladder_picture, roofline_picture, sizes_picture
from autogemm.insight.plots.drawing import check_plot
from autogemm.insight.plots.search import (
    Point,
    distribution_picture,
    front_picture,
    heatmap_picture,
    history_picture,
    importance_picture,
)
from autogemm.insight.plots.strategies import strategies_picture

__all__ = [
    "Point",
    "check_plot",
    "distribution_picture",
    "front_picture",
    "heatmap_picture",
    "history_picture",
    "importance_picture",
    "ladder_picture",
    "roofline_picture",
    "sizes_picture",
    "strategies_picture",
]

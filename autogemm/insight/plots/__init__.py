"""Draws pictures into PNG, SVG and PDF files; the only place that imports matplotlib.

All fit a page, say what they are of, and need no colour to be read.
"""

from autogemm.insight.plots.comparison import ladder_picture, roofline_picture, sizes_picture
from autogemm.insight.plots.drawing import check_plot, theme
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
    "theme",
]

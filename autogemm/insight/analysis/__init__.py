"""Analyses of stored runs: how a search went, which parameters matter, where kernels stand.

Figures only; `autogemm.insight.plots` draws them, `autogemm.insight.report` tells them.
"""

from autogemm.insight.analysis.changes import Pair, compare_sides, history
from autogemm.insight.analysis.comparison import (
    Comparison,
    Timed,
    compare,
    comparison_of,
    roofs,
)
from autogemm.insight.analysis.standing import Standing, standing
from autogemm.insight.analysis.trials import Grid, RunTrials, Step, grid, importance, read_run

__all__ = [
    "Comparison",
    "Grid",
    "Pair",
    "RunTrials",
    "Standing",
    "Step",
    "Timed",
    "compare",
    "compare_sides",
    "comparison_of",
    "grid",
    "history",
    "importance",
    "read_run",
    "roofs",
    "standing",
]

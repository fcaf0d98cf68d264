"""What stored runs say: how a search went, which parameters matter, where kernels stand.

Figures only; `autogemm.plots` draws them, `autogemm.report` tells them.
"""

from autogemm.analysis.changes import Pair, compare_sides, history
from autogemm.analysis.comparison import Comparison, Timed, compare
from autogemm.analysis.parameters import Grid, grid, importance
from autogemm.analysis.standing import Standing, Tried, standing
from autogemm.analysis.trials import RunTrials, Step, read_run

__all__ = [
    "Comparison",
    "Grid",
    "Pair",
    "RunTrials",
    "Standing",
    "Step",
    "Timed",
    "Tried",
    "compare",
    "compare_sides",
    "grid",
    "history",
    "importance",
    "read_run",
    "standing",
]

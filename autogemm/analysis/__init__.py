"""What stored runs say: how a search went, which parameters matter, where kernels stand.

Figures only; `autogemm.plots` draws them, `autogemm.report` tells them.
"""

from autogemm.analysis.parameters import Grid, grid, importance
from autogemm.analysis.trials import RunTrials, Step, read_run

__all__ = ["Grid", "RunTrials", "Step", "grid", "importance", "read_run"]

"""Compares search strategies on recorded spaces: how close to the optimum after how many trials.

:func:`replays` runs strategies x recordings x seeds in parallel, :func:`summarise` makes the table.
"""

from autogemm.bench.plan import Plan, known_strategies
from autogemm.bench.replaying import Replay
from autogemm.bench.running import replays
from autogemm.bench.summary import Curve, Summary, summarise

__all__ = ["Curve", "Plan", "Replay", "Summary", "known_strategies", "replays", "summarise"]

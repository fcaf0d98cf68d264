"""Compares search strategies on recorded spaces: how close to the optimum after how many trials.

:func:`replays` runs strategies x recordings x seeds in parallel, :func:`summarise` makes the table.
"""

from autogemm.bench.strategies.plan import Plan, known_strategies
from autogemm.bench.strategies.replaying import Replay, replays
from autogemm.bench.strategies.summary import Curve, Summary, summarise

__all__ = ["Curve", "Plan", "Replay", "Summary", "known_strategies", "replays", "summarise"]

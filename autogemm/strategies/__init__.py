"""Compares search strategies on recorded spaces: how close to the optimum after how many trials.

:func:`replays` runs strategies x recordings x seeds in parallel, :func:`summarise` makes the table.
"""

from autogemm.strategies.plan import Plan, known_strategies
from autogemm.strategies.replaying import Replay
from autogemm.strategies.running import replays
from autogemm.strategies.summary import Curve, Summary, summarise

__all__ = ["Curve", "Plan", "Replay", "Summary", "known_strategies", "replays", "summarise"]

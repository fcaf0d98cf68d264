"""Why a config is as fast or slow as it is, from static facts alone: nothing runs on a GPU."""

from autogemm.insight.explain.conclusion import WASTEFUL, WORTH_TRYING, conclusion
from autogemm.insight.explain.explanation import Explanation, Request, Tools, device_facts, explain
from autogemm.insight.explain.neighbours import Neighbour
from autogemm.insight.explain.table_rows import headline, tables
from autogemm.insight.explain.times import Missing, Times, or_missing, times_of

__all__ = [
    "WASTEFUL",
    "WORTH_TRYING",
    "Explanation",
    "Missing",
    "Neighbour",
    "Request",
    "Times",
    "Tools",
    "conclusion",
    "device_facts",
    "explain",
    "headline",
    "or_missing",
    "tables",
    "times_of",
]

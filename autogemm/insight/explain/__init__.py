"""Why a config is as fast or slow as it is, from static facts alone: nothing runs on a card."""

from autogemm.insight.explain.accesses import AccessCost, Accesses
from autogemm.insight.explain.compiled import CompiledFacts, KernelFacts
from autogemm.insight.explain.explanation import Explanation, Request, Tools, explain
from autogemm.insight.explain.intensity import Intensity, IntensityLevel
from autogemm.insight.explain.missing import Missing
from autogemm.insight.explain.neighbours import Neighbour, Neighbours, StaticFacts
from autogemm.insight.explain.residency import LimiterStep, Residency, Waves
from autogemm.insight.explain.table_rows import headline, tables
from autogemm.insight.explain.times import Times, times_of

__all__ = [
    "AccessCost",
    "Accesses",
    "CompiledFacts",
    "Explanation",
    "Intensity",
    "IntensityLevel",
    "KernelFacts",
    "LimiterStep",
    "Missing",
    "Neighbour",
    "Neighbours",
    "Request",
    "Residency",
    "StaticFacts",
    "Times",
    "Tools",
    "Waves",
    "explain",
    "headline",
    "tables",
    "times_of",
]

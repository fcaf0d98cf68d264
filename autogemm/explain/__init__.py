"""Why a config is as fast or slow as it is, from static facts alone: nothing runs on a card."""

from autogemm.explain.accesses import AccessCost, Accesses
from autogemm.explain.compiled import CompiledFacts, KernelFacts
from autogemm.explain.explanation import Explanation, Request, Tools, explain
from autogemm.explain.intensity import Intensity, IntensityLevel
from autogemm.explain.missing import Missing
from autogemm.explain.neighbours import Neighbour, Neighbours, StaticFacts
from autogemm.explain.residency import LimiterStep, Residency, Waves
from autogemm.explain.times import Times, times_of

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
    "times_of",
]

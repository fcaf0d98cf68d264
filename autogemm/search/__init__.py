"""Searches enumerated legal configs with Optuna; the only place that imports optuna.

:class:`Search` proposes configs (``ask``) and learns what became of them (``tell``). Its state is
an Optuna study, so that a killed run goes on from the database.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogemm.search.enumerated import EnumeratedSpace
    from autogemm.search.importance import parameter_importance
    from autogemm.search.study import Proposal, Search

SAMPLERS = ("surrogate", "random", "tpe", "gp", "cmaes", "nsga2", "exhaustive")
DEFAULT_SAMPLER = "surrogate"

__all__ = [
    "DEFAULT_SAMPLER",
    "SAMPLERS",
    "EnumeratedSpace",
    "Proposal",
    "Search",
    "parameter_importance",
]


def __getattr__(name: str) -> object:
    # Optuna takes a second to import, and a help page needs the names of the samplers only.
    if name in ("Proposal", "Search"):
        from autogemm.search import study

        return getattr(study, name)
    if name == "parameter_importance":
        from autogemm.search.importance import parameter_importance

        return parameter_importance
    if name == "EnumeratedSpace":
        from autogemm.search.enumerated import EnumeratedSpace

        return EnumeratedSpace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

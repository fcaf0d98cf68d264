"""Searches enumerated legal configs with Optuna; the only place that imports optuna.

:class:`Search` proposes configs (``ask``) and learns what became of them (``tell``). Its state is
rebuilt from what the database knows (``remember``), so that a killed run goes on.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from autogemm.search.names import DEFAULT_SAMPLER, SAMPLERS, check_sampler, sampler_names

if TYPE_CHECKING:
    from autogemm.search.enumerated import EnumeratedSpace
    from autogemm.search.finished import FinishedStudy, FinishedTrial
    from autogemm.search.importance import parameter_importance
    from autogemm.search.samplers import EnumeratedSampler
    from autogemm.search.studies import MARK, journal_pieces
    from autogemm.search.study import Proposal, Search

_LAZY = {
    "enumerated": "EnumeratedSpace",
    "finished": "FinishedStudy FinishedTrial",
    "importance": "parameter_importance",
    "samplers": "EnumeratedSampler",
    "studies": "MARK journal_pieces",
    "study": "Proposal Search",
}

__all__ = [
    "DEFAULT_SAMPLER",
    "MARK",
    "SAMPLERS",
    "EnumeratedSampler",
    "EnumeratedSpace",
    "FinishedStudy",
    "FinishedTrial",
    "Proposal",
    "Search",
    "check_sampler",
    "journal_pieces",
    "parameter_importance",
    "sampler_names",
]


def __getattr__(name: str) -> object:
    # Optuna takes a second to import, and a help page needs the names of the samplers only.
    for module, names in _LAZY.items():
        if name in names.split():
            return getattr(import_module(f"autogemm.search.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

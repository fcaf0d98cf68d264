"""Which kernel for which size: a table of times from the database, and a rule learned from it."""

from autogemm.dispatch.chooser import Choice, Chooser
from autogemm.dispatch.learning import Learned, Regret, by_merit, learn
from autogemm.dispatch.snapper import Snapper
from autogemm.dispatch.table import Table, TunedSize, table_of, tuned_sizes

__all__ = [
    "Choice",
    "Chooser",
    "Learned",
    "Regret",
    "Snapper",
    "Table",
    "TunedSize",
    "by_merit",
    "learn",
    "table_of",
    "tuned_sizes",
]

"""Which kernel for which size: a table of times from the database, and a rule learned from it."""

from autogemm.dispatch.assembling import assembled
from autogemm.dispatch.chooser import Choice, Chooser
from autogemm.dispatch.learning import Learned, Regret, learn
from autogemm.dispatch.snapper import Snapper
from autogemm.dispatch.table import Table, TunedSize, common_table, tuned_sizes

__all__ = [
    "Choice",
    "Chooser",
    "Learned",
    "Regret",
    "Snapper",
    "Table",
    "TunedSize",
    "assembled",
    "common_table",
    "learn",
    "tuned_sizes",
]

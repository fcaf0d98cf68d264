"""The kernel for each size: a table of times from the database, and a rule learned from it."""

from autogemm.dispatch.assembling import assembled
from autogemm.dispatch.chooser import Chooser, same_kernel
from autogemm.dispatch.learning import Regret, learn
from autogemm.dispatch.legal import NearestLegal
from autogemm.dispatch.predicting import Predictor
from autogemm.dispatch.table import common_table, tuned_sizes

__all__ = [
    "Chooser",
    "NearestLegal",
    "Predictor",
    "Regret",
    "assembled",
    "common_table",
    "learn",
    "same_kernel",
    "tuned_sizes",
]

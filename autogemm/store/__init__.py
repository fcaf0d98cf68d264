"""The tuning database; the only place that imports sqlalchemy."""

from autogemm.store.copying import opened_copy
from autogemm.store.records import (
    BestQuery,
    ResultRow,
    RunRow,
    RunSpec,
    RunState,
    TrialRow,
)
from autogemm.store.store import Store, database_place, open_store
from autogemm.stored_kernel import StoredKernel

__all__ = [
    "BestQuery",
    "ResultRow",
    "RunRow",
    "RunSpec",
    "RunState",
    "Store",
    "StoredKernel",
    "TrialRow",
    "database_place",
    "open_store",
    "opened_copy",
]

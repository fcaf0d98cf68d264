"""The tuning database; the only place that imports sqlalchemy."""

from autogemm.store.copying import opened_copy
from autogemm.store.opening import database_place, open_store
from autogemm.store.records import (
    BestQuery,
    CertificateCopy,
    Copy,
    DecidedRow,
    FinalsCopy,
    KernelCopy,
    ResultRow,
    RunCopy,
    RunRow,
    RunSpec,
    RunState,
    Taken,
    TrialCopy,
    TrialRow,
)
from autogemm.store.store import Store
from autogemm.stored_kernel import StoredKernel

__all__ = [
    "BestQuery",
    "CertificateCopy",
    "Copy",
    "DecidedRow",
    "FinalsCopy",
    "KernelCopy",
    "ResultRow",
    "RunCopy",
    "RunRow",
    "RunSpec",
    "RunState",
    "Store",
    "StoredKernel",
    "Taken",
    "TrialCopy",
    "TrialRow",
    "database_place",
    "open_store",
    "opened_copy",
]

"""The tuning database; the only place that imports sqlalchemy."""

from autogemm.store.copying import opened_copy
from autogemm.store.opening import database_place, open_store
from autogemm.store.records import (
    BenchCopy,
    BestQuery,
    CeilingsCopy,
    CertificateCopy,
    Copy,
    DecidedRow,
    FinalsCopy,
    KernelCopy,
    ProfileCopy,
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
    "BenchCopy",
    "BestQuery",
    "CeilingsCopy",
    "CertificateCopy",
    "Copy",
    "DecidedRow",
    "FinalsCopy",
    "KernelCopy",
    "ProfileCopy",
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

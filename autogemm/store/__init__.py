"""The tuning database; the only place that imports sqlalchemy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogemm.store.connection.places import database_place
    from autogemm.store.opening import open_store, opened_copy
    from autogemm.store.shipped import (
        chosen_winners,
        origin_of,
        shipped_kernel,
        shipped_rows,
        shipped_winners,
    )
    from autogemm.store.store import Store
    from autogemm.store.tables.records import (
        BestQuery,
        CertificateCopy,
        Copy,
        DecidedRow,
        DecidedRun,
        FinalsCopy,
        KernelCopy,
        ResultRow,
        RunCopy,
        RunLine,
        RunRow,
        RunSpec,
        RunState,
        Taken,
        TrialCopy,
        TrialRow,
    )
    from autogemm.store.transfer.outgoing import Leaving, RunsOrTrials
    from autogemm.store.transfer.trials import TrialColumns, Used, is_constant

__all__ = [
    "BestQuery",
    "CertificateCopy",
    "Copy",
    "DecidedRow",
    "DecidedRun",
    "FinalsCopy",
    "KernelCopy",
    "Leaving",
    "ResultRow",
    "RunCopy",
    "RunLine",
    "RunRow",
    "RunSpec",
    "RunState",
    "RunsOrTrials",
    "Store",
    "Taken",
    "TrialColumns",
    "TrialCopy",
    "TrialRow",
    "Used",
    "chosen_winners",
    "database_place",
    "is_constant",
    "open_store",
    "opened_copy",
    "origin_of",
    "shipped_kernel",
    "shipped_rows",
    "shipped_winners",
]

# SQLAlchemy takes half a second to import, and values are often all that is asked for.
_HOMES = {
    "Leaving": "autogemm.store.transfer.outgoing",
    "RunsOrTrials": "autogemm.store.transfer.outgoing",
    "Store": "autogemm.store.store",
    "TrialColumns": "autogemm.store.transfer.trials",
    "Used": "autogemm.store.transfer.trials",
    "database_place": "autogemm.store.connection.places",
    "is_constant": "autogemm.store.transfer.trials",
    "open_store": "autogemm.store.opening",
    "opened_copy": "autogemm.store.opening",
    "chosen_winners": "autogemm.store.shipped",
    "origin_of": "autogemm.store.shipped",
    "shipped_kernel": "autogemm.store.shipped",
    "shipped_rows": "autogemm.store.shipped",
    "shipped_winners": "autogemm.store.shipped",
}


def __getattr__(name: str) -> Any:
    """Modules are imported at the first use of what they have."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "autogemm.store.tables.records")), name)

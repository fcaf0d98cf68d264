"""The columns that make two rows of a table the same row, whichever database they are in.

Merging databases and importing files both go by this table. Only trials of a file go by their
number: a file is one run's record, so a number that another config has here is a fault, while two
copies of a database may both have gone on with a run, and a merge keeps what either did.
"""

from collections.abc import Mapping

from sqlalchemy import Table

from autogemm.store.tables.convert import SPEC_COLUMNS

# Beside the tables with a unique key, which is their identity. Dates have microseconds.
IDENTITY: Mapping[str, tuple[str, ...]] = {
    "runs": ("problem_id", "device_id", "environment_id", *SPEC_COLUMNS, "started_at"),
    # Without the number, see above.
    "run_trials": ("run_id", "family", "config", "finished_at"),
    "finals": ("run_id", "measured_at"),
    "certificates": ("run_id", "kernel_id", "made_at"),
    "benches": ("device_id", "environment_id", "preset", "started_at"),
    "profiles": ("kernel_id", "device_id", "problem_id", "made_at"),
    "ceilings": ("device_id", "environment_id", "measured_at"),
}


def identity(table: Table, *, by_number: bool = False) -> tuple[str, ...]:
    """The columns that make two rows of a table with an ``id`` the same row.

    ``by_number`` is for trials, see above.
    """
    if by_number and table.name == "run_trials":
        return ("run_id", "number")
    if table.name in IDENTITY:
        return IDENTITY[table.name]
    unique = [index for index in table.constraints if hasattr(index, "columns")]
    named = [c for c in unique if str(c.name).startswith("uq_")]
    return tuple(column.name for column in named[0].columns)

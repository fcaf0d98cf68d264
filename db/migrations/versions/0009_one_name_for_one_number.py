"""Columns are named as the fields that they hold: one name for one number.

Revision ID: 0009
Revises: 0008
"""

from alembic import op

revision = "0009"
down_revision = "0008"

# Table, former name, name.
RENAMED = (
    ("runs", "family", "families"),
    ("kernels", "source_sha256", "kernel_sha256"),
    ("measurements", "median_us", "time_us"),
    ("finals_entries", "median_us", "time_us"),
    ("bench_entries", "median_us", "time_us"),
    ("run_trials", "relative_frobenius", "error"),
    ("finals_entries", "relative_frobenius", "error"),
    ("bench_entries", "relative_frobenius", "error"),
)


def upgrade() -> None:
    for table, former, name in RENAMED:
        _rename(table, former, name)


def downgrade() -> None:
    for table, former, name in RENAMED:
        _rename(table, name, former)


def _rename(table: str, former: str, name: str) -> None:
    # Without Alembic's batch mode, which copies the table: a million rows stay where they are.
    op.execute(f"ALTER TABLE {table} RENAME COLUMN {former} TO {name}")

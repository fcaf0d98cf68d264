"""Several families in one run, how a search ended, energy.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    objective = sa.Column("objective", sa.Text(), nullable=False, server_default="time")
    op.add_column("runs", objective)
    op.add_column("runs", sa.Column("stopped_by", sa.Text(), nullable=True))
    family = sa.Column("family", sa.Text(), nullable=False, server_default="")
    op.add_column("run_trials", family)
    op.execute(
        "UPDATE run_trials SET family = "
        "(SELECT runs.family FROM runs WHERE runs.id = run_trials.run_id)"
    )
    op.add_column("measurements", sa.Column("energy_mj", sa.Double(), nullable=True))
    op.add_column("finals_entries", sa.Column("family", sa.Text(), nullable=True))
    op.execute(
        "UPDATE finals_entries SET family = (SELECT runs.family FROM runs JOIN finals "
        "ON finals.run_id = runs.id WHERE finals.id = finals_entries.finals_id) WHERE place > 0"
    )
    op.add_column("finals_entries", sa.Column("registers", sa.Integer(), nullable=True))
    op.add_column("finals_entries", sa.Column("energy_mj", sa.Double(), nullable=True))
    op.add_column("finals_entries", sa.Column("samples_mj", sa.JSON(), nullable=True))


def downgrade() -> None:
    added = {
        "runs": ("objective", "stopped_by"),
        "run_trials": ("family",),
        "measurements": ("energy_mj",),
        "finals_entries": ("family", "registers", "energy_mj", "samples_mj"),
    }
    for table, columns in added.items():
        for column in columns:
            op.drop_column(table, column)

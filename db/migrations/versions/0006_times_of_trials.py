"""The time of a trial beside its status, with what finds the fastest and the failed at once.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("run_trials", sa.Column("time_us", sa.Double(), nullable=True))
    op.execute(
        "UPDATE run_trials SET time_us = (SELECT median_us FROM measurements "
        "WHERE measurements.trial_id = run_trials.id) WHERE status = 'ok'"
    )
    op.create_index("ix_run_trials_run_id_time_us", "run_trials", ["run_id", "time_us"])
    op.create_index("ix_run_trials_status_id", "run_trials", ["status", "id"])


def downgrade() -> None:
    op.drop_index("ix_run_trials_status_id", "run_trials")
    op.drop_index("ix_run_trials_run_id_time_us", "run_trials")
    op.drop_column("run_trials", "time_us")

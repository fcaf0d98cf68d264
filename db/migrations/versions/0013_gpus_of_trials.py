"""The GPU that measured a trial, and its pace, where several measure those of one run.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("run_trials", sa.Column("gpu_number", sa.Integer(), nullable=True))
    op.add_column("run_trials", sa.Column("pace", sa.Double(), nullable=False, server_default="1"))


def downgrade() -> None:
    for name in ("pace", "gpu_number"):
        op.drop_column("run_trials", name)

"""The largest error that a run's winner may have.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("runs", sa.Column("max_error", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("runs", "max_error")

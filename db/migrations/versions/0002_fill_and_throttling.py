"""What inputs were filled with, and samples that a throttled GPU spoiled.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("runs", sa.Column("fill", sa.Text(), nullable=False, server_default="uniform"))
    for table, column in (("measurements", "throttled_samples"), ("finals", "throttled_rounds")):
        op.add_column(table, sa.Column(column, sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("finals", "throttled_rounds")
    op.drop_column("measurements", "throttled_samples")
    op.drop_column("runs", "fill")

"""All calls of the baseline's library, and times of winner and baseline each alone.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

SUSTAINED = (
    *("sustained_s", "sustained_us", "sustained_baseline_us"),
    *("sustained_mj", "sustained_baseline_mj"),
)


def upgrade() -> None:
    op.add_column("finals", sa.Column("calls", sa.JSON(), nullable=True))
    for name in SUSTAINED:
        op.add_column("finals", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    for name in reversed(SUSTAINED):
        op.drop_column("finals", name)
    op.drop_column("finals", "calls")

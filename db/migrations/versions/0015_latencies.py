"""The latency of a load from each level of a GPU's memory.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

LATENCIES = ("smem", "l1", "l2", "memory")


def upgrade() -> None:
    for level in LATENCIES:
        op.add_column("ceilings", sa.Column(f"{level}_latency_cycles", sa.Double(), nullable=True))


def downgrade() -> None:
    for level in reversed(LATENCIES):
        op.drop_column("ceilings", f"{level}_latency_cycles")

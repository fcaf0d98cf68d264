"""What a GPU's L2 and shared memory deliver.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("ceilings", sa.Column("l2_gb_s", sa.Double(), nullable=True))
    op.add_column("ceilings", sa.Column("smem_gb_s", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("ceilings", "smem_gb_s")
    op.drop_column("ceilings", "l2_gb_s")

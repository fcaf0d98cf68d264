"""The batch of a problem: its canonical text, empty for a single product.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

COLUMNS = ["m", "n", "k", "layout", "dtype", "lda", "ldb", "ldc", "alpha", "beta", "epilogue"]
NAME = "uq_problems_all"


def upgrade() -> None:
    # SQLite changes no constraint: the table, a row for each problem, is copied.
    with op.batch_alter_table("problems") as table:
        table.add_column(sa.Column("batch", sa.Text(), nullable=False, server_default=""))
        table.drop_constraint(NAME, type_="unique")
        table.create_unique_constraint(NAME, [*COLUMNS, "batch"])


def downgrade() -> None:
    with op.batch_alter_table("problems") as table:
        table.drop_constraint(NAME, type_="unique")
        table.drop_column("batch")
        table.create_unique_constraint(NAME, COLUMNS)

"""The epilogue of a problem: its canonical text, empty for the plain GEMM.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

COLUMNS = ["m", "n", "k", "layout", "dtype", "lda", "ldb", "ldc", "alpha", "beta"]
NAME = "uq_problems_all"


def upgrade() -> None:
    # SQLite changes no constraint: the table, a row for each problem, is copied.
    with op.batch_alter_table("problems") as table:
        table.add_column(sa.Column("epilogue", sa.Text(), nullable=False, server_default=""))
        table.drop_constraint(NAME, type_="unique")
        table.create_unique_constraint(NAME, [*COLUMNS, "epilogue"])


def downgrade() -> None:
    with op.batch_alter_table("problems") as table:
        table.drop_constraint(NAME, type_="unique")
        table.drop_column("epilogue")
        table.create_unique_constraint(NAME, COLUMNS)

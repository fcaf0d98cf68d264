"""The groups of a problem's rows: their canonical text, empty where there are none.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

COLUMNS = ["m", "n", "k", "layout", "dtype", "lda", "ldb", "ldc", "alpha", "beta", "epilogue"]
COLUMNS += ["batch"]
NAME = "uq_problems_all"


def upgrade() -> None:
    # SQLite changes no constraint: the table, a row for each problem, is copied.
    with op.batch_alter_table("problems") as table:
        table.add_column(sa.Column("groups", sa.Text(), nullable=False, server_default=""))
        table.drop_constraint(NAME, type_="unique")
        table.create_unique_constraint(NAME, [*COLUMNS, "groups"])


def downgrade() -> None:
    with op.batch_alter_table("problems") as table:
        table.drop_constraint(NAME, type_="unique")
        table.drop_column("groups")
        table.create_unique_constraint(NAME, COLUMNS)

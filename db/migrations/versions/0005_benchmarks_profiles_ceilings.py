"""Benchmarks, profiles and ceilings.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "benches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("preset", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("l2", sa.Text(), nullable=False),
        sa.Column("fill", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("finished_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name=op.f("fk_benches_device_id_devices")
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
            name=op.f("fk_benches_environment_id_environments"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_benches")),
    )
    op.create_table(
        "bench_entries",
        sa.Column("bench_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("library", sa.Text(), nullable=False),
        sa.Column("kernel_id", sa.Integer(), nullable=True),
        sa.Column("family", sa.Text(), nullable=True),
        sa.Column("config", sa.JSON(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("registers", sa.Integer(), nullable=True),
        sa.Column("median_us", sa.Double(), nullable=True),
        sa.Column("samples_us", sa.JSON(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("launches_per_sample", sa.Integer(), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("ratio_low", sa.Double(), nullable=True),
        sa.Column("ratio_high", sa.Double(), nullable=True),
        sa.Column("max_abs_error", sa.Double(), nullable=True),
        sa.Column("max_error_ratio", sa.Double(), nullable=True),
        sa.Column("relative_frobenius", sa.Double(), nullable=True),
        sa.Column("sm_clock_mhz", sa.Integer(), nullable=True),
        sa.Column("memory_clock_mhz", sa.Integer(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Integer(), nullable=True),
        sa.Column("throttle_reasons", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["kernel_id"], ["kernels.id"], name=op.f("fk_bench_entries_kernel_id_kernels")
        ),
        sa.ForeignKeyConstraint(
            ["bench_id"], ["benches.id"], name=op.f("fk_bench_entries_bench_id_benches")
        ),
        sa.ForeignKeyConstraint(
            ["problem_id"], ["problems.id"], name=op.f("fk_bench_entries_problem_id_problems")
        ),
        sa.PrimaryKeyConstraint("bench_id", "position", name=op.f("pk_bench_entries")),
    )
    op.create_index(op.f("ix_bench_entries_kernel_id"), "bench_entries", ["kernel_id"])
    op.create_table(
        "profiles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kernel_id", sa.Integer(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("profiler", sa.Text(), nullable=False),
        sa.Column("counters", sa.JSON(), nullable=False),
        sa.Column("made_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name=op.f("fk_profiles_device_id_devices")
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
            name=op.f("fk_profiles_environment_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["problem_id"], ["problems.id"], name=op.f("fk_profiles_problem_id_problems")
        ),
        sa.ForeignKeyConstraint(
            ["kernel_id"], ["kernels.id"], name=op.f("fk_profiles_kernel_id_kernels")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
    )
    op.create_index(op.f("ix_profiles_kernel_id"), "profiles", ["kernel_id"])
    op.create_table(
        "ceilings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("fma_tflops", sa.Double(), nullable=False),
        sa.Column("copy_gb_s", sa.Double(), nullable=False),
        sa.Column("sm_clock_mhz", sa.Integer(), nullable=True),
        sa.Column("measured_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name=op.f("fk_ceilings_device_id_devices")
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
            name=op.f("fk_ceilings_environment_id_environments"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ceilings")),
    )
    op.create_index(op.f("ix_ceilings_device_id"), "ceilings", ["device_id"])


def downgrade() -> None:
    for table in ("ceilings", "profiles", "bench_entries", "benches"):
        op.drop_table(table)

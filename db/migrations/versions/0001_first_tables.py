"""The first tables.

Revision ID: 0001
Revises: (none)
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "devices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arch", sa.Integer(), nullable=False),
        sa.Column("num_sms", sa.Integer(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
        sa.UniqueConstraint("name", "arch", "num_sms", name=op.f("uq_devices_name_arch_num_sms")),
    )
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("cuda_runtime", sa.Text(), nullable=False),
        sa.Column("compiler", sa.Text(), nullable=False),
        sa.Column("cublas", sa.Text(), nullable=False),
        sa.Column("cupy", sa.Text(), nullable=False),
        sa.Column("python", sa.Text(), nullable=False),
        sa.Column("autogemm", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint(
            "driver",
            "cuda_runtime",
            "compiler",
            "cublas",
            "cupy",
            "python",
            "autogemm",
            name="uq_environments_all",
        ),
    )
    op.create_table(
        "kernels",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("source_sha256", sa.Text(), nullable=False),
        sa.Column("template_sha256", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kernels")),
        sa.UniqueConstraint("source_sha256", name=op.f("uq_kernels_source_sha256")),
    )
    op.create_index(op.f("ix_kernels_family"), "kernels", ["family"], unique=False)
    op.create_table(
        "problems",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("m", sa.Integer(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("lda", sa.Integer(), nullable=False),
        sa.Column("ldb", sa.Integer(), nullable=False),
        sa.Column("ldc", sa.Integer(), nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("beta", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problems")),
        sa.UniqueConstraint(
            "m",
            "n",
            "k",
            "layout",
            "dtype",
            "lda",
            "ldb",
            "ldc",
            "alpha",
            "beta",
            name="uq_problems_all",
        ),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("family_sha256", sa.Text(), nullable=False),
        sa.Column("fix", sa.Text(), nullable=False),
        sa.Column("sampler", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("l2", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("finished_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name=op.f("fk_runs_device_id_devices")
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
            name=op.f("fk_runs_environment_id_environments"),
        ),
        sa.ForeignKeyConstraint(
            ["problem_id"], ["problems.id"], name=op.f("fk_runs_problem_id_problems")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(
        op.f("ix_runs_problem_id_device_id"), "runs", ["problem_id", "device_id"], unique=False
    )
    op.create_table(
        "finals",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("launches_per_sample", sa.Integer(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("measured_at", sa.DateTime(), nullable=False),
        sa.Column("sm_clock_mhz", sa.Integer(), nullable=True),
        sa.Column("memory_clock_mhz", sa.Integer(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Integer(), nullable=True),
        sa.Column("throttle_reasons", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_finals_run_id_runs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_finals")),
    )
    op.create_index(op.f("ix_finals_run_id"), "finals", ["run_id"], unique=False)
    op.create_table(
        "run_trials",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("kernel_id", sa.Integer(), nullable=True),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("compile_seconds", sa.Double(), nullable=False),
        sa.Column("measure_seconds", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.DateTime(), nullable=False),
        sa.Column("max_abs_error", sa.Double(), nullable=True),
        sa.Column("max_error_ratio", sa.Double(), nullable=True),
        sa.Column("relative_frobenius", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["kernel_id"], ["kernels.id"], name=op.f("fk_run_trials_kernel_id_kernels")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_trials_run_id_runs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_trials")),
        sa.UniqueConstraint("run_id", "number", name=op.f("uq_run_trials_run_id_number")),
    )
    op.create_index(op.f("ix_run_trials_kernel_id"), "run_trials", ["kernel_id"], unique=False)
    op.create_table(
        "finals_entries",
        sa.Column("finals_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kernel_id", sa.Integer(), nullable=True),
        sa.Column("config", sa.JSON(), nullable=True),
        sa.Column("median_us", sa.Double(), nullable=False),
        sa.Column("samples_us", sa.JSON(), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("ratio_low", sa.Double(), nullable=True),
        sa.Column("ratio_high", sa.Double(), nullable=True),
        sa.Column("tied", sa.Boolean(), nullable=False),
        sa.Column("max_abs_error", sa.Double(), nullable=True),
        sa.Column("max_error_ratio", sa.Double(), nullable=True),
        sa.Column("relative_frobenius", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["finals_id"], ["finals.id"], name=op.f("fk_finals_entries_finals_id_finals")
        ),
        sa.ForeignKeyConstraint(
            ["kernel_id"], ["kernels.id"], name=op.f("fk_finals_entries_kernel_id_kernels")
        ),
        sa.PrimaryKeyConstraint("finals_id", "place", name=op.f("pk_finals_entries")),
    )
    op.create_index(
        op.f("ix_finals_entries_kernel_id"), "finals_entries", ["kernel_id"], unique=False
    )
    op.create_table(
        "measurements",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("median_us", sa.Double(), nullable=False),
        sa.Column("samples_us", sa.JSON(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("launches_per_sample", sa.Integer(), nullable=False),
        sa.Column("l2", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("sm_clock_mhz", sa.Integer(), nullable=True),
        sa.Column("memory_clock_mhz", sa.Integer(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Integer(), nullable=True),
        sa.Column("throttle_reasons", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["run_trials.id"], name=op.f("fk_measurements_trial_id_run_trials")
        ),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_measurements")),
    )
    op.create_table(
        "resources",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("registers", sa.Integer(), nullable=False),
        sa.Column("spill_store_bytes", sa.Integer(), nullable=False),
        sa.Column("spill_load_bytes", sa.Integer(), nullable=False),
        sa.Column("stack_bytes", sa.Integer(), nullable=False),
        sa.Column("static_smem_bytes", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["run_trials.id"], name=op.f("fk_resources_trial_id_run_trials")
        ),
        sa.PrimaryKeyConstraint("trial_id", "position", name=op.f("pk_resources")),
    )


def downgrade() -> None:
    tables = (
        *("resources", "measurements", "finals_entries", "run_trials", "finals"),
        *("runs", "problems", "kernels", "environments", "devices"),
    )
    for table in tables:
        op.drop_table(table)

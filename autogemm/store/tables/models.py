"""The tables. ``db/migrations`` creates them, ``db/README.md`` explains them.

Databases of before 0.2 hold Optuna's tables (``studies``, ``trials``, ...), hence
``run_trials``. Types are portable: SQLite and PostgreSQL.
"""

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from autogemm.store.tables.cells import Facts, Number, Numbers, Objects


class UtcDateTime(TypeDecorator[datetime]):
    """Stored without a zone, because SQLite knows none; always UTC."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware to UTC without a zone."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """UTC without a zone to aware."""
        return None if value is None else value.replace(tzinfo=UTC)


class FreeText(TypeDecorator[str]):
    """Text from a compiler, a driver or a shell: what no database takes is replaced by ``?``."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Without lone surrogates (undecodable bytes of a command line) and NUL."""
        if value is None:
            return None
        return value.replace("\0", "?").encode("utf-8", "replace").decode()


class Base(DeclarativeBase):
    """Named constraints, so that a later migration can change them on any database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        float: Number,
        datetime: UtcDateTime,
        dict[str, Any]: Facts,
        list[float]: Numbers,
        list[dict[str, Any]]: Objects,
    }


class DeviceRecord(Base):
    """A GPU model as last seen; ``facts`` are all fields of ``Device``."""

    __tablename__ = "devices"
    __table_args__ = (UniqueConstraint("name", "arch", "num_sms"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    arch: Mapped[int]
    num_sms: Mapped[int]
    facts: Mapped[dict[str, Any]]


class EnvironmentRecord(Base):
    """Driver, libraries and compiler; empty text for a part that was not in play."""

    __tablename__ = "environments"
    __table_args__ = (
        UniqueConstraint(
            *("driver", "cuda_runtime", "compiler", "cublas", "cupy", "python", "autogemm"),
            name="uq_environments_all",
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    driver: Mapped[str]
    cuda_runtime: Mapped[str]
    compiler: Mapped[str]
    cublas: Mapped[str]
    cupy: Mapped[str]
    python: Mapped[str]
    autogemm: Mapped[str]


class ProblemRecord(Base):
    """Sizes and leading dimensions in elements; ``epilogue`` is empty for the plain GEMM.

    ``batch`` is a number of products and its strides, empty for one product. ``groups`` are the
    groups that rows belong to, empty where there are none.
    """

    __tablename__ = "problems"
    __table_args__ = (
        UniqueConstraint(
            *("m", "n", "k", "layout", "dtype", "lda", "ldb", "ldc", "alpha", "beta", "epilogue"),
            *("batch", "groups"),
            name="uq_problems_all",
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    m: Mapped[int]
    n: Mapped[int]
    k: Mapped[int]
    layout: Mapped[str]
    dtype: Mapped[str]
    lda: Mapped[int]
    ldb: Mapped[int]
    ldc: Mapped[int]
    alpha: Mapped[float]
    beta: Mapped[float]
    epilogue: Mapped[str]
    batch: Mapped[str]
    groups: Mapped[str]


class KernelRecord(Base):
    """One emitted CUDA source, byte for byte."""

    __tablename__ = "kernels"
    # SQLite renames a column, but no constraint.
    __table_args__ = (UniqueConstraint("kernel_sha256", name="uq_kernels_source_sha256"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kernel_sha256: Mapped[str]
    template_sha256: Mapped[str]
    family: Mapped[str] = mapped_column(index=True)
    layout: Mapped[str]
    config: Mapped[dict[str, Any]]
    # Kilobytes a row: read only where it is asked for.
    source: Mapped[str] = mapped_column(deferred=True)
    created_at: Mapped[datetime]


class RunRecord(Base):
    """One run of the tuner. ``owner`` is ``host:pid`` of the process that writes it.

    ``families`` has the names of all families that it searches, in order, a blank between two.
    """

    __tablename__ = "runs"
    __table_args__ = (Index(None, "problem_id", "device_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id"))
    families: Mapped[str]
    family_sha256: Mapped[str]
    # Canonical JSON as text, because PostgreSQL cannot compare JSON values.
    fix: Mapped[str]
    sampler: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    l2: Mapped[str]
    objective: Mapped[str]
    fill: Mapped[str]
    max_error: Mapped[str]
    provenance: Mapped[str]
    state: Mapped[str]
    stopped_by: Mapped[str | None]
    owner: Mapped[str]
    command: Mapped[str] = mapped_column(FreeText)
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    problem: Mapped[ProblemRecord] = relationship(lazy="joined", innerjoin=True)
    device: Mapped[DeviceRecord] = relationship(lazy="joined", innerjoin=True)
    environment: Mapped[EnvironmentRecord] = relationship(lazy="joined", innerjoin=True)


class VerificationColumns:
    """Largest errors against the reference; all NULL if it was not compared."""

    max_abs_error: Mapped[float | None]
    max_error_ratio: Mapped[float | None]
    error: Mapped[float | None]


class TelemetryColumns:
    """Sampled beside the timings; NULL where the driver does not tell."""

    sm_clock_mhz: Mapped[int | None]
    memory_clock_mhz: Mapped[int | None]
    power_w: Mapped[float | None]
    temperature_c: Mapped[int | None]
    throttle_reasons: Mapped[int | None] = mapped_column(BigInteger)


class TrialRecord(VerificationColumns, Base):
    """The end of one candidate; ``reason`` is empty only for status ``ok``.

    ``time_us`` is its measurement's median if the status is ``ok``: a copy, so that the fastest of
    a million trials are found without reading them.
    """

    __tablename__ = "run_trials"
    __table_args__ = (
        UniqueConstraint("run_id", "number"),
        Index(None, "run_id", "time_us"),
        Index(None, "status", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    number: Mapped[int]
    status: Mapped[str]
    reason: Mapped[str] = mapped_column(FreeText)
    kernel_id: Mapped[int | None] = mapped_column(ForeignKey("kernels.id"), index=True)
    family: Mapped[str]
    config: Mapped[dict[str, Any]]
    time_us: Mapped[float | None]
    compile_seconds: Mapped[float]
    measure_seconds: Mapped[float]
    gpu_number: Mapped[int | None]
    pace: Mapped[float]
    finished_at: Mapped[datetime]

    run: Mapped[RunRecord] = relationship(lazy="joined", innerjoin=True)
    kernel: Mapped[KernelRecord | None] = relationship(lazy="joined")
    measurement: Mapped["MeasurementRecord | None"] = relationship(lazy="joined")
    resources: Mapped[list["ResourcesRecord"]] = relationship(
        lazy="selectin", order_by="ResourcesRecord.position"
    )

    @property
    def kernel_sha256(self) -> str:
        """Empty where no source is stored."""
        return self.kernel.kernel_sha256 if self.kernel is not None else ""


class ResourcesRecord(Base):
    """The resources of each kernel of a trial's source, as compiled for that trial's device."""

    __tablename__ = "resources"

    trial_id: Mapped[int] = mapped_column(ForeignKey("run_trials.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    kernel: Mapped[str]
    registers: Mapped[int]
    spill_store_bytes: Mapped[int]
    spill_load_bytes: Mapped[int]
    stack_bytes: Mapped[int]
    static_smem_bytes: Mapped[int]


class MeasurementRecord(TelemetryColumns, Base):
    """The times of one trial: ``samples_us`` are microseconds for one GEMM."""

    __tablename__ = "measurements"

    trial_id: Mapped[int] = mapped_column(ForeignKey("run_trials.id"), primary_key=True)
    time_us: Mapped[float]
    samples_us: Mapped[list[float]]
    method: Mapped[str]
    launches_per_sample: Mapped[int]
    l2: Mapped[str]
    provenance: Mapped[str]
    energy_mj: Mapped[float | None]
    throttled_samples: Mapped[int]


class SustainedColumns:
    """Winner and baseline each alone; all NULL if they did not run so."""

    sustained_s: Mapped[float | None]
    sustained_us: Mapped[float | None]
    sustained_baseline_us: Mapped[float | None]
    sustained_mj: Mapped[float | None]
    sustained_baseline_mj: Mapped[float | None]


class FinalsRecord(TelemetryColumns, SustainedColumns, Base):
    """Interleaved re-timing of a run's best kernels and cuBLAS.

    ``calls`` are those of cuBLAS that are not the baseline: name, samples, and why one has none.
    """

    __tablename__ = "finals"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), index=True)
    rounds: Mapped[int]
    method: Mapped[str]
    launches_per_sample: Mapped[int]
    provenance: Mapped[str]
    throttled_rounds: Mapped[int]
    calls: Mapped[list[dict[str, Any]] | None]
    measured_at: Mapped[datetime]

    run: Mapped[RunRecord] = relationship(lazy="joined", innerjoin=True)
    entries: Mapped[list["FinalsEntryRecord"]] = relationship(
        lazy="selectin", order_by="FinalsEntryRecord.place", back_populates="finals"
    )


class FinalsEntryRecord(VerificationColumns, Base):
    """One contestant: ``place`` 0 is the baseline (cuBLAS), 1 the winner."""

    __tablename__ = "finals_entries"

    finals_id: Mapped[int] = mapped_column(ForeignKey("finals.id"), primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    kernel_id: Mapped[int | None] = mapped_column(ForeignKey("kernels.id"), index=True)
    family: Mapped[str | None]
    config: Mapped[dict[str, Any] | None]
    registers: Mapped[int | None]
    time_us: Mapped[float]
    samples_us: Mapped[list[float]]
    energy_mj: Mapped[float | None]
    samples_mj: Mapped[list[float] | None]
    ratio: Mapped[float | None]
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]
    tied: Mapped[bool]

    finals: Mapped[FinalsRecord] = relationship(back_populates="entries")
    kernel: Mapped[KernelRecord | None] = relationship(lazy="joined")

    @property
    def kernel_sha256(self) -> str:
        """Empty where no source is stored."""
        return self.kernel.kernel_sha256 if self.kernel is not None else ""


class CertificateRecord(Base):
    """The checks of a kernel, on the device of a run; the newest of a kernel counts."""

    __tablename__ = "certificates"

    id: Mapped[int] = mapped_column(primary_key=True)
    kernel_id: Mapped[int] = mapped_column(ForeignKey("kernels.id"), index=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    verdict: Mapped[str]
    checks: Mapped[list[dict[str, Any]]]
    made_at: Mapped[datetime]

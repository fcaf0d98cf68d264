"""The tables of benchmarks, profiles and ceilings: what was measured outside of tuning runs."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column, relationship

from autogemm.store.tables.models import (
    Base,
    DeviceRecord,
    EnvironmentRecord,
    FreeText,
    KernelRecord,
    ProblemRecord,
    TelemetryColumns,
    VerificationColumns,
)


class BenchRecord(Base):
    """One call of ``autogemm bench``."""

    __tablename__ = "benches"

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id"))
    preset: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    l2: Mapped[str]
    fill: Mapped[str]
    provenance: Mapped[str]
    command: Mapped[str] = mapped_column(FreeText)
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    device: Mapped[DeviceRecord] = relationship(lazy="joined", innerjoin=True)
    environment: Mapped[EnvironmentRecord] = relationship(lazy="joined", innerjoin=True)
    entries: Mapped[list["BenchEntryRecord"]] = relationship(
        lazy="selectin", order_by="BenchEntryRecord.position", back_populates="bench"
    )


class BenchEntryRecord(VerificationColumns, TelemetryColumns, Base):
    """One kernel on one problem; ``position`` counts them in the order of the benchmark."""

    __tablename__ = "bench_entries"

    bench_id: Mapped[int] = mapped_column(ForeignKey("benches.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    kernel: Mapped[str]
    kind: Mapped[str]
    library: Mapped[str]
    kernel_id: Mapped[int | None] = mapped_column(ForeignKey("kernels.id"), index=True)
    family: Mapped[str | None]
    config: Mapped[dict[str, Any] | None]
    status: Mapped[str]
    reason: Mapped[str] = mapped_column(FreeText)
    registers: Mapped[int | None]
    time_us: Mapped[float | None]
    samples_us: Mapped[list[float]]
    method: Mapped[str]
    launches_per_sample: Mapped[int]
    ratio: Mapped[float | None]
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]

    bench: Mapped[BenchRecord] = relationship(back_populates="entries")
    problem: Mapped[ProblemRecord] = relationship(lazy="joined", innerjoin=True)
    kernel_source: Mapped[KernelRecord | None] = relationship(lazy="joined")

    @property
    def kernel_sha256(self) -> str:
        """Empty where no source is stored."""
        return self.kernel_source.kernel_sha256 if self.kernel_source is not None else ""


class ProfileRecord(Base):
    """Counters of one kernel; ``kernel`` is a rung's name or empty."""

    __tablename__ = "profiles"
    id: Mapped[int] = mapped_column(primary_key=True)
    kernel_id: Mapped[int] = mapped_column(ForeignKey("kernels.id"), index=True)
    kernel: Mapped[str]
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id"))
    profiler: Mapped[str]
    counters: Mapped[dict[str, Any]]
    made_at: Mapped[datetime]

    kernel_source: Mapped[KernelRecord] = relationship(lazy="joined", innerjoin=True)
    problem: Mapped[ProblemRecord] = relationship(lazy="joined", innerjoin=True)
    device: Mapped[DeviceRecord] = relationship(lazy="joined", innerjoin=True)
    environment: Mapped[EnvironmentRecord] = relationship(lazy="joined", innerjoin=True)


class CeilingsRecord(Base):
    """Speeds that a GPU reached in small kernels of arithmetic or of one memory alone."""

    __tablename__ = "ceilings"

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"), index=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id"))
    fma_tflops: Mapped[float]
    copy_gb_s: Mapped[float]
    sm_clock_mhz: Mapped[int | None]
    measured_at: Mapped[datetime]
    l2_gb_s: Mapped[float | None]
    smem_gb_s: Mapped[float | None]
    smem_latency_cycles: Mapped[float | None]
    l1_latency_cycles: Mapped[float | None]
    l2_latency_cycles: Mapped[float | None]
    memory_latency_cycles: Mapped[float | None]

    device: Mapped[DeviceRecord] = relationship()
    environment: Mapped[EnvironmentRecord] = relationship()

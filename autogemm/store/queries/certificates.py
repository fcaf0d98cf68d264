"""Certificates of kernels: written once, read by kernel and device.

The newest of a kernel on a device counts, by the time at which it was made: rows that came from
another database have larger numbers, whenever that was.
"""

from sqlalchemy import ColumnElement, Select, func, or_, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from autogemm.model.results.certificate import Certificate, Verdict
from autogemm.store.tables.convert import columns_of, value_of
from autogemm.store.tables.models import CertificateRecord, KernelRecord, RunRecord
from autogemm.support.errors import NotFoundError


def add_certificate(
    session: Session, run: RunRecord, kernel_sha256: str, certificate: Certificate
) -> None:
    """Add a certificate. Raises NotFoundError for a kernel that is not stored."""
    kernel = session.scalar(select(KernelRecord).filter_by(kernel_sha256=kernel_sha256))
    if kernel is None:
        raise kernel_not_stored(kernel_sha256)
    columns = columns_of(CertificateRecord, certificate)
    session.add(CertificateRecord(kernel_id=kernel.id, run_id=run.id, **columns))


def kernel_not_stored(sha256: str) -> NotFoundError:
    """The error for a certificate of a kernel that is not there."""
    return NotFoundError(f"no kernel with the sha256 {sha256!r} is stored")


def newest_certificate(session: Session, kernel_id: int, device_id: int) -> Certificate | None:
    """The newest of a kernel on a device, None if it was never certified there."""
    record = session.scalar(
        select(CertificateRecord)
        .join(RunRecord, RunRecord.id == CertificateRecord.run_id)
        .where(CertificateRecord.kernel_id == kernel_id, RunRecord.device_id == device_id)
        .order_by(CertificateRecord.made_at.desc(), CertificateRecord.id.desc())
        .limit(1)
    )
    return value_of(Certificate, record) if record is not None else None


def has_not_failed(
    kernel_id: InstrumentedAttribute[int | None], device_id: InstrumentedAttribute[int]
) -> ColumnElement[bool]:
    """Whether the newest certificate of a kernel on a device, if there is one, is no failure."""
    failed = tuple_(kernel_id, device_id).in_(failed_kernels())
    return or_(kernel_id.is_(None), ~failed)


def failed_kernels(*wanted: ColumnElement[bool]) -> Select[int, int]:
    """Numbers of kernels and of the devices on which their newest certificate is a failure.

    ``wanted`` are conditions on the certificates that are looked at.
    """
    run = aliased(RunRecord)
    newest_first = func.row_number().over(
        partition_by=(CertificateRecord.kernel_id, run.device_id),
        order_by=(CertificateRecord.made_at.desc(), CertificateRecord.id.desc()),
    )
    ranked = (
        select(
            CertificateRecord.kernel_id,
            run.device_id,
            CertificateRecord.verdict,
            newest_first.label("rank"),
        )
        .join(run, run.id == CertificateRecord.run_id)
        .where(*wanted)
        .subquery()
    )
    return select(ranked.c.kernel_id, ranked.c.device_id).where(
        ranked.c.rank == 1, ranked.c.verdict == Verdict.FAILED.value
    )

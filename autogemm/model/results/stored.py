"""Results that the store keeps of single kernels: their times, and counters of a profiler."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import CacheState, Environment, Provenance, Verification
from autogemm.support.limits import Finite, Line, Mapped, Moment, Sha256


class TimedText(StrEnum):
    """Whether the text that a recorded time is of is the one that the family emits today."""

    THIS = "this"
    EARLIER = "earlier"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OnRecord:
    """Facts about the text of a kernel whose time is recorded.

    ``checked`` says how this very text was checked, empty if it was not. ``origin`` says where the
    time comes from if that is no run of the database.
    """

    timed: TimedText = TimedText.UNKNOWN
    checked: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """One kernel with all that its exported file says of where its time comes from.

    ``time_us`` is None for a kernel that never ran correctly; the ratio to cuBLAS (above 1 is
    faster) and its interval are None for one that was not in the finals. ``baseline`` is the call
    of cuBLAS that the ratio is to, None where it is not known. ``certificate`` is the
    newest of this kernel on this device, None if it was never certified there. ``run_id`` is None
    for a kernel that was in no run, only benchmarked or profiled. Numbers of kernels begin at 1:
    0 is one of the catalogue. ``kept_error`` is the error (`error`) where the verification was not
    kept.
    """

    kernel_id: int
    source: KernelSource
    problem: Problem
    device: Device
    environment: Environment
    provenance: Provenance
    l2: CacheState
    time_us: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    run_id: int | None
    measured_at: datetime
    verification: Verification | None
    certificate: Certificate | None = None
    baseline: str | None = None
    kept_error: float | None = None

    @property
    def error(self) -> float | None:
        """||C - reference||_F / ||reference||_F when it was timed, None where not known."""
        return self.verification.error if self.verification else self.kept_error

    @property
    def label(self) -> str:
        """The kernel in a sentence: by its number, if it has one."""
        return f"kernel {self.kernel_id}" if self.kernel_id else "the catalogue's kernel"


@dataclass(frozen=True, slots=True)
class Profile:
    """A profiler's counts. ``kernel`` is the name of a rung, or empty for a stored kernel.

    ``counters`` are the profiler's own names with values in base units (bytes, seconds, shares as
    percent). ``profiler`` has its version. A time under a profiler is none to compare.
    """

    kernel: Line
    config: Config
    kernel_sha256: Sha256
    problem: Problem
    device: Device
    environment: Environment
    profiler: Line
    counters: Annotated[tuple[tuple[str, float], ...], Mapped(Finite, Line, 10_000)]
    made_at: Moment

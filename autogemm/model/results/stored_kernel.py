"""A kernel together with where its time comes from: what the store knows and an export tells."""

from dataclasses import dataclass
from datetime import datetime

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import CacheState, Environment, Provenance, Verification


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """One kernel with all that its exported file says of where its time comes from.

    ``time_us`` is None for a kernel that never ran correctly; the ratio to cuBLAS (above 1 is
    faster) and its interval are None for one that was not in the finals. ``certificate`` is the
    newest of this kernel on this device, None if it was never certified there. Of a kernel that
    was in no run, only benchmarked or profiled, ``run_id`` is None.
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

"""How fast a card could be: peaks, the ridge between them, and what was measured of both.

The roofline is that of Williams, Waterman and Patterson, "Roofline: an insightful visual
performance model for multicore architectures", Communications of the ACM 52(4), 2009.
"""

from dataclasses import dataclass

from autogemm.model.limits import Amount, Count, Moment


@dataclass(frozen=True, slots=True)
class Roof:
    """What bounds a kernel: arithmetic in TFLOP/s, memory in GB/s (1e9 bytes)."""

    peak_tflops: float
    bandwidth_gb_s: float

    @property
    def ridge_flop_per_byte(self) -> float:
        """Below this arithmetic intensity the memory bounds a kernel, above it the arithmetic."""
        return 1e3 * self.peak_tflops / self.bandwidth_gb_s

    def attainable_tflops(self, flop_per_byte: float) -> float:
        """The roof above an arithmetic intensity."""
        return min(self.peak_tflops, 1e-3 * self.bandwidth_gb_s * flop_per_byte)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What small kernels that do nothing else reached on a card, beside its theory.

    ``fma_tflops`` of independent FP32 multiply-adds, ``copy_gb_s`` of a copy in device memory, read
    and written bytes counted, ``l2_gb_s`` and ``smem_gb_s`` of reading what L2 and shared memory
    hold (all SMs together), None where that was not measured. ``sm_clock_mhz`` was sampled
    meanwhile, None if the driver does not tell.
    """

    fma_tflops: Amount
    copy_gb_s: Amount
    sm_clock_mhz: Count | None
    measured_at: Moment
    l2_gb_s: Amount | None = None
    smem_gb_s: Amount | None = None

    @property
    def roof(self) -> Roof:
        """The roof that these make, for FP32 on CUDA cores."""
        return Roof(self.fma_tflops, self.copy_gb_s)

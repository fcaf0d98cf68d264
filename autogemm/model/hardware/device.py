"""Facts of a GPU that constraints, the launcher and the tables read, and the roofs they make.

The roofline is that of Williams, Waterman and Patterson, "Roofline: an insightful visual
performance model for multicore architectures", Communications of the ACM 52(4), 2009.
"""

import re
from dataclasses import dataclass, fields
from typing import Annotated

from annotated_types import MinLen

from autogemm.support.limits import Amount, Count, Fact, Line, Moment

# Words of a GPU's name that tell it from no other that is often met.
_SAYS_LITTLE = re.compile(r"NVIDIA|Tesla|GeForce|\d+GB|HBM\w*")


def short_gpu_name(name: str) -> str:
    """Return the name without maker and memory: H100 for NVIDIA H100 80GB HBM3.

    It is a part of the name, so that ``--gpu`` takes it, or all of it where nothing would be left.
    """
    kept = [word for word in name.split() if not _SAYS_LITTLE.fullmatch(word)]
    short = " ".join(kept)
    return short if short and short in name else name


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. Limits are those of the CUDA programming guide, appendix on compute capabilities.

    ``arch`` is the compute capability as one number: 90 for 9.0. ``max_smem_per_block_bytes`` is
    the opt-in maximum (above 48 KB a kernel must ask for it). Clocks are maxima.
    """

    name: Annotated[Line, MinLen(1)]
    arch: Fact
    num_sms: Fact
    max_threads_per_block: Fact
    max_threads_per_sm: Fact
    max_blocks_per_sm: Fact
    max_registers_per_thread: Fact
    registers_per_sm: Fact
    max_smem_per_block_bytes: Fact
    smem_per_sm_bytes: Fact
    reserved_smem_per_block_bytes: Fact
    l2_bytes: Fact
    memory_bytes: Fact
    sm_clock_mhz: Fact
    memory_clock_mhz: Fact
    memory_bus_bits: Fact
    fp32_cores_per_sm: Fact

    @property
    def sm(self) -> str:
        """The architecture as the compilers spell it: ``sm_90``."""
        return f"sm_{self.arch}"

    @property
    def peak_f32_tflops(self) -> float:
        """FP32 cores x clock x 2 operations of a fused multiply-add."""
        return self.num_sms * self.fp32_cores_per_sm * self.sm_clock_mhz * 2 * 1e-6

    @property
    def peak_bandwidth_gb_s(self) -> float:
        """2 x memory clock x bus width / 8 (double data rate)."""
        return 2 * self.memory_clock_mhz * self.memory_bus_bits / 8 * 1e-3

    @property
    def peak_smem_gb_s(self) -> float:
        """SMs x clock x 128 bytes: each of 32 banks delivers 4 bytes a clock."""
        return 1e-3 * self.num_sms * self.sm_clock_mhz * 128

    def limits(self) -> dict[str, int]:
        """The integer facts by name: what ``device.*`` means in a search space."""
        return {name: getattr(self, name) for name in FACTS}


# Names of the integer facts.
FACTS = tuple(field.name for field in fields(Device) if field.type is Fact)


@dataclass(frozen=True, slots=True)
class Roof:
    """The bounds of a kernel: arithmetic in TFLOP/s, memory in GB/s (1e9 bytes)."""

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
    """The speeds that small kernels that do nothing else reached on a GPU, beside its theory.

    ``fma_tflops`` of independent FP32 multiply-adds, ``copy_gb_s`` of a copy in device memory, read
    and written bytes counted, ``l2_gb_s`` and ``smem_gb_s`` of reading what L2 and shared memory
    hold (all SMs together), None where that was not measured. ``sm_clock_mhz`` was sampled
    meanwhile, None if the driver does not tell. The latencies are the cycles from one load to the
    next, where each load's address is the result of the one before, by what holds the data.
    """

    fma_tflops: Amount
    copy_gb_s: Amount
    sm_clock_mhz: Count | None
    measured_at: Moment
    l2_gb_s: Amount | None = None
    smem_gb_s: Amount | None = None
    smem_latency_cycles: Amount | None = None
    l1_latency_cycles: Amount | None = None
    l2_latency_cycles: Amount | None = None
    memory_latency_cycles: Amount | None = None

    @property
    def roof(self) -> Roof:
        """The roof that these make, for FP32 on CUDA cores."""
        return Roof(self.fma_tflops, self.copy_gb_s)

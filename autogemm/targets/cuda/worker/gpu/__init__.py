"""The worker's hold on its GPU: memory, launches, timing, clocks and energy, cuBLAS."""

from autogemm.targets.cuda.worker.gpu.bare import BareGpu, others_placed, placed
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, Gemm, forget_overrides
from autogemm.targets.cuda.worker.gpu.cublas_lt import ANY_REDUCTION, FP32_REDUCTION, CublasLt
from autogemm.targets.cuda.worker.gpu.energy import EnergyMeter
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, pointer, runtime_facts
from autogemm.targets.cuda.worker.gpu.launching import (
    Arguments,
    CandidateError,
    LoadedKernel,
    gemm_arguments,
)
from autogemm.targets.cuda.worker.gpu.telemetry import is_throttled, summary
from autogemm.targets.cuda.worker.gpu.timing import (
    COOLING_S,
    MIN_SAMPLES,
    SAMPLE_US,
    SHORT_LAUNCH_US,
    Method,
    Sampled,
    Sampling,
    Stopwatch,
    Timer,
    method_for,
    warm_up,
)

__all__ = [
    "ANY_REDUCTION",
    "COOLING_S",
    "FP32_REDUCTION",
    "MIN_SAMPLES",
    "SAMPLE_US",
    "SHORT_LAUNCH_US",
    "Arguments",
    "BareGpu",
    "CandidateError",
    "Cublas",
    "CublasLt",
    "EnergyMeter",
    "Gemm",
    "Gpu",
    "LoadedKernel",
    "Method",
    "Sampled",
    "Sampling",
    "Stopwatch",
    "Timer",
    "forget_overrides",
    "gemm_arguments",
    "is_throttled",
    "method_for",
    "others_placed",
    "placed",
    "pointer",
    "runtime_facts",
    "summary",
    "warm_up",
]

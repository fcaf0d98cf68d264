"""Rates that the GPU reaches in kernels of arithmetic or of one memory alone (ceilings.cu)."""

import ctypes
import math
import statistics
from datetime import UTC, datetime

import numpy as np

from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.kernel import Candidate, CompiledKernel, Launch, LaunchPlan
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.ceilings import ceilings_source
from autogemm.targets.cuda.worker.gpu.gpu import Gpu
from autogemm.targets.cuda.worker.gpu.launching import Arguments, CandidateError, LoadedKernel
from autogemm.targets.cuda.worker.gpu.timing import Method, Stopwatch, warm_up

THREADS = 256
# The operations of one thread of ceilings.cu in one step.
FLOPS_PER_STEP = 2 * 16 * 8
STEPS = 4096
SAMPLES = 9
# Far more than any L2 holds, and less than any GPU has.
COPY_L2_SIZES = 16
LEAST_COPY_BYTES = 256 * 2**20
# The bytes that a block of ceilings.cu copies at a time.
COPY_STEP_BYTES = 16 * 4 * THREADS
# Vectors of 16 bytes that a thread reads in one step of l2_kernel and smem_kernel.
READS_PER_STEP = 4
READ_STEPS = 1024
# The part of L2 that is read: far more than is on its way at a time, since newer GPUs fetch once
# what several SMs ask for at the same moment, and less than what would drive something out.
L2_PART = 2 / 3
SMEM_VECTORS = 256
# Each word of the memory that is read, which memset makes byte by byte.
WORD = 0x01010101


def measured_ceilings(gpu: Gpu, compiled: CompiledKernel) -> Ceilings:
    """Median rates of the kernels on a warm GPU. Raises DeviceError."""
    try:
        fma_tflops = _fma_tflops(gpu, compiled)
        sm_clock_mhz = gpu.telemetry.read().sm_clock_mhz
        return Ceilings(
            fma_tflops,
            _copy_gb_s(gpu, compiled),
            sm_clock_mhz,
            datetime.now(UTC),
            _read_gb_s(gpu, compiled, "l2_kernel", _l2_vectors(gpu.device)),
            _read_gb_s(gpu, compiled, "smem_kernel", SMEM_VECTORS),
        )
    except CandidateError as error:
        raise DeviceError(f"the ceilings cannot be measured: {error.reason}") from error


def _fma_tflops(gpu: Gpu, compiled: CompiledKernel) -> float:
    blocks = _blocks(gpu.device)
    out = gpu.allocate(4)
    arguments = Arguments(
        ctypes.c_void_p(out.ptr), ctypes.c_float(0.999), ctypes.c_float(0.001), ctypes.c_int(STEPS)
    )
    median_us = _median_us(gpu, compiled, "fma_kernel", blocks, arguments)
    return FLOPS_PER_STEP * STEPS * THREADS * blocks / median_us * 1e-6


def _copy_gb_s(gpu: Gpu, compiled: CompiledKernel) -> float:
    num_bytes = max(COPY_L2_SIZES * gpu.device.l2_bytes, LEAST_COPY_BYTES)
    num_bytes -= num_bytes % COPY_STEP_BYTES
    source, target = gpu.allocate(num_bytes), gpu.allocate(num_bytes)
    gpu.runtime.memsetAsync(source.ptr, 1, num_bytes, gpu.stream.ptr)
    arguments = Arguments(
        ctypes.c_void_p(target.ptr), ctypes.c_void_p(source.ptr), ctypes.c_int(num_bytes // 16)
    )
    # Each block copies once: 5 % faster on an H100 than blocks that go on.
    blocks = num_bytes // COPY_STEP_BYTES
    median_us = _median_us(gpu, compiled, "copy_kernel", blocks, arguments)
    return 2 * num_bytes / median_us * 1e-3


def _l2_vectors(device: Device) -> int:
    """A power of two, as the kernel wants it."""
    num_vectors: int = 2 ** int(math.log2(L2_PART * device.l2_bytes / 16))
    return num_vectors


def _read_gb_s(gpu: Gpu, compiled: CompiledKernel, kernel: str, num_vectors: int) -> float:
    """Return the rate of all threads together; every sum must be that of all words."""
    blocks = _blocks(gpu.device)
    found = np.empty(blocks * THREADS, np.uint32)
    source, sums = gpu.allocate(16 * num_vectors), gpu.allocate(found.nbytes)
    gpu.runtime.memsetAsync(source.ptr, WORD & 0xFF, 16 * num_vectors, gpu.stream.ptr)
    arguments = Arguments(
        ctypes.c_void_p(sums.ptr),
        ctypes.c_void_p(source.ptr),
        ctypes.c_int(num_vectors - 1),
        ctypes.c_int(READ_STEPS),
    )
    median_us = _median_us(gpu, compiled, kernel, blocks, arguments)
    gpu.read(sums.ptr, found)
    reads = READS_PER_STEP * READ_STEPS
    if (found != np.uint32(4 * reads * WORD % 2**32)).any():
        raise DeviceError(f"{kernel} did not read the expected data: its rate is invalid")
    return 16 * reads * found.size / median_us * 1e-3


def _blocks(device: Device) -> int:
    """Return how many blocks the GPU holds at once."""
    return device.num_sms * (device.max_threads_per_sm // THREADS)


def _median_us(
    gpu: Gpu, compiled: CompiledKernel, kernel: str, blocks: int, arguments: Arguments
) -> float:
    plan = LaunchPlan((Launch(kernel, (blocks, 1, 1), (THREADS, 1, 1), 0),))
    loaded = LoadedKernel(gpu, Candidate(ceilings_source(), plan, compiled))

    def batch_us(launches: int) -> float:
        begin = gpu.event()
        for _ in range(launches):
            loaded.queue(arguments)
        return gpu.microseconds(begin, gpu.event())

    try:
        warm_up(batch_us)
        stopwatch = Stopwatch(gpu, lambda: loaded.queue(arguments), Method())
        return statistics.median(stopwatch.samples(SAMPLES))
    finally:
        loaded.unload()

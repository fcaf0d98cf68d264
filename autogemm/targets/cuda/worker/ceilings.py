"""Rates that the GPU reaches in kernels of arithmetic or of one memory alone, and the latency of a
load from each memory (ceilings.cu).
"""

import ctypes
import math
import statistics
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

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

# Loads of one sample of a latency, one after the other; a multiple of CHAIN_UNROLL of ceilings.cu.
CHAIN_LOADS = 4096
LATENCY_SAMPLES = 5
# Bytes between links of a chain: no two of them share a line or what L2 fetches with one.
LINK_BYTES = 256
# Bytes of chains: within L1; within L2, and within half of it, as L2 may consist of two halves; in
# device memory few enough for the GPU to know where their pages are.
L1_CHAIN_BYTES = 2**14
L2_CHAIN_BYTES = 2**21
MEMORY_CHAIN_BYTES = 2**26
# Links of the chain of smem_latency_kernel.
SMEM_LINKS = 256
# Times L2's size that are written to drive everything else out of it.
FLUSH_L2_SIZES = 4


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
            **_latencies(gpu, compiled),
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


def _latencies(gpu: Gpu, compiled: CompiledKernel) -> dict[str, float]:
    """Return the median cycles of one load, by the names that `Ceilings` has for them."""
    chains = {
        "l1_latency_cycles": ("l1_latency_kernel", L1_CHAIN_BYTES),
        "l2_latency_cycles": ("l2_latency_kernel", L2_CHAIN_BYTES),
        "memory_latency_cycles": ("l2_latency_kernel", MEMORY_CHAIN_BYTES),
    }
    found = {"smem_latency_cycles": _cycles(gpu, compiled, "smem_latency_kernel", SMEM_LINKS)}
    for name, (kernel, num_bytes) in chains.items():
        buffer = gpu.allocate(num_bytes)
        addresses = _chain(gpu, buffer.ptr, num_bytes)
        if name == "memory_latency_cycles":
            flush_bytes = FLUSH_L2_SIZES * gpu.device.l2_bytes
            flush = gpu.allocate(flush_bytes)
            gpu.runtime.memsetAsync(flush.ptr, 0, flush_bytes, gpu.stream.ptr)
        found[name] = _cycles(gpu, compiled, kernel, addresses)
    return found


def _chain(gpu: Gpu, address: int, num_bytes: int) -> NDArray[np.uint64]:
    """Write a closed chain of addresses in random order, and return them in the chain's order."""
    num_links, words = num_bytes // LINK_BYTES, LINK_BYTES // 8
    order = np.random.default_rng(0).permutation(num_links)
    addresses = (address + LINK_BYTES * order).astype(np.uint64)
    memory = np.zeros(num_bytes // 8, np.uint64)
    memory[words * order] = np.roll(addresses, -1)
    gpu.write(address, memory)
    return addresses


def _cycles(
    gpu: Gpu, compiled: CompiledKernel, kernel: str, chain: NDArray[np.uint64] | int
) -> float:
    """Return the median cycles of a load; each sample goes on where the one before it ended.

    The first passes, which load code and fill caches as far as the chain fits, do not count. Raises
    DeviceError if a sample did not end where the chain leads.
    """
    links = np.arange(chain, dtype=np.uint64) if isinstance(chain, int) else chain
    plan = LaunchPlan((Launch(kernel, (1, 1, 1), (1, 1, 1), 0),))
    loaded = LoadedKernel(gpu, Candidate(ceilings_source(), plan, compiled))
    out, found = gpu.allocate(16), np.empty(2, np.uint64)
    # A chain that a cache is to hold is followed once from end to end.
    fits = links.size * LINK_BYTES <= L2_CHAIN_BYTES
    warm_ups = math.ceil(links.size / CHAIN_LOADS) if fits else 1
    samples: list[float] = []
    at = 0
    try:
        for sample in range(warm_ups + LATENCY_SAMPLES):
            loaded.queue(
                Arguments(
                    ctypes.c_void_p(out.ptr),
                    ctypes.c_void_p(int(links[at])),
                    ctypes.c_int(CHAIN_LOADS),
                )
            )
            gpu.read(out.ptr, found)
            at = (at + CHAIN_LOADS) % links.size
            if found[1] != links[at]:
                raise DeviceError(f"{kernel} did not follow its chain: its latency is invalid")
            if sample >= warm_ups:
                samples.append(float(found[0]) / CHAIN_LOADS)
    finally:
        loaded.unload()
    return statistics.median(samples)


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

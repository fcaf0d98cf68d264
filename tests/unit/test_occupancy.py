import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.hardware.device import Device
from autogemm.model.hardware.occupancy import Limiter, Occupancy, occupancy

# NVIDIA's own calculator, from a CUDA toolkit where there is one. Reads lines of
# "arch threads_per_sm registers_per_sm smem_per_sm smem_optin reserved registers threads smem",
# writes "blocks limiting_factors" for each.
ORACLE = r"""
#include <cstdio>
#include <cuda_occupancy.h>

int main()
{
    int arch, threads_per_sm, registers_per_sm, registers, threads;
    size_t smem_per_sm, smem_optin, reserved, smem;
    while (std::scanf("%d %d %d %zu %zu %zu %d %d %zu", &arch, &threads_per_sm, &registers_per_sm,
                      &smem_per_sm, &smem_optin, &reserved, &registers, &threads, &smem) == 9) {
        cudaOccDeviceProp device;
        device.computeMajor = arch / 10;
        device.computeMinor = arch % 10;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads_per_sm;
        device.regsPerBlock = registers_per_sm;
        device.regsPerMultiprocessor = registers_per_sm;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = smem_per_sm;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = smem_optin;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = smem;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        cudaOccResult result;
        cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &device, &kernel, &state, threads, smem);
        if (error != CUDA_OCC_SUCCESS) {
            return 1;
        }
        std::printf("%d %u\n", result.activeBlocksPerMultiprocessor, result.limitingFactors);
    }
    return 0;
}
"""
# enum cudaOccLimitingFactor
LIMITING_FACTOR = {
    Limiter.WARPS: 0x01,
    Limiter.REGISTERS: 0x02,
    Limiter.SMEM: 0x04,
    Limiter.BLOCKS: 0x08,
}
GPUS = ["v100", "t4", "a100", "a10", "l4", "h100", "b200"]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    includes = [path.parent for path in Path("/usr/local").glob("cuda*/include/cuda_occupancy.h")]
    compiler = shutil.which("g++")
    if not includes or compiler is None:
        pytest.skip("needs g++ and a CUDA toolkit with cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("oracle")
    source = folder / "oracle.cpp"
    source.write_text(ORACLE)
    program = folder / "oracle"
    subprocess.run(
        [compiler, "-w", f"-I{max(includes)}", "-o", str(program), str(source)], check=True
    )
    return program


def random_kernels(device: Device, number: int, seed: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    most_smem = device.max_smem_per_block_bytes
    return [
        (
            rng.randint(1, 255),
            rng.choice([rng.randint(1, 1024), 32 * rng.randint(1, 32)]),
            rng.choice([0, rng.randint(0, 4096), rng.randint(0, most_smem), most_smem]),
        )
        for _ in range(number)
    ]


@pytest.mark.parametrize("gpu", GPUS)
def test_agrees_with_nvidias_calculator(gpu: str, oracle: Path) -> None:
    device = find_device(gpu)
    kernels = random_kernels(device, 3000, seed=device.arch)
    facts = (
        f"{device.arch} {device.max_threads_per_sm} {device.registers_per_sm} "
        f"{device.smem_per_sm_bytes} {device.max_smem_per_block_bytes} "
        f"{device.reserved_smem_per_block_bytes}"
    )
    lines = "".join(f"{facts} {regs} {threads} {smem}\n" for regs, threads, smem in kernels)
    run = subprocess.run([oracle], input=lines, capture_output=True, text=True, check=True)
    answers = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert len(answers) == len(kernels)
    for (registers, threads, smem_bytes), (blocks, factors) in zip(kernels, answers, strict=True):
        ours = occupancy(device, registers=registers, threads=threads, smem_bytes=smem_bytes)
        case = (registers, threads, smem_bytes)
        assert ours.blocks_per_sm == blocks, case
        assert LIMITING_FACTOR[ours.limiter] & factors, case


# Worked by hand for an H100: 64 warps, 65536 registers, 233472 bytes of shared memory an SM.
@pytest.mark.parametrize(
    ("registers", "threads", "smem_bytes", "expected"),
    [
        (32, 1024, 0, Occupancy(2, 64, 1.0, Limiter.WARPS)),
        (32, 32, 0, Occupancy(32, 32, 0.5, Limiter.BLOCKS)),
        # 128 * 32 = 4096 a warp: 4 warps a partition, 16 an SM, 2 blocks of 8.
        (128, 256, 0, Occupancy(2, 16, 0.25, Limiter.REGISTERS)),
        # 168 * 32 = 5376 a warp: 3 a partition, 12 an SM, 1 block of 8.
        (168, 256, 0, Occupancy(1, 8, 0.125, Limiter.REGISTERS)),
        # 49152 + 1024 reserved: 4 blocks in 233472.
        (32, 128, 49152, Occupancy(4, 16, 0.25, Limiter.SMEM)),
    ],
)
def test_limiters_on_h100(
    registers: int, threads: int, smem_bytes: int, expected: Occupancy
) -> None:
    device = find_device("h100")
    assert (
        occupancy(device, registers=registers, threads=threads, smem_bytes=smem_bytes) == expected
    )


@pytest.mark.parametrize(
    ("registers", "threads", "smem_bytes", "limiter"),
    [
        (32, 1025, 0, Limiter.WARPS),
        (256, 32, 0, Limiter.REGISTERS),
        (72, 1024, 0, Limiter.REGISTERS),
        (32, 32, 232449, Limiter.SMEM),
    ],
)
def test_a_block_that_cannot_be_launched_has_no_occupancy(
    registers: int, threads: int, smem_bytes: int, limiter: Limiter
) -> None:
    result = occupancy(
        find_device("h100"), registers=registers, threads=threads, smem_bytes=smem_bytes
    )
    assert result == Occupancy(0, 0, 0.0, limiter)


def test_reserved_shared_memory_counts_for_every_block() -> None:
    device = find_device("h100")
    free = replace(device, reserved_smem_per_block_bytes=0)
    facts = {"registers": 32, "threads": 32, "smem_bytes": 233472 // 8}
    assert occupancy(free, **facts).blocks_per_sm == 8
    assert occupancy(device, **facts).blocks_per_sm == 7

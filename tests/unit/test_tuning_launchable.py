"""Kernels that cannot launch are known before they reach a GPU."""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.kernel import CompiledKernel, Launch, LaunchPlan, Resources
from autogemm.tuning.loop.static_checks import why_not_launchable

H100 = find_device("h100")


def why_not(threads: int, registers: int, dynamic: int = 0, static: int = 0) -> str:
    resources = Resources("gemm_kernel", registers, 0, 0, 0, static)
    compiled = CompiledKernel("0" * 64, "sm_90", b"", (resources,), "", "fake", (), 0.0)
    plan = LaunchPlan((Launch("gemm_kernel", (1, 1, 1), (threads, 1, 1), dynamic),))
    return why_not_launchable(compiled, plan, H100)


@pytest.mark.parametrize(
    ("threads", "registers", "dynamic", "static"),
    [
        (256, 255, 0, 0),  # 8 warps x 255 -> 256 registers x 32 = 65536: just fits
        (1024, 64, 0, 0),  # 32 warps x 64 x 32 = 65536: just fits
        (128, 32, 227 * 1024, 0),  # the opt-in maximum of sm_90
        (128, 32, 200 * 1024, 27 * 1024),
    ],
)
def test_what_just_fits_can_launch(threads: int, registers: int, dynamic: int, static: int) -> None:
    assert why_not(threads, registers, dynamic, static) == ""


def test_each_limit_is_named_with_its_numbers() -> None:
    assert "has 2048 threads per block, the device allows 1024" in why_not(2048, 16)
    # 65 registers are handed out as 72: 32 warps x 72 x 32.
    assert "needs 73728 registers per block (1024 threads x 65)" in why_not(1024, 65)
    # 257 threads are 9 warps.
    assert "needs 73728 registers per block" in why_not(257, 255)
    assert "needs 232449 bytes of shared memory" in why_not(128, 32, 227 * 1024, 1)


def test_each_kernel_of_the_plan_is_looked_at() -> None:
    first = Resources("gemm_kernel", 32, 0, 0, 0, 0)
    second = replace(first, kernel="reduce", registers=128)
    compiled = CompiledKernel("0" * 64, "sm_90", b"", (first, second), "", "fake", (), 0.0)
    launches = tuple(Launch(name, (1, 1, 1), (1024, 1, 1), 0) for name in ("gemm_kernel", "reduce"))
    assert why_not_launchable(compiled, LaunchPlan(launches), H100).startswith("reduce needs")

"""Measures the cost of a call on the host: autogemm.gemm beside torch.matmul and cupy.matmul.

The product is so small that the GPU waits for the host; the host's time per call is that of many
calls without waiting for the GPU, in turns so that all see the same machine.

    python benchmarks/gemm_overhead.py [--size 64] [--out FILE]
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autogemm

ROUNDS = 30
# Below the depth of the driver's queue: no call waits for the GPU.
CALLS = 400


def per_call_us(call: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    spent_s = time.perf_counter() - begin
    synchronize()
    return 1e6 * spent_s / CALLS


def contestants(size: int) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    import cupy
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    gemm = autogemm.gemm
    torch_a, torch_b = (torch.randn(size, size, device="cuda") for _ in range(2))
    torch_out = torch.empty_like(torch_a)
    cupy_a, cupy_b = (cupy.random.rand(size, size, dtype=cupy.float32) for _ in range(2))
    cupy_out = cupy.empty_like(cupy_a)
    calls = {
        "torch.matmul": lambda: torch.matmul(torch_a, torch_b),
        "autogemm.gemm, torch": lambda: gemm(torch_a, torch_b),
        "torch.matmul, out=": lambda: torch.matmul(torch_a, torch_b, out=torch_out),
        "autogemm.gemm, torch, out=": lambda: gemm(torch_a, torch_b, torch_out),
        "cupy.matmul": lambda: cupy.matmul(cupy_a, cupy_b),
        "autogemm.gemm, CuPy": lambda: gemm(cupy_a, cupy_b),
        "cupy.matmul, out=": lambda: cupy.matmul(cupy_a, cupy_b, out=cupy_out),
        "autogemm.gemm, CuPy, out=": lambda: gemm(cupy_a, cupy_b, cupy_out),
    }
    return calls, torch.cuda.synchronize


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begin = time.perf_counter()
    calls, synchronize = contestants(options.size)
    libraries_s = time.perf_counter() - begin
    lines = []
    for name, call in calls.items():
        begin = time.perf_counter()
        call()
        synchronize()
        if name == "autogemm.gemm, torch":
            lines.append(f"first call of a shape: {time.perf_counter() - begin:.2f} s")
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples[name].append(per_call_us(call, synchronize))
    import torch

    head = [
        f"{torch.cuda.get_device_name()}, {platform.processor() or platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}",
        f"host time per call, {options.size} x {options.size} x {options.size} f32, "
        f"{ROUNDS} rounds of {CALLS} calls; libraries loaded in {libraries_s:.1f} s",
        "",
        f"{'call':30}{'median us':>10}{'least us':>10}",
    ]
    rows = [
        f"{name:30}{statistics.median(times):>10.2f}{min(times):>10.2f}"
        for name, times in samples.items()
    ]
    text = "\n".join([*head, *rows, "", *lines])
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()

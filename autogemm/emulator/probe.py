"""Whether this g++ reports accesses at their full width. Asked once per compiler and shim."""

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np

from autogemm.emulator.exchange import Buffer, RawExchange, run_process
from autogemm.emulator.toolchain import Mode, Toolchain, build, shim_sha256
from autogemm.model.kernel import Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.support.errors import CompilerMissingError, KernelCompileError

PLAN = LaunchPlan((Launch("probe", (1, 1, 1), (1, 1, 1), 16),))
PROBE = (
    f'extern "C" __global__ void probe({PLAN.signature.in_kernel("float")}) {{'
    """
    extern __shared__ __align__(16) float dynamic[];
    __shared__ float fixed[4];
    const float4 four = *reinterpret_cast<const float4*>(A);
    *reinterpret_cast<float4*>(dynamic) = make_float4(four.w, four.z, four.y, four.x);
    const float2 two = *reinterpret_cast<const float2*>(dynamic + 2);
    *reinterpret_cast<float2*>(fixed + M - 1) = two;
    C[0] = fixed[K] + alpha;
}
"""
)
# (bytes, whether it writes) -> how often.
EXPECTED = Counter({(16, 0): 1, (16, 1): 1, (8, 0): 1, (8, 1): 1, (4, 0): 1, (4, 1): 1})


def check_access_widths(toolchain: Toolchain, folder: Path) -> None:
    """Raises CompilerMissingError when an access of the probe is missing, split or doubled."""
    key = hashlib.sha256(f"{toolchain.version}\0{shim_sha256()}".encode()).hexdigest()[:32]
    stamp = folder / f"probed-{key}"
    if stamp.is_file():
        return
    seen = _observed(toolchain, folder)
    if seen != EXPECTED:
        raise CompilerMissingError(
            f"the emulator cannot use {toolchain.gxx} ({toolchain.version}): it reports accesses "
            f"of (bytes, write) {sorted(seen.elements())} where there are "
            f"{sorted(EXPECTED.elements())}; name another g++ in AUTOGEMM_GXX"
        )
    stamp.touch()


def _observed(toolchain: Toolchain, folder: Path) -> Counter[tuple[int, int]]:
    try:
        built = build(PROBE, PLAN.signature, Mode.CHECK, toolchain, folder)
    except KernelCompileError as error:
        raise CompilerMissingError(
            f"the emulator cannot use {toolchain.gxx} ({toolchain.version}): {error}"
        ) from error
    ones = np.ones(4, np.float32)
    buffers = [Buffer(ones, 4, 4, True) for _ in range(3)] + [Buffer(ones[:0], 0, 0, False)]
    header = RawExchange(deadline_s=10, trace_capacity=64)
    trace = run_process(built.executable, header, PLAN, Problem(1, 1, 1), buffers).trace
    return Counter((int(record["size"]), int(record["region_and_write"]) % 2) for record in trace)

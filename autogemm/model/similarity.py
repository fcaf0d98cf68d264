"""The likeness of two tuning tasks: problem and GPU against problem and GPU."""

import math

from autogemm.model.hardware.device import Device
from autogemm.model.problem import MAX_EXTENT, Problem

# The weight of a difference in kind, in doublings of one extent.
OPERAND_TRANSPOSED = 0.5
ALIGNMENT_LOST = 1.0
ARCHITECTURE_CHANGED = 1.0
# Facts of a GPU that move the best tile, and by how much a doubling counts.
DEVICE_WEIGHTS = {
    "num_sms": 1.0,
    "smem_per_sm_bytes": 0.5,
    "fp32_cores_per_sm": 0.5,
    "l2_bytes": 0.25,
}
# Extents above this, which fill any GPU, differ by less than their ratio says.
LARGE = 4096
LARGE_WEIGHT = 0.5


def distance(problem: Problem, device: Device, other: Problem, other_device: Device) -> float:
    """0 for the same task; 1 is as far as twice the M. Infinite between element types.

    Euclidean over the logarithms of M, N and K, the facts of DEVICE_WEIGHTS, and a fixed step for
    each operand stored the other way round, each matrix of which only one problem's rows allow
    vectors of 16 bytes, and a change of architecture.
    """
    if problem.dtype is not other.dtype:
        return math.inf
    steps = [_size(getattr(problem, one)) - _size(getattr(other, one)) for one in ("m", "n", "k")]
    # A batch fills a GPU as a larger C does.
    steps.append(math.log2(problem.batch.count / other.batch.count))
    # Rows of many groups are many short products.
    steps.append(math.log2(max(1, problem.groups.count) / max(1, other.groups.count)))
    steps += [
        weight * math.log2(max(1, getattr(device, name)) / max(1, getattr(other_device, name)))
        for name, weight in DEVICE_WEIGHTS.items()
    ]
    pairs = zip(_aligned(problem), _aligned(other), strict=True)
    return math.hypot(
        *steps,
        OPERAND_TRANSPOSED * (problem.layout.trans_a != other.layout.trans_a),
        OPERAND_TRANSPOSED * (problem.layout.trans_b != other.layout.trans_b),
        *(ALIGNMENT_LOST * (mine != theirs) for mine, theirs in pairs),
        ARCHITECTURE_CHANGED * (device.arch // 10 != other_device.arch // 10),
    )


def extents_within(extent: int, steps: float) -> tuple[int, int]:
    """The least and the greatest extent that a task not farther than ``steps`` may have."""
    factor = 2 ** (steps / LARGE_WEIGHT)
    return math.floor(extent / factor), min(math.ceil(extent * factor), MAX_EXTENT)


def _size(extent: int) -> float:
    """Doublings, of which those beyond LARGE count less."""
    beyond = max(0.0, math.log2(extent / LARGE))
    return math.log2(extent) - (1.0 - LARGE_WEIGHT) * beyond


def _aligned(problem: Problem) -> tuple[bool, bool, bool]:
    floats = 16 // problem.dtype.size_bytes
    return (problem.lda % floats == 0, problem.ldb % floats == 0, problem.ldc % floats == 0)

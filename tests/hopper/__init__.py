"""A family of one warpgroup, TMA and tensor maps, for the emulator, NVRTC, nvcc and a GPU."""

from pathlib import Path

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, load_family


def tiny_wgmma() -> Family:
    """The family beside this."""
    return load_family(Path(__file__).parent)


# Edges on all sides, rows of multiples of 16 bytes; every way that operands are stored.
PROBLEMS = [
    *(Problem(72, 136, 88, layout, DType.BF16, beta=0.5) for layout in Layout),
    Problem(72, 136, 88, Layout.TN, DType.F16, ldc=144),
    Problem(130, 72, 200, Layout.NT, DType.F16_F32, alpha=2.0),
    Problem(65, 68, 36, Layout.NT, DType.TF32, beta=1.0),
]

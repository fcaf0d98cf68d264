"""Which kernels are compared when none are named."""

from autogemm.catalogue.ladder import libraries, rungs
from autogemm.model.benchmark import baseline_of
from autogemm.model.dtypes import DType

WINNER = "winner"
"""The best kernel that the database has for the size on this GPU."""

_BESIDE_THE_LADDER = {baseline_of(dtype) for dtype in DType if dtype not in DType.one_each()}
LADDER_KERNELS = (
    *(rung.name for rung in rungs()),
    WINNER,
    *(library.name for library in libraries() if library.name not in _BESIDE_THE_LADDER),
)


def kernels_of(preset: str | None, dtype: DType = DType.F32) -> tuple[str, ...]:
    """Every rung and library for the ladder, a few for other lists of sizes; rungs are FP32."""
    if dtype is not DType.F32:
        return (WINNER, baseline_of(dtype))
    if preset == "ladder":
        return LADDER_KERNELS
    return ("naive", "pipelined", WINNER, baseline_of(dtype))

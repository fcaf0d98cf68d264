"""Which kernels are compared when none are named."""

from autogemm.ladder import libraries, rungs

WINNER = "winner"
"""The best kernel that the database has for the size on this card."""

DEFAULT_KERNELS = ("naive", "pipelined", WINNER, "cublas_f32")
LADDER_KERNELS = (
    *(rung.name for rung in rungs()),
    WINNER,
    *(library.name for library in libraries()),
)


def kernels_of(preset: str | None) -> tuple[str, ...]:
    """Every rung and library for the ladder, a few for other lists of sizes."""
    return LADDER_KERNELS if preset == "ladder" else DEFAULT_KERNELS

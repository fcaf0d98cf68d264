"""The emitted sources that are kept as files: chosen so that every branch of the template is taken.

``tests/unit/test_golden.py`` compares them, ``tests/compile/test_compile_golden.py`` compiles them.
"""

from golden_cases import emulated, fp32, ladder, mma, skinny, wgmma, wgmma_batches
from golden_cases.case import GOLDEN_FOLDER, GoldenCase

GOLDEN_CASES = (
    *fp32.CASES,
    *emulated.CASES,
    *mma.CASES,
    *skinny.CASES,
    *wgmma.CASES,
    *wgmma_batches.CASES,
    *ladder.CASES,
)

__all__ = ["GOLDEN_CASES", "GOLDEN_FOLDER", "GoldenCase"]

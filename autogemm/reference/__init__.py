"""Inputs for a problem, and its results as they must be, in NumPy: for the emulator, and for
kernels that compute-sanitizer watches.
"""

from autogemm.reference.inputs import (
    Changed,
    Comparison,
    Data,
    Inputs,
    changed_between,
    compare,
    make_inputs,
    with_near_rows,
)

__all__ = [
    "Changed",
    "Comparison",
    "Data",
    "Inputs",
    "changed_between",
    "compare",
    "make_inputs",
    "with_near_rows",
]

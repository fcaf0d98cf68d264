"""Importing it loads the library, as CuPy's does."""

import ctypes
from pathlib import Path

from cupy import built

SOURCE = Path(__file__).resolve().parents[3] / "cublas.cpp"
LIBRARIES = [
    ctypes.CDLL(built(SOURCE.read_text(), name)) for name in ("libcublas.so", "libcublasLt.so")
]

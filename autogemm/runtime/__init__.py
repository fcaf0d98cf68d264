"""The package as a library: products of arrays by tuned kernels, tuning, results."""

from autogemm.runtime.calling import forget, gemm
from autogemm.runtime.searching import best, tune

__all__ = ["best", "forget", "gemm", "tune"]

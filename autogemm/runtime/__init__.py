"""The package as a library: products of arrays by tuned kernels, tuning, results."""

from autogemm.runtime.arrays import packed
from autogemm.runtime.calling import forget
from autogemm.runtime.grouped import grouped_gemm, grouped_gemm_tn
from autogemm.runtime.operands import Strided, call_for
from autogemm.runtime.products import gemm
from autogemm.runtime.searching import best, tune

__all__ = [
    "Strided",
    "best",
    "call_for",
    "forget",
    "gemm",
    "grouped_gemm",
    "grouped_gemm_tn",
    "packed",
    "tune",
]

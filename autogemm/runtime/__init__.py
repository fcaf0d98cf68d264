"""The package as a library: products of arrays by tuned kernels, tuning, results."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autogemm.runtime.arrays import packed
from autogemm.runtime.calling import forget
from autogemm.runtime.grouped import grouped_gemm, grouped_gemm_tn
from autogemm.runtime.operands import Strided, call_for
from autogemm.runtime.products import gemm

if TYPE_CHECKING:
    from autogemm.runtime.searching import best, tune
    from autogemm.runtime.torch_rules import gradient_operands

# The tuner is imported where it is used: products of arrays need it for ``tune=`` alone. Torch is
# imported for tensors.
_HOMES = {"best": "searching", "tune": "searching", "gradient_operands": "torch_rules"}

__all__ = [
    "Strided",
    "best",
    "call_for",
    "forget",
    "gemm",
    "gradient_operands",
    "grouped_gemm",
    "grouped_gemm_tn",
    "packed",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"autogemm.runtime.{_HOMES[name]}"), name)

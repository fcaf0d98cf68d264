"""GEMMs of others to compare with: cuBLAS as the baseline, PyTorch, Triton and CUTLASS."""

from autogemm.targets.cuda.worker.libraries.baselines import NotHereError, near_calls
from autogemm.targets.cuda.worker.libraries.names import LIBRARIES

__all__ = ["LIBRARIES", "NotHereError", "near_calls"]

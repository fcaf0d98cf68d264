"""GEMMs of others to compare with: cuBLAS as the baseline, PyTorch, Triton and CUTLASS."""

from autogemm.targets.cuda.worker.libraries.baselines import NotHereError, fastest_baseline
from autogemm.targets.cuda.worker.libraries.names import LIBRARIES

__all__ = ["LIBRARIES", "NotHereError", "fastest_baseline"]

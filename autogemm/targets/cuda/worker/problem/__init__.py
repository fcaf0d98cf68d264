"""One problem prepared on the GPU: inputs, references, and contestants that are run on them."""

from autogemm.targets.cuda.worker.problem.inputs import InputSet, exact_scalar
from autogemm.targets.cuda.worker.problem.prepared import (
    BASELINE_SAMPLES,
    Checked,
    Contestant,
    KernelContestant,
    PreparedProblem,
)

__all__ = [
    "BASELINE_SAMPLES",
    "Checked",
    "Contestant",
    "InputSet",
    "KernelContestant",
    "PreparedProblem",
    "exact_scalar",
]

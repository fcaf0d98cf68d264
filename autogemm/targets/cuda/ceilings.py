"""The CUDA text of the kernels that show what a GPU reaches at most (ceilings.cu)."""

from importlib.resources import files

from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout


def ceilings_source() -> KernelSource:
    """The CUDA text, to be compiled like any kernel."""
    text = files("autogemm.targets.cuda").joinpath("ceilings.cu").read_text()
    return KernelSource("ceilings", "", Config.of("ceilings", {}), Layout.NN, text)

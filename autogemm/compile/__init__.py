"""Text in, cubin and resource use out, with no GPU."""

from autogemm.compile.compiler import Compiler, ptx
from autogemm.compile.processes import CompileLimits

__all__ = ["CompileLimits", "Compiler", "ptx"]

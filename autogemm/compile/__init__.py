"""Text in, cubin and resource use out, with no GPU."""

from autogemm.compile.compiler import Compiler, ptx

__all__ = ["Compiler", "ptx"]

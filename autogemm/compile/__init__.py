"""Text in, cubin and resource use out, with no GPU."""

from autogemm.compile.compiler import Compiler, Elsewhere, ptx
from autogemm.compile.disassembly import InstructionMix, code_sizes, disassemble, main_loop
from autogemm.compile.processes import CompileLimits

__all__ = [
    "CompileLimits",
    "Compiler",
    "Elsewhere",
    "InstructionMix",
    "code_sizes",
    "disassemble",
    "main_loop",
    "ptx",
]

"""The small language of search spaces.

An expression is parsed once, evaluated over integers or NumPy columns, printed as C++ or Python.
"""

from autogemm.space.expressions.evaluation import Column, Operand, evaluate, integers
from autogemm.space.expressions.nodes import Node, Operation, names_in
from autogemm.space.expressions.printing import python_text

__all__ = [
    "Column",
    "Node",
    "Operand",
    "Operation",
    "evaluate",
    "integers",
    "names_in",
    "python_text",
]

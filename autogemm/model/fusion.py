"""Epilogues that cuBLASLt has itself.

It adds a bias to each column, adds another matrix in C's place, and applies relu or the gelu that
is made of tanh. What it stores in a C of 8-bit floats it can multiply by one scale before.
"""

from dataclasses import dataclass

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import BUILT_IN, Epilogue
from autogemm.model.formula import Apply, Node, Read

# cublasLtEpilogue_t, without and with a bias.
_EPILOGUES = {"": (1, 4), "relu": (2, 6), "gelu_tanh": (32, 36)}


@dataclass(frozen=True, slots=True)
class Fusion:
    """An epilogue of cuBLASLt: its cublasLtEpilogue_t, and names of the array that is added to each
    row, of the matrix that is added, ``c`` for the old C, and of the scale of all results; empty
    for none.
    """

    code: int
    bias: str = ""
    added: str = ""
    scale: str = ""

    @property
    def adds_input(self) -> bool:
        """Whether the matrix that is added is an input, neither the old C nor none."""
        return self.added not in ("", "c")


def fusion_of(epilogue: Epilogue, dtype: DType) -> Fusion | None:
    """The epilogue as cuBLASLt has it; None where it has none."""
    if epilogue.num_columns > 1 or epilogue.output is not None or epilogue.scales:
        return None
    root: Node = epilogue.root
    activation = scale = ""
    if dtype.c.saturates:
        root, scale = _scaled(root)
    if isinstance(root, Apply) and root.op in _EPILOGUES:
        activation, root = root.op, root.args[0]
    reads = [one for one in _terms(root) if isinstance(one, Read)]
    if len(reads) != len(_terms(root)):
        return None
    found = {axes: [one for one in reads if one.axes == axes] for axes in ("", "n", "m, n")}
    is_sum = [one.name for one in found[""]] == ["acc"] and len(found["n"]) <= 1
    of_c = all(one.element(dtype) is dtype.of_arrays for one in epilogue.inputs if one.axes)
    # The matrix that is added to 8-bit floats has 16 bits.
    of_c = of_c and not (dtype.c.saturates and epilogue.reads("c"))
    if not is_sum or not of_c or len(found["m, n"]) > 1 or len(reads) != len(set(reads)):
        return None
    if len(reads) != sum(map(len, found.values())):
        return None
    bias, added = (next((one.name for one in found[axes]), "") for axes in ("n", "m, n"))
    return Fusion(_EPILOGUES[activation][bool(bias)], bias, added, scale)


def _scaled(root: Node) -> tuple[Node, str]:
    """The factor of a tree beside one value of the user's, and that value's name; else the tree."""
    if isinstance(root, Apply) and root.op == "*":
        left, right = root.args
        for rest, factor in ((left, right), (right, left)):
            built_in = isinstance(factor, Read) and factor.name in BUILT_IN
            if isinstance(factor, Read) and not factor.axes and not built_in:
                return rest, factor.name
    return root, ""


def _terms(node: Node) -> list[Node]:
    if isinstance(node, Apply) and node.op == "+":
        return [*_terms(node.args[0]), *_terms(node.args[1])]
    return [node]

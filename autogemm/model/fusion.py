"""Epilogues that cuBLASLt has itself.

It multiplies sums by its alpha, adds a bias to each column, adds another matrix in C's place, and
applies relu or the gelu that is made of tanh. What it stores in a C of 8-bit floats it can multiply
by one scale before.
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
    for none. ``factors`` are the names of values whose product is its alpha.
    """

    code: int
    bias: str = ""
    added: str = ""
    scale: str = ""
    factors: tuple[str, ...] = ()

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
    terms = _terms(root)
    factors: tuple[str, ...] = ()
    if not dtype.c.saturates:
        terms, factors = _without_factors(terms)
    reads = [one for one in terms if isinstance(one, Read)]
    if len(reads) != len(terms):
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
    return Fusion(_EPILOGUES[activation][bool(bias)], bias, added, scale, factors)


def _scaled(root: Node) -> tuple[Node, str]:
    """The factor of a tree beside one value of the user's, and that value's name; else the tree."""
    if isinstance(root, Apply) and root.op == "*":
        left, right = root.args
        for rest, factor in ((left, right), (right, left)):
            if _is_value(factor):
                assert isinstance(factor, Read), "a value is read by its name"
                return rest, factor.name
    return root, ""


def _without_factors(terms: list[Node]) -> tuple[list[Node], tuple[str, ...]]:
    """The terms of a sum with bare sums of products, and the values that multiply these."""
    plain: list[Node] = []
    factors: tuple[str, ...] = ()
    for term in terms:
        leaves = _operands(term, "*")
        values = [one.name for one in leaves if _is_value(one) and isinstance(one, Read)]
        rest = [one for one in leaves if not _is_value(one)]
        is_scaled = values and rest == [Read("acc")]
        plain.append(rest[0] if is_scaled else term)
        factors += tuple(values) if is_scaled else ()
    return plain, factors


def _is_value(node: Node) -> bool:
    """Whether it is one value of the user's, which all elements share."""
    return isinstance(node, Read) and not node.axes and node.name not in BUILT_IN


def _terms(node: Node) -> list[Node]:
    return _operands(node, "+")


def _operands(node: Node, op: str) -> list[Node]:
    """What a tree of one operator is made of, from left to right."""
    if isinstance(node, Apply) and node.op == op:
        return [*_operands(node.args[0], op), *_operands(node.args[1], op)]
    return [node]

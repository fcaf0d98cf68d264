"""The epilogue of a problem: the expression that makes an element of C from its accumulator."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Self

from autogemm.model.dtypes import DType, Element
from autogemm.model.formula import (
    BLOCK,
    HALVES,
    INDICES,
    INTERLEAVED,
    MAX_LENGTH,
    OUTPUT_AXES,
    SCALE_AXES,
    SCALED_PRODUCT,
    Formula,
    Node,
    Read,
    mistake,
    names_in,
    parsed,
    reads_of,
    reads_with_index,
    without_scales,
)
from autogemm.support.errors import EpilogueError

# The plain GEMM, which needs no expression.
PLAIN_TEXT = "alpha * acc + beta * c[m, n]"
# Names that an expression may read beside its own inputs, and the index that each has.
BUILT_IN: Mapping[str, str] = {"acc": "", "alpha": "", "beta": "", "c": "m, n"}
INPUT_TYPES = (Element.F32, Element.BF16, Element.F16)
MAX_INPUTS = 8
_NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")
# Names that emitted functions use, and words of C++.
_WORDS = """
m n k place with accum old_c columns alignas alignof asm auto bool break case catch char class const
constexpr continue decltype default delete do double else enum explicit export extern false float
for friend goto if inline int long mutable namespace new noexcept nullptr operator private protected
public register return short signed sizeof static struct switch template this throw true try typedef
typeid typename union unsigned using virtual void volatile while relu gelu gelu_tanh silu sigmoid
tanh exp abs min max clamp tanhf expf fabsf fminf fmaxf f32 f16 bf16
"""
_TAKEN = frozenset(_WORDS.split())


class Gate(StrEnum):
    """Where the two columns of the product lie of which a gated epilogue makes one of C.

    In halves they are ``acc[n]`` and ``acc[n + N]``, interleaved ``acc[2 * n]`` and
    ``acc[2 * n + 1]``: op(B) has 2 N columns.
    """

    NONE = "none"
    HALVES = "halves"
    INTERLEAVED = "interleaved"


_GATES = {Gate.HALVES: HALVES, Gate.INTERLEAVED: INTERLEAVED}


@dataclass(frozen=True, slots=True)
class EpilogueInput:
    """An input of the user's, or the second output: its name, its index (empty for one value), and
    its type if declared.

    Arrays are packed; without a declared type their elements are of C's type, or of that which
    `DType.of_arrays` has for an 8-bit C. One value is FP32, and so are scales of blocks of A and B.
    """

    name: str
    axes: str
    declared: Element | None = None

    def element(self, dtype: DType) -> Element:
        """The element type in a problem of those types."""
        return self.declared or (
            dtype.of_arrays if self.axes and not self.is_scale else Element.F32
        )

    @property
    def is_scale(self) -> bool:
        """Whether it scales blocks of A or B: a factor of sums within the product."""
        return self.axes in SCALE_AXES

    def shape(self, m: int, n: int, k: int, groups: int = 0) -> tuple[int, ...]:
        """The shape for a C of M rows and N columns, sums of K products, and so many groups; () for
        one value.
        """
        extents = {"m": m, "n": n, "g": groups}
        extents |= {f"{axis} / {BLOCK}": -(-size // BLOCK) for axis, size in (("n", n), ("k", k))}
        return tuple(extents[axis] for axis in self.axes.split(", ") if axis)

    @property
    def label(self) -> str:
        """``bias[n]``."""
        return f"{self.name}[{self.axes}]" if self.axes else self.name


@dataclass(frozen=True, slots=True)
class Epilogue:
    """An epilogue by its canonical text; the empty one is ``alpha * acc + beta * c[m, n]``.

    Raises UsageError, with a caret under the place, for a text that is none. Two epilogues are the
    same where their texts are.
    """

    text: str = ""

    def __post_init__(self) -> None:
        if self.text:
            formula = _checked(self.text)
            # It is read again from files and databases.
            if len(formula.text) > MAX_LENGTH:
                rule = f"with blanks it has {len(formula.text)} characters, {MAX_LENGTH} at most"
                raise mistake(self.text, 0, rule)
            object.__setattr__(self, "text", "" if formula.text == PLAIN_TEXT else formula.text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The epilogue of a text; that of the plain GEMM for an empty one."""
        return cls(text.strip())

    def __str__(self) -> str:
        return self.text

    @property
    def is_plain(self) -> bool:
        """Whether the problem is the plain GEMM."""
        return not self.text

    @property
    def root(self) -> Node:
        """The tree of the expression of C, which may read the second output by its name; where
        blocks have scales, ``acc`` has them already.
        """
        return without_scales(self._formula.root)

    @property
    def output(self) -> EpilogueInput | None:
        """The second output, a packed matrix of as many elements as C; None where there is none."""
        if self._formula.output is None:
            return None
        name, _ = self._formula.output
        return EpilogueInput(name, OUTPUT_AXES, self._types.get(name))

    @property
    def output_root(self) -> Node:
        """The tree of the second output, which there is; ``acc`` as in `root`."""
        assert self._formula.output is not None
        return without_scales(self._formula.output[1])

    @property
    def functions(self) -> frozenset[str]:
        """Functions that are called."""
        return self._formula.functions

    @property
    def special_instructions(self) -> int:
        """Instructions of the special function unit that functions take for each element of C."""
        return self._formula.special_instructions

    def reads(self, name: str) -> bool:
        """Whether it reads ``acc``, ``alpha``, ``beta``, ``c``, or an input of that name."""
        return any(one.name == name for one in self._formula.reads)

    @property
    def gate(self) -> Gate:
        """The two columns of the product that make one of C; none where it is one."""
        return _gate(self.text)

    @property
    def num_columns(self) -> int:
        """Columns of op(B) for each of C: 2 where it is gated."""
        return 1 if self.gate is Gate.NONE else 2

    @property
    def takes_batches(self) -> bool:
        """Whether several products may be one launch: neither gated, nor with a second output, nor
        with scales of blocks.
        """
        return self.gate is Gate.NONE and self.output is None and not self.scales

    @property
    def is_of_groups(self) -> bool:
        """Whether an input has elements for each group."""
        return any("g" in one.axes for one in self.inputs)

    @property
    def inputs(self) -> tuple[EpilogueInput, ...]:
        """The inputs of the user's, in the order of the text."""
        if self.is_plain:
            return ()
        return tuple(
            EpilogueInput(one.name, one.axes, self._types.get(one.name))
            for one in self._formula.reads
            if one.name not in BUILT_IN
        )

    def tiled_input(self, dtype: DType) -> EpilogueInput | None:
        """The one input with a row for each row of C, if its elements are of C's type: a kernel may
        load tiles of it as it stores those of C. None where there is none, or several.
        """
        found = [one for one in self.inputs if one.axes == "m, n"]
        return found[0] if len(found) == 1 and found[0].element(dtype) is dtype.c else None

    @property
    def scales(self) -> tuple[EpilogueInput, ...]:
        """The inputs that are scales of blocks: A's, then B's; none where there are none."""
        return tuple(one for one in self.inputs if one.is_scale)

    @property
    def is_scaled_product(self) -> bool:
        """Whether C is the product of scaled blocks, and there is nothing else to do."""
        return bool(self.scales) and self.root == Read("acc") and self.output is None

    @property
    def arrays(self) -> tuple[EpilogueInput, ...]:
        """The inputs, and behind them the second output where there is one."""
        return self.inputs if self.output is None else (*self.inputs, self.output)

    def input_bytes(self, extents: tuple[int, int, int, int], dtype: DType) -> int:
        """Bytes of all arrays that it reads beside A, B and C; ``extents`` are those of `shape`."""
        return sum(
            math.prod(one.shape(*extents)) * one.element(dtype).size_bytes for one in self.inputs
        )

    def output_bytes(self, m: int, n: int, dtype: DType) -> int:
        """Bytes of the second output, 0 where there is none."""
        return 0 if self.output is None else m * n * self.output.element(dtype).size_bytes

    def in_dtype(self, dtype: DType) -> "Epilogue":
        """The same epilogue with no type declared that arrays have anyway."""
        formula = self._formula
        defaults = {one.name: replace(one, declared=None).element(dtype) for one in self.arrays}
        plain = {one.name for one in self.arrays if one.declared is defaults[one.name]}
        if not plain:
            return self
        types = tuple(pair for pair in formula.types if pair[0] not in plain)
        return Epilogue(replace(formula, types=types).text)

    @property
    def _types(self) -> dict[str, Element]:
        """The types that were declared, by name."""
        known = {element.label: element for element in INPUT_TYPES}
        return {name: known[kind] for name, kind in self._formula.types}

    @property
    def _formula(self) -> Formula:
        return _checked(self.text or PLAIN_TEXT)


PLAIN = Epilogue()
"""The epilogue of the plain GEMM."""


def sum_exponent(k: int) -> int:
    """About the binary logarithm of a sum of k products of whole numbers from -3 to 3 but 0.

    Their mean square is 14 / 3. Inputs are smaller by so many powers of 2 where an epilogue is
    verified: sums are about 1, where functions bend; far out sigmoid hides every wrong product.
    """
    return round(math.log2(14 / 3 * math.sqrt(k)))


@lru_cache(maxsize=256)
def _checked(text: str) -> Formula:
    """The formula, of which every name is known. Raises UsageError."""
    formula = parsed(text)
    axes: dict[str, str] = {}
    _require_acc(text, [one.axes for one in formula.reads if one.name == "acc"])
    _check_output(text, formula)
    for one in formula.reads:
        if one.name == "acc":
            axes["acc"] = ""
            continue
        if one.axes in (HALVES[1], *INTERLEAVED):
            raise _wrong(text, one.name, f"{one.name}: {INDICES}")
        if axes.setdefault(one.name, one.axes) != one.axes:
            raise _wrong(text, one.name, f"{one.name} is read with two different indices")
        if one.name in BUILT_IN:
            if one.axes != BUILT_IN[one.name]:
                index = f"[{BUILT_IN[one.name]}]" if BUILT_IN[one.name] else "without an index"
                raise _wrong(text, one.name, f"{one.name} is read {index}")
        elif not _NAME.fullmatch(one.name) or one.name in (*_TAKEN, "aux"):
            rule = f"{one.name!r} cannot name an input: take a lower-case word such as bias"
            raise _wrong(text, one.name, rule)
    _check_scales(text, formula)
    num_inputs = MAX_INPUTS - (formula.output is not None)
    if len(axes.keys() - BUILT_IN.keys()) > num_inputs:
        raise mistake(text, 0, f"it reads more than {num_inputs} inputs")
    known = {element.label for element in INPUT_TYPES}
    for name, kind in formula.types:
        if name in BUILT_IN:
            raise _wrong(text, name, f"{name} has the type that --dtype says", last=True)
        if kind not in known:
            rule = f"unknown type {kind!r}; inputs are {' '.join(sorted(known))}"
            raise _wrong(text, kind, rule, last=True)
        if axes.get(name) in ("", *SCALE_AXES) and kind != Element.F32.label:
            what = "one value" if axes[name] == "" else "scales of blocks"
            raise _wrong(text, kind, f"{name} is {what}, which is f32", last=True)
    return formula


@lru_cache(maxsize=256)
def _gate(text: str) -> Gate:
    """The gate of an epilogue's canonical text, which every shape of a problem asks for."""
    read = {one.axes for one in _checked(text or PLAIN_TEXT).reads if one.name == "acc"}
    return next((gate for gate, axes in _GATES.items() if read == set(axes)), Gate.NONE)


def _require_acc(text: str, found: list[str]) -> None:
    """Raise UsageError unless these indices of acc are none, or both columns of a pair."""
    if not found:
        raise mistake(text, 0, "it does not read acc, the element of op(A) op(B)")
    if found == [""]:
        return
    for pair in (HALVES, INTERLEAVED):
        if set(found) == set(pair):
            return
        if len(found) == 1 and found[0] in pair:
            other = pair[1 - pair.index(found[0])]
            rule = f"acc[{found[0]}] is one column of two: read acc[{other}] too, or acc for one"
            raise _wrong(text, "acc", rule)
    rule = "of two columns acc has the index [n] and [n + N], or [2 * n] and [2 * n + 1]"
    raise _wrong(text, "acc", rule, last=True)


def _check_output(text: str, formula: Formula) -> None:
    """Raise UsageError unless the second output is none, or one that C's expression may read."""
    if formula.output is None:
        return
    name, root = formula.output
    if not _NAME.fullmatch(name) or name in (*_TAKEN, *BUILT_IN):
        rule = f"{name!r} cannot name an output: take a lower-case word such as aux"
        raise mistake(text, 0, rule)
    if name in names_in(root):
        raise _wrong(text, name, f"{name} is written, and is none of its own inputs", last=True)
    if "acc" not in names_in(root):
        raise mistake(text, 0, f"{name} does not read acc, the element of op(A) op(B)")
    if not {"acc", name} & names_in(formula.root):
        raise mistake(text, 0, f"the expression of C reads neither acc nor {name}")
    if name in reads_with_index(formula.root):
        raise _wrong(text, name, f"{name} is read without an index: its value in FP32", last=True)


def _check_scales(text: str, formula: Formula) -> None:
    """Raise UsageError where scales of blocks are no factors of ``acc`` alone."""
    scales = [one.name for one in formula.reads if one.axes in SCALE_AXES]
    if not scales:
        return
    trees = [formula.root, *([formula.output[1]] if formula.output else [])]
    left = [reads for tree in trees for reads in reads_of(without_scales(tree))]
    if len(scales) != 2 or any(one.name in scales for one in left):
        rule = f"scales of blocks are read once, both at once: ({SCALED_PRODUCT})"
        raise _wrong(text, scales[0], rule)
    if sum(one.name == "acc" for one in left) > 1:
        raise _wrong(text, "acc", "acc is read once where blocks have scales", last=True)


def _wrong(text: str, word: str, rule: str, *, last: bool = False) -> EpilogueError:
    """An error under the first or last place where the word stands."""
    places = [found.start() for found in re.finditer(rf"\b{re.escape(word)}\b", text)]
    return mistake(text, places[-1 if last else 0], rule)

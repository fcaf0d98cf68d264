"""An epilogue as templates read it: its C++ text, its inputs, the functions that it calls."""

import textwrap
from dataclasses import dataclass

from autogemm.model.dtypes import DType, Element
from autogemm.model.epilogue import EpilogueInput, Gate
from autogemm.model.formula import (
    HALVES,
    INTERLEAVED,
    SCALE_AXES,
    SCALES_OF_GROUPS,
    Node,
    Read,
    number_text,
    written,
)
from autogemm.model.problem import Problem
from autogemm.space import EPILOGUE_PREFIX, epilogue_rules
from autogemm.support.templating import WIDTH, environment

# Functions of the language that C++ has under another name; the others are emitted.
OF_CPP = {"tanh": "tanhf", "exp": "expf", "abs": "fabsf", "min": "fminf", "max": "fmaxf"}
# Emitted functions that are made of the approximations of templates/parts/ptx.
_APPROXIMATING = frozenset({"gelu_tanh", "sigmoid", "silu"})
# Built-in names where the expression is computed.
_IN_KERNEL = {"acc": "accum", "c": "old_c", "alpha": "with.alpha", "beta": "with.beta"}


@dataclass(frozen=True, slots=True)
class FusedInput:
    """An input: its name, the kernel's argument, its C++ type there, its index in C++, and the
    function that makes a float of an element (empty: none is needed). ``format_code`` is that of
    its type; ``value`` replaces a single value where kernels are verified. ``step`` leads to the
    elements of a group in C++, empty where groups share them. ``is_scale``: of blocks of A or B,
    which is no factor of elements; ``scale_step`` leads to those of a group's B.
    """

    name: str
    label: str
    argument: str
    c_type: str
    format_code: int
    is_array: bool
    is_scale: bool
    index: str
    conversion: str
    value: str
    step: str
    scale_step: str


@dataclass(frozen=True, slots=True)
class FusedOutput:
    """The second output: its name, its formula, the kernel's argument, its element type, that in
    C++, its expression in C++, and the function that makes an element of a float (empty: none is
    needed).
    """

    name: str
    label: str
    text: str
    argument: str
    dtype: str
    c_type: str
    format_code: int
    expression: str
    conversion: str


@dataclass(frozen=True, slots=True)
class Fused:
    """An epilogue that is not that of the plain GEMM. ``text`` is the formula of C, and types."""

    text: str
    expression: str
    output: FusedOutput | None
    inputs: tuple[FusedInput, ...]
    functions: tuple[str, ...]
    approximates: bool
    """Whether one of them takes approximations by the special function unit."""
    conversions: tuple[str, ...]
    """Element types of which a conversion to float is emitted with the epilogue."""
    gate: str
    """``none``, or where the two columns of the product lie: ``halves`` or ``interleaved``."""
    reads_alpha: bool
    reads_beta: bool
    reads_c: bool
    has_matrix: bool
    """Whether an input or the second output has a row for each row of C."""
    of_groups: bool
    """Whether an input has elements for each group, scales of blocks not among them."""
    tiled: str
    """The input of which tiles may be loaded as those of C are stored; empty for none."""
    is_scaled_product: bool
    """Whether C is the product of scaled blocks, and there is nothing else to do."""
    fields: tuple[str, ...]
    """The kernel's arguments of which the struct is made, in order."""

    @property
    def scales(self) -> tuple[FusedInput, ...]:
        """Scales of blocks of A, then of B, as the text has them; none where there are none."""
        return tuple(one for one in self.inputs if one.is_scale)

    @property
    def gated(self) -> bool:
        """Whether two columns of the product yield one of C."""
        return self.gate != Gate.NONE


def fused_of(problem: Problem) -> Fused | None:
    """The problem's epilogue for templates; None for the plain GEMM."""
    epilogue = problem.epilogue
    if epilogue.is_plain:
        return None
    rules = epilogue_rules(problem)
    inputs = tuple(
        _input(one, problem.dtype, rule.neutral)
        for one, rule in zip(epilogue.inputs, rules, strict=True)
    )
    has_matrix = any(one.axes == "m, n" for one in epilogue.arrays)
    output = _output(problem)
    written_to = () if output is None else (output.argument,)
    emitted = {one.conversion for one in inputs if one.conversion.startswith("input_from_")}
    tiled = epilogue.tiled_input(problem.dtype)
    factors = [name for name in ("alpha", "beta") if epilogue.reads(name)]
    return Fused(
        text=epilogue.text.removeprefix("" if output is None else f"{output.text}; "),
        expression=_wrapped(cpp_text(problem, epilogue.root), "    return "),
        output=output,
        inputs=inputs,
        functions=tuple(sorted(epilogue.functions - OF_CPP.keys())),
        approximates=not _APPROXIMATING.isdisjoint(epilogue.functions),
        conversions=tuple(sorted(name.removeprefix("input_from_") for name in emitted)),
        gate=str(epilogue.gate),
        reads_alpha=epilogue.reads("alpha"),
        reads_beta=epilogue.reads("beta"),
        reads_c=epilogue.reads("c"),
        has_matrix=has_matrix,
        of_groups=any(one.step for one in inputs),
        tiled="" if tiled is None else tiled.name,
        is_scaled_product=epilogue.is_scaled_product,
        fields=(
            *factors,
            *(one.argument for one in inputs),
            *written_to,
            *(["N"] if has_matrix else []),
        ),
    )


def _wrapped(text: str, before: str) -> str:
    """A C++ expression in lines, those behind the first as far in as ``before`` is long."""
    return "\n".join(
        textwrap.wrap(
            text,
            WIDTH - len(f"{before};"),
            subsequent_indent=" " * len(before),
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def cpp_text(problem: Problem, root: Node) -> str:
    """A tree of its epilogue in C++, which accepts both floats and bounded numbers."""
    output = problem.epilogue.output

    def read(one: Read) -> str:
        if one.axes in (HALVES[1], INTERLEAVED[1]):
            return "second"
        if one.name in _IN_KERNEL:
            return _IN_KERNEL[one.name]
        if output is not None and one.name == output.name:
            return one.name
        return one.name if one.axes else f"with.{one.name}"

    return written(
        root,
        number=_float_literal,
        read=read,
        function=lambda name: OF_CPP.get(name, name),
    )


def _float_literal(value: float) -> str:
    text = number_text(value)
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _input(one: EpilogueInput, dtype: DType, value: float) -> FusedInput:
    element = one.element(dtype)
    own = element is dtype.c
    conversion = "" if element is Element.F32 else f"{'float' if own else 'input'}_from_{element}"
    # Those of a group's elements count from where these begin.
    indices = {"": "", "m": "m", "n": "n", "m, n": "place", "g": "0", "g, n": "n"}
    indices |= dict.fromkeys(SCALE_AXES, "")
    return FusedInput(
        name=one.name,
        label=one.label,
        argument=EPILOGUE_PREFIX + one.name,
        c_type=element.c_name,
        format_code=element.format_code,
        is_array=bool(one.axes),
        is_scale=one.is_scale,
        index=indices[one.axes],
        conversion=conversion,
        value=_float_literal(value),
        step={"g": "group", "g, n": "(long long)group * N"}.get(one.axes, ""),
        scale_step="group * blocks_b" if one.axes == SCALES_OF_GROUPS else "",
    )


def _output(problem: Problem) -> FusedOutput | None:
    """The second output, where there is one."""
    epilogue = problem.epilogue
    if epilogue.output is None:
        return None
    one, root = epilogue.output, epilogue.output_root
    element = one.element(problem.dtype)
    return FusedOutput(
        name=one.name,
        label=one.label,
        text=f"{one.label} = {written(root)}",
        argument=EPILOGUE_PREFIX + one.name,
        dtype=element.label,
        c_type=element.c_name,
        format_code=element.format_code,
        expression=_wrapped(cpp_text(problem, root), f"    const float {one.name} = "),
        conversion="" if element is Element.F32 else f"{element}_from_float",
    )


def worker_text(problem: Problem) -> str:
    """Kernels that check and imitate the problem's epilogue on a GPU; they follow verify.cu."""
    of_c, of_sums = problem.dtype.c, problem.dtype.of_sums.c
    short = [one for one in dict.fromkeys((of_c, of_sums)) if one is not Element.F32]
    context = {
        "fused": fused_of(problem),
        "narrow": of_c.saturates,
        "dtype_c": of_c.label,
        "type_c": of_c.c_name,
        "dtype_sums": of_sums.label,
        "type_sums": of_sums.c_name,
        "conversions": [(one.label, one.c_name, one.format_code) for one in short],
    }
    return environment().get_template("export/fused_worker.cu.jinja").render(context)

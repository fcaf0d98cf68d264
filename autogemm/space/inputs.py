"""Arguments of a problem's kernels beside those of a GEMM."""

from autogemm.model.dtypes import Element
from autogemm.model.formula import SCALES_OF_A, SCALES_OF_B, SCALES_OF_GROUPS
from autogemm.model.problem import Problem
from autogemm.model.signature import ArgumentType, ProblemType
from autogemm.space.expressions.parsing import parse_expression
from autogemm.space.family import ArgumentRule, Family

# The number of elements of an input, by its index.
_EXTENTS = {
    **{"m": "M", "n": "N", "m, n": "M * N", "g": "groups", "g, n": "groups * N"},
    **{SCALES_OF_A: "ceil_div(K, 128) * M", SCALES_OF_B: "ceil_div(N, 128) * ceil_div(K, 128)"},
    SCALES_OF_GROUPS: "groups * ceil_div(N, 128) * ceil_div(K, 128)",
}
PREFIX = "epilogue_"


def arguments_of(family: Family, problem: Problem) -> tuple[ArgumentRule, ...]:
    """The family's own arguments, then the inputs of the epilogue, ``bias[n]`` being
    ``epilogue_bias``, and its second output.

    No number is neutral for an input. Where kernels are verified and timed, inputs that are one
    value are 0.75, 1.25 and so on, in the order of the text.
    """
    return (*family.arguments, *epilogue_rules(problem), *output_rules(problem))


def epilogue_rules(problem: Problem) -> tuple[ArgumentRule, ...]:
    """The inputs of the problem's epilogue as arguments."""
    return tuple(_input_rule(problem, index) for index in range(len(problem.epilogue.inputs)))


def _input_rule(problem: Problem, index: int) -> ArgumentRule:
    one = problem.epilogue.inputs[index]
    own = _of_arrays(problem) if one.axes and not one.is_scale else Element.F32
    extent = parse_expression(_EXTENTS[one.axes], one.label) if one.axes else None
    return ArgumentRule(
        name=PREFIX + one.name,
        type=one.declared or own,
        extent=extent,
        neutral=0.75 + 0.5 * index,
        doc=f"{one.label} of the epilogue",
        is_input=True,
    )


def _of_arrays(problem: Problem) -> ArgumentType:
    """The type of arrays that declare none, by the name of C's where that is it."""
    of_arrays = problem.dtype.of_arrays
    return ProblemType.C if of_arrays is problem.dtype.c else of_arrays


def output_rules(problem: Problem) -> tuple[ArgumentRule, ...]:
    """The second output of the problem's epilogue as an argument; none where there is none."""
    one = problem.epilogue.output
    if one is None:
        return ()
    rule = ArgumentRule(
        name=PREFIX + one.name,
        type=one.declared or _of_arrays(problem),
        extent=parse_expression(_EXTENTS[one.axes], one.label),
        neutral=0.0,
        doc=f"{one.label}, the second output of the epilogue",
        is_output=True,
    )
    return (rule,)

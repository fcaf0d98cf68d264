"""Arguments of a GEMM's kernels as values of C, made of a plan's signature."""

import ctypes

from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.signature import Argument, ArgumentKind, extents, factors
from autogemm.targets.cuda.tensor_maps import RawMap, room_for_map

CValue = ctypes.c_int | ctypes.c_float | ctypes.c_void_p | RawMap


def argument_values(plan: LaunchPlan, problem: Problem) -> dict[str, CValue]:
    """A value for each argument of the plan's kernels, by name and in order.

    Sizes, leading dimensions and factors are those of the problem, a family's own numbers neutral.
    Addresses are 0 and tensor maps empty: the caller fills them in.
    """
    given: dict[str, int | float] = {**extents(problem), **factors(problem)}
    given |= {extra.argument.name: extra.neutral for extra in plan.extras}

    def value(argument: Argument) -> CValue:
        if argument.kind is ArgumentKind.TENSOR_MAP:
            return room_for_map()
        if argument.is_array:
            return ctypes.c_void_p()
        if argument.type is None:
            return ctypes.c_int(int(given[argument.name]))
        return ctypes.c_float(given[argument.name])

    return {argument.name: value(argument) for argument in plan.signature}


def pointers_to(values: dict[str, CValue]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of the values, as a launch takes them. The values must outlive it."""
    return (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values.values()))

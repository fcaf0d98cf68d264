"""The inputs of an epilogue, from arrays of the caller's."""

from collections.abc import Mapping
from typing import Any

from autogemm.model.epilogue import Epilogue, EpilogueInput
from autogemm.model.problem import Problem
from autogemm.runtime.arrays import Library, packed
from autogemm.space import EPILOGUE_PREFIX
from autogemm.support.errors import UsageError


def require_inputs(epilogue: Epilogue, inputs: Mapping[str, Any]) -> None:
    """Raise UsageError unless the inputs are those that the epilogue reads."""
    names = [one.name for one in epilogue.inputs]
    if missing := [name for name in names if name not in inputs]:
        raise UsageError(f"the epilogue {epilogue} reads {missing[0]}: give it, {missing[0]}=...")
    if unknown := [name for name in inputs if name not in names]:
        what = f"the epilogue {epilogue} does not read it" if names else "there is no epilogue"
        raise UsageError(f"unexpected argument {unknown[0]!r}: {what}")


def placed_inputs(
    library: Library, problem: Problem, inputs: Mapping[str, Any], out_address: int
) -> dict[str, int | float]:
    """Address or number of each input, by the name of its argument.

    Raises UsageError for an array of another shape, type or place than the problem's epilogue has.
    """
    found: dict[str, int | float] = {}
    for one in problem.epilogue.inputs:
        value = inputs[one.name]
        name = EPILOGUE_PREFIX + one.name
        found[name] = _address(library, problem, one, value) if one.axes else float(value)
        if one.axes and found[name] == out_address:
            raise UsageError(f"{one.name} is out: read it as c[m, n]")
    return found


def _address(library: Library, problem: Problem, one: EpilogueInput, array: Any) -> int:
    memory = library.memory(array)
    shape = one.shape(problem.m, problem.n)
    if memory.shape != shape:
        raise UsageError(f"{one.label} has the shape {list(shape)}, got {list(memory.shape)}")
    if memory.strides != packed(shape):
        raise UsageError(f"{one.name} has gaps or lies column by column: pass a contiguous copy")
    element = one.element(problem.dtype)
    if memory.element is not element:
        raise UsageError(
            f"{one.label} is {element} here, got {memory.element}: declare its type, as in "
            f'epilogue="...; {one.name}: {memory.element}"'
        )
    return memory.address

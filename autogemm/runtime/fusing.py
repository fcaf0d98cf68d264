"""The inputs of an epilogue, from arrays of the caller's."""

from collections.abc import Mapping
from typing import Any

from autogemm.model.epilogue import Epilogue, EpilogueInput
from autogemm.model.problem import Problem
from autogemm.runtime.arrays import Library, packed
from autogemm.space import EPILOGUE_PREFIX
from autogemm.support.errors import UsageError


def require_inputs(epilogue: Epilogue, inputs: Mapping[str, Any]) -> None:
    """Raise UsageError unless these are the inputs of the epilogue, and its second output."""
    names = [one.name for one in epilogue.arrays]
    if missing := [name for name in names if name not in inputs]:
        is_output = epilogue.output is not None and missing[0] == epilogue.output.name
        verb = "writes" if is_output else "reads"
        raise UsageError(f"the epilogue {epilogue} {verb} {missing[0]}: give it, {missing[0]}=...")
    if unknown := [name for name in inputs if name not in names]:
        what = f"the epilogue {epilogue} does not read it" if names else "there is no epilogue"
        raise UsageError(f"unexpected argument {unknown[0]!r}: {what}")


def placed_inputs(
    library: Library, problem: Problem, inputs: Mapping[str, Any], matrices: Mapping[str, int]
) -> dict[str, int | float]:
    """Address or number of each input and of a second output, by the name of its argument.

    ``matrices`` are the addresses of ``a``, ``b`` and ``out``. Raises UsageError for an array of
    another shape, type or place than the problem's epilogue has.
    """
    found: dict[str, int | float] = {}
    for one in problem.epilogue.arrays:
        value = inputs[one.name]
        name = EPILOGUE_PREFIX + one.name
        found[name] = _address(library, problem, one, value) if one.axes else float(value)
        if one.axes and found[name] == matrices["out"] and one != problem.epilogue.output:
            raise UsageError(f"{one.name} is out: read it as c[m, n]")
    if problem.epilogue.output is not None:
        _require_apart(problem.epilogue, found, matrices)
    return found


def _require_apart(
    epilogue: Epilogue, placed: Mapping[str, int | float], matrices: Mapping[str, int]
) -> None:
    """Raise UsageError where the second output begins where another array does."""
    assert epilogue.output is not None
    address = placed[EPILOGUE_PREFIX + epilogue.output.name]
    of_inputs = {
        one.name: placed[EPILOGUE_PREFIX + one.name] for one in epilogue.inputs if one.axes
    }
    for name, other in {**matrices, **of_inputs}.items():
        if other == address:
            raise UsageError(f"{epilogue.output.name} is {name}: give it separate memory")


def _address(library: Library, problem: Problem, one: EpilogueInput, array: Any) -> int:
    memory = library.memory(array)
    shape = one.shape(problem.m, problem.n, problem.k, problem.groups.count)
    if memory.shape != shape:
        raise UsageError(f"{one.label} has the shape {list(shape)}, got {list(memory.shape)}")
    if memory.strides != packed(shape):
        raise UsageError(f"{one.name} has gaps or is column-major: pass a contiguous copy")
    element = one.element(problem.dtype)
    if memory.element is not element:
        raise UsageError(
            f"{one.label} is {element} here, got {memory.element}: declare its type, as in "
            f'epilogue="...; {one.name}: {memory.element}"'
        )
    return memory.address

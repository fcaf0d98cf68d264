"""Products of groups of rows, as `autogemm.runtime.grouped` offers them, without gradients."""

import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.groups import MAX_GROUPS, Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.signature import COUNTS, OFFSETS
from autogemm.runtime.arrays import Library, Memory, library_of
from autogemm.runtime.calling import plan_of, require_out, result_like, same_dtype
from autogemm.runtime.fusing import placed_inputs, require_inputs
from autogemm.runtime.operands import Call, Strided, call_for
from autogemm.runtime.plans import Gpu, as_aligned, gpu
from autogemm.support.errors import UsageError

_INT32, _INT64 = "<i4", "<i8"


@dataclass(frozen=True, slots=True)
class Rows:
    """The array that says which rows are a group's: offsets, or the counts of masked groups."""

    array: Any
    masked: bool

    @property
    def name(self) -> str:
        """The name of the kernels' argument."""
        return COUNTS if self.masked else OFFSETS

    def address(self, count: int, where: Gpu) -> tuple[int, Any]:
        """Where ``count`` numbers lie, and what must live until they are read. Raises UsageError
        for what is no such array.
        """
        array = as_int32(self.array, self.name)
        said = array.__cuda_array_interface__
        strides: Hashable = said.get("strides")
        if tuple(said["shape"]) != (count,) or strides not in (None, (4,)):
            content = "the first row of each group and the end of the last one"
            content = "the number of rows of each group" if self.masked else content
            raise UsageError(
                f"{self.name} must be {content}: {count} contiguous numbers, got the shape "
                f"{list(said['shape'])}"
            )
        address = int(said["data"][0])
        if (own := where.driver.device_of(address)) != where.index:
            raise UsageError(f"x is on GPU {where.index} and {self.name} on GPU {own}")
        return address, array


def multiply(  # noqa: PLR0913, PLR0917  # as grouped_gemm
    x: Any,
    w: Any,
    rows: Rows,
    out: Any,
    factors: tuple[float, float],
    tune: bool | float,
    epilogue: Epilogue,
    inputs: Mapping[str, Any],
) -> Any:
    """`grouped_gemm` without gradients."""
    library = library_of(x)
    require_inputs(epilogue, inputs)
    arrays = {one.name: inputs[one.name] for one in epilogue.inputs if one.axes}
    _require_library(library, {"w": w, "out": out, **arrays})
    memory_x, memory_w = library.memory(x), library.memory(w)
    shape = _shape(memory_x, memory_w, epilogue, rows)
    _require_old_c(out, factors, epilogue)
    require_out(out, memory_x, memory_w)
    out = result_like(library, shape, x) if out is None else out
    memory_out = library.memory(out)
    call = _call(memory_x, memory_w, memory_out, shape, epilogue, rows)
    memories = (memory_x, memory_w, memory_out)
    _run(library, call, memories, shape, rows, factors, tune, inputs)
    return out


def multiply_tn(  # noqa: PLR0913, PLR0917  # as grouped_gemm_tn
    x: Any, y: Any, rows: Rows, out: Any, factors: tuple[float, float], tune: bool | float
) -> Any:
    """`grouped_gemm_tn` without a question for gradients."""
    library = library_of(x)
    _require_library(library, {"y": y, "out": out})
    memory_x, memory_y = library.memory(x), library.memory(y)
    shapes = (memory_x.shape, memory_y.shape)
    dims = 3 if rows.masked else 2
    if any(len(one) != dims for one in shapes) or shapes[0][:-1] != shapes[1][:-1]:
        said = "[groups, capacity, M] and y [groups, capacity, N]"
        said = said if rows.masked else "[rows, M] and y [rows, N]"
        raise UsageError(f"x is {said}, got {list(shapes[0])} and {list(shapes[1])}")
    num_groups = shapes[0][0] if rows.masked else _length(rows) - 1
    _require_extents(num_groups, *shapes)
    _require_old_c(out, factors, PLAIN)
    shape = (num_groups, shapes[0][-1], shapes[1][-1])
    require_out(out, memory_x, memory_y)
    out = result_like(library, shape, x) if out is None else out
    memory_out = library.memory(out)
    dtype = same_dtype(memory_x, memory_y, memory_out, shape)
    lda, ldb = _leading("x", memory_x), _leading("y", memory_y)
    ldc = _leading("out", memory_out)
    _, m, n = shape
    k = shapes[0][0] * (shapes[0][1] if rows.masked else 1)
    groups = Groups(num_groups, masked=rows.masked)
    problem = Problem(m, n, k, Layout.TN, dtype, lda, ldb, ldc, groups=groups)
    call = Call(problem, False, ((0, 0, 0),))
    _run(library, call, (memory_x, memory_y, memory_out), shape, rows, factors, tune, {})
    return out


def _run(  # noqa: PLR0913, PLR0917  # all that a launch needs
    library: Library,
    call: Call,
    memories: tuple[Memory, Memory, Memory],
    shape: tuple[int, ...],
    rows: Rows,
    factors: tuple[float, float],
    tune: bool | float,
    inputs: Mapping[str, Any],
) -> None:
    addresses = (memories[0].address, memories[1].address, memories[2].address)
    if addresses[2] in addresses[:2]:
        raise UsageError("out is x or another operand: give it separate memory")
    alpha, beta = factors
    problem = replace(as_aligned(call, addresses), alpha=alpha, beta=beta)
    placed = placed_inputs(
        library, problem, inputs, dict(zip(("a", "b", "out"), addresses, strict=True))
    )
    where = gpu(memories[0].device)
    count = problem.groups.count + (not rows.masked)
    # What was converted is kept until the launch is queued: its memory is reused on this stream.
    placed[rows.name], _kept = rows.address(count, where)
    plan = plan_of(where, problem, call, shape, tune)
    plan.give(placed)
    find_stream = library.stream
    stream = find_stream(plan.device) if find_stream else memories[0].stream
    plan.run(*addresses, alpha, beta, stream)


def as_int32(array: Any, name: str) -> Any:
    """The array, or a copy of int32 made on the GPU from one of int64. Raises UsageError for
    anything else.
    """
    said = getattr(array, "__cuda_array_interface__", None)
    if not isinstance(said, Mapping):
        raise UsageError(
            f"{name} is an int32 array on the GPU, which the kernel reads, got {type(array)}"
        )
    if said["typestr"] == _INT32:
        return array
    if said["typestr"] == _INT64:
        if hasattr(array, "astype"):
            return array.astype("int32")
        if (torch := sys.modules.get("torch")) and isinstance(array, torch.Tensor):
            return array.to(torch.int32)
    raise UsageError(
        f"{name} is an int32 array, got {said['typestr']}: convert it once, as in "
        f"{name}.to(torch.int32) or {name}.astype('int32')"
    )


def _length(rows: Rows) -> int:
    shape = getattr(rows.array, "shape", None)
    if shape is None:
        shape = as_int32(rows.array, rows.name).__cuda_array_interface__["shape"]
    if len(shape) != 1:
        raise UsageError(f"{rows.name} has one dimension, got the shape {list(shape)}")
    return int(shape[0])


def _require_library(library: Library, others: Mapping[str, Any]) -> None:
    for name, one in others.items():
        if one is not None and (other := library_of(one)).name != library.name:
            raise UsageError(f"x is of {library.name} and {name} of {other.name}: use one library")


def _require_old_c(out: Any, factors: tuple[float, float], epilogue: Epilogue) -> None:
    reads_c = factors[1] or (not epilogue.is_plain and epilogue.reads("c"))
    if out is None and reads_c:
        raise UsageError("the old C is read: pass it as out")


def _require_extents(num_groups: int, *shapes: tuple[int, ...]) -> None:
    if not all(extent for shape in shapes for extent in shape) or not 1 <= num_groups <= MAX_GROUPS:
        raise UsageError(
            f"there are 1 to {MAX_GROUPS} groups and no empty matrix, got {num_groups} groups of "
            f"{' and '.join(str(list(shape)) for shape in shapes)}"
        )


def _shape(x: Memory, w: Memory, epilogue: Epilogue, rows: Rows) -> tuple[int, ...]:
    """The shape of the result. Raises UsageError."""
    fits = len(x.shape) == 2 + rows.masked and len(w.shape) == 3 and x.shape[-1] == w.shape[1]
    if not fits or (rows.masked and x.shape[0] != w.shape[0]):
        said = "[groups, capacity, K]" if rows.masked else "[rows, K]"
        raise UsageError(
            f"x is {said} and w [groups, K, N], got {list(x.shape)} and {list(w.shape)}"
        )
    _require_extents(w.shape[0], x.shape, w.shape)
    columns, rest = divmod(w.shape[2], epilogue.num_columns)
    if rest:
        raise UsageError(f"{epilogue} takes two columns of x @ w for each, and w has {w.shape[2]}")
    return (*x.shape[:-1], columns)


def _leading(name: str, one: Memory) -> int:
    """Elements from a row to the next, of an array by rows. Raises UsageError for any other."""
    count, columns = one.shape[-2:]
    far, near = one.strides[-2:]
    ld = far if count > 1 else columns
    by_rows = (near == 1 or columns == 1) and ld >= columns
    if not by_rows or (len(one.shape) == 3 and one.shape[0] > 1 and one.strides[0] != count * ld):
        raise UsageError(
            f"{name} has a gap between groups or is column-major: pass a contiguous copy"
        )
    return ld


def _flat(name: str, one: Memory) -> Strided:
    """An array [rows, columns], or [groups, capacity, columns] as one of all rows."""
    if len(one.shape) == 2:
        return Strided(name, one.shape, one.strides)
    ld = _leading(name, one)
    return Strided(name, (one.shape[0] * one.shape[1], one.shape[2]), (ld, 1))


def _call(  # noqa: PLR0913, PLR0917  # operands, the result, what it is made by
    x: Memory, w: Memory, out: Memory, shape: tuple[int, ...], epilogue: Epilogue, rows: Rows
) -> Call:
    """The product as the kernels see it. Raises UsageError for arrays that lie otherwise."""
    dtype: DType = same_dtype(x, w, out, shape)
    call = call_for(
        _flat("x", x), Strided("w", w.shape[1:], w.strides[1:]), _flat("out", out), dtype
    )
    if call.swapped:
        raise UsageError("out is column-major: it must be row-major")
    plain = call.problem
    groups = Groups(w.shape[0], masked=rows.masked)
    if plain.layout.trans_a:
        raise UsageError("x is column-major: pass a contiguous copy")
    problem = replace(plain, epilogue=epilogue, groups=groups)
    apart = problem.b_shape[0] * problem.ldb
    if w.shape[0] > 1 and w.strides[0] != apart:
        raise UsageError(
            f"the matrices of w begin {w.strides[0]} elements apart, not {apart}: pass a "
            "contiguous copy, or a transposed view of one"
        )
    return replace(call, problem=problem)

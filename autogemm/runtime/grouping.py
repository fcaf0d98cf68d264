"""``autogemm.grouped_gemm``: rows that belong to groups, each times a matrix of its own."""

import sys
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import MAX_GROUPS, Groups
from autogemm.model.signature import OFFSETS
from autogemm.runtime.arrays import Memory, library_of
from autogemm.runtime.calling import plan_of, result_like, same_dtype
from autogemm.runtime.fusing import placed_inputs, require_inputs
from autogemm.runtime.operands import Call, Strided, call_for
from autogemm.runtime.plans import Gpu, as_aligned, gpu
from autogemm.support.errors import UsageError

_INT32 = "<i4"


def grouped_gemm(  # noqa: PLR0913, PLR0917  # as gemm: operands, result, factors
    x: Any,
    w: Any,
    offsets: Any,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    tune: bool | float = False,
    epilogue: str = "",
    **inputs: Any,
) -> Any:
    """``x[offsets[g] : offsets[g + 1]] @ w[g]`` for each group ``g``, in one launch.

    ``x`` is [rows, K], one group's rows behind the other's, ``w`` [groups, K, N] without a gap, or
    a transposed view of [groups, N, K]; float16 or bfloat16, of the libraries of `gemm`.
    ``offsets`` is an int32 array [groups + 1] on the same GPU: the first row of each group, then
    the one behind the last group's, none less than the one before and none above the number of
    rows. A group may have no rows. The kernel reads it: nothing waits for the GPU, and a captured
    graph may be replayed after the offsets have changed.

    The result is [rows, N]: ``out``, by default a new array, in which rows of no group are left as
    they are. ``beta`` is the factor of what ``out`` holds. An ``epilogue`` and its inputs are those
    of `gemm`, with ``m`` a row of ``x``; all groups share them.

    The kernel is the one known to be the fastest for as many rows and groups, whatever the offsets
    are; ``tune`` searches first for rows that are spread evenly. There are no gradients.

    Raises UsageError for arrays that do not fit together, and what `gemm` raises.
    """
    library = library_of(x)
    _require_no_gradient(x, w, *inputs.values())
    require_inputs(fused := Epilogue.parse(epilogue), inputs)
    arrays = {one.name: inputs[one.name] for one in fused.inputs if one.axes}
    for name, one in {"w": w, **({} if out is None else {"out": out}), **arrays}.items():
        if (other := library_of(one)).name != library.name:
            raise UsageError(f"x is of {library.name} and {name} of {other.name}: use one library")
    memory_x, memory_w = library.memory(x), library.memory(w)
    shape = _shape(memory_x, memory_w, fused)
    if out is None and (beta or fused.reads("c")):
        raise UsageError("the old C is read: give out, which holds it")
    out = result_like(library, shape, x) if out is None else out
    memory_out = library.memory(out)
    call = _call(memory_x, memory_w, memory_out, shape, fused)
    addresses = (memory_x.address, memory_w.address, memory_out.address)
    if memory_out.address in addresses[:2]:
        raise UsageError("out is x or w: give it memory of its own")
    problem = replace(as_aligned(call, addresses), alpha=alpha, beta=beta)
    matrices = dict(zip(("a", "b", "out"), addresses, strict=True))
    placed = placed_inputs(library, problem, inputs, matrices)
    where = gpu(memory_x.device)
    placed[OFFSETS] = _offsets_address(offsets, memory_w.shape[0] + 1, where)
    plan = plan_of(where, problem, call, shape, tune)
    plan.give(placed)
    find_stream = library.stream
    stream = find_stream(plan.device) if find_stream else memory_x.stream
    plan.run(*addresses, alpha, beta, stream)
    return out


def _shape(x: Memory, w: Memory, epilogue: Epilogue) -> tuple[int, int]:
    """The shape of the result. Raises UsageError."""
    if len(x.shape) != 2 or len(w.shape) != 3 or x.shape[1] != w.shape[1]:
        raise UsageError(
            f"x is [rows, K] and w [groups, K, N], got {list(x.shape)} and {list(w.shape)}"
        )
    if not all((*x.shape, *w.shape)) or w.shape[0] > MAX_GROUPS:
        raise UsageError(
            f"there are 1 to {MAX_GROUPS} groups and no empty matrix, got {list(x.shape)} and "
            f"{list(w.shape)}"
        )
    columns, rest = divmod(w.shape[2], epilogue.num_columns)
    if rest:
        raise UsageError(f"{epilogue} takes two columns of x @ w for each, and w has {w.shape[2]}")
    return (x.shape[0], columns)


def _call(x: Memory, w: Memory, out: Memory, shape: tuple[int, int], epilogue: Epilogue) -> Call:
    """The product as the kernels see it. Raises UsageError for arrays that lie otherwise."""
    call = call_for(
        Strided("x", x.shape, x.strides),
        Strided("w", w.shape[1:], w.strides[1:]),
        Strided("out", shape, out.strides),
        same_dtype(x, w, out, shape),
    )
    if call.swapped:
        raise UsageError("out lies column by column: give one that lies by rows")
    plain = call.problem
    problem = replace(plain, epilogue=epilogue, groups=Groups(w.shape[0]))
    apart = problem.b_shape[0] * problem.ldb
    if w.shape[0] > 1 and w.strides[0] != apart:
        raise UsageError(
            f"the matrices of w begin {w.strides[0]} elements apart, not {apart}: pass a "
            "contiguous copy, or a transposed view of one"
        )
    return replace(call, problem=problem)


def _offsets_address(offsets: Any, count: int, where: Gpu) -> int:
    """Where the offsets lie. Raises UsageError for what is no such array."""
    said = getattr(offsets, "__cuda_array_interface__", None)
    if not isinstance(said, Mapping):
        raise UsageError(
            f"offsets is an int32 array on the GPU, which the kernel reads, got {type(offsets)}"
        )
    if said["typestr"] != _INT32:
        raise UsageError(
            f"offsets is an int32 array, got {said['typestr']}: convert it once, as in "
            "offsets.to(torch.int32) or offsets.astype('int32')"
        )
    strides: Hashable = said.get("strides")
    if tuple(said["shape"]) != (count,) or strides not in (None, (4,)):
        raise UsageError(
            f"offsets has the first row of each group and the one behind the last: {count} "
            f"numbers without a gap, got the shape {list(said['shape'])}"
        )
    address = int(said["data"][0])
    if (own := where.driver.device_of(address)) != where.index:
        raise UsageError(f"x is on GPU {where.index} and offsets on GPU {own}")
    return address


def _require_no_gradient(*arrays: Any) -> None:
    torch = sys.modules.get("torch")
    wanted = any(getattr(one, "requires_grad", False) for one in arrays)
    if wanted and torch is not None and torch.is_grad_enabled():
        raise UsageError("grouped_gemm has no gradients: call it under torch.no_grad()")

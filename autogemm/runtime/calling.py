"""``autogemm.gemm``: a product of arrays by the kernel that was tuned for it."""

import threading
from collections.abc import Hashable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Problem
from autogemm.runtime.arrays import LIBRARIES, Library, Memory, library_of, packed
from autogemm.runtime.fusing import placed_inputs, require_inputs
from autogemm.runtime.operands import Call, Strided, call_for, product_shape
from autogemm.runtime.plans import Plan, as_aligned, gpu
from autogemm.runtime.searching import DEFAULT_BUDGET_S, tune_on
from autogemm.support.errors import UsageError

# Shapes that a thread remembers; beyond it the memory starts anew.
MAX_PLANS = 4096


class _Plans(threading.local):
    """Each thread has plans of its own: they hold the arguments of the call that is being made."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Plan] = {}


_plans = _Plans()


def gemm(  # noqa: PLR0912, PLR0913, PLR0917  # as it is known: operands, result, factors
    a: Any,
    b: Any,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    *,
    tune: bool | float = False,
    epilogue: str = "",
    **inputs: Any,
) -> Any:
    """``alpha * a @ b + beta * c``, by the fastest kernel known for these sizes on this GPU.

    ``a`` is [..., M, K] and ``b`` [..., K, N], float32, float16 or bfloat16, of CuPy, torch, or any
    library with DLPack or ``__cuda_array_interface__``; of 16-bit types ``out`` may be float32.
    Products are accumulated in FP32. Leading dimensions are batches and broadcast. Matrices lie row
    by row or column by column, rows may be apart (a transposed view costs nothing). The result goes
    to ``out``, by default a new array; ``c`` is added to it, by default what ``out`` holds. The
    kernel runs on the library's current stream, on the arrays' device.

    With an ``epilogue`` the result is what its expression makes of ``a @ b`` (docs/epilogues.md):
    ``gemm(x, w.T, epilogue="gelu(acc + bias[n])", bias=b)``, its inputs by their names, packed.
    Then ``a`` and ``b`` are single matrices, and ``out`` holds the old C where that is read.

    The first call of a shape chooses, compiles (or takes from the cache) and loads a kernel; later
    ones only launch it. ``tune`` searches first where these sizes have no result on this GPU:
    True for 10 seconds, a number for so many.

    Raises UsageError for arrays that do not fit together, are not on one GPU, or have strides that
    no layout covers; DeviceError when the driver refuses.
    """
    if epilogue or inputs:
        return _fused(a, b, out, (alpha, beta), c, Epilogue.parse(epilogue), inputs, tune)
    kind = type(a)
    library = LIBRARIES.get(kind) or library_of(a)
    if type(b) is not kind:
        _require_same_library(library, b, "b")
    address_a, address_b = library.address(a), library.address(b)
    if out is None:
        if beta and c is None:
            raise UsageError(f"beta = {beta:g} needs c, or an out that holds it")
        alignment = (address_a & 15) | (address_b & 15) << 4
        key: Hashable = (library.key(a), library.key(b), alignment)
    else:
        if type(out) is not kind:
            _require_same_library(library, out, "out")
        address_c = library.address(out)
        if address_c in (address_a, address_b) and address_c:
            raise UsageError("out is a or b: give it memory of its own")
        alignment = (address_a & 15) | (address_b & 15) << 4 | (address_c & 15) << 8
        key = (library.key(a), library.key(b), library.key(out), alignment)
    plan = _plans.by_key.get(key)
    if plan is None or (tune and not plan.is_tuned):
        if plan is not None:
            plan.close()
        plan = _plans.by_key[key] = _planned(library, a, b, out, tune)
    if out is None:
        out = _empty(library, plan.shape, a)
        address_c = library.address(out)
    if c is not None and c is not out and beta:
        out[...] = c
    if plan.kernel is None:
        _scale(out, beta)
    else:
        find_stream = library.stream
        stream = find_stream(plan.device) if find_stream else library.memory(a).stream
        plan.run(address_a, address_b, address_c, alpha, beta, stream)
    return out


def _fused(  # noqa: PLR0913, PLR0917  # as gemm
    a: Any,
    b: Any,
    out: Any,
    factors: tuple[float, float],
    c: Any,
    epilogue: Epilogue,
    inputs: Mapping[str, Any],
    tune: bool | float,
) -> Any:
    """`gemm` with an epilogue."""
    library = library_of(a)
    require_inputs(epilogue, inputs)
    arrays = {one.name: inputs[one.name] for one in epilogue.inputs if one.axes}
    for name, one in {"b": b, **({} if out is None else {"out": out}), **arrays}.items():
        _require_same_library(library, one, name)
    if c is not None or (out is None and epilogue.reads("c")):
        raise UsageError("an epilogue reads the old C as c[m, n]: give it as out, and leave out c")
    memory_a, memory_b = library.memory(a), library.memory(b)
    shape = product_shape(memory_a.shape, memory_b.shape)
    if len(shape) > 2 or not prod(shape) or not memory_a.shape[-1]:
        raise UsageError(f"an epilogue takes two matrices that are not empty, got {list(shape)}")
    out = _empty(library, shape, a) if out is None else out
    memory_c = library.memory(out)
    dtype = _dtype_of(memory_a, memory_b, memory_c, shape)
    call = call_for(
        Strided("a", memory_a.shape, memory_a.strides),
        Strided("b", memory_b.shape, memory_b.strides),
        Strided("out", shape, memory_c.strides),
        dtype,
    )
    if call.swapped:
        raise UsageError("out lies column by column: with an epilogue give one that lies by rows")
    problem = as_aligned(call, (memory_a.address, memory_b.address, memory_c.address))
    alpha, beta = factors
    problem = replace(problem, alpha=alpha, beta=beta, epilogue=epilogue)
    placed = placed_inputs(library, problem, inputs, memory_c.address)
    plan = _fused_plan(call, problem, memory_a.device, shape, tune)
    plan.give(placed)
    find_stream = library.stream
    stream = find_stream(plan.device) if find_stream else memory_a.stream
    plan.run(memory_a.address, memory_b.address, memory_c.address, alpha, beta, stream)
    return out


def _fused_plan(
    call: Call, problem: Problem, device: int, shape: tuple[int, ...], tune: bool | float
) -> Plan:
    """The plan of a problem, of which each thread has one."""
    plan = _plans.by_key.get((problem, device))
    if plan is not None and (plan.is_tuned or not tune):
        return plan
    where = gpu(device)
    if tune and not where.chooser.is_tuned(problem):
        tune_on(where.index, problem, DEFAULT_BUDGET_S if tune is True else float(tune))
        where.forget()
    is_tuned = bool(tune) and where.chooser.is_tuned(problem)
    plan = Plan(
        where, replace(call, problem=problem), where.kernel(problem), shape, is_tuned=is_tuned
    )
    if len(_plans.by_key) >= MAX_PLANS:
        _forget_plans()
    _plans.by_key[problem, device] = plan
    return plan


def _forget_plans() -> None:
    """Give up what this thread has loaded."""
    for plan in _plans.by_key.values():
        plan.close()
    _plans.by_key.clear()


def forget() -> None:
    """Choose anew at the next call: the database, or AUTOGEMM_DB, has changed.

    Other threads keep the kernels that they have.
    """
    _forget_plans()
    gpu.cache_clear()


def _planned(library: Library, a: Any, b: Any, out: Any, tune: bool | float) -> Plan:
    """Return the plan of a shape that is new to this thread, or is to be tuned. Slow."""
    if len(_plans.by_key) >= MAX_PLANS:
        _forget_plans()
    memory_a, memory_b = library.memory(a), library.memory(b)
    shape = product_shape(memory_a.shape, memory_b.shape)
    memory_c = library.memory(out) if out is not None else _as_new(memory_a, shape)
    dtype = _dtype_of(memory_a, memory_b, memory_c, shape)
    where = gpu(memory_a.device)
    if not prod(shape) or not memory_a.shape[-1]:
        return Plan(where, None, None, shape, is_tuned=True)
    call = call_for(
        Strided("a", memory_a.shape, memory_a.strides),
        Strided("b", memory_b.shape, memory_b.strides),
        Strided("out", shape, memory_c.strides),
        dtype,
    )
    addresses = (memory_a.address, memory_b.address)
    problem = as_aligned(
        call, (*(addresses[::-1] if call.swapped else addresses), memory_c.address)
    )
    if tune and not where.chooser.is_tuned(problem):
        tune_on(where.index, problem, DEFAULT_BUDGET_S if tune is True else float(tune))
        where.forget()
    is_tuned = bool(tune) and where.chooser.is_tuned(problem)
    return Plan(where, call, where.kernel(problem), shape, is_tuned=is_tuned)


def _as_new(like: Memory, shape: tuple[int, ...]) -> Memory:
    """Return the memory of a new array: packed and aligned."""
    return Memory(shape, packed(shape), like.element, like.device, address=0)


def _dtype_of(a: Memory, b: Memory, c: Memory, shape: tuple[int, ...]) -> DType:
    """Return the GEMM's dtype. Raises UsageError for arrays that do not go together."""
    for name, one in (("b", b), ("out", c)):
        if one.device != a.device:
            raise UsageError(f"a is on GPU {a.device} and {name} on GPU {one.device}")
    if c.shape != shape:
        raise UsageError(f"a @ b has the shape {list(shape)}, out has {list(c.shape)}")
    for dtype in DType:
        if (dtype.ab, dtype.ab, dtype.c) == (a.element, b.element, c.element):
            return dtype
    raise UsageError(f"there is no GEMM of {a.element} and {b.element} that gives {c.element}")


def _require_same_library(library: Library, array: Any, name: str) -> None:
    other = library_of(array)
    if other.name != library.name:
        raise UsageError(
            f"a is of {library.name} and {name} of {other.name}: use one library "
            "(its from_dlpack takes the other's arrays without a copy)"
        )


def _empty(library: Library, shape: tuple[int, ...], like: Any) -> Any:
    if library.empty is None:
        raise UsageError(
            f"gemm cannot make arrays of {library.name}: give out, of the shape {list(shape)}"
        )
    return library.empty(shape, like)


def _scale(out: Any, beta: float) -> None:
    """Multiply ``out`` by beta: the product of empty matrices is 0."""
    if beta:
        out *= beta
    else:
        out[...] = 0

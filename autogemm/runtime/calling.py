"""Products of arrays by the kernels that were tuned for them; `products` has the public form."""

import threading
from collections.abc import Hashable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from autogemm.model.dtypes import DType, Element
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Problem
from autogemm.runtime.arrays import LIBRARIES, Library, Memory, library_of, packed
from autogemm.runtime.fusing import placed_inputs, require_inputs
from autogemm.runtime.keywords import DEFAULT_BUDGET_S, number, text
from autogemm.runtime.operands import Call, Products, Strided, call_for, product_shape
from autogemm.runtime.plans import Gpu, Plan, as_aligned, gpu
from autogemm.space import EPILOGUE_PREFIX
from autogemm.support.cells import one_line
from autogemm.support.errors import UsageError

# Shapes that a thread remembers; beyond it the memory starts anew.
MAX_PLANS = 4096


class _Plans(threading.local):
    """Each thread has plans of its own: they hold the arguments of the call that is being made."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Plan] = {}
        # Those with an epilogue once more, by all but the addresses of a call.
        self.fused: dict[Hashable, Plan] = {}


_plans = _Plans()


def multiply(  # noqa: PLR0912, PLR0913, PLR0917  # as it is known: operands, result, factors
    a: Any,
    b: Any,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    *,
    tune: bool | float = False,
    products: Products = Products.EXACT,
    epilogue: str = "",
    inputs: Mapping[str, Any] | None = None,
) -> Any:
    """``autogemm.gemm`` on arrays in memory: chooses at the first call of a shape, then launches.

    Gradients are not its business. Raises what ``autogemm.gemm`` raises.
    """
    if epilogue or inputs:
        epilogue = text("epilogue", epilogue)
        given, factors = inputs or {}, (alpha, beta)
        fused_key = _fused_key(a, b, out, factors, epilogue, given, products)
        known = _plans.fused.get(fused_key)
        if known is not None and c is None and not tune:
            found = _fused_again(known, a, b, out, factors, given)
            if found is not None:
                return found
        return _fused(
            *(a, b, out, factors, c, Epilogue.parse(epilogue), given, tune, products, fused_key)
        )
    kind = type(a)
    library = LIBRARIES.get(kind) or library_of(a)
    if type(b) is not kind:
        _require_same_library(library, b, "b")
    address_a, address_b = library.address(a), library.address(b)
    if out is None:
        if beta and c is None:
            raise UsageError(f"beta = {beta} needs c, or the old C in out")
        alignment = (address_a & 15) | (address_b & 15) << 4
        key: Hashable = (library.key(a), library.key(b), alignment, products)
    else:
        if type(out) is not kind:
            _require_same_library(library, out, "out")
        address_c = library.address(out)
        if address_c in (address_a, address_b) and address_c:
            raise UsageError("out is a or b: give it separate memory")
        alignment = (address_a & 15) | (address_b & 15) << 4 | (address_c & 15) << 8
        key = (library.key(a), library.key(b), library.key(out), alignment, products)
    plan = _plans.by_key.get(key)
    if plan is None or (tune and not plan.is_tuned):
        if plan is not None:
            plan.close()
        plan = _plans.by_key[key] = _planned(library, a, b, out, tune, products)
    if out is None:
        out = result_like(library, plan.shape, a)
        address_c = library.address(out)
    if c is not None and c is not out and beta:
        _copy(c, out)
    if plan.kernel is None:
        _scale(out, beta)
    else:
        find_stream = library.stream
        stream = find_stream(plan.device) if find_stream else library.memory(a).stream
        plan.run(address_a, address_b, address_c, alpha, beta, stream)
    return out


def _fused(  # noqa: PLR0913, PLR0917  # as multiply
    a: Any,
    b: Any,
    out: Any,
    factors: tuple[float, float],
    c: Any,
    epilogue: Epilogue,
    inputs: Mapping[str, Any],
    tune: bool | float,
    products: Products,
    fused_key: Hashable,
) -> Any:
    """`multiply` with an epilogue, of which all is checked."""
    library = library_of(a)
    require_inputs(epilogue, inputs)
    arrays = {one.name: inputs[one.name] for one in epilogue.arrays if one.axes}
    for name, one in {"b": b, **({} if out is None else {"out": out}), **arrays}.items():
        _require_same_library(library, one, name)
    if c is not None or (out is None and epilogue.reads("c")):
        raise UsageError("an epilogue reads the old C as c[m, n]: give it as out, and leave out c")
    memory_a, memory_b = library.memory(a), library.memory(b)
    shape = product_shape(memory_a.shape, memory_b.shape)
    if not prod(shape) or not memory_a.shape[-1]:
        raise UsageError(f"an epilogue takes matrices that are not empty, got {list(shape)}")
    if shape[-1] % epilogue.num_columns:
        raise UsageError(f"{epilogue} takes two columns of a @ b for each, and b has {shape[-1]}")
    shape = (*shape[:-1], shape[-1] // epilogue.num_columns)
    require_out(out, memory_a, memory_b)
    out = result_like(library, shape, a) if out is None else out
    memory_c = library.memory(out)
    dtype = products.of(same_dtype(memory_a, memory_b, memory_c, shape))
    call = call_for(
        Strided("a", memory_a.shape, memory_a.strides),
        Strided("b", memory_b.shape, memory_b.strides),
        Strided("out", shape, memory_c.strides),
        dtype,
    )
    if len(call.offsets) > 1:
        raise UsageError(
            "with an epilogue the products of a batch are one launch: their matrices must follow "
            "each other by whole rows, or be shared; pass contiguous copies"
        )
    if call.swapped:
        raise UsageError("out is column-major: with an epilogue it must be row-major")
    problem = as_aligned(call, (memory_a.address, memory_b.address, memory_c.address))
    alpha, beta = factors
    problem = replace(problem, alpha=alpha, beta=beta, epilogue=epilogue)
    matrices = {"a": memory_a.address, "b": memory_b.address, "out": memory_c.address}
    placed = placed_inputs(library, problem, inputs, matrices)
    where = gpu(memory_a.device, products is Products.EMULATED)
    # Leading dimensions of the stand-in say which code is needed; the arrays' own are passed.
    own = replace(call.problem, alpha=alpha, beta=beta, epilogue=epilogue)
    plan = plan_of(where, problem, replace(call, problem=own), shape, tune)
    if fused_key is not None:
        _plans.fused[fused_key] = plan
    plan.give(placed)
    find_stream = library.stream
    stream = find_stream(plan.device) if find_stream else memory_a.stream
    plan.run(memory_a.address, memory_b.address, memory_c.address, alpha, beta, stream)
    return out


def _fused_key(  # noqa: PLR0913, PLR0917  # as multiply
    a: Any,
    b: Any,
    out: Any,
    factors: tuple[float, float],
    epilogue: str,
    inputs: Mapping[str, Any],
    products: Products,
) -> Hashable:
    """All but addresses that the checks and the plan of a call depend on; None at a first call."""
    key: list[Hashable] = [epilogue, factors, products, out is None]
    for name, one in (("a", a), ("b", b), ("out", out), *inputs.items()):
        kind = type(one)
        if kind in (int, float) or one is None:
            key.append((name, kind))
            continue
        library = LIBRARIES.get(kind)
        if library is None:
            return None
        key.append((name, library.name, library.key(one), library.address(one) & 15))
    return tuple(key)


def _fused_again(  # noqa: PLR0913, PLR0917  # as multiply
    plan: Plan,
    a: Any,
    b: Any,
    out: Any,
    factors: tuple[float, float],
    inputs: Mapping[str, Any],
) -> Any:
    """Launch a plan on other memory of the same kind; None where that has to be looked at."""
    library = LIBRARIES[type(a)]
    result = result_like(library, plan.shape, a) if out is None else out
    address = library.address(result)
    placed = {
        EPILOGUE_PREFIX + name: one if isinstance(one, int | float) else library.address(one)
        for name, one in inputs.items()
    }
    if address in placed.values() or (out is None and address & 15):
        return None
    # Only a second output makes arrays that begin at one place a mistake.
    places = (library.address(a), library.address(b), *placed.values())
    if plan.writes_output and len(set(places)) < len(places):
        return None
    plan.give(placed)
    find_stream = library.stream
    stream = find_stream(plan.device) if find_stream else library.memory(a).stream
    plan.run(library.address(a), library.address(b), address, *factors, stream)
    return result


def plan_of(
    where: Gpu, problem: Problem, call: Call, shape: tuple[int, ...], tune: bool | float
) -> Plan:
    """The plan of a call whose kernel is that of ``problem``; each thread has one."""
    key = (problem, call, where.index, where.emulation)
    plan = _plans.by_key.get(key)
    if plan is not None and (plan.is_tuned or not tune):
        return plan
    if tune and not where.chooser.is_tuned(problem):
        _tune(where, problem, tune)
    is_tuned = bool(tune) and where.chooser.is_tuned(problem)
    if len(_plans.by_key) >= MAX_PLANS:
        _forget_plans()
    plan = Plan(where, call, where.kernel(problem), shape, is_tuned=is_tuned)
    _plans.by_key[key] = plan
    return plan


def _tune(where: Gpu, problem: Problem, tune: bool | float) -> None:
    from autogemm.runtime.searching import tune_on

    tune_on(where.index, problem, _budget_s(tune), allow_emulation=where.emulation)
    where.forget()


def _forget_plans() -> None:
    """Give up what this thread has loaded."""
    for plan in _plans.by_key.values():
        plan.close()
    _plans.by_key.clear()
    _plans.fused.clear()


def forget() -> None:
    """Forget the kernels chosen so far, because the database or AUTOGEMM_DB has changed.

    The next call of `gemm` reads the database again. Other threads keep their kernels.
    """
    _forget_plans()
    gpu.cache_clear()


def _planned(  # noqa: PLR0913, PLR0917  # as multiply
    library: Library, a: Any, b: Any, out: Any, tune: bool | float, products: Products
) -> Plan:
    """Return the plan of a shape that is new to this thread, or is to be tuned. Slow."""
    if len(_plans.by_key) >= MAX_PLANS:
        _forget_plans()
    memory_a, memory_b = library.memory(a), library.memory(b)
    shape = product_shape(memory_a.shape, memory_b.shape)
    require_out(out, memory_a, memory_b)
    memory_c = library.memory(out) if out is not None else _as_new(memory_a, shape)
    dtype = products.of(same_dtype(memory_a, memory_b, memory_c, shape))
    where = gpu(memory_a.device, products is Products.EMULATED)
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
        _tune(where, problem, tune)
    is_tuned = bool(tune) and where.chooser.is_tuned(problem)
    return Plan(where, call, where.kernel(problem), shape, is_tuned=is_tuned)


def _as_new(like: Memory, shape: tuple[int, ...]) -> Memory:
    """Return the memory of a new array: packed and aligned."""
    return Memory(shape, packed(shape), like.element, like.device, address=0)


def require_out(out: Any, a: Memory, b: Memory) -> None:
    """Raises UsageError where there is no out and a result of the operands' type would saturate."""
    if out is None and a.element.saturates:
        raise UsageError(
            f"products of {a.element} overflow {a.element}: give an out, whose type may be "
            f"{results_of(a.element, b.element)}"
        )


def results_of(a: Element, b: Element) -> str:
    """The types of C for operands of those types; empty where there is none."""
    return ", ".join(dict.fromkeys(str(one.c) for one in DType if (one.ab, one.b) == (a, b)))


def same_dtype(a: Memory, b: Memory, c: Memory, shape: tuple[int, ...]) -> DType:
    """Return the GEMM's dtype. Raises UsageError for arrays that do not go together."""
    for name, one in (("b", b), ("out", c)):
        if one.device != a.device:
            raise UsageError(f"a is on GPU {a.device} and {name} on GPU {one.device}")
    if c.shape != shape:
        raise UsageError(f"a @ b has the shape {list(shape)}, out has {list(c.shape)}")
    for dtype in DType:
        if (dtype.ab, dtype.b, dtype.c) == (a.element, b.element, c.element):
            return dtype
    results = results_of(a.element, b.element)
    instead = f": give an out of {results}" if results else ""
    raise UsageError(
        f"no GEMM multiplies {a.element} by {b.element} and gives {c.element}{instead}"
    )


def _require_same_library(library: Library, array: Any, name: str) -> None:
    other = library_of(array)
    if other.name != library.name:
        raise UsageError(
            f"a is of {library.name} and {name} of {other.name}: use one library "
            "(its from_dlpack takes the other's arrays without a copy)"
        )


def result_like(library: Library, shape: tuple[int, ...], like: Any) -> Any:
    """A new array of that shape. Raises UsageError where the library's arrays cannot be made."""
    if library.empty is None:
        raise UsageError(
            f"gemm cannot make arrays of {library.name}: give out, of the shape {list(shape)}"
        )
    return library.empty(shape, like)


def _budget_s(tune: bool | float) -> float:
    """Seconds of searching. Raises UsageError for what is no number above 0."""
    return DEFAULT_BUDGET_S if tune is True else number("tune", tune)


def _copy(c: Any, out: Any) -> None:
    """Copy ``c`` into ``out``, broadcast. Raises UsageError where its library cannot."""
    try:
        out[...] = c
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"c cannot be broadcast to out: {one_line(str(error))}") from error


def _scale(out: Any, beta: float) -> None:
    """Multiply ``out`` by beta: the product of empty matrices is 0."""
    if beta:
        out *= beta
    else:
        out[...] = 0

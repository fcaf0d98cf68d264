"""Calls of ``mm``, ``bmm``, ``matmul``, ``@``, ``addmm`` and ``baddbmm`` in a module's forward, by
tuned kernels where results show these to be faster.

The sizes of such a call are known when it is made. A mode of torch (`TorchFunctionMode`) sees the
calls of torch's functions while a module's forward runs; it is entered by those modules alone whose
code names a product.
"""

import dis
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autogemm.model.epilogue import PLAIN
from autogemm.programs.called_ops import problem_of
from autogemm.programs.results import Results
from autogemm.runtime import gemm, gradient_operands

_tensor = torch.Tensor
_PRODUCTS: Mapping[Any, str] = {
    **dict.fromkeys((torch.mm, _tensor.mm), "mm"),
    **dict.fromkeys((torch.bmm, _tensor.bmm), "bmm"),
    **dict.fromkeys((torch.matmul, _tensor.matmul, _tensor.__matmul__), "matmul"),
    **dict.fromkeys((torch.addmm, _tensor.addmm), "addmm"),
    **dict.fromkeys((torch.baddbmm, _tensor.baddbmm), "baddbmm"),
}
# Those that add a first argument.
_ADDING = ("addmm", "baddbmm")
_NAMES = frozenset(_PRODUCTS.values())
_PLAIN = (torch.Tensor, torch.nn.Parameter)
BIAS = "acc + bias[n]"
# Functions that a forward calls, and those that these call.
_DEPTH = 3
# The module whose forward runs in a thread.
_within = threading.local()


@dataclass(frozen=True, slots=True)
class PatchedCall:
    """Calls of one product in the forward of a module, by its name in the model.

    ``why`` says why torch's own product ran, empty where a kernel did.
    """

    name: str
    function: str
    problem: str
    why: str


class Calls:
    """Products that modules call, decided shape by shape at the first call of each; counts them."""

    def __init__(self, results: Results) -> None:
        self.counts: dict[PatchedCall, int] = {}
        self._results = results
        self._decided: dict[Hashable, _Decision] = {}

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """See the calls that are made meanwhile, as those of the module of that name."""
        outer = getattr(_within, "name", None)
        _within.name = name
        try:
            # One mode sees the calls of modules within modules, too.
            with _Mode(self) if outer is None else nullcontext():
                yield
        finally:
            _within.name = outer

    def product(self, function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The product by a kernel; None where torch is to multiply."""
        decision = _Decision("", _why_left(function, args, kwargs))
        if not decision.why:
            tf32 = torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"
            factors = tuple(float(kwargs.get(name, 1.0)) for name in ("alpha", "beta"))
            trained = tuple(torch.is_grad_enabled() and one.requires_grad for one in args)
            shapes = ((one.shape, one.stride(), one.dtype) for one in args)
            key = (function, tf32, factors, trained, *shapes)
            known = self._decided.get(key)
            if known is None:
                known = self._decided[key] = self._decide(function, args, kwargs, trained, tf32)
            decision = known
        call = PatchedCall(_within.name, function, decision.label, decision.why)
        self.counts[call] = self.counts.get(call, 0) + 1
        if decision.why:
            return None
        multiply = partial(gemm, allow_emulation=self._results.emulation)
        if decision.is_bias:
            return multiply(args[1], args[2], epilogue=BIAS, bias=args[0].reshape(-1))
        if function not in _ADDING:
            return multiply(args[0], args[1])
        alpha, beta = factors
        return multiply(args[1], args[2], alpha=alpha, beta=beta, c=args[0])

    def _decide(
        self,
        function: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        trained: tuple[bool, ...],
        tf32: bool,
    ) -> "_Decision":
        """``trained`` says of each argument whether its gradient is recorded."""
        name = "mm" if function == "matmul" else function
        problem, label, num_launches = problem_of(f"aten::{name}", args, kwargs, tf32=tf32)
        if problem is None:
            return _Decision(label, "there are no kernels for it")
        is_bias = str(problem.epilogue) == BIAS
        if is_bias and (any(trained) or not args[0].is_contiguous()):
            # Gradients of an epilogue would multiply once more: the bias is added as a matrix.
            is_bias = False
            problem = replace(problem, epilogue=PLAIN, alpha=1.0, beta=1.0)
            label = problem.label
        if num_launches > 1:
            return _Decision(label, "a batch whose matrices do not lie whole rows apart")
        if not self._results.is_faster(problem):
            return _Decision(label, f"no result is faster than its baseline on {self._results.gpu}")
        return _Decision(
            label, self._why_not_trained(args[-2], args[-1], trained[-2:], tf32), is_bias
        )

    def _why_not_trained(self, a: Any, b: Any, needed: Sequence[bool], tf32: bool) -> str:
        """The gradient whose product has no faster result; empty where none is needed."""
        shape = (*a.shape[:-1], b.shape[-1])
        a, b = (
            torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta")
            for one in (a, b)
        )
        for pair in gradient_operands(a, b, a.new_empty(shape), needed):
            if pair is None:
                continue
            problem, label, num_launches = problem_of("aten::mm", pair, {}, tf32=tf32)
            if problem is None or num_launches > 1 or not self._results.is_faster(problem):
                return f"its gradient, {label}, has no result that is faster than its baseline"
        return ""


@dataclass(frozen=True, slots=True)
class _Decision:
    """The label of a call's problem, why torch multiplies (empty where a kernel does), and whether
    what is added is a bias that the kernel's epilogue adds.
    """

    label: str
    why: str
    is_bias: bool = False


class _Mode(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        function = _PRODUCTS.get(func)
        if function is not None:
            result = self._calls.product(function, args, kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)


def _why_left(function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Why a call is left whatever its sizes are."""
    known = {"alpha", "beta"} if function in _ADDING else set()
    numbers = all(type(one) in (int, float) for one in kwargs.values())
    if not (kwargs.keys() <= known and numbers and len(args) == (3 if known else 2)):
        return "it has other arguments than its matrices and factors"
    if any(type(one) not in _PLAIN for one in args):
        return "it is not of plain tensors"
    a, b = args[-2:]
    if function == "matmul" and not _are_matrices(a, b):
        return "vectors, or batches that are broadcast"
    if torch.is_autocast_enabled(a.device.type):
        return "autocast is on"
    if len({(one.dtype, one.device) for one in args}) > 1:
        return "its tensors are of several types or devices"
    return ""


def _are_matrices(a: Any, b: Any) -> bool:
    return bool(
        a.dim() >= 2 and (b.dim() == 2 or (b.dim() == a.dim() and b.shape[:-2] == a.shape[:-2]))
    )


def calls_products(module: Any) -> bool:
    """Whether the code of a module's forward, or of the functions and methods in Python that it
    calls, names a product. Torch's own functions and modules are not looked into.
    """
    return _names_product(type(module).forward, type(module), _DEPTH, set())


def _names_product(function: Any, owner: type, depth: int, seen: set[CodeType]) -> bool:
    if not isinstance(function, FunctionType) or function.__module__.split(".")[0] == "torch":
        return False
    names: set[str] = set()
    for code in _codes(function.__code__):
        if code in seen:
            continue
        seen.add(code)
        if _NAMES.intersection(code.co_names) or any(map(_is_matmul, dis.get_instructions(code))):
            return True
        names.update(code.co_names)
    found = (function.__globals__.get(name, getattr(owner, name, None)) for name in sorted(names))
    return depth > 0 and any(_names_product(one, owner, depth - 1, seen) for one in found)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _is_matmul(instruction: dis.Instruction) -> bool:
    return instruction.opname == "BINARY_OP" and instruction.argrepr in ("@", "@=")


@dataclass(frozen=True, slots=True)
class Scope:
    """A module whose products are seen, by its name in the model."""

    calls: Calls
    name: str


def seen_forward(self: Any, scope: Scope, *args: Any, **kwargs: Any) -> Any:
    """Run a module's own forward with its products seen; a compiler of torch sees that alone."""
    if torch.compiler.is_compiling():
        return type(self).forward(self, *args, **kwargs)
    with scope.calls.within(scope.name):
        return type(self).forward(self, *args, **kwargs)

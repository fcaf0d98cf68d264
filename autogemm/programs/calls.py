"""Calls of ``mm``, ``bmm``, ``matmul``, ``@`` and ``addmm`` in a module's forward, by tuned kernels
where results show these to be faster.

The sizes of such a call are known when it is made. A mode of torch (`TorchFunctionMode`) sees the
calls of torch's functions while a module's forward runs; it is entered by those modules alone whose
code names a product.
"""

import dis
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autogemm.programs.called_ops import problem_of
from autogemm.programs.results import Results
from autogemm.runtime import gemm

_tensor = torch.Tensor
_PRODUCTS: Mapping[Any, str] = {
    **dict.fromkeys((torch.mm, _tensor.mm), "mm"),
    **dict.fromkeys((torch.bmm, _tensor.bmm), "bmm"),
    **dict.fromkeys((torch.matmul, _tensor.matmul, _tensor.__matmul__), "matmul"),
    **dict.fromkeys((torch.addmm, _tensor.addmm), "addmm"),
}
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
        self._decided: dict[Hashable, tuple[str, str]] = {}

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
        tensors = args[-2:]
        label, why = "", _why_left(function, args, kwargs)
        if not why:
            tf32 = torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"
            key = (function, tf32, *((one.shape, one.stride(), one.dtype) for one in args))
            known = self._decided.get(key)
            if known is None:
                known = self._decided[key] = self._decide(function, args, tf32)
            label, why = known
        call = PatchedCall(_within.name, function, label, why)
        self.counts[call] = self.counts.get(call, 0) + 1
        if why:
            return None
        return gemm(*tensors, epilogue=BIAS, bias=args[0]) if len(args) > 2 else gemm(*tensors)

    def _decide(self, function: str, args: tuple[Any, ...], tf32: bool) -> tuple[str, str]:
        """Label of the problem, and why no kernel runs there, empty where one does."""
        is_batch = function == "bmm" or (function == "matmul" and args[1].dim() > 2)
        name = "addmm" if function == "addmm" else "bmm" if is_batch else "mm"
        problem, label, num_launches = problem_of(f"aten::{name}", args, {}, tf32=tf32)
        if problem is None:
            return label, "there are no kernels for it"
        if num_launches > 1:
            return label, "a batch whose matrices do not lie whole rows apart"
        if function == "addmm" and str(problem.epilogue) != BIAS:
            return label, "what is added is no bias of one row"
        if not self._results.is_faster(problem):
            return label, f"no result is faster than its baseline on {self._results.gpu}"
        return label, ""


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
    if kwargs or len(args) != (3 if function == "addmm" else 2):
        return "it has other arguments than its matrices"
    if any(type(one) not in _PLAIN for one in args):
        return "it is not of plain tensors"
    a, b = args[-2:]
    if function == "matmul" and not _are_matrices(a, b):
        return "vectors, or batches that are broadcast"
    if torch.is_autocast_enabled(a.device.type):
        return "autocast is on"
    if torch.is_grad_enabled() and any(one.requires_grad for one in args):
        return "gradients are recorded"
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

"""``autogemm.patch``: linear layers of a model, and products that its modules call, by tuned
kernels, where results show these to be faster.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.programs.calls import Calls, PatchedCall, Scope, calls_products, seen_forward
from autogemm.programs.gated import (
    ACTIVATIONS,
    GatedLayer,
    gated_layers,
    separate_weights,
    stacked_weights,
)
from autogemm.programs.results import Results, results_on
from autogemm.runtime import gemm
from autogemm.support.errors import UsageError

_DTYPES = {
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
}
_PATCHED = "_autogemm_patched"


@dataclass(frozen=True, slots=True)
class PatchedLayer:
    """A linear layer by its name in the model; ``rows`` are those for which a kernel runs.

    ``why`` says why it was left as it was, empty where it was replaced.
    """

    name: str
    shape: str
    dtype: str
    epilogue: str
    rows: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class PatchSummary:
    """The layers that `patch` replaced and those it left; as text a table.

    ``modules`` are those whose products are seen, by their names; empty unless that was asked for.
    """

    gpu: str
    layers: tuple[PatchedLayer, ...]
    modules: tuple[str, ...] = ()
    _calls: Calls | None = None

    @property
    def num_replaced(self) -> int:
        """Layers with a kernel for some number of rows."""
        return sum(not one.why for one in self.layers)

    @property
    def calls(self) -> dict[PatchedCall, int]:
        """The products that modules have called since, and how many times each; as of now."""
        return dict(self._calls.counts) if self._calls is not None else {}

    def __str__(self) -> str:
        lines = [
            f"{one.name}  {one.shape} {one.dtype}  "
            + (f"{one.epilogue or 'acc'}: rows {', '.join(map(str, one.rows))}" if one.rows else "")
            + (f"left: {one.why}" if one.why else "")
            for one in self.layers
        ]
        head = f"{self.num_replaced} of {len(self.layers)} linear layers replaced on {self.gpu}"
        return "\n".join((head, *lines, *self._call_lines()))

    def _call_lines(self) -> Iterator[str]:
        if self._calls is None:
            return
        yield f"calls of products are seen in {len(self.modules)} modules"
        for call, count in self.calls.items():
            what = f"{call.name}: {call.function} {call.problem}".rstrip()
            yield f"{what}  {count} times {f'left: {call.why}' if call.why else 'by a kernel'}"


def patch(
    model: Any,
    *,
    gpu: str | None = None,
    calls: bool = False,
    catalogue: bool = False,
    allow_emulation: bool = False,
) -> PatchSummary:
    """Run a model's linear layers with tuned kernels if results show that these are faster.

    A layer uses a tuned kernel for the numbers of rows (tokens) whose problem, including bias and
    activation, has a result on this GPU that is faster than its baseline, and PyTorch's kernel for
    all others. An activation that directly follows a layer in a ``torch.nn.Sequential`` belongs to
    that layer. If gradients are recorded, their products must be faster as well.
    A module that computes ``act(gate(x)) * up(x)`` (SwiGLU, GeGLU), with or without a linear layer
    behind, runs one kernel for both products where no gradient is recorded; its two weights then
    share one block of memory until `unpatch`, so patch and compile again after assigning others.
    ``gpu`` is any part of a GPU's name, by default the current one. Results are those in the
    database that `autogemm.gemm` reads, at the time of the call; with ``catalogue`` the shipped
    results count for problems that are not in the database.
    With ``calls``, products that modules call themselves (``mm``, ``bmm``, ``matmul``, ``@``,
    ``addmm``, ``baddbmm``) use tuned kernels as well: each size is decided at its first call, and
    ``calls`` of the summary lists the decisions. PyTorch's functions take longer on the host within
    such modules.
    ``allow_emulation`` allows kernels that compute float32 from tensor-core products of lower
    precision; results of ``autogemm tune --allow-emulation`` then count.
    Parameters, names and the state dict are not changed.

    Raises UsageError if ``model`` is not a module or is already patched, or without a GPU.
    """
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"patch takes a torch.nn.Module, got {type(model).__name__}")
    if any(_PATCHED in vars(module) for module in model.modules()):
        raise UsageError("the model is patched already: call autogemm.unpatch(model) first")
    if gpu is None and not torch.cuda.is_available():
        raise UsageError("torch sees no GPU: patch where the model runs")
    gpu_name = gpu or torch.cuda.get_device_name()
    results = results_on(gpu_name, None, catalogue=catalogue, emulation=allow_emulation)
    activations = dict(_followed(model))
    gated = dict(_patched_gates(model, results))
    layers = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            layer = _patched(name, module, activations.get(module, ""), results)
            layers.append(_with_gate(layer, gated.get(name)))
    for module in model.modules():
        if type(module) is torch.nn.Sequential and any(one in activations for one in module):
            _replace_forward(module, _sequential_forward)
    if not calls:
        return PatchSummary(results.gpu, tuple(layers))
    seen = Calls(results)
    return PatchSummary(results.gpu, tuple(layers), tuple(_see_calls(model, seen)), seen)


def _see_calls(model: Any, calls: Calls) -> Iterator[str]:
    """Let the forward of each module that names a product be seen; yields the modules' names."""
    for name, module in model.named_modules():
        if "forward" not in vars(module) and calls_products(module):
            scope = Scope(calls, name or "the model")
            setattr(module, _PATCHED, scope)
            module.forward = MethodType(_seen_forward, module)
            yield scope.name


def _seen_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    return seen_forward(self, getattr(self, _PATCHED), *args, **kwargs)


def unpatch(model: Any) -> None:
    """Undo `patch` for all layers of a model; a model that is not patched is not changed."""
    for module in model.modules():
        patched = vars(module).pop(_PATCHED, None)
        if patched is not None:
            vars(module).pop("forward", None)
        if isinstance(patched, _Gated):
            separate_weights(*patched.layers)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The rows for which a layer's product is faster, alone (``plain``) and with its activation."""

    dtype: torch.dtype
    plain: frozenset[int]
    activated: frozenset[int]
    trained: frozenset[int]
    activation: str
    has_bias: bool
    emulation: bool

    def epilogue(self, activated: bool) -> str:
        inner = "acc + bias[n]" if self.has_bias else "acc"
        if activated:
            return f"{self.activation}({inner})"
        return inner if self.has_bias else ""


@dataclass(frozen=True, slots=True)
class _Gated:
    """The rows for which both products of a gated layer are fastest as one, and both weights."""

    found: GatedLayer
    layers: tuple[Any, Any]
    stacked: Any
    weights: tuple[Any, Any]
    rows: frozenset[int]
    emulation: bool

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Gated":
        """A copy of the model has weights in memory of their own."""
        layers = copy.deepcopy(self.layers, memo)
        weights = (layers[0].weight, layers[1].weight)
        return replace(self, layers=layers, weights=weights, stacked=None, rows=frozenset())

    @property
    def is_current(self) -> bool:
        """Whether the layers have the stacked weights still. A compiler cannot ask where memory
        lies, only which parameters they are.
        """
        gate, up = (one.weight for one in self.layers)
        if gate is not self.weights[0] or up is not self.weights[1]:
            return False
        if torch.compiler.is_compiling():
            return True
        first: int = self.stacked.data_ptr()
        places: tuple[int, int] = (gate.data_ptr(), up.data_ptr())
        return places == (first, first + gate.nbytes)


def _patched_gates(model: Any, results: Results) -> Iterator[tuple[str, _Gated]]:
    """Let gated layers run one kernel for two layers; yields each of the two by its name."""
    for name, module, found in gated_layers(model):
        layers = (getattr(module, found.gate), getattr(module, found.up))
        if any(_why_left(one) for one in layers):
            continue
        columns, depth = layers[0].weight.shape
        dtype, epilogue = _dtype_of(layers[0].weight), Epilogue.parse(found.epilogue)
        problem = Problem(1, columns, depth, Layout.NT, dtype, epilogue=epilogue)
        rows = frozenset(
            m for m in _faster_rows(problem, results) if _is_best(replace(problem, m=m), results)
        )
        stacked = stacked_weights(*layers) if rows else None
        if stacked is None:
            continue
        weights = (layers[0].weight, layers[1].weight)
        gated = _Gated(found, layers, stacked, weights, rows, results.emulation)
        setattr(module, _PATCHED, gated)
        module.forward = MethodType(_gated_forward, module)
        for one in (found.gate, found.up):
            yield f"{name}.{one}".lstrip("."), gated


def _is_best(gated: Problem, results: Results) -> bool:
    """Whether no faster kernel of one half is known whose two launches take less time."""
    half = gated.with_epilogue(PLAIN)
    whole_row, half_row = results.of(gated), results.of(half)
    if whole_row is None or half_row is None or not results.is_faster(half):
        return whole_row is not None
    return whole_row.finals.winner.time_us < 2 * half_row.finals.winner.time_us


def _with_gate(layer: PatchedLayer, gated: _Gated | None) -> PatchedLayer:
    """The replacement of a layer that belongs to a gated one."""
    if gated is None:
        return layer
    rows = tuple(sorted({*layer.rows, *gated.rows}))
    return replace(layer, epilogue=gated.found.epilogue, rows=rows, why="")


def _followed(model: Any) -> Iterator[tuple[Any, str]]:
    """Linear layers of a Sequential that an activation follows, and its name in expressions."""
    for module in model.modules():
        if type(module) is torch.nn.Sequential:
            children = list(module)
            for linear, behind in itertools.pairwise(children):
                if isinstance(linear, torch.nn.Linear) and type(behind) in ACTIVATIONS:
                    yield linear, ACTIVATIONS[type(behind)](behind)


def _patched(name: str, linear: Any, activation: str, results: Results) -> PatchedLayer:
    weight = linear.weight
    shape = f"{linear.out_features}x{linear.in_features}"
    seen = (name or "the model", shape, str(weight.dtype).removeprefix("torch."))
    why = _why_left(linear)
    if why:
        return PatchedLayer(*seen, "", (), why)
    choice = _chosen(linear, activation, results)
    epilogue = choice.epilogue(bool(choice.activated))
    rows = tuple(sorted(choice.plain | choice.activated))
    if not rows:
        asked = choice.epilogue(bool(activation)) or "acc"
        why = f"no result for {asked} in layout nt is faster than its baseline on {results.gpu}"
        return PatchedLayer(*seen, "", (), why)
    setattr(linear, _PATCHED, choice)
    linear.forward = MethodType(_linear_forward, linear)
    return PatchedLayer(*seen, epilogue, rows, "")


def _why_left(linear: Any) -> str:
    if type(linear) is not torch.nn.Linear or "forward" in vars(linear):
        return f"its forward is not torch.nn.Linear's ({type(linear).__name__})"
    if linear.weight.dtype not in _DTYPES:
        return f"there are no kernels for {linear.weight.dtype}"
    if type(linear.weight) is not torch.nn.Parameter or not linear.weight.is_contiguous():
        return "its weight is not a plain, contiguous parameter"
    return ""


def _chosen(linear: Any, activation: str, results: Results) -> _Choice:
    columns, depth = linear.weight.shape
    dtype = _dtype_of(linear.weight)
    no_rows = frozenset[int]()
    choice = _Choice(
        linear.weight.dtype,
        *(no_rows, no_rows, no_rows),
        activation,
        linear.bias is not None,
        results.emulation,
    )

    def faster(epilogue: str) -> frozenset[int]:
        problem = Problem(1, columns, depth, Layout.NT, dtype, epilogue=Epilogue.parse(epilogue))
        return _faster_rows(problem, results)

    plain = faster(choice.epilogue(False))
    # Gradients: of the input grad W, of the weight x^T grad; an epilogue would be computed again.
    trained = frozenset(
        m
        for m in ([] if choice.has_bias else plain)
        if results.is_faster(Problem(m, depth, columns, Layout.NN, dtype))
        and results.is_faster(Problem(depth, columns, m, Layout.TN, dtype))
    )
    activated = faster(choice.epilogue(True)) if activation else no_rows
    return replace(choice, plain=plain, activated=activated, trained=trained)


def _dtype_of(weight: Any) -> DType:
    dtype = _DTYPES[weight.dtype]
    if dtype is DType.F32 and torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32":
        return DType.TF32
    return dtype


def _faster_rows(problem: Problem, results: Results) -> frozenset[int]:
    """The numbers of rows of a problem for which a result shows a faster kernel."""
    rows = {m for m, n, k in results.by_size if (n, k) == (problem.n, problem.k)}
    return frozenset(m for m in rows if results.is_faster(replace(problem, m=m)))


def _replace_forward(module: Any, forward: Callable[..., Any]) -> None:
    setattr(module, _PATCHED, True)
    module.forward = MethodType(forward, module)


def _linear_forward(self: Any, x: Any) -> Any:
    result = _by_kernel(self, x, activated=False)
    return torch.nn.functional.linear(x, self.weight, self.bias) if result is None else result


def _sequential_forward(self: Any, x: Any) -> Any:
    children = list(self)
    skip = False
    for module in children:
        if skip:
            skip = False
            continue
        result = _by_kernel(module, x, activated=True)
        skip = result is not None
        x = module(x) if result is None else result
    return x


def _gated_forward(self: Any, x: Any) -> Any:
    gated = getattr(self, _PATCHED)
    result = _by_one_kernel(gated, x)
    if result is None:
        return type(self).forward(self, x)
    return getattr(self, gated.found.down)(result) if gated.found.down else result


def _by_one_kernel(gated: _Gated, x: Any) -> Any:
    """The gated product of both layers; None where no kernel is known to be faster."""
    columns, depth = gated.weights[0].shape
    rows = x.numel() // depth
    if rows not in gated.rows or not _is_plain(x) or not gated.is_current:
        return None
    if x.dtype is not gated.stacked.dtype or x.device != gated.stacked.device:
        return None
    if torch.is_grad_enabled() and any(one.requires_grad for one in (x, *gated.weights)):
        return None
    result = gemm(
        x.reshape(rows, depth),
        gated.stacked.T,
        epilogue=gated.found.epilogue,
        allow_emulation=gated.emulation,
    )
    return result.reshape(*x.shape[:-1], columns)


def _is_plain(x: Any) -> bool:
    return x.is_contiguous() and not torch.is_autocast_enabled(x.device.type)


def _by_kernel(linear: Any, x: Any, *, activated: bool) -> Any:
    """The layer's product by a kernel; None where none is known to be faster."""
    choice = getattr(linear, _PATCHED, None)
    if not isinstance(choice, _Choice) or x.dtype is not choice.dtype or not _is_plain(x):
        return None
    rows = x.numel() // linear.in_features
    if rows not in (choice.activated if activated else choice.plain):
        return None
    is_trained = torch.is_grad_enabled() and any(
        one is not None and one.requires_grad for one in (x, linear.weight, linear.bias)
    )
    if is_trained and (activated or rows not in choice.trained):
        return None
    inputs = {"bias": linear.bias} if choice.has_bias else {}
    flat = x.reshape(rows, linear.in_features)
    result = gemm(
        flat,
        linear.weight.T,
        epilogue=choice.epilogue(activated),
        allow_emulation=choice.emulation,
        **inputs,
    )
    return result.reshape(*x.shape[:-1], linear.out_features)

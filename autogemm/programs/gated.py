"""Gated feed-forward layers of a model: ``act(gate(x)) * up(x)`` of two linear layers.

One product with both weights makes both columns of an element, and its epilogue the one of C
(SwiGLU: Shazeer, GLU Variants Improve Transformer, 2020).
"""

import dis
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node, Tracer
from torch.nn import functional

from autogemm.programs.called_ops import gated_expression

# Modules and functions that a kernel may apply, and their names in expressions.
ACTIVATIONS: Mapping[type, Callable[[Any], str]] = {
    torch.nn.ReLU: lambda module: "relu",
    torch.nn.SiLU: lambda module: "silu",
    torch.nn.Sigmoid: lambda module: "sigmoid",
    torch.nn.Tanh: lambda module: "tanh",
    torch.nn.GELU: lambda module: "gelu_tanh" if module.approximate == "tanh" else "gelu",
}
_FUNCTIONS: Mapping[Any, str] = {
    **dict.fromkeys((functional.silu, "silu"), "silu"),
    **dict.fromkeys((functional.relu, torch.relu, "relu"), "relu"),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, "sigmoid"), "sigmoid"),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh"), "tanh"),
    functional.gelu: "gelu",
}
_PRODUCTS = (operator.mul, torch.mul, "mul")


@dataclass(frozen=True, slots=True)
class GatedLayer:
    """Names of two linear layers of a module, of what is applied to the first one's result, and of
    the layer behind their product, empty where there is none.
    """

    gate: str
    up: str
    activation: str
    down: str

    @property
    def epilogue(self) -> str:
        """The expression of C behind a product with both weights, one below the other."""
        return gated_expression(self.activation)


def gated_layers(model: Any) -> Iterator[tuple[str, Any, GatedLayer]]:
    """Yield name and module of what is nothing but a gated layer, and what it consists of."""
    for name, module in model.named_modules():
        found = _found(module)
        if found is not None:
            yield name, module, found


def _found(module: Any) -> GatedLayer | None:
    children = dict(module.named_children())
    linear = [one for one in children.values() if type(one) is torch.nn.Linear]
    others = [one for one in children.values() if type(one) is not torch.nn.Linear]
    if len(linear) not in (2, 3) or any(type(one) not in ACTIVATIONS for one in others):
        return None
    has_hooks = any(one._forward_hooks or one._forward_pre_hooks for one in children.values())
    if has_hooks or "forward" in vars(module) or _has_effects(module):
        return None
    try:
        graph = Tracer().trace(module)
    except Exception:  # of the model's own code, for which x has no values
        return None
    return _matched(graph, children)


def _has_effects(module: Any) -> bool:
    """Whether a call may leave something behind, which a call without values must not."""
    code = getattr(type(module).forward, "__code__", None)
    stores = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF")
    return code is None or any(one.opname in stores for one in dis.get_instructions(code))


def _matched(graph: Graph, children: Mapping[str, Any]) -> GatedLayer | None:
    nodes = list(graph.nodes)
    x, output = nodes[0], nodes[-1]
    (result,) = output.args
    down = ""
    if _is_linear(result, children):
        down, result = result.target, result.args[0]
    # x, two layers, the activation, the product and the output, and perhaps the layer behind it:
    # a forward that does more, or takes more, is none of these.
    if len(nodes) != 6 + bool(down) or not isinstance(result, Node):
        return None
    if result.target not in _PRODUCTS or len(result.args) != 2 or result.kwargs:
        return None
    first, second = result.args
    for activated, up in ((first, second), (second, first)):
        gate, activation = _activated(activated, children)
        if all(_is_linear(one, children) and one.args == (x,) for one in (gate, up)):
            return GatedLayer(gate.target, up.target, activation, down)
    return None


def _is_linear(node: Any, children: Mapping[str, Any]) -> bool:
    return isinstance(node, Node) and type(children.get(str(node.target))) is torch.nn.Linear


def _activated(node: Any, children: Mapping[str, Any]) -> tuple[Any, str]:
    """The operand of a known activation, and its name; nothing for any other node."""
    if not isinstance(node, Node) or not node.args:
        return None, ""
    if node.op == "call_module":
        module = children.get(str(node.target))
        return (
            (node.args[0], ACTIVATIONS[type(module)](module))
            if type(module) in ACTIVATIONS
            else (None, "")
        )
    name = _FUNCTIONS.get(node.target, "")
    if name == "gelu" and "tanh" in (*node.args[1:], node.kwargs.get("approximate")):
        name = "gelu_tanh"
    return (node.args[0], name) if name else (None, "")


def stacked_weights(gate: Any, up: Any) -> Any:
    """Both weights one below the other [2 N, K], in memory that their parameters share from here
    on; None where they cannot: with a bias, of two shapes, types or devices, or if anything else
    lies in their memory.
    """
    pair = (gate.weight, up.weight)
    first, second = pair
    if gate.bias is not None or up.bias is not None or first is second:
        return None
    if first.shape != second.shape or first.dtype != second.dtype or first.device != second.device:
        return None
    for one in pair:
        owns = one.untyped_storage().nbytes() == one.numel() * one.element_size()
        if type(one) is not torch.nn.Parameter or not one.is_contiguous() or not owns:
            return None
    with torch.no_grad():
        stacked = torch.cat(pair)
        first.data, second.data = stacked.split(len(first))
    return stacked


def separate_weights(gate: Any, up: Any) -> None:
    """Give weights memory of their own again."""
    with torch.no_grad():
        for one in (gate.weight, up.weight):
            one.data = one.data.clone()

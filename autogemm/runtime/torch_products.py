"""``autogemm.gemm`` on tensors: through ``torch.ops.autogemm``, or past it where none looks.

Where nothing of torch watches a call (no gradients, no compiler, no mode) it goes past torch's
dispatcher, which would cost more than the call.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from autogemm.model.epilogue import Epilogue
from autogemm.runtime import torch_rules
from autogemm.runtime.calling import multiply
from autogemm.runtime.fusing import require_inputs
from autogemm.runtime.keywords import DEFAULT_BUDGET_S
from autogemm.runtime.torch_epilogue import names_of, output_name, split_inputs
from autogemm.runtime.torch_operator import OPS, products_of
from autogemm.support.errors import UsageError

# Tensors that need no dispatcher. A subclass may have its own idea of a product.
_PLAIN = (torch.Tensor, torch.nn.Parameter)

torch_rules.register()


def gemm(  # noqa: PLR0911, PLR0913, PLR0917  # as autogemm.gemm
    a: Any,
    b: Any,
    out: Any,
    alpha: float,
    beta: float,
    c: Any,
    tune: bool | float,
    epilogue: str,
    allow_emulation: bool,
    inputs: Mapping[str, Any],
) -> Any:
    """``autogemm.gemm`` of tensors. Raises what it raises."""
    if not torch.compiler.is_compiling() and not _is_watched(a, b, out, c, inputs):
        return multiply(
            *(a, b, out, alpha, beta, c),
            tune=tune,
            products=products_of(a, allow_emulation),
            epilogue=epilogue,
            inputs=inputs,
        )
    tune_s = DEFAULT_BUDGET_S if tune is True else float(tune)
    settings = (float(alpha), float(beta), tune_s, allow_emulation)
    second_name = _output_name(epilogue)
    second = inputs.get(second_name)
    written = {"out": out, second_name: second}
    _require_derivatives(written, (a, b, out, c, *inputs.values()))
    if not epilogue and not inputs:
        if out is None:
            return OPS.gemm(a, b, c, *settings)
        OPS.gemm_out(a, b, out, c, *settings)
        return out
    if c is not None:
        raise UsageError("an epilogue reads the old C as c[m, n]: give it as out, and leave out c")
    arrays, numbers = split_inputs(_checked_names(epilogue, tuple(inputs)), inputs)
    if second is not None:
        if out is None:
            return OPS.fused_second(a, b, second, arrays, numbers, epilogue, *settings)
        OPS.fused_outs(a, b, out, second, arrays, numbers, epilogue, *settings)
        return out
    if out is None:
        return OPS.fused(a, b, arrays, numbers, epilogue, *settings)
    OPS.fused_out(a, b, out, arrays, numbers, epilogue, *settings)
    return out


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _checked_names(epilogue: str, given: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    require_inputs(Epilogue.parse(epilogue), dict.fromkeys(given))
    return names_of(epilogue)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _output_name(epilogue: str) -> str:
    return output_name(epilogue) if epilogue else ""


def _is_watched(a: Any, b: Any, out: Any, c: Any, inputs: Mapping[str, Any]) -> bool:
    """Whether gradients, autocast, a mode, a transform or a subclass has to see the call.

    Modes, transforms and autocast have no public question that is cheap enough for each call.
    """
    if type(a) not in _PLAIN or type(b) not in _PLAIN:
        return True
    if torch.is_grad_enabled():
        if a.requires_grad or b.requires_grad:
            return True
        if any(getattr(one, "requires_grad", False) for one in (out, c, *inputs.values())):
            return True
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._is_any_autocast_enabled()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )


def _require_derivatives(written: Mapping[str, Any], given: Sequence[Any]) -> None:
    """Raise UsageError where a derivative is asked for that there is not, as where the call writes
    into the caller's tensors.
    """
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    needs_grad = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    name = next((name for name, one in written.items() if one is not None), None)
    if name is not None and needs_grad:
        raise UsageError(
            f"gemm into {name} records no gradients: leave out {name}, or call it under "
            "torch.no_grad()"
        )
    # Torch would drop tangents without a word.
    if forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(one).tangent is not None for one in tensors
    ):
        raise UsageError("gemm has no forward-mode derivatives: take those of backward()")

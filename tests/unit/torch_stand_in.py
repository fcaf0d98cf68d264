"""Stand-ins for the GPU behind ``torch.ops.autogemm``: products by torch on the CPU, and tensors of
the CPU that say they are on a GPU.

Imports torch: tests do so behind ``pytest.importorskip("torch")``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from runtime_fakes import FakeDriver, driver

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.runtime import arrays, torch_operator, torch_products
from autogemm.runtime.operands import Products, Strided, call_for, product_shape
from autogemm.runtime.torch_epilogue import names_of, output_name, results_of

__all__ = ["driver", "on_gpu", "products"]


@dataclass(frozen=True)
class Product:
    """The calls that the runtime received."""

    problem: str
    products: Products
    has_out: bool
    tune: bool | float


@dataclass
class StandIn:
    """In place of `autogemm.runtime.calling.multiply`. Refuses strides that a kernel refuses."""

    made: list[Product] = field(default_factory=list)

    def __call__(  # noqa: PLR0917
        self,
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
        shape = product_shape(tuple(a.shape), tuple(b.shape))
        shape = (*shape[:-1], shape[-1] // Epilogue.parse(epilogue).num_columns)
        has_out, inputs = out is not None, inputs or {}
        dtype = products.of({"float32": DType.F32}.get(str(a.dtype)[6:], DType.BF16))
        call = call_for(
            Strided("a", tuple(a.shape), a.stride()),
            Strided("b", tuple(b.shape), b.stride()),
            Strided("out", shape, torch.empty(shape, device="meta").stride()),
            dtype,
        )
        label = replace(call.problem, epilogue=Epilogue.parse(epilogue)).label
        self.made.append(Product(f"{label} x{len(call.offsets)}", products, has_out, tune))
        with torch.no_grad():
            out = a.new_empty(shape) if out is None else out
            assert out.shape == shape
            acc = a.float() @ b.float()
            if epilogue:
                arrays = [inputs[name].float() for name, is_array in names_of(epilogue) if is_array]
                numbers = [inputs[name] for name, is_array in names_of(epilogue) if not is_array]
                found, second = results_of(Epilogue.parse(epilogue), acc, arrays, numbers, alpha)
                out.copy_(found)
                if second is not None:
                    inputs[output_name(epilogue)].copy_(second)
            else:
                old = beta * (out if c is None else c) if beta else 0.0
                out.copy_(alpha * acc + old)
        return out

    @property
    def problems(self) -> list[str]:
        return [one.problem for one in self.made]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Products of tensors on the CPU, and what was asked for."""
    stand_in = StandIn()
    monkeypatch.setattr(torch_operator, "multiply", stand_in)
    monkeypatch.setattr(torch_products, "multiply", stand_in)
    return stand_in


@pytest.fixture
def on_gpu(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A GPU whose memory is the host's: the runtime launches real text on tensors of the CPU."""
    known = arrays._torch

    def of_torch(module: Any) -> arrays.Library:
        library = known(module)

        def memory(tensor: Any) -> arrays.Memory:
            return arrays.Memory(
                *(tuple(tensor.shape), tuple(tensor.stride())),
                element=arrays._element(str(tensor.dtype).removeprefix("torch.")),
                device=0,
                address=tensor.data_ptr(),
            )

        return replace(library, memory=memory, stream=lambda index: 7)

    monkeypatch.setattr(arrays, "_torch", of_torch)
    monkeypatch.setattr(arrays, "LIBRARIES", {})
    monkeypatch.setattr("autogemm.runtime.calling.LIBRARIES", {})
    return driver

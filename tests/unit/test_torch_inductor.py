"""Tuned kernels among the candidates of Inductor's max-autotune, on the CPU.

Torch multiplies in place of the kernels (torch_stand_in), so that what is chosen means nothing.
"""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compiles with torch")

from torch_stand_in import StandIn, driver, products  # noqa: E402

import autogemm  # noqa: E402
from autogemm.programs import inductor  # noqa: E402
from autogemm.support.errors import UsageError  # noqa: E402

__all__ = ["driver", "products"]


# Inductor uses what torch has deprecated.
@pytest.mark.filterwarnings("ignore")
def test_inductor_times_it_beside_its_own(
    products: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor, "_has_kernels", lambda a: True)

    def product(x: Any, weight: Any) -> Any:
        return x @ weight

    # Another run's choice would say nothing of this one.
    alone = {"fx_graph_cache": False, "autotune_local_cache": False, "compile_threads": 1}
    options = {**autogemm.inductor_options(), **alone}
    compiled = torch.compile(product, options=options, fullgraph=True)
    x, weight = torch.randn(6, 8), torch.randn(8, 16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight), x @ weight)
    assert "6x16x8 nn f32 x1" in products.problems


def test_what_has_no_kernel_is_torchs(products: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.randn(6, 8), torch.randn(8, 16)
    out = torch.empty(6, 16)
    torch.testing.assert_close(inductor.autogemm_mm(a, b, out=out), a @ b)
    assert products.made == []
    monkeypatch.setattr(inductor, "_has_kernels", lambda a: True)
    # Every second column: no layout has that.
    wide = torch.randn(8, 32)[:, ::2]
    torch.testing.assert_close(inductor.autogemm_mm(a, wide, out=out), a @ wide)
    assert products.made == []
    inductor.autogemm_mm(a, b, out=out)
    assert products.problems == ["6x16x8 nn f32 x1"]
    torch.testing.assert_close(out, a @ b)


def test_a_torch_without_the_option_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor as package

    monkeypatch.setattr(package, "config", SimpleNamespace())
    with pytest.raises(UsageError, match="no option external_matmul"):
        autogemm.inductor_options()

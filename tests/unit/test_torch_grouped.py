"""Gradients of ``autogemm.grouped_gemm``: real kernels' texts on tensors of the CPU, in NumPy."""

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="gradients are torch's")

from runtime_fakes import FakeDriver  # noqa: E402
from test_runtime_grouped import of_groups  # noqa: E402
from torch_stand_in import driver, on_gpu  # noqa: E402

import autogemm  # noqa: E402
from autogemm.support.errors import UsageError  # noqa: E402

__all__ = ["driver", "of_groups", "on_gpu"]

SIZES = (5, 0, 7, 1)
CAPACITY = 7


@pytest.fixture(autouse=True)
def interface(on_gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Integers of the CPU that say where they are, as those of a GPU do."""

    def said(tensor: Any) -> dict[str, Any]:
        return tensor.detach().numpy().__array_interface__

    monkeypatch.setattr(torch.Tensor, "__cuda_array_interface__", property(said))
    return on_gpu


def integers(*shape: int) -> Any:
    """At an address as a GPU's memory has."""
    count = torch.Size(shape).numel()
    whole = torch.zeros(count + 64, dtype=torch.float16)
    start = -(whole.data_ptr() // 2) % 64
    generator = torch.Generator().manual_seed(sum(shape))
    tensor = whole[start : start + count].view(shape)
    return tensor.copy_(torch.randint(-3, 4, shape, generator=generator))


def products(x: Any, w: Any, offsets: Any, counts: Any, alpha: float) -> Any:
    """By torch, in FP32; 0 in rows of no group."""
    found = torch.zeros(*x.shape[:-1], w.shape[-1])
    if counts is not None:
        of_groups = [(group, slice(int(rows))) for group, rows in enumerate(counts)]
    else:
        of_groups = [slice(*pair) for pair in itertools.pairwise(map(int, offsets))]
    parts = [alpha * (x[at].float() @ w[group].float()) for group, at in enumerate(of_groups)]
    for at, part in zip(of_groups, parts, strict=True):
        found[at] = part
    return found


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_gradients_are_those_of_a_loop(masked: bool, transposed: bool, kind: Any) -> None:
    rows = (len(SIZES), CAPACITY) if masked else (sum(SIZES) + 9,)
    x = integers(*rows, 24).requires_grad_()
    w = integers(len(SIZES), 32, 24).mT if transposed else integers(len(SIZES), 24, 32)
    w.requires_grad_()
    offsets, counts = None, None
    if masked:
        counts = torch.tensor(SIZES, dtype=kind)
    else:
        offsets = torch.tensor([3, *(3 + end for end in itertools.accumulate(SIZES))], dtype=kind)
    out = autogemm.grouped_gemm(x, w, offsets, counts=counts, alpha=0.5)
    expected = products(x, w, offsets, counts, 0.5)
    used = expected.detach().abs().sum(-1) > 0
    assert torch.equal(out.float()[used], expected[used]) and int(used.sum()) >= 10
    upstream = integers(*out.shape)
    found = torch.autograd.grad(out, (x, w), upstream)
    wanted = torch.autograd.grad(expected, (x, w), upstream.float())
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_only_the_gradients_that_are_asked_for_are_computed(interface: FakeDriver) -> None:
    x, w = integers(16, 24), integers(2, 24, 32).requires_grad_()
    offsets = torch.tensor([0, 9, 16], dtype=torch.int32)
    autogemm.grouped_gemm(x, w, offsets).sum().backward()
    assert len(interface.launches) == 2 and x.grad is None and w.grad.shape == w.shape
    with torch.no_grad():
        assert autogemm.grouped_gemm(x, w, offsets).grad_fn is None


def test_what_has_no_gradients_is_refused() -> None:
    x, w = integers(16, 24), integers(2, 24, 32).requires_grad_()
    offsets = torch.tensor([0, 9, 16], dtype=torch.int32)
    for more in ({"epilogue": "relu(acc)"}, {"out": integers(16, 32)}):
        with pytest.raises(UsageError, match="no gradients with an epilogue or an out"):
            autogemm.grouped_gemm(x, w, offsets, **more)
    with pytest.raises(UsageError, match="grouped_gemm_tn has no gradients"):
        autogemm.grouped_gemm_tn(x, integers(16, 32).requires_grad_(), offsets)

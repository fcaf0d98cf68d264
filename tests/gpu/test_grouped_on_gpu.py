"""Groups on a GPU: edge cases of each family, graphs replayed with other rows, gradients."""

import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

import autogemm
from autogemm.compile import Compiler
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, load_family
from autogemm.targets.cuda import CudaTarget
from autogemm.verify import Batches, on_gpu
from autogemm.verify.cases import cases_of

pytestmark = pytest.mark.gpu
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

FAMILIES = {
    "naive": DType.F32,
    "gemm_mma": DType.BF16,
    "gemm_wgmma": DType.BF16,
    "gemm_skinny": DType.BF16,
}
DIVIDING = ("gemm_mma", "gemm_wgmma")
FEW = 8
BIAS = "relu(acc * scale[g] + bias[g, n])"
SWIGLU = "silu(acc[n] + bias[g, n]) * acc[n + N]"


@pytest.mark.parametrize(
    ("name", "batches", "epilogue"),
    [
        *(
            (name, kind, "")
            for name in FAMILIES
            for kind in (Batches.ALL_GROUPS, Batches.ALL_MASKED)
        ),
        *((name, Batches.ALL_MASKED, BIAS) for name in FAMILIES),
        *((name, Batches.ALL_GROUPS, SWIGLU) for name in ("gemm_mma", "gemm_wgmma", "gemm_skinny")),
        *((name, Batches.ALL_DIVIDED, "") for name in DIVIDING),
        *((name, Batches.ALL_DIVIDED_MASKED, "") for name in DIVIDING),
    ],
)
def test_groups_are_right(
    target: CudaTarget, compiler: Compiler, name: str, batches: Batches, epilogue: str
) -> None:
    family = load_family(name)
    if name == "gemm_wgmma" and target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    device, dtype = target.device, FAMILIES[name]
    # A problem of whole tiles, for which a config must be legal.
    layout = Layout.TN if batches.value.divides_k else Layout.NT
    whole = Problem(512, 1024, 512, layout, dtype, groups=Groups(4, masked=batches.value.masked))
    whole = whole.with_epilogue(Epilogue(epilogue))
    found = cases_of(
        family,
        next(one for one in family.seeds if not broken_constraints(family, one, whole, device)),
        device,
        dtype=dtype,
        epilogue=Epilogue(epilogue),
        batches=batches,
    )
    check = on_gpu(family, target, compiler)
    assert len(found.on_gpu.cases) >= FEW
    for case in found.on_gpu.cases[:FEW]:
        result = check(case)
        assert result.ok, f"{case.problem.label}: {result.message}"


def integers(*shape: int) -> Any:
    import torch

    return torch.randint(-3, 4, shape, device="cuda:0").to(torch.bfloat16)


@pytest.fixture
def no_database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "none.db"))
    autogemm.forget()


@needs_torch
@pytest.mark.usefixtures("no_database")
def test_a_captured_graph_is_replayed_with_other_offsets() -> None:
    import torch

    rows, n, k, groups = 300, 256, 128, 6
    small = {"device": "cuda:0", "dtype": torch.int32}
    x, w = integers(rows, k), integers(groups, n, k)
    out = torch.zeros((rows, n), device="cuda:0", dtype=torch.bfloat16)
    offsets = torch.tensor([0, 0, 70, 71, 200, 200, 290], **small)
    autogemm.grouped_gemm(x, w.transpose(1, 2), offsets, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        autogemm.grouped_gemm(x, w.transpose(1, 2), offsets, out)
    for starts in ([0, 0, 70, 71, 200, 200, 290], [0, 300, 300, 300, 300, 300, 300], [5] * 7):
        offsets.copy_(torch.tensor(starts, **small))
        out.fill_(7.0)
        graph.replay()
        torch.cuda.synchronize()
        expected = np.full((rows, n), 7.0, np.float32)
        for group, (first, end) in enumerate(itertools.pairwise(starts)):
            product = x[first:end].float() @ w[group].float().T
            expected[first:end] = product.to(torch.bfloat16).float().cpu().numpy()
        np.testing.assert_array_equal(out.float().cpu().numpy(), expected)


@needs_torch
@pytest.mark.usefixtures("no_database")
def test_a_captured_graph_is_replayed_with_other_counts() -> None:
    """Counts of int64, which the graph converts, and a bias of each group."""
    import torch

    groups, capacity, n, k = 6, 100, 256, 128
    x, w, bias = integers(groups, capacity, k), integers(groups, n, k), integers(groups, n)
    out = torch.zeros((groups, capacity, n), device="cuda:0", dtype=torch.bfloat16)
    counts = torch.tensor([0, 100, 3, 64, 0, 99], device="cuda:0")

    def multiply() -> None:
        autogemm.grouped_gemm(
            x, w.mT, out=out, counts=counts, epilogue="relu(acc + bias[g, n])", bias=bias
        )

    multiply()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        multiply()
    for rows in ([0, 100, 3, 64, 0, 99], [100] * 6, [0] * 6, [1, 0, 0, 0, 0, 0]):
        counts.copy_(torch.tensor(rows, device="cuda:0"))
        out.fill_(7.0)
        graph.replay()
        torch.cuda.synchronize()
        products = torch.relu(x.float() @ w.mT.float() + bias.float()[:, None])
        for group, count in enumerate(rows):
            expected = products[group, :count].to(torch.bfloat16)
            assert torch.equal(out[group, :count], expected), (rows, group)
            assert bool((out[group, count:] == 7.0).all()), (rows, group)


@needs_torch
@pytest.mark.parametrize("name", DIVIDING)
def test_nan_of_other_groups_of_k_stays_there(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the group behind another's last are NaN; a graph is replayed with other offsets."""
    import torch

    if name == "gemm_wgmma" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("no wgmma")
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "one.db"))
    rows, m, n, groups = 600, 264, 520, 6
    problem = Problem(m, n, rows, Layout.TN, DType.BF16, groups=Groups(groups))
    autogemm.tune(problem, family=name, trials=4, certify=False, progress=False, require_gpu=True)
    autogemm.forget()
    x, y = integers(rows, m), integers(rows, n)
    out = torch.full((groups, m, n), 7.0, device="cuda:0", dtype=torch.bfloat16)
    offsets = torch.tensor([0, 0, 65, 66, 300, 301, 600], device="cuda:0", dtype=torch.int32)
    autogemm.grouped_gemm_tn(x, y, offsets, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        autogemm.grouped_gemm_tn(x, y, offsets, out)
    for starts, spoilt in (
        ([0, 0, 65, 66, 300, 301, 600], 3),
        ([5, 64, 128, 129, 129, 500, 590], 1),
        ([0, 1, 2, 3, 600, 600, 600], 3),
    ):
        own_x, own_y = x.clone(), y.clone()
        for operand in (x, y):
            operand[starts[spoilt] : starts[spoilt + 1]] = float("nan")
            operand[starts[-1] :] = float("nan")
        offsets.copy_(torch.tensor(starts, device="cuda:0"))
        out.fill_(7.0)
        graph.replay()
        torch.cuda.synchronize()
        for group, (first, end) in enumerate(itertools.pairwise(starts)):
            if group == spoilt:
                assert bool(out[group].isnan().all())
            else:
                product = x[first:end].float().T @ y[first:end].float()
                assert torch.equal(out[group], product.to(torch.bfloat16)), (starts, group)
        x.copy_(own_x)
        y.copy_(own_y)


@needs_torch
@pytest.mark.usefixtures("no_database")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_a_loop(masked: bool, transposed: bool) -> None:
    import torch

    groups, capacity, n, k = 5, 64, 96, 128
    sizes = [17, 0, 64, 1, 30]
    leaf = integers(groups, n, k).mT if transposed else integers(groups, k, n)
    w = leaf.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    if masked:
        x = integers(groups, capacity, k).requires_grad_()
        given: dict[str, Any] = {"counts": torch.tensor(sizes, device="cuda:0")}
        parts = [x[group, :size] for group, size in enumerate(sizes)]
        pick = [(group, slice(size)) for group, size in enumerate(sizes)]
    else:
        x = integers(sum(sizes) + 9, k).requires_grad_()
        starts = [0, *itertools.accumulate(sizes)]
        given = {"offsets": torch.tensor(starts, device="cuda:0")}
        parts = [x[first:end] for first, end in itertools.pairwise(starts)]
        pick = [(slice(first, end),) for first, end in itertools.pairwise(starts)]
    out = autogemm.grouped_gemm(x, w, **given, alpha=0.5)
    upstream = integers(*out.shape)
    found = torch.autograd.grad(out, (x, w), upstream)
    results = [0.5 * (part.float() @ w[group].float()) for group, part in enumerate(parts)]
    loss = sum(
        (result * upstream[where].float()).sum()
        for result, where in zip(results, pick, strict=True)
    )
    expected = torch.autograd.grad(loss, (x, w))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=2e-2, atol=1e-2)
    for result, where in zip(results, pick, strict=True):
        torch.testing.assert_close(out[where].float(), result, rtol=1e-2, atol=1e-2)

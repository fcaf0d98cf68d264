"""Groups of rows on a GPU: edge cases of each family, and a graph replayed with other offsets."""

import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

import autogemm
from autogemm.compile import Compiler
from autogemm.model.dtypes import DType
from autogemm.space import load_family
from autogemm.targets.cuda import CudaTarget
from autogemm.verify import Batches, on_gpu
from autogemm.verify.cases import cases_of

pytestmark = pytest.mark.gpu

FAMILIES = {"naive": DType.F32, "gemm_mma": DType.BF16, "gemm_wgmma": DType.BF16}
FEW = 8


@pytest.mark.parametrize("name", FAMILIES)
def test_groups_are_right(target: CudaTarget, compiler: Compiler, name: str) -> None:
    family = load_family(name)
    if name == "gemm_wgmma" and target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    device, dtype = target.device, FAMILIES[name]
    found = cases_of(family, family.seeds[0], device, dtype=dtype, batches=Batches.ALL_GROUPS)
    check = on_gpu(family, target, compiler)
    for case in found.on_gpu.cases[:FEW]:
        result = check(case)
        assert result.ok, f"{case.problem.label}: {result.message}"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_captured_graph_is_replayed_with_other_offsets(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "none.db"))
    autogemm.forget()
    rows, n, k, groups = 300, 256, 128, 6
    small = {"device": "cuda:0", "dtype": torch.int32}
    x = torch.randint(-3, 4, (rows, k), device="cuda:0").to(torch.bfloat16)
    w = torch.randint(-3, 4, (groups, n, k), device="cuda:0").to(torch.bfloat16)
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

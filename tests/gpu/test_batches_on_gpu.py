"""Batched kernels on a GPU: edge cases of each family's first seed."""

import pytest

from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.space import Family, load_family
from autogemm.targets.cuda import CudaTarget
from autogemm.verify import Batches, on_gpu
from autogemm.verify.cases import cases_of

pytestmark = pytest.mark.gpu

FAMILIES = {
    "sgemm_simt": DType.F32,
    "sgemm_skinny": DType.F32,
    "gemm_mma": DType.BF16,
    "gemm_skinny": DType.BF16,
    "gemm_wgmma": DType.BF16,
}
FEW = 4


@pytest.mark.parametrize("name", FAMILIES)
def test_batches_are_right(target: CudaTarget, compiler: Compiler, name: str) -> None:
    family = load_family(name)
    if name == "gemm_wgmma" and target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    are_right(family, family.seeds[0], FAMILIES[name], target, compiler)


@pytest.mark.parametrize(("parameter", "value"), [("LOAD_WARPS", 1), ("EVICT", "inputs_first")])
def test_what_batches_alone_have_is_right(
    target: CudaTarget, compiler: Compiler, parameter: str, value: int | str
) -> None:
    family = load_family("gemm_wgmma")
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    seed = next(one for one in family.seeds if one[parameter] == value)
    are_right(family, seed, DType.BF16, target, compiler)


def are_right(
    family: Family, config: Config, dtype: DType, target: CudaTarget, compiler: Compiler
) -> None:
    found = cases_of(family, config, target.device, dtype=dtype, batches=Batches.ALL)
    check = on_gpu(family, target, compiler)
    assert len(found.on_gpu.cases) >= FEW
    for case in found.on_gpu.cases[:FEW]:
        result = check(case)
        assert result.ok, f"{case.problem.label}: {result.message}"

"""Configs that `autogemm verify --sample` draws."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.dtypes import DType
from autogemm.space import load_family
from autogemm.verify.cases import sample_configs


@pytest.mark.parametrize("dtype", [DType.BF16, DType.E4M3, DType.I8], ids=str)
def test_there_are_some_of_types_that_one_layout_has(dtype: DType) -> None:
    family, device = load_family("gemm_wgmma"), find_device("h200")
    assert len(sample_configs(family, device, 3, 0, None, dtype)) == 3

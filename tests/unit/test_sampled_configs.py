"""Configs that `autogemm verify --sample` draws."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.space import load_family
from autogemm.verify.cases import cases_of, sample_configs


@pytest.mark.parametrize("dtype", [DType.BF16, DType.E4M3, DType.I8], ids=str)
def test_there_are_some_of_types_that_one_layout_has(dtype: DType) -> None:
    family, device = load_family("gemm_wgmma"), find_device("h200")
    assert len(sample_configs(family, device, 3, 0, None, dtype)) == 3


@pytest.mark.parametrize(
    ("dtype", "epilogue"),
    [
        (DType.E5M2, "acc * sa[k / 128, m] * sb[n / 128, k / 128]"),
        (DType.BF16_E4M3, "silu(acc[n]) * acc[n + N]"),
    ],
)
def test_they_are_legal_for_the_epilogue(dtype: DType, epilogue: str) -> None:
    """Scales of blocks need sums of 128 of K, and a gate twice the columns in shared memory."""
    family, device, asked = load_family("gemm_wgmma"), find_device("h200"), Epilogue(epilogue)
    for config in sample_configs(family, device, 8, 0, None, dtype, asked):
        assert cases_of(family, config, device, adapt=False, dtype=dtype, epilogue=asked).cases

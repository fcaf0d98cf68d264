"""The parts for clusters, mbarriers and bulk copies: what they emit is CUDA that NVRTC accepts."""

import pytest
from handover import KERNELS

from autogemm.compile import Compiler

pytestmark = pytest.mark.compile


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("name", KERNELS)
def test_what_the_emulator_proves_compiles_for_a_gpu(compiler: Compiler, name: str) -> None:
    source = KERNELS[name].for_a_gpu()
    (resources,) = compiler.compile(source, "sm_90").resources
    assert resources.kernel == "gemm_kernel"
    assert resources.spill_store_bytes == 0

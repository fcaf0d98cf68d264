"""The parts for clusters, mbarriers and bulk copies: what they emit is CUDA that NVRTC accepts."""

import pytest
from handover import KERNELS

from autogemm.codegen.environment import environment
from autogemm.compile import Compiler
from autogemm.config import Config
from autogemm.kernel import KernelSource

pytestmark = pytest.mark.compile


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("name", KERNELS)
def test_what_the_emulator_proves_compiles_for_a_card(compiler: Compiler, name: str) -> None:
    kernel = KERNELS[name]
    in_cluster = "cluster" in kernel.parts
    parts = [
        environment().get_template(f"parts/{part}.cu.jinja").render(in_cluster=in_cluster)
        for part in kernel.parts
    ]
    text = "".join(parts) + kernel.text
    source = KernelSource("hand-written", "", Config("", ()), kernel.problem.layout, text)
    (resources,) = compiler.compile(source, "sm_90").resources
    assert resources.kernel == "gemm_kernel"
    assert resources.spill_store_bytes == 0

"""One GPU and one compiler for the tests of a file."""

import functools
from collections.abc import Iterator
from contextlib import closing

import pytest
from gpu_kernels import Build, Edited, plain_candidate

from autogemm.compile import Compiler
from autogemm.targets.cuda import CudaTarget


@pytest.fixture(scope="module")
def target() -> Iterator[CudaTarget]:
    with closing(CudaTarget()) as target:
        yield target


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with closing(Compiler(tmp_path_factory.mktemp("cubins"))) as compiler:
        yield compiler


@pytest.fixture
def build(target: CudaTarget, compiler: Compiler) -> Build:
    """Makes a candidate of the plain kernel, with a fault or without."""
    return functools.partial(plain_candidate, compiler=compiler, device=target.device)


@pytest.fixture(scope="module")
def wgmma(target: CudaTarget, compiler: Compiler) -> Edited:
    """Kernels of gemm_wgmma, on a GPU of compute capability 9.0."""
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    return Edited("gemm_wgmma", target, compiler)

"""Fixtures for kernels run on the CPU."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autogemm.emulator import Emulator
from autogemm.support.errors import CompilerMissingError


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    """Its executables are shared by all processes of a test run."""
    try:
        return Emulator()
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def simulated_cuda() -> Iterator[None]:
    """CuPy and cuBLAS on the CPU (cuda_on_cpu/) instead of those that are installed, or not.

    What is built for them is shared by all processes of a test run.
    """
    built = Path(os.environ["AUTOGEMM_CACHE"]).parent / "cuda_on_cpu"
    built.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).with_name("cuda_on_cpu")))
        patch.setenv("CUDA_ON_CPU_FOLDER", str(built))
        yield

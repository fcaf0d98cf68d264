"""Fixtures for kernels run on the CPU."""

import os

import pytest

from autogemm.errors import CompilerMissingError
from autogemm.targets.emulator import Emulator


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    """Its executables are shared by all processes of a test run."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    try:
        return Emulator(folder / "cache")
    except CompilerMissingError as error:
        pytest.skip(str(error))

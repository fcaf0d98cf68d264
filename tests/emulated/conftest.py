"""Fixtures for kernels run on the CPU."""

import pytest

from autogemm.errors import CompilerMissingError
from autogemm.targets.emulator import Emulator


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    """Its executables are shared by all processes of a test run."""
    try:
        return Emulator()
    except CompilerMissingError as error:
        pytest.skip(str(error))

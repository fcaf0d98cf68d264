"""Fixtures for kernels run on the CPU."""

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

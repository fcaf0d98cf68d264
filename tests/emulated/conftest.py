"""Fixtures for kernels run on the CPU."""

from pathlib import Path

import pytest

from autogemm.errors import CompilerMissingError
from autogemm.targets.emulator import Emulator


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    cache: Path = tmp_path_factory.mktemp("emulator-cache")
    try:
        return Emulator(cache)
    except CompilerMissingError as error:
        pytest.skip(str(error))

"""A PostgreSQL server for the tests that want one, started once and only if they do; and how
Hypothesis draws examples.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from postgres_server import PostgresServer, running_server, why_no_server

# The same examples each time, however slow the machine is: who changes nothing breaks nothing.
# `pytest --hypothesis-profile default` draws others.
settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("same")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server; skips, and says why, where none can be started."""
    if missing := why_no_server():
        pytest.skip(missing)
    with running_server("fsync=off") as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """An empty database."""
    return postgres.new_database()

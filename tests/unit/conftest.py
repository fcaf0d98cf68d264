"""A PostgreSQL server for the tests that want one, started once and only if they do."""

from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer, running_server, why_no_server


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

"""A PostgreSQL server for the tests that want one, started once and only if they do; how Hypothesis
draws examples; statements that are compiled once for all SQLite files, and configs that are moved
to a problem once for all choosers.
"""

from collections.abc import Hashable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from postgres_server import PostgresServer, running_server, why_no_server
from sqlalchemy import Engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from autogemm.dispatch import legal
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space import Family, fitted

# The same examples each time, however slow the machine is: who changes nothing breaks nothing.
# `pytest --hypothesis-profile default` draws others.
settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """All SQLite files share the statements that SQLAlchemy compiled.

    It keeps them for each engine, by the engine's dialect. A test has a file of its own, and took a
    quarter of its time to compile the same statements anew. The dialects are all alike.
    """
    shared: LRUCache[object, object] = LRUCache(5000)
    make = Engine.__init__

    def make_sharing(engine: Engine, *arguments: Any, **options: Any) -> None:
        make(engine, *arguments, **options)
        if type(engine.dialect) is SQLiteDialect_pysqlite:
            engine._compiled_cache = shared  # type: ignore[assignment]

    def is_alike(one: object, other: object) -> bool:
        return type(one) is type(other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "__init__", make_sharing)
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", is_alike)
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))
        yield


@pytest.fixture(scope="session", autouse=True)
def seeds_moved_once() -> Iterator[None]:
    """All choosers share where a config of a family is legal at a problem.

    Each remembers it for itself. A test has a chooser of its own, which moved all seeds of all
    families to the same few problems again.
    """
    known: dict[Hashable, tuple[Family, Config | None]] = {}

    def fitted_once(
        family: Family, config: Config, problem: Problem, device: Device
    ) -> Config | None:
        key = (id(family), config, problem, device)
        if key not in known:
            known[key] = (family, fitted(family, config, problem, device))
        return known[key][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(legal, "fitted", fitted_once)
        yield


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

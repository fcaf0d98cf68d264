"""The runs that this process writes, visible to other processes with the same database."""

import threading
from contextlib import suppress

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

# The first key of every lock on a run; arbitrary, but always this one.
_RUNS = 7041777


class Claims:
    """Locks on runs in a PostgreSQL server, which end with the process, on whatever machine it is.

    In SQLite every claim succeeds: there ``runs.owner`` tells whether its process is alive, because
    all that write are on one machine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guard = threading.Lock()
        # The locks are this connection's: it stays open as long as one of them is held.
        self._connection: Connection | None = None
        self._held: set[int] = set()

    def take(self, run_id: int) -> bool:
        """Whether this process has the run now; False if another one has it."""
        with self._guard:
            if self._engine.dialect.name != "postgresql" or run_id in self._held:
                return True
            if self._connection is None:
                self._connection = self._engine.connect().execution_options(
                    isolation_level="AUTOCOMMIT"
                )
            taken = self._connection.scalar(
                text("SELECT pg_try_advisory_lock(:runs, :run)"), {"runs": _RUNS, "run": run_id}
            )
            if taken:
                self._held.add(run_id)
            return bool(taken)

    def release(self, run_id: int) -> None:
        """Let others have the run. A run that was not taken stays as it is."""
        with self._guard:
            if run_id not in self._held or self._connection is None:
                return
            self._held.remove(run_id)
            # A connection that broke has no locks any more.
            with suppress(DBAPIError):
                self._connection.execute(
                    text("SELECT pg_advisory_unlock(:runs, :run)"), {"runs": _RUNS, "run": run_id}
                )

    def close(self) -> None:
        """Let others have everything. May be called twice."""
        for run_id in list(self._held):
            self.release(run_id)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

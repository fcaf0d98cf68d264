"""The study in Optuna's own tables of the tuning database, where optuna-dashboard finds it."""

import json
import logging
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage

# Optuna's public interface takes a query and more for each parameter of each trial.
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState

from autogemm.search.history import INTERRUPTED, STATUS_ATTR
from autogemm.support.errors import StoreError
from autogemm.support.interrupt import ctrl_c_held_back

SPACE_ATTR = "autogemm_space"
# Longer than half a minute: a backup or a slow reader must not cost a run.
BUSY_TIMEOUT_S = 60.0
# The mirror is no run's only copy: it does not wait for another's lock while a search goes on.
PATIENCE_MS = 50
LAST_PATIENCE_MS = 5_000
# Optuna looks for its tables and then makes them: of several processes that open a new database
# together all but one fail, and find the tables when they look again.
ATTEMPTS = 20
_MADE_MEANWHILE = ("already exists", "UNIQUE constraint", "duplicate key")

_log = logging.getLogger(__name__)


class _Connection(sqlite3.Connection):
    """Commits without waiting for the disk: a killed process loses nothing.

    Only a power cut can lose the last trials, and never half of one (SQLite documentation, WAL).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL").close()
        self.execute("PRAGMA synchronous=NORMAL").close()


class StudyMirror:
    """Copies the finished trials of a study in memory into a database, under the same numbers.

    A trial takes a few statements, where Optuna's own storage needs more than twenty milliseconds.
    Trials are written in the order of their numbers: one that has finished waits for those before
    it. While another process holds the database's lock they wait as well, and nobody else does.

    Raises StoreError if the database cannot be opened, or if its study was made for another space
    than the one of this identity.
    """

    def __init__(self, url: str, study_name: str, space_identity: str) -> None:
        self._study_name = study_name
        self._storage = open_storage(url)
        self._is_sqlite = url.startswith("sqlite")
        self._waiting: dict[int, FrozenTrial] = {}
        self._failure = ""
        with _as_store_error(), ctrl_c_held_back():
            study = optuna.create_study(
                storage=self._storage, study_name=study_name, load_if_exists=True
            )
            self._study_id = self._storage.get_study_id_from_name(study_name)
            self._check_space(study, space_identity)
            self._close_leftovers(study)
            self.found: list[FrozenTrial] = study.get_trials(deepcopy=False)
        self._next_number = len(self.found)

    def add(self, trial: FrozenTrial) -> None:
        """Take in a finished trial, and write what can be written now.

        Raises StoreError when another process writes to the same study.
        """
        self._waiting[trial.number] = trial
        self._write(PATIENCE_MS)

    def close(self) -> None:
        """Write what is left and let go of the database. May be called twice."""
        if self._waiting:
            self._write(LAST_PATIENCE_MS)
        if self._waiting:
            _log.warning(
                "the study %r in the database lacks %d trials (%s); the run itself has them",
                *(self._study_name, len(self._waiting), self._failure),
            )
            self._waiting.clear()
        close_storage(self._storage)

    def _write(self, patience_ms: int) -> None:
        ready: list[FrozenTrial] = []
        while (number := self._next_number + len(ready)) in self._waiting:
            ready.append(self._waiting[number])
        if not ready:
            return
        try:
            self._insert(ready, patience_ms)
        except StoreError:
            raise
        # Whatever SQLAlchemy or the driver raises: only the store may know those by name.
        except Exception as error:
            self._failure = _first_line(error)
            return
        for trial in ready:
            del self._waiting[trial.number]
        self._next_number += len(ready)

    def _insert(self, trials: Sequence[FrozenTrial], patience_ms: int) -> None:
        with ctrl_c_held_back(), self._storage.engine.begin() as connection:
            if self._is_sqlite:
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {patience_ms}")
            rows: dict[Any, list[dict[str, Any]]] = {}
            for trial in trials:
                added: Any = connection.execute(
                    _table(models.TrialModel).insert(), self._columns(trial)
                )
                (trial_id,) = added.inserted_primary_key
                for table, of_trial in _rows(trial):
                    rows.setdefault(table, []).extend({"trial_id": trial_id} | r for r in of_trial)
            for table, all_rows in rows.items():
                if all_rows:
                    connection.execute(table.insert(), all_rows)
            self._require_alone(connection, len(trials))

    def _require_alone(self, connection: Any, num_added: int) -> None:
        """Raises StoreError, which undoes the transaction, if somebody else added trials."""
        table = _table(models.TrialModel)
        added = table.select().where(
            table.c.study_id == self._study_id, table.c.number >= self._next_number
        )
        if len(connection.execute(added).fetchall()) != num_added:
            raise StoreError(
                f"the study {self._study_name!r} was changed by another process; let one process "
                "at a time work on a run"
            )

    def _columns(self, trial: FrozenTrial) -> dict[str, Any]:
        return {
            "number": trial.number,
            "study_id": self._study_id,
            "state": trial.state,
            "datetime_start": trial.datetime_start,
            "datetime_complete": trial.datetime_complete,
        }

    def _check_space(self, study: optuna.Study, identity: str) -> None:
        known = study.user_attrs.get(SPACE_ATTR)
        if known is None and not study.get_trials(deepcopy=False):
            study.set_user_attr(SPACE_ATTR, identity)
        elif known != identity:
            raise StoreError(
                f"the study {self._study_name!r} was made for a search space with other "
                "parameters, values or constraints; start a new run, or use another database "
                "(--db)"
            )

    def _close_leftovers(self, study: optuna.Study) -> None:
        """Trials that an earlier version left running when it was killed."""
        for trial in study.get_trials(
            deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING)
        ):
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(
                self._study_id, trial.number
            )
            self._storage.set_trial_user_attr(trial_id, STATUS_ATTR, INTERRUPTED)
            self._storage.set_trial_state_values(trial_id, TrialState.FAIL)


def _table(model: Any) -> Any:
    return model.__table__


def _rows(trial: FrozenTrial) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Rows of a trial by table, as Optuna's RDBStorage would have written them."""
    yield (
        _table(models.TrialParamModel),
        [
            {
                "param_name": name,
                "param_value": trial.distributions[name].to_internal_repr(value),
                "distribution_json": optuna.distributions.distribution_to_json(
                    trial.distributions[name]
                ),
            }
            for name, value in trial.params.items()
        ],
    )
    if trial.value is not None:
        value, kind = models.TrialValueModel.value_to_stored_repr(trial.value)
        row = {"objective": 0, "value": value, "value_type": kind}
        yield _table(models.TrialValueModel), [row]
    for model, attrs in (
        (models.TrialUserAttributeModel, trial.user_attrs),
        (models.TrialSystemAttributeModel, trial.system_attrs),
    ):
        yield (
            _table(model),
            [{"key": key, "value_json": json.dumps(attr)} for key, attr in attrs.items()],
        )


def open_storage(url: str) -> RDBStorage:
    """Optuna's tables at a database URL, made if need be.

    Raises StoreError if the database cannot be opened.
    """
    connect_args: dict[str, Any] = {}
    if url.startswith("sqlite"):
        connect_args = {"timeout": BUSY_TIMEOUT_S, "factory": _Connection}
    try:
        return _open_with_others(url, {"connect_args": connect_args})
    # Whatever SQLAlchemy or the driver raises: only the store may know those by name.
    except Exception as error:
        raise StoreError(
            f"the search cannot use the database ({_first_line(error)}); check that it is "
            "writable and not locked, or choose another one with --db"
        ) from error


def _open_with_others(url: str, engine_kwargs: dict[str, Any]) -> RDBStorage:
    for _ in range(ATTEMPTS - 1):
        try:
            return RDBStorage(url, engine_kwargs=engine_kwargs)
        except Exception as error:
            if not any(words in str(error) for words in _MADE_MEANWHILE):
                raise
            time.sleep(random.uniform(0.01, 0.1))
    return RDBStorage(url, engine_kwargs=engine_kwargs)


def close_storage(storage: RDBStorage) -> None:
    """Close what `open_storage` opened. May be called twice."""
    storage.remove_session()
    storage.engine.dispose()


@contextmanager
def _as_store_error() -> Iterator[None]:
    """Turns Optuna's storage failures into StoreError."""
    try:
        yield
    except StorageInternalError as error:
        cause = error.__cause__ or error
        raise StoreError(
            f"the search's trials cannot be read or written ({_first_line(cause)}); check that the "
            "database is writable and not locked, then run the same command to go on"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__

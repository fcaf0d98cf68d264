"""Finished trials as studies of Optuna, in a file that its own tools open: optuna-dashboard."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from autogemm.search.finished import FinishedStudy, FinishedTrial

MARK = b'{"op_code":0,'
"""The beginning of such a file: the creation of a study."""


def journal_pieces(studies: Iterable[FinishedStudy]) -> Iterator[str]:
    """The text of a journal file of Optuna (JournalStorage), piece by piece.

    Failed trials have ``status`` and ``reason`` as user attributes. Names of studies differ.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with TemporaryDirectory(prefix="autogemm-") as folder:
        path = Path(folder) / "studies.log"
        storage = JournalStorage(JournalFileBackend(str(path)))
        for finished in studies:
            study = optuna.create_study(
                storage=storage, study_name=finished.name, direction="minimize"
            )
            study.add_trials(_trials(finished.trials))
        if path.exists():
            with path.open(encoding="utf-8") as lines:
                yield from lines


def _trials(finished: Sequence[FinishedTrial]) -> Iterator[FrozenTrial]:
    distributions = _distributions(finished)
    for one in finished:
        outcome = one.outcome
        params = outcome.config.as_dict()
        trial = create_trial(
            state=TrialState.FAIL if one.value is None else TrialState.COMPLETE,
            value=one.value,
            params=params,
            distributions={name: distributions[name] for name in params},
            user_attrs={"status": str(outcome.status), "reason": outcome.reason}
            if one.value is None
            else {},
        )
        spent = timedelta(seconds=outcome.compile_seconds + outcome.measure_seconds)
        # Optuna's dates are local ones without a zone.
        trial.datetime_complete = one.finished_at.astimezone().replace(tzinfo=None)
        trial.datetime_start = trial.datetime_complete - spent
        yield trial


def _distributions(finished: Sequence[FinishedTrial]) -> dict[str, BaseDistribution]:
    """The values that were tried, of each parameter, in order: numbers, then texts."""
    tried: dict[str, set[int | str]] = {}
    for one in finished:
        for name, value in one.outcome.config:
            tried.setdefault(name, set()).add(value)
    return {
        name: CategoricalDistribution(
            sorted(values, key=lambda value: (isinstance(value, str), value))
        )
        for name, values in tried.items()
    }

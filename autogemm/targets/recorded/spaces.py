"""A recording of either kind as a space whose every time is known, to compare strategies on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autogemm.formats import (
    FILE_SUFFIX,
    ListedRecording,
    listed_format,
    listed_of,
    read_listed,
    read_recording,
)
from autogemm.model.problem import Problem
from autogemm.space import Space, listed_space
from autogemm.support.errors import NotFoundError, RecordingError
from autogemm.targets.recorded.description import Description, description_for
from autogemm.targets.recorded.listed import device_named, family_of, said_sizes

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RecordedSpace:
    """The configs of a recording, in the order of ``space``; no config is known as a seed.

    ``times_us`` is infinite for a config that failed. ``spent_s`` is what trying a config took, in
    seconds, None if the file does not say it of every config; ``includes_compiling`` whether that
    is all of it, or the timed launches alone.
    """

    name: str
    listed: ListedRecording
    space: Space
    times_us: Times
    spent_s: Times | None
    includes_compiling: bool

    @property
    def best_us(self) -> float:
        """The least time of all configs, in microseconds."""
        return float(self.times_us.min())


def open_recorded_space(path: Path) -> RecordedSpace:
    """Read a recording, or a file of a format of others that lists configs.

    Raises NotFoundError, RecordingError also for a file in which nothing worked.
    """
    if not path.is_file():
        raise NotFoundError(f"no such recording: {path}")
    is_foreign = listed_format(path) is not None
    listed = read_listed(path) if is_foreign else listed_of(read_recording(path))
    description = description_for(list(listed.parameters), listed.kernel_name)
    space, rows = listed_space(
        family_of(listed, description, path),
        _problem(listed, description),
        device_named(listed.device_name),
        listed.columns(),
    )
    entries = [listed.entries[row] for row in rows]
    times_us = np.array([np.inf if e.time_us is None else e.time_us for e in entries])
    if not np.isfinite(times_us).any():
        raise RecordingError(f"in the recording {path} no config worked")
    spent_s = np.array([np.nan if e.spent_s is None else e.spent_s for e in entries])
    return RecordedSpace(
        name=path.name.removesuffix(FILE_SUFFIX).removesuffix(".json"),
        listed=listed,
        space=space,
        times_us=times_us,
        spent_s=None if np.isnan(spent_s).any() else spent_s,
        includes_compiling=is_foreign,
    )


def _problem(listed: ListedRecording, description: Description | None) -> Problem:
    """For derived quantities only: a size that is not said is as large as the largest that is."""
    known = said_sizes(listed, description)
    other = max(known.values(), default=1024)
    return Problem(known.get("M", other), known.get("N", other), known.get("K", other))

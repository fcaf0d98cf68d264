"""Opens a recording, of whatever kind the file is."""

from collections.abc import Collection
from pathlib import Path

from autogemm.targets.recorded.listed import ListedTarget, is_listed
from autogemm.targets.recorded.target import RecordedTarget


def open_recorded(place: Path | None, families: Collection[str]) -> RecordedTarget | ListedTarget:
    """The target that replays a file; by default the recordings that ship, of these families.

    Raises NotFoundError where there is none, RecordingError for a file that holds none.
    """
    if place is not None and place.is_file() and is_listed(place):
        return ListedTarget(place)
    return RecordedTarget(place, families)

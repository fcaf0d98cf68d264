"""Times measured on a GPU earlier and kept in a file: for machines that have none.

The project's own recordings (:class:`RecordedTarget`), and what others recorded: formats of
`autogemm.formats.LISTED_FORMATS` (:class:`ListedTarget`).
"""

from autogemm.targets.recorded.listed import ListedTarget
from autogemm.targets.recorded.spaces import RecordedSpace, open_recorded_space
from autogemm.targets.recorded.target import (
    RecordedTarget,
    RecordingInfo,
    list_recordings,
    open_recorded,
    recording_folder,
    recording_paths,
)
from autogemm.targets.recorded.timed import timed_text

__all__ = [
    "ListedTarget",
    "RecordedSpace",
    "RecordedTarget",
    "RecordingInfo",
    "list_recordings",
    "open_recorded",
    "open_recorded_space",
    "recording_folder",
    "recording_paths",
    "timed_text",
]

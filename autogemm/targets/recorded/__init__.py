"""Times measured on a GPU earlier and kept in a file: for machines that have none.

The project's own recordings (:class:`RecordedTarget`), and what others recorded: cache files of
Kernel Tuner and T4 files (:class:`ListedTarget`).
"""

from autogemm.formats import (
    SCHEMA_VERSION,
    Baseline,
    Entry,
    ListedRecording,
    Recording,
    RecordingSource,
    is_kernel_tuner_cache,
    is_t4,
    kernel_tuner_pieces,
    listed_of,
    read_kernel_tuner_cache,
    read_recording,
    read_t4,
    t4_pieces,
    write_kernel_tuner_cache,
    write_recording,
)
from autogemm.targets.recorded.listed import ListedTarget, is_listed
from autogemm.targets.recorded.listing import (
    RecordingInfo,
    list_recordings,
    recording_folder,
    recording_paths,
)
from autogemm.targets.recorded.opening import open_recorded
from autogemm.targets.recorded.spaces import RecordedSpace, open_recorded_space
from autogemm.targets.recorded.target import RecordedTarget

__all__ = [
    "SCHEMA_VERSION",
    "Baseline",
    "Entry",
    "ListedRecording",
    "ListedTarget",
    "RecordedSpace",
    "RecordedTarget",
    "Recording",
    "RecordingInfo",
    "RecordingSource",
    "is_kernel_tuner_cache",
    "is_listed",
    "is_t4",
    "kernel_tuner_pieces",
    "list_recordings",
    "listed_of",
    "open_recorded",
    "open_recorded_space",
    "read_kernel_tuner_cache",
    "read_recording",
    "read_t4",
    "recording_folder",
    "recording_paths",
    "t4_pieces",
    "write_kernel_tuner_cache",
    "write_recording",
]

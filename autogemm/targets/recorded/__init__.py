"""Times measured on a GPU earlier and kept in a file: for machines that have none."""

from autogemm.targets.recorded.format import (
    SCHEMA_VERSION,
    Baseline,
    Recording,
    RecordingSource,
    read_recording,
    write_recording,
)
from autogemm.targets.recorded.listing import RecordingInfo, list_recordings
from autogemm.targets.recorded.target import RecordedTarget

__all__ = [
    "SCHEMA_VERSION",
    "Baseline",
    "RecordedTarget",
    "Recording",
    "RecordingInfo",
    "RecordingSource",
    "list_recordings",
    "read_recording",
    "write_recording",
]

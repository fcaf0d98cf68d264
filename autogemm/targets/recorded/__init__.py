"""Times measured on a GPU earlier and kept in a file: for machines that have none.

The project's own recordings (:class:`RecordedTarget`), and Kernel Tuner's cache files
(:class:`ListedTarget`).
"""

from autogemm.targets.recorded.format import (
    SCHEMA_VERSION,
    Baseline,
    Recording,
    RecordingSource,
    read_recording,
    write_recording,
)
from autogemm.targets.recorded.kernel_tuner import (
    KernelTunerCache,
    cache_of,
    is_kernel_tuner_cache,
    read_kernel_tuner_cache,
    write_kernel_tuner_cache,
)
from autogemm.targets.recorded.listed import ListedTarget
from autogemm.targets.recorded.listing import RecordingInfo, list_recordings
from autogemm.targets.recorded.spaces import RecordedSpace, open_recorded_space
from autogemm.targets.recorded.target import RecordedTarget

__all__ = [
    "SCHEMA_VERSION",
    "Baseline",
    "KernelTunerCache",
    "ListedTarget",
    "RecordedSpace",
    "RecordedTarget",
    "Recording",
    "RecordingInfo",
    "RecordingSource",
    "cache_of",
    "is_kernel_tuner_cache",
    "list_recordings",
    "open_recorded_space",
    "read_kernel_tuner_cache",
    "read_recording",
    "write_kernel_tuner_cache",
    "write_recording",
]

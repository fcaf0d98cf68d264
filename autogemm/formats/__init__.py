"""Files of others and recordings, read into values and written from them; no database."""

from autogemm.formats.entries import Entry, ListedRecording, listed_of, ranked
from autogemm.formats.kernel_tuner import (
    is_kernel_tuner_cache,
    kernel_tuner_pieces,
    read_kernel_tuner_cache,
    write_kernel_tuner_cache,
)
from autogemm.formats.lines import MAX_LINE_CHARS, MAX_UNPACKED_BYTES, fault, lines_of
from autogemm.formats.recording import (
    FILE_SUFFIX,
    Baseline,
    Recording,
    RecordingSource,
    read_recording,
    write_recording,
)
from autogemm.formats.t1 import T1Space, is_t1, read_t1
from autogemm.formats.t1_writing import t1_text, yaml_text
from autogemm.formats.t4 import is_t4, read_t4, t4_pieces

__all__ = [
    "FILE_SUFFIX",
    "MAX_LINE_CHARS",
    "MAX_UNPACKED_BYTES",
    "Baseline",
    "Entry",
    "ListedRecording",
    "Recording",
    "RecordingSource",
    "T1Space",
    "fault",
    "is_kernel_tuner_cache",
    "is_t1",
    "is_t4",
    "kernel_tuner_pieces",
    "lines_of",
    "listed_of",
    "ranked",
    "read_kernel_tuner_cache",
    "read_recording",
    "read_t1",
    "read_t4",
    "t1_text",
    "t4_pieces",
    "write_kernel_tuner_cache",
    "write_recording",
    "yaml_text",
]

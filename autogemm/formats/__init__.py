"""Files of others and recordings, read into values and written from them; no database."""

from autogemm.formats.bench_listing import read_bench_listing
from autogemm.formats.entries import Entry, ListedRecording, listed_of, ranked
from autogemm.formats.kernel_tuner import write_kernel_tuner_cache
from autogemm.formats.lines import MAX_LINE_CHARS, MAX_UNPACKED_BYTES, fault, lines_of
from autogemm.formats.listed import LISTED_FORMATS, listed_format, read_listed
from autogemm.formats.recording import (
    FILE_SUFFIX,
    SHORT_SHA256,
    Baseline,
    RecordedFinals,
    Recording,
    RecordingSource,
    read_recording,
    write_recording,
)
from autogemm.formats.t1 import T1Space, is_t1, read_t1
from autogemm.formats.t1_writing import t1_text, yaml_text

__all__ = [
    "FILE_SUFFIX",
    "LISTED_FORMATS",
    "MAX_LINE_CHARS",
    "MAX_UNPACKED_BYTES",
    "SHORT_SHA256",
    "Baseline",
    "Entry",
    "ListedRecording",
    "RecordedFinals",
    "Recording",
    "RecordingSource",
    "T1Space",
    "fault",
    "is_t1",
    "lines_of",
    "listed_format",
    "listed_of",
    "ranked",
    "read_bench_listing",
    "read_listed",
    "read_recording",
    "read_t1",
    "t1_text",
    "write_kernel_tuner_cache",
    "write_recording",
    "yaml_text",
]

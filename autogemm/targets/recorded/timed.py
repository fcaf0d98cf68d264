"""Tells whether a recorded time belongs to the text that a kernel has today."""

from collections.abc import Iterator
from pathlib import Path

from autogemm.formats import Recording, read_recording
from autogemm.model.results.stored import StoredKernel, TimedText
from autogemm.space import Family
from autogemm.support.errors import RecordingError, UsageError
from autogemm.targets.recorded.target import RecordedTarget, recording_folder, recording_paths


def timed_text(kernel: StoredKernel, family: Family, folder: Path | None = None) -> TimedText:
    """Compare a kernel's text with what was recorded for its config, among those that ship.

    A recording that keeps no hashes of its kernels says that they were others only if its template
    was. Raises RecordingError for a broken recording.
    """
    place = folder or recording_folder()
    found = {_compared(kernel, family, path, recording) for path, recording in _of(kernel, place)}
    for answer in (TimedText.THIS, TimedText.EARLIER):
        if answer in found:
            return answer
    return TimedText.UNKNOWN


def _of(kernel: StoredKernel, folder: Path) -> Iterator[tuple[Path, Recording]]:
    for path in recording_paths(folder):
        recording = read_recording(path)
        is_same = (recording.family, recording.problem) == (kernel.source.family, kernel.problem)
        if is_same and recording.source.device.name == kernel.device.name:
            yield path, recording


def _compared(kernel: StoredKernel, family: Family, path: Path, recording: Recording) -> TimedText:
    target = RecordedTarget(path)
    try:
        target.restriction(family)
    except (UsageError, RecordingError):
        return TimedText.UNKNOWN
    known = target.kernel_sha256(kernel.source.config)
    if known is not None:
        return TimedText.THIS if kernel.source.sha256.startswith(known) else TimedText.EARLIER
    is_other = recording.template_sha256 != kernel.source.template_sha256
    return TimedText.EARLIER if is_other else TimedText.UNKNOWN

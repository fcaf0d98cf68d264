"""Which recordings there are."""

from dataclasses import dataclass
from pathlib import Path

from autogemm.formats import FILE_SUFFIX, read_recording
from autogemm.support.resources import data_folder
from autogemm.targets.recorded.listed import is_listed


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """One recording file in a listing. ``date`` is the day it was made, as ISO text."""

    path: Path
    device_name: str
    family: str
    problem_label: str
    num_configs: int
    date: str


def recording_folder() -> Path:
    """Where recordings ship."""
    return data_folder("db/recordings")


def recording_paths(folder: Path) -> list[Path]:
    """The project's own recordings in a folder, by name; files of others are not among them."""
    paths = sorted(folder.glob(f"*{FILE_SUFFIX}"))
    return [path for path in paths if not is_listed(path)]


def list_recordings(folder: Path | None = None) -> list[RecordingInfo]:
    """The recordings of a folder (default: those that ship). Raises RecordingError."""
    infos = []
    for path in recording_paths(folder or recording_folder()):
        recording = read_recording(path)
        infos.append(
            RecordingInfo(
                path=path,
                device_name=recording.source.device.name,
                family=recording.family,
                problem_label=recording.problem.label,
                num_configs=len(recording),
                date=recording.source.date,
            )
        )
    return infos

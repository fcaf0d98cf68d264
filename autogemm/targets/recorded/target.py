"""Answers from recordings as a GPU would, with every time marked as recorded."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from autogemm.formats import FILE_SUFFIX, Recording, listed_format, read_recording
from autogemm.model.config import Config, Value
from autogemm.model.kernel import MAIN_KERNEL, Candidate, Resources
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    Finals,
    FinalsEntry,
    Measurement,
    Objective,
    Outcome,
    Provenance,
    Status,
)
from autogemm.space import Family
from autogemm.support.errors import NotFoundError, RecordingError, UsageError
from autogemm.support.resources import data_folder
from autogemm.targets import MeasureOptions, RecordedPlace
from autogemm.targets.recorded.changed import current_columns, num_changed
from autogemm.targets.recorded.listed import ListedTarget


class RecordedTarget(RecordedPlace):
    """Replays one recording file, or whichever of a folder's files holds the problem.

    ``families`` leaves out recordings of other families; empty takes all. ``problem`` is the one
    that will be asked for, if that is known. Times are medians taken
    when the recording was made, on the device that ``device`` describes. Raises NotFoundError when
    there is no recording there, RecordingError for a broken one.
    """

    provenance = Provenance.RECORDED
    needs_cubin = False

    def __init__(
        self,
        place: Path | None = None,
        families: Collection[str] = (),
        problem: Problem | None = None,
    ) -> None:
        place = place or recording_folder()
        if not place.exists():
            raise NotFoundError(
                f"no such recording: {place} (a file; autogemm gpus lists those that ship)"
            )
        paths = recording_paths(place) if place.is_dir() else [place]
        held = [(path, read_recording(path)) for path in paths]
        self._held = [item for item in held if not families or item[1].family in families]
        if not self._held:
            of_family = f" of the family {' or '.join(map(repr, families))}" if families else ""
            there = f"; recorded there: {_listed(held)}" if held else ""
            raise NotFoundError(
                f"no recording{of_family} in {place}{there}; tune one of these or run on a GPU"
            )
        self._columns: dict[str, list[Value]] = {}
        self._rows: dict[frozenset[tuple[str, Value]], int] = {}
        fitting = [item for item in self._held if item[1].problem == problem]
        self._is_asked_for = bool(fitting) or len(self._held) == 1
        self._use(*(fitting or self._held)[0])

    def _use(self, path: Path, recording: Recording) -> None:
        self.path = path
        self.recording = recording
        self.only_family = recording.family
        self.device = recording.source.device
        self.environment = recording.source.environment
        self.baseline_us: float | None = recording.baseline.time_us
        checked = recording.baseline_verification
        self.baseline_error = checked.error if checked is not None else None

    @property
    def gpu_names(self) -> str:
        """The GPU of the recording in use; all of them before a problem chose one."""
        if self._is_asked_for:
            return self.device.name
        return ", ".join(dict.fromkeys(one.source.device.name for _, one in self._held))

    @property
    def remark(self) -> str:
        """The best config's result beside cuBLAS, if the recording holds it: ratios of times
        that were taken one after the other may differ from it.
        """
        finals = self.recording.finals
        if finals is None or not self._is_asked_for:
            return ""
        return (
            f"; in {finals.rounds} interleaved rounds its best config was {finals.ratio:.3f} x "
            f"cuBLAS ({finals.ratio_low:.3f}..{finals.ratio_high:.3f})"
        )

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        """Pick the recording that holds the problem. Raises UsageError if none does."""
        if options.objective is not Objective.TIME:
            raise UsageError(
                f"recordings hold times only: --objective {options.objective} needs a GPU"
            )
        fitting = [item for item in self._held if item[1].problem == problem]
        if not fitting:
            raise NotFoundError(self._not_held(problem))
        taken_so = [item for item in fitting if item[1].source.l2 is options.l2]
        if not taken_so:
            path, recording = fitting[0]
            raise UsageError(
                f"the recording {path.name} was taken with --l2 {recording.source.l2}, not "
                f"{options.l2}"
            )
        path, recording = taken_so[0]
        self._use(path, recording)
        self._name_columns(dict(recording.parameters))

    def _name_columns(self, columns: dict[str, list[Value]]) -> None:
        """Finds the rows of configs by these names and values."""
        self._columns = columns
        rows = zip(*columns.values(), strict=True)
        self._rows = {
            frozenset(zip(columns, values, strict=True)): row for row, values in enumerate(rows)
        }

    def _not_held(self, problem: Problem) -> str:
        return (
            f"no recording holds {problem.label}; recorded: {_listed(self._held)}; tune one of "
            "these or run on a GPU"
        )

    def restriction(self, family: Family) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter that the recording covers, in the family's order.

        A parameter that the recording does not know has its default. Renamed parameters and values
        have today's names; configs are known by these from here on, until `prepare` is called
        again. Raises UsageError when the recording belongs to another family, RecordingError when
        its parameters and the family's are not the same or it holds a value that the family lacks.
        """
        recording = self.recording
        if recording.family != family.name:
            raise UsageError(
                f"the recording {self.path.name} is of family {recording.family!r}, "
                f"not {family.name!r}"
            )
        self._name_columns(current_columns(family, recording))
        columns: dict[str, Sequence[Value]] = {
            p.name: (p.default,) for p in family.parameters if p.default is not None
        }
        columns.update(self._columns)
        names = {parameter.name for parameter in family.parameters}
        if odd := sorted(names ^ columns.keys()):
            raise RecordingError(
                f"the recording {self.path.name} does not fit the family {family.name!r}: "
                f"parameter {odd[0]!r} is in one of them only; record it again"
            )
        covered: dict[str, tuple[Value, ...]] = {}
        for parameter in family.parameters:
            seen = set(columns[parameter.name])
            if unknown := [value for value in seen if not parameter.allows(value)]:
                raise RecordingError(
                    f"the recording {self.path.name} holds {parameter.name}={min(unknown)!r}, "
                    f"which the family {family.name!r} does not have"
                )
            values = parameter.on(self.device).values
            covered[parameter.name] = tuple(value for value in values if value in seen)
            if not covered[parameter.name]:
                raise RecordingError(
                    f"the recording {self.path.name} holds no {parameter.name} of "
                    f"{' '.join(map(str, values))}, the values for {self.device.name}"
                )
        return covered

    def caveats(self, family: Family) -> tuple[str, ...]:
        """Return what a person must know before believing the times, a line each."""
        recording = self.recording
        lines = []
        changed = num_changed(family, recording)
        if changed == len(recording):
            lines.append(
                f"the recording {self.path.name} ({recording.source.date}) was made with another "
                f"version of the template {family.name}: its times belong to that version"
            )
        elif changed > 0:
            lines.append(
                f"the recording {self.path.name} ({recording.source.date}) was made with another "
                f"version of the template {family.name}, which emitted other kernels for "
                f"{changed} of its {len(recording)} configs: their times belong to that version"
            )
        if not recording.complete:
            lines.append(
                f"the recording {self.path.name} is incomplete: only the {len(recording)} configs "
                "that it holds can be chosen"
            )
        return tuple(lines)

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        """Return the recorded outcome of this config; REJECTED if it does not hold it."""
        config = candidate.config
        row = self._rows.get(self._key(config))
        if row is None:
            reason = f"not in the recording {self.path.name}"
            return Outcome(config, Status.REJECTED, reason, candidate.source.sha256)
        recording = self.recording
        status = recording.status[row]
        return Outcome(
            config=config,
            status=status,
            reason="" if status is Status.OK else "recorded so",
            kernel_sha256=candidate.source.sha256,
            resources=self._resources(row),
            verification=recording.verification(row),
            measurement=self._measurement(row),
        )

    def _measurement(self, row: int) -> Measurement | None:
        time_us = self.recording.time_us[row]
        if time_us is None:
            return None
        return Measurement(
            samples_us=(time_us,),
            provenance=Provenance.RECORDED,
            method=self.recording.source.method,
            l2=self.recording.source.l2,
        )

    def _resources(self, row: int) -> tuple[Resources, ...]:
        registers = self.recording.registers[row]
        if registers is None:
            return ()
        spilled = self.recording.spill_bytes[row] or 0
        return (
            Resources(
                kernel=MAIN_KERNEL,
                registers=registers,
                spill_store_bytes=spilled,
                spill_load_bytes=spilled,
                stack_bytes=0,
                static_smem_bytes=self.recording.static_smem_bytes[row] or 0,
            ),
        )

    def kernel_sha256(self, config: Config) -> str | None:
        """The beginning of the hash of the text that was timed, None where none is kept."""
        row = self._rows.get(self._key(config))
        hashes = self.recording.kernel_sha256
        return hashes[row] if hashes is not None and row is not None else None

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        """Best first by recorded medians. No interval is claimed that was not measured.

        ``rounds`` and ``seed`` have nothing to act on; the result says 0 rounds.
        """
        ranked = sorted(
            ((self._time_us(candidate), candidate) for candidate in candidates),
            key=lambda pair: pair[0],
        )
        best_us = ranked[0][0]
        entries = tuple(
            self._entry(candidate, time_us, is_tied=place > 0 and time_us == best_us)
            for place, (time_us, candidate) in enumerate(ranked)
        )
        baseline = FinalsEntry(
            name=self.recording.baseline.name,
            config=None,
            kernel_sha256="",
            samples_us=tuple(self.recording.baseline.during_us),
            ratio=1.0,
            ratio_low=1.0,
            ratio_high=1.0,
            tied=False,
            verification=self.recording.baseline_verification,
        )
        return Finals(entries, baseline, rounds=0, provenance=Provenance.RECORDED)

    def _time_us(self, candidate: Candidate) -> float:
        time_us = self.recording.time_us[self._row(candidate)]
        assert time_us is not None, "finalists are candidates that ran well"
        return time_us

    def _row(self, candidate: Candidate) -> int:
        return self._rows[self._key(candidate.config)]

    def _key(self, config: Config) -> frozenset[tuple[str, Value]]:
        """Without parameters that came later: `restriction` holds them at their defaults."""
        return frozenset((name, value) for name, value in config if name in self._columns)

    def _entry(self, candidate: Candidate, time_us: float, *, is_tied: bool) -> FinalsEntry:
        ratio = self.recording.baseline.time_us / time_us
        return FinalsEntry(
            name=candidate.config.label,
            config=candidate.config,
            kernel_sha256=candidate.source.sha256,
            samples_us=(time_us,),
            ratio=ratio,
            ratio_low=math.nan,
            ratio_high=math.nan,
            tied=is_tied,
            verification=self.recording.verification(self._row(candidate)),
            registers=self.recording.registers[self._row(candidate)],
        )

    def close(self) -> None:
        """Nothing is held open."""


def open_recorded(
    place: Path | None, families: Collection[str], problem: Problem | None = None
) -> RecordedTarget | ListedTarget:
    """The target that replays a file; by default the recordings that ship, of these families, and
    of these the one of the problem.

    Raises NotFoundError where there is none, RecordingError for a file that holds none.
    """
    if place is not None and place.is_file() and listed_format(place):
        return ListedTarget(place)
    return RecordedTarget(place, families, problem)


def _listed(held: Sequence[tuple[Path, Recording]]) -> str:
    """Return the problems of recordings in one line, by GPU and family."""
    problems: dict[tuple[str, str], list[str]] = {}
    for _, one in held:
        place = (one.source.device.name, one.family)
        problems.setdefault(place, []).append(one.problem.label)
    return "; ".join(
        f"{', '.join(labels)} ({family}, {gpu})" for (gpu, family), labels in problems.items()
    )


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
    """The folder of the recordings that ship."""
    return data_folder("db/recordings")


def recording_paths(folder: Path) -> list[Path]:
    """The project's own recordings in a folder, by name; files of others are not among them."""
    paths = sorted(folder.glob(f"*{FILE_SUFFIX}"))
    return [path for path in paths if listed_format(path) is None]


def list_recordings(folder: Path | None = None) -> list[RecordingInfo]:
    """The recordings of a folder (default: those that ship). Raises RecordingError."""
    infos = []
    for path in recording_paths(folder or recording_folder()):
        recording = read_recording(path)
        device_name, label = recording.source.device.name, recording.problem.label
        date, family = recording.source.date, recording.family
        infos.append(RecordingInfo(path, device_name, family, label, len(recording), date))
    return infos

"""Replays what others recorded: a list of configs and times of a kernel that is not here."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from autogemm.formats import Entry, ListedRecording, read_listed
from autogemm.model.config import Config, Value
from autogemm.model.hardware.device import FACTS, Device
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    CacheState,
    Environment,
    Finals,
    Measurement,
    Objective,
    Outcome,
    Provenance,
)
from autogemm.space import (
    Expression,
    Family,
    Parameter,
    Space,
    listed_space,
    parse_expression,
    problem_values,
)
from autogemm.space.expressions import Operand
from autogemm.support.errors import FamilyError, NotFoundError, UsageError
from autogemm.targets import MeasureOptions, RecordedPlace
from autogemm.targets.recorded.description import SIZES, Description, description_for

# Any problem will do to see whether a derived quantity can be computed at all.
ANY_PROBLEM = Problem(64, 64, 64)


class ListedTarget(RecordedPlace):
    """Answers from one file of a format of others (T4, ...), with the family that it lists.

    ``listed`` is what the file holds, if it was read already. Nothing is known of the device but
    its name, nothing of a baseline: there are no finals. Raises NotFoundError when the file is not
    there, RecordingError for a broken one.
    """

    provenance = Provenance.RECORDED
    needs_cubin = False
    baseline_us: float | None = None
    remark = ""
    baseline_error: float | None = None

    def __init__(self, path: Path, listed: ListedRecording | None = None) -> None:
        if not path.exists():
            raise NotFoundError(f"no such recording: {path}")
        self.path = path
        self.listed = read_listed(path) if listed is None else listed
        self._description = description_for(list(self.listed.parameters), self.listed.kernel_name)
        self.family = family_of(self.listed, self._description, path)
        self.own_family = self.family
        sizes = said_sizes(self.listed, self._description)
        if len(sizes) == len(SIZES):
            self.own_size = "x".join(str(sizes[name]) for name in SIZES)
        self.device = device_named(self.listed.device_name)
        self.environment = Environment()
        self._entries: dict[tuple[Value, ...], Entry] = {}

    @property
    def gpu_names(self) -> str:
        """The one GPU of the file."""
        return self.device.name

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        """Raises UsageError for another problem or cache state than the file's."""
        if options.objective is not Objective.TIME:
            raise UsageError(
                f"recordings hold times only: --objective {options.objective} needs a GPU"
            )
        said_problem = self.listed.problem
        if said_problem is not None and problem != said_problem:
            raise UsageError(
                f"{self.path.name} was recorded for {said_problem.label}, not {problem.label}: "
                f"give --size {said_problem.size_label} --layout {said_problem.layout}, and what "
                "else it names"
            )
        known = said_sizes(self.listed, self._description)
        asked = {"M": problem.m, "N": problem.n, "K": problem.k}
        if any(asked[name] != size for name, size in known.items()):
            said = " ".join(f"{name}={size}" for name, size in known.items())
            raise UsageError(
                f"{self.path.name} was recorded for {said}, not {problem.size_label}: give --size "
                f"{self._size_hint(known)}"
            )
        if options.l2 is not CacheState.WARM:
            raise UsageError(
                f"{self.path.name}: {self.listed.written_by} launches one after the other, so --l2 "
                f"is warm, not {options.l2}"
            )
        self._entries = {entry.values: entry for entry in self.listed.entries}

    def _size_hint(self, known: Mapping[str, int]) -> str:
        if len(known) == 3 or len(set(known.values())) > 1:
            return "x".join(str(known.get(name, name)) for name in SIZES)
        return str(next(iter(known.values())))

    def own_space(self, problem: Problem, fix: Mapping[str, Sequence[Value]]) -> Space:
        """The listed configs within ``fix``. Raises UsageError, EmptySpaceError."""
        columns = self.listed.columns()
        return listed_space(self.family, problem, self.device, columns, fix)[0]

    def caveats(self, family: Family) -> tuple[str, ...]:
        """Return what a person must know before believing the times, a line each."""
        name, known = self.path.name, said_sizes(self.listed, self._description)
        unsaid = [name for name in SIZES if name not in known]
        lines = [
            f"{name} was recorded by {self.listed.written_by}: the kernel itself is not in it, so "
            "its result cannot be exported"
        ]
        if self.listed.problem is None:
            missing = ", ".join([*unsaid, "layout and element type"])
            lines.append(f"{name} does not say {missing}: taken to be as asked")
        lines += [f"{name} {note}" for note in self.listed.notes]
        if not self.listed.is_closed:
            lines.append(
                f"{name} was left open: it holds {len(self.listed.entries)} configs so far"
            )
        if self._description is None:
            lines.append(f"{name}: no description has these parameters: searched as they are")
        return tuple(lines)

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        """Return the recorded outcome of this config. It names no kernel: there is none."""
        return self.outcome_of(self._entries[tuple(value for _, value in candidate.config)])

    def outcome_of(self, entry: Entry) -> Outcome:
        """Return the recorded outcome of an entry's config."""
        values = dict(zip(self.listed.parameters, entry.values, strict=True))
        measurement = None
        if entry.time_us is not None:
            measurement = Measurement((entry.time_us,), Provenance.RECORDED)
        config = Config.of(self.family.name, values)
        return Outcome(config, entry.status, entry.reason, measurement=measurement)

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        """Raises UsageError: there is no baseline to be timed beside."""
        raise UsageError(f"{self.path.name} holds no baseline: there are no finals")

    def close(self) -> None:
        """Nothing is held open."""


def said_sizes(listed: ListedRecording, description: Description | None) -> dict[str, int]:
    """Return the M, N and K that the file says; nothing if its numbers cannot be told apart."""
    names = description.problem_size if description is not None else ()
    if listed.problem is not None:
        names = SIZES
    sizes = listed.problem_size
    return dict(zip(names, sizes, strict=True)) if len(names) == len(sizes) else {}


def device_named(name: str) -> Device:
    """A device of which only the name is known; every number is 0."""
    unknown = dict.fromkeys(FACTS, 0)
    return Device(name=name, **unknown)


def family_of(listed: ListedRecording, description: Description | None, path: Path) -> Family:
    """Return the family that the file lists: no template, no constraints, no seeds."""
    docs = description.docs if description is not None else {}
    parameters = tuple(
        Parameter(name, values, docs.get(name, "")) for name, values in listed.parameters.items()
    )
    derive = _with_defaults(description, listed) if description is not None else {}
    return Family(
        # A run names its families with blanks between them.
        name=description.name if description else "_".join(listed.kernel_name.split()),
        summary=f"{listed.kernel_name} on {listed.device_name}, recorded by {listed.written_by}",
        dtypes={},
        architectures="",
        parameters=parameters,
        derive=_computable(derive, listed),
        constraints=(),
        worth_trying=(),
        launch=(),
        workspace_bytes=parse_expression("0"),
        fp32_every=parse_expression("0"),
        seeds=(),
        yaml_path=path,
        template_path=None,
        yaml_sha256=listed.sha256,
        template_sha256="",
    )


def _with_defaults(description: Description, listed: ListedRecording) -> dict[str, Expression]:
    """The quantities with the defaults of parameters that the file does not know in place."""
    absent = {
        name: parse_expression(repr(value))
        for name, value in description.defaults.items()
        if name not in listed.parameters
    }
    return {name: derive.substitute(absent) for name, derive in description.derive.items()}


def _computable(derive: Mapping[str, Expression], listed: ListedRecording) -> dict[str, Expression]:
    """The quantities that every listed config has: a file may lack a parameter, or hold a config
    that the description's author did not think of.
    """
    given: dict[str, Operand] = dict(problem_values(ANY_PROBLEM))
    for name, column in listed.columns().items():
        given[name] = np.array(column, dtype=np.int64 if isinstance(column[0], int) else None)
    kept = {}
    for name, expression in derive.items():
        if name in given or not expression.names <= given.keys():
            continue
        with suppress(FamilyError):
            expression.kind({known: _kind(value) for known, value in given.items()})
            given[name] = expression.evaluate(given)
            kept[name] = expression
    return kept


def _kind(value: Operand) -> type:
    if isinstance(value, np.ndarray):
        return int if value.dtype == np.int64 else str
    return type(value)

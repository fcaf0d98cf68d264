"""Frozen values that go into the store and come out of it; no database types."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from annotated_types import MaxLen, MinLen

from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import Bench
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.change import Rounds
from autogemm.model.results.outcome import (
    AgainstBaseline,
    CacheState,
    Environment,
    Fill,
    Finals,
    Objective,
    Outcome,
    Provenance,
    StopRule,
    Sustained,
    against_baseline,
)
from autogemm.model.results.shown import html_table, speed_words
from autogemm.model.results.stored import Profile
from autogemm.support.errors import UsageError
from autogemm.support.limits import (
    Count,
    Line,
    Long,
    LongText,
    Mapped,
    Moment,
    Name,
    ParameterValue,
    Sha256,
    Word,
)


class RunState(StrEnum):
    """The state of a run. All but FINISHED ones are resumed."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"


_Values = Annotated[tuple[ParameterValue, ...], MaxLen(10_000)]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The request that makes two runs the same run, one resuming the other; and the command typed.

    ``families`` are names, ``family_sha256`` covers their search spaces and templates, ``fix`` the
    values that each narrowed parameter may take. ``command`` is kept for the reader and not
    compared.
    """

    problem: Problem
    device: Device
    environment: Environment
    families: Annotated[tuple[Word, ...], MinLen(1), MaxLen(64)]
    family_sha256: Line
    fix: Annotated[tuple[tuple[str, tuple[Value, ...]], ...], Mapped(_Values, Name)]
    sampler: Line
    seed: Long
    provenance: Provenance
    command: LongText
    l2: CacheState = CacheState.WARM
    objective: Objective = Objective.TIME
    fill: Fill = Fill.UNIFORM
    max_error: Line = ""
    """The largest relative error that a winner may have: a number, ``cublas``, or empty."""


# In place of an expression: that of the plain GEMM.
NO_EPILOGUE = "none"
# In place of groups: rows belong to none.
NO_GROUPS = "none"


@dataclass(frozen=True, slots=True)
class BestQuery:
    """A filter over runs, trials and results; None does not filter.

    ``gpu`` is any part of the device's name, in any case. ``size`` is ``4096`` or ``MxNxK``,
    ``epilogue`` an expression however it is spaced, or ``none`` for plain products. ``batch`` is a
    number of products (1 for no batch) whatever their strides, or the text of a `Batch`;
    ``groups`` a number of groups however rows are spread, ``none``, or the text of `Groups`.
    ``versions`` are fields of `Environment`, each with what it must begin with.

    Raises UsageError for an empty text, which would filter as if nothing were said, and for a size
    an epilogue, a batch or groups that are none.
    """

    gpu: str | None = None
    size: str | None = None
    layout: str | None = None
    dtype: str | None = None
    epilogue: str | None = None
    batch: str | None = None
    groups: str | None = None
    family: str | None = None
    run_id: int | None = None
    provenance: Provenance | None = None
    versions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("gpu", "layout", "dtype", "epilogue", "batch", "groups", "family"):
            text = getattr(self, name)
            if text is not None and not text.strip():
                raise UsageError(f"{name} is empty: name one, or leave it out")
        if self.size is not None:
            Problem.of_size(self.size)
        if self.epilogue is not None:
            text = "" if self.epilogue == NO_EPILOGUE else self.epilogue
            object.__setattr__(self, "epilogue", Epilogue.parse(text).text or NO_EPILOGUE)
        if self.batch is not None:
            object.__setattr__(self, "batch", str(Batch.parse(self.batch)) or "1")
        if self.groups not in (None, NO_GROUPS) and not self.groups.isdigit():
            object.__setattr__(self, "groups", str(Groups.parse(self.groups)))

    @classmethod
    def of(cls, problem: Problem) -> "BestQuery":
        """The stored text of a problem, and of those that have its size, layout and dtype."""
        return cls(size=problem.size_label, layout=problem.layout.value, dtype=problem.dtype.label)

    def is_of_batch(self, text: str) -> bool:
        """Whether a problem whose batch has that canonical text is meant."""
        return self.batch in (None, text or "1", text.split(" ", maxsplit=1)[0])

    def is_of_groups(self, text: str) -> bool:
        """Whether a problem whose groups have that canonical text is meant."""
        if self.groups is not None and self.groups.isdigit():
            return self.groups == text.split(" ", maxsplit=1)[0]
        return self.groups in (None, text or NO_GROUPS)

    def is_about(self, problem: Problem, family: str | None) -> bool:
        """Whether that problem and family are meant; other filters are not looked at."""
        return (
            (
                self.size is None
                or Problem.parse_size(self.size) == (problem.m, problem.n, problem.k)
            )
            and self.layout in (None, problem.layout)
            and self.dtype in (None, problem.dtype.label)
            and self.epilogue_in(problem.dtype) in (None, problem.epilogue.text)
            and self.is_of_batch(str(problem.batch))
            and self.is_of_groups(str(problem.groups))
            and self.family in (None, family)
        )

    @property
    def asked_epilogue(self) -> Epilogue | None:
        """The epilogue that a problem must have; None where any will do."""
        if self.epilogue is None:
            return None
        return Epilogue("" if self.epilogue == NO_EPILOGUE else self.epilogue)

    def epilogue_in(self, dtype: DType) -> str | None:
        """The canonical text that a problem of that dtype must have, empty for plain products.

        It names no type that an array has there anyway.
        """
        asked = self.asked_epilogue
        return None if asked is None else asked.in_dtype(dtype).text


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The best kernel for one device, problem, provenance, cache state and fill.

    ``ratio`` is cuBLAS time / own time from the finals (above 1 is faster than cuBLAS) with its
    interval; None for a run that had no finals. ``kernel_id`` is None if its source was not kept,
    and so is ``template_sha256``. ``baseline_samples_us[i]`` was taken in the same round of the
    finals as ``samples_us[i]``; empty without finals. ``baseline`` names the call of cuBLAS,
    ``sustained`` is None unless this kernel won these finals and ran alone.
    """

    device: Device
    problem: Problem
    provenance: Provenance
    l2: CacheState
    fill: Fill
    family: str
    config: Config
    time_us: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    kernel_id: int | None
    run_id: int
    measured_at: datetime
    objective: Objective
    environment: Environment
    template_sha256: str | None
    samples_us: tuple[float, ...]
    baseline_samples_us: tuple[float, ...]
    baseline: str | None = None
    energy_mj: float | None = None
    baseline_energy_mj: float | None = None
    sustained: Sustained | None = None

    def __repr__(self) -> str:
        where = f"{self.problem.label} on {self.device.name}, {self.provenance}"
        speed = speed_words(self.problem, self.time_us, self.ratio)
        return f"<ResultRow: run {self.run_id}, {where}, {speed}, {self.family} {self.config}>"

    def _repr_html_(self) -> str:
        """Return the row as a table for a notebook."""
        head = ("problem", "GPU", "family", "config", "time us", "TFLOP/s", "x cuBLAS", "run")
        ratio = None if self.ratio is None else f"{self.ratio:.3f}"
        what = (self.problem.label, self.device.name, self.family, self.config)
        cells = (*what, f"{self.time_us:.4g}", f"{self.tflops:.2f}", ratio, self.run_id)
        return html_table(str(self.provenance), head, [cells])

    @property
    def ratio_of_medians(self) -> float | None:
        """The other estimator of ``ratio``; None without finals."""
        if not self.baseline_samples_us:
            return None
        return statistics.median(self.baseline_samples_us) / self.time_us

    @property
    def against_baseline(self) -> AgainstBaseline | None:
        """Whether it is faster than cuBLAS by both estimators; None without finals."""
        low, high, medians = self.ratio_low, self.ratio_high, self.ratio_of_medians
        if self.ratio is None or medians is None:
            return None
        interval = None if low is None or high is None or low == high else (low, high)
        return against_baseline(self.ratio, interval, medians)

    @property
    def tflops(self) -> float:
        """Speed in TFLOP/s."""
        return self.problem.tflops(self.time_us)

    @property
    def rounds(self) -> Rounds:
        """Its samples with those of the baseline, for comparing."""
        return Rounds(self.samples_us, self.baseline_samples_us)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run without its finals.

    ``stopped_by`` is what ended the search, None while it goes on or for an older version.
    """

    run_id: int
    spec: RunSpec
    state: RunState
    started_at: datetime
    finished_at: datetime | None
    stopped_by: StopRule | None
    num_trials: int
    num_ok: int
    time_us: float | None


@dataclass(frozen=True, slots=True)
class RunRow(RunFacts):
    """One run and the newest of its finals."""

    finals: Finals | None


@dataclass(frozen=True, slots=True)
class RunLine(RunFacts):
    """One run as a list shows it: of its newest finals only the winner's ratio.

    ``ratio`` is None for a run that had no finals, NaN where none was measured, the ends of its
    interval None where there is no interval.
    """

    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The times of one run's trials that ran well, by the config's sha256."""

    run_id: int
    provenance: Provenance
    time_us: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DecidedRow:
    """A run with its newest finals, and when they were held.

    ``finals`` lack kernels whose newest certificate on that GPU is a failure: the first entry won.
    ``origin`` names the place of a row that belongs to no run (`shipped_rows`), empty for the
    database.
    """

    run_id: int
    spec: RunSpec
    finals: Finals
    measured_at: datetime
    origin: str = ""


@dataclass(frozen=True, slots=True)
class DecidedRun:
    """A run that had finals, without them: what tells whether they are worth reading."""

    run_id: int
    problem: Problem
    device: Device
    objective: Objective


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial with the run's circumstances. ``kernel_id`` is None if no source was stored."""

    trial_id: int
    run_id: int
    number: int
    outcome: Outcome
    kernel_id: int | None
    problem: Problem
    device: Device
    environment: Environment
    provenance: Provenance
    l2: CacheState
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class RunCopy:
    """A run on its way from one database to another; ``run_id`` is its number where it comes from.

    ``started_at`` None is not known (a file of another program): the run is then known by its spec
    alone.
    """

    record: Literal["run"] = field(default="run", kw_only=True)
    run_id: Count
    spec: RunSpec
    state: RunState
    stopped_by: StopRule | None = None
    started_at: Moment | None = None
    finished_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class KernelCopy:
    """A source; it comes before whatever names it by its sha256."""

    record: Literal["kernel"] = field(default="kernel", kw_only=True)
    kernel_sha256: Sha256
    source: KernelSource
    created_at: Moment

    def __post_init__(self) -> None:
        if self.source.sha256 != self.kernel_sha256:
            raise ValueError(f"the source is not the one whose sha256 is {self.kernel_sha256}")


@dataclass(frozen=True, slots=True)
class TrialCopy:
    """A trial of the run of that number, which comes before it."""

    record: Literal["trial"] = field(default="trial", kw_only=True)
    run_id: Count
    number: Count
    outcome: Outcome
    finished_at: Moment


@dataclass(frozen=True, slots=True)
class FinalsCopy:
    """Finals of the run of that number."""

    record: Literal["finals"] = field(default="finals", kw_only=True)
    run_id: Count
    finals: Finals
    measured_at: Moment


@dataclass(frozen=True, slots=True)
class CertificateCopy:
    """A certificate that was made in the run of that number."""

    record: Literal["certificate"] = field(default="certificate", kw_only=True)
    run_id: Count
    kernel_sha256: Sha256
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class BenchCopy:
    """A whole benchmark; its number is that of where it comes from."""

    record: Literal["bench"] = field(default="bench", kw_only=True)
    bench: Bench

    def __post_init__(self) -> None:
        if self.bench.started_at is None:
            raise ValueError("the benchmark has no started_at: a stored one says when it was run")


@dataclass(frozen=True, slots=True)
class ProfileCopy:
    """A profile."""

    record: Literal["profile"] = field(default="profile", kw_only=True)
    profile: Profile


@dataclass(frozen=True, slots=True)
class CeilingsCopy:
    """Speeds that a GPU reached, and in which environment."""

    record: Literal["ceilings"] = field(default="ceilings", kw_only=True)
    device: Device
    environment: Environment
    ceilings: Ceilings


Copy = (
    RunCopy
    | KernelCopy
    | TrialCopy
    | FinalsCopy
    | CertificateCopy
    | BenchCopy
    | ProfileCopy
    | CeilingsCopy
)


@dataclass(frozen=True, slots=True)
class Taken:
    """The numbers of new and of known values of each kind in an import.

    ``run_ids`` are the numbers that its runs have here, by those where they come from.
    """

    new: Mapping[str, int]
    known: Mapping[str, int]
    run_ids: Mapping[int, int] = field(default_factory=dict)

    @property
    def num_new(self) -> int:
        """The sum over all kinds."""
        return sum(self.new.values())

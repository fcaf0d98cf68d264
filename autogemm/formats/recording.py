"""The recording file: gzip'd JSON, one list per column, validated before anything is believed.

A recording holds what one GPU measured for one problem over one (restricted) space, and under what
conditions. It is data: read within a size limit, never executed.
"""

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    model_validator,
)

from autogemm.formats.lines import named_faults
from autogemm.model.config import Value
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, Environment, Status, Verification
from autogemm.support.errors import RecordingError, UsageError
from autogemm.support.files import unpacked, write_chunks_atomically
from autogemm.support.limits import Amount, Ratio, Sha256, TimeUs

FILE_SUFFIX = ".json.gz"
# A recording of 10,000 configs unpacks to about 2 MB; a file that claims more than this is none.
MAX_UNPACKED_BYTES = 64 * 2**20

# Digits of a text's hash that are kept: they do not compress, and 64 bits tell thousands apart.
SHORT_SHA256 = 16
ShortSha256 = Annotated[StrictStr, Field(pattern=rf"^[0-9a-f]{{{SHORT_SHA256}}}$")]
Count = Annotated[int, Field(ge=0, strict=True)]
_ENOUGH_SAMPLES = 3
Word = Annotated[StrictStr, Field(min_length=1, max_length=200)]
Integer = Annotated[StrictInt, Field(ge=-(2**62), le=2**62)]
Parameter = Annotated[list[Integer | Word], Field(min_length=1)]
# Files of version 0.1 have the former name.
_ERROR = Field(validation_alias=AliasChoices("error", "relative_frobenius"))


class _ProblemForm(BaseModel):
    """Sizes and leading dimensions are whole numbers, scalars finite ones."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    problem: Problem


def _problem_of(value: object) -> Problem:
    """The problem of an object in a file, which names layout and dtype even if they are usual."""
    if isinstance(value, Problem):
        return value
    if not isinstance(value, dict) or not {"layout", "dtype"} <= value.keys():
        raise ValueError("not a problem: sizes, layout and dtype are needed")
    try:
        return _ProblemForm.model_validate_json(json.dumps({"problem": value})).problem
    except UsageError as error:
        raise ValueError(f"not a problem: {error}") from error


ProblemField = Annotated[Problem, BeforeValidator(_problem_of)]


class _Part(BaseModel):
    """Common to all parts: nothing unknown is let through, nothing changes afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class RecordingSource(_Part):
    """The circumstances of the times. ``protocol`` says it in a sentence."""

    device: Device
    environment: Environment
    date: str
    autogemm_version: str
    autogemm_commit: str
    command: str
    protocol: str
    method: str = "events"
    l2: CacheState = CacheState.WARM


class Baseline(_Part):
    """cuBLAS, timed again and again while the recording was made, so that drift can be seen.

    ``samples_us[i]`` was taken when ``after_configs[i]`` configs had been measured.
    """

    name: str = "cuBLAS"
    samples_us: list[TimeUs] = Field(min_length=1)
    after_configs: list[Count]
    max_error_ratio: Amount | None = None
    error: Annotated[Amount | None, _ERROR] = None

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len(self.samples_us) != len(self.after_configs):
            raise ValueError("baseline samples_us and after_configs differ in length")
        return self

    @property
    def during_us(self) -> list[float]:
        """Samples in microseconds, taken while configs were measured: in the interleaved rounds at
        the end a GPU at its power limit is slower. All samples where there are too few of these.
        """
        last = max(self.after_configs)
        pairs = zip(self.samples_us, self.after_configs, strict=True)
        during = [sample_us for sample_us, after in pairs if after < last]
        return during if len(during) >= _ENOUGH_SAMPLES else self.samples_us

    @property
    def time_us(self) -> float:
        """Median of the samples that were taken as those of configs, in microseconds."""
        return statistics.median(self.during_us)


class RecordedFinals(_Part):
    """The best config beside cuBLAS in interleaved rounds, when the recording had been made."""

    row: Count
    rounds: Annotated[int, Field(ge=1, strict=True)]
    time_us: TimeUs
    ratio: Ratio
    ratio_low: Ratio
    ratio_high: Ratio


class Recording(_Part):
    """One recorded space: row i of every column belongs to config i.

    ``time_us`` is the median of ``num_samples`` samples with interquartile range ``iqr_us``; all
    three are None where the status is not ok. ``complete`` says that every legal config of the
    space ``fix`` was measured. ``kernel_sha256`` begins as the hash of the text that was timed;
    older recordings have neither it nor ``finals``.
    """

    format: Literal["autogemm-recording"] = "autogemm-recording"
    schema_version: Literal[1] = 1
    complete: bool
    source: RecordingSource
    family: str
    yaml_sha256: Sha256
    template_sha256: Sha256
    problem: ProblemField
    fix: dict[str, Parameter]
    baseline: Baseline
    parameters: dict[str, Parameter] = Field(min_length=1)
    status: list[Status] = Field(min_length=1)
    time_us: list[TimeUs | None]
    num_samples: list[Count | None]
    iqr_us: list[Amount | None]
    registers: list[Count | None]
    spill_bytes: list[Count | None]
    static_smem_bytes: list[Count | None]
    max_error_ratio: list[Amount | None]
    error: Annotated[list[Amount | None], _ERROR]
    kernel_sha256: list[ShortSha256] | None = None
    finals: RecordedFinals | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = (
            *("time_us", "num_samples", "iqr_us", "registers", "spill_bytes"),
            *("static_smem_bytes", "max_error_ratio", "error"),
        )
        columns: dict[str, list[object]] = {name: getattr(self, name) for name in names}
        if self.kernel_sha256 is not None:
            columns["kernel_sha256"] = list(self.kernel_sha256)
        columns |= {f"parameters.{name}": list(col) for name, col in self.parameters.items()}
        for name, values in self.parameters.items():
            if len(set(map(type, values))) > 1:
                raise ValueError(f"parameters.{name} has both numbers and texts")
        for name, column in columns.items():
            if len(column) != len(self):
                raise ValueError(f"column {name} has {len(column)} rows, status has {len(self)}")
        for row, (status, time_us) in enumerate(zip(self.status, self.time_us, strict=True)):
            if (status is Status.OK) != (time_us is not None):
                raise ValueError(f"row {row}: status {status} with time {time_us}")
        if self.finals is not None and self.finals.row >= len(self):
            raise ValueError(f"finals: row {self.finals.row} of {len(self)}")
        most_common = Counter(zip(*self.parameters.values(), strict=True)).most_common(1)
        if most_common[0][1] > 1:
            raise ValueError(f"config {most_common[0][0]} is recorded twice")
        return self

    def __len__(self) -> int:
        """Number of configs recorded."""
        return len(self.status)

    def values(self, row: int) -> dict[str, Value]:
        """Parameter values of one config."""
        return {name: column[row] for name, column in self.parameters.items()}

    def verification(self, row: int) -> Verification | None:
        """Errors seen when it was recorded; the largest absolute error is not kept."""
        return _verification(self.max_error_ratio[row], self.error[row])

    @property
    def baseline_verification(self) -> Verification | None:
        """The baseline's errors, None if they were not taken."""
        return _verification(self.baseline.max_error_ratio, self.baseline.error)


def _verification(ratio: float | None, error: float | None) -> Verification | None:
    if ratio is None or error is None:
        return None
    return Verification(max_abs_error=None, max_error_ratio=ratio, error=error)


def read_recording(path: Path) -> Recording:
    """Read and validate one file. Raises RecordingError with the path and the first fault."""
    with named_faults("recording", path, RecordingError):
        text = b"".join(unpacked(path, MAX_UNPACKED_BYTES))
        return Recording.model_validate_json(text)


def write_recording(recording: Recording, path: Path) -> None:
    """Write the file so that it is there whole or not at all. Raises RecordingError.

    The same recording gives the same bytes.
    """
    try:
        write_chunks_atomically(path, [recording.model_dump_json().encode()])
    except OSError as error:
        raise RecordingError(f"cannot write the recording {path}: {error}") from error

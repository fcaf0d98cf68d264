"""What the fields of a results file may hold, and the parts that several of its lines share."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from autogemm.formats import TimeUs

MAX_SAMPLES = 100_000
MAX_SOURCE_CHARS = 2 * 2**20


def one_line(text: str) -> str:
    """The text. Raises ValueError if it is none that a terminal prints in a line."""
    if not (text.isprintable() or text == ""):
        raise ValueError("must be one printable line")
    return text


def _without_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a zero character")
    return text


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a date needs its offset from UTC")
    if not 1970 < moment.year < 2200:
        raise ValueError("a date is of the years 1971 to 2199")
    return moment.astimezone(UTC)


def _word(text: str) -> str:
    if text != "".join(text.split()):
        raise ValueError("must be one word")
    return text


Line = Annotated[str, StringConstraints(max_length=200), AfterValidator(one_line)]
Word = Annotated[Line, StringConstraints(min_length=1), AfterValidator(_word)]
LongText = Annotated[str, StringConstraints(max_length=2**16), AfterValidator(_without_zero)]
Source = Annotated[
    str, StringConstraints(max_length=MAX_SOURCE_CHARS), AfterValidator(_without_zero)
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
AnySha256 = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
Moment = Annotated[datetime, AfterValidator(_in_utc)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Long = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# Watts, millijoules, rates.
Amount = Seconds
Samples = Annotated[list[TimeUs], Field(min_length=1, max_length=MAX_SAMPLES)]
# JSON has no infinity: an error that is none is written as a text.
Error = Annotated[float, Field(ge=0, strict=False)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,59}$")]
ParameterValue = Annotated[int, Field(ge=-(2**62), le=2**62)] | Annotated[Line, Field(min_length=1)]
Values = Annotated[dict[Name, ParameterValue], Field(max_length=64)]


class Form(BaseModel):
    """Nothing unknown is let through, and nothing is taken for something else."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        ser_json_inf_nan="strings",
    )


class DeviceForm(Form):
    """The facts of a GPU by name."""

    name: Annotated[Line, Field(min_length=1)]
    facts: Annotated[dict[Name, Annotated[int, Field(ge=0, le=2**53)]], Field(max_length=64)]


class EnvironmentForm(Form):
    """Versions; empty for a part that was not in play."""

    driver: Line = ""
    cuda_runtime: Line = ""
    compiler: Line = ""
    cublas: Line = ""
    cupy: Line = ""
    python: Line = ""
    autogemm: Line = ""


class VerificationForm(Form):
    """Largest errors against the reference."""

    max_abs_error: Error | None
    max_error_ratio: Error
    relative_frobenius: Error


class TelemetryForm(Form):
    """Sampled beside the timings."""

    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    power_w: Seconds | None = None
    temperature_c: Annotated[int, Field(ge=-300, le=2**31 - 1)] | None = None
    throttle_reasons: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None

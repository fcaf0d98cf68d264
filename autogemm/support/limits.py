"""Marks beside a field that say what it may hold where its value comes from a file.

The marks stand in ``Annotated``. They cost nothing and check nothing by themselves: Pydantic reads
them where a file is read or written, and is imported there.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

MAX_SAMPLES = 100_000
MAX_SOURCE_CHARS = 2 * 2**20
MAX_INTEGER = 2**62
# Thirty years; what is longer is no time.
MAX_TIME_US = 1e15

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
# A text that a parameter may have: it stands in emitted code, tables and file names.
WORD = re.compile(r"[A-Za-z0-9_.+-]{1,60}")
WORD_RULE = "a text value is one word of letters, digits and _ . + -"


@dataclass(frozen=True, slots=True)
class Checked:
    """Marks a field that a function gives back, or refuses by ValueError."""

    check: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """Run the function behind all other checks."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))


@dataclass(frozen=True, slots=True)
class Named:
    """Marks a field that a file holds as text: ``parse`` reads what ``str`` wrote."""

    parse: Callable[[str], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """A text to the value and back."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            self.parse,
            core_schema.str_schema(max_length=200),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )


@dataclass(frozen=True, slots=True)
class Mapped:
    """Marks pairs that a file holds as an object, whose values are of the type ``values``."""

    values: Any
    names: Any = str
    most: int = 64

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """An object to pairs and back."""
        from pydantic_core import core_schema

        mapping = core_schema.dict_schema(
            handler.generate_schema(self.names),
            handler.generate_schema(self.values),
            max_length=self.most,
        )
        return core_schema.no_info_after_validator_function(
            lambda pairs: tuple(pairs.items()),
            mapping,
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


@dataclass(frozen=True, slots=True)
class MaybeInfinite:
    """Marks an error that may be infinite, for which JSON has no number: ``"Infinity"``."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """Take a text, too."""
        from pydantic_core import core_schema

        return core_schema.float_schema(ge=0, strict=False)


@dataclass(frozen=True, slots=True)
class MaybeUnknown:
    """Marks a ratio that is NaN where none was measured: null in a file."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """Null to NaN and back."""
        from pydantic_core import core_schema

        number = core_schema.float_schema(gt=0, allow_inf_nan=False)
        return core_schema.no_info_after_validator_function(
            lambda ratio: math.nan if ratio is None else ratio,
            core_schema.nullable_schema(number),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda ratio: None if math.isnan(ratio) else ratio
            ),
        )


@dataclass(frozen=True, slots=True)
class NotKept:
    """Marks a field that no file and no database keeps."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """Refuse whatever is there."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_refuse)


def _refuse(_: object) -> None:
    raise ValueError("is kept in no file")


def _text(holds: Callable[[str], object], rule: str) -> Checked:
    """A mark that refuses a text for which ``holds`` is false, with the rule as the reason."""

    def check(text: str) -> str:
        if not holds(text):
            raise ValueError(rule)
        return text

    return Checked(check)


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a date needs its offset from UTC")
    if not 1970 < moment.year < 2200:
        raise ValueError("a date must lie in the years 1971 to 2199")
    return moment.astimezone(UTC)


def _parameter_value(value: int | str) -> int | str:
    if isinstance(value, str) and not WORD.fullmatch(value):
        raise ValueError(WORD_RULE)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ValueError("an integer has at most 62 bits")
    return value


_ONE_LINE = _text(str.isprintable, "must be one printable line")
_WITHOUT_ZERO = _text(lambda text: "\0" not in text, "holds a zero character")
_NO_SHA256 = "must be a sha256 of 64 hexadecimal digits"

Line = Annotated[str, MaxLen(200), _ONE_LINE]
Word = Annotated[Line, _text(lambda text: text.split() == [text], "must be one word")]
LongText = Annotated[str, MaxLen(2**16), _WITHOUT_ZERO]
LongLine = Annotated[str, MaxLen(2**16), _ONE_LINE]
SourceText = Annotated[str, MaxLen(MAX_SOURCE_CHARS), _WITHOUT_ZERO]
Name = Annotated[str, _text(_NAME.fullmatch, "must be a name of letters and digits")]
Sha256 = Annotated[str, _text(_SHA256.fullmatch, _NO_SHA256)]
# Empty where no source was made.
AnySha256 = Annotated[str, _text(lambda text: not text or _SHA256.fullmatch(text), _NO_SHA256)]
Moment = Annotated[datetime, Checked(_in_utc)]

Count = Annotated[int, Ge(0), Le(2**31 - 1)]
Launches = Annotated[int, Ge(1), Le(2**31 - 1)]
Long = Annotated[int, Ge(-(2**63)), Le(2**63 - 1)]
Bits = Annotated[int, Ge(0), Le(2**63 - 1)]
# A fact of a GPU: bytes, clocks, counts.
Fact = Annotated[int, Ge(0), Le(2**53)]
Celsius = Annotated[int, Ge(-300), Le(2**31 - 1)]
Finite = Annotated[float, Gt(-math.inf), Lt(math.inf)]
# Seconds, watts, millijoules, rates.
Amount = Annotated[float, Ge(0), Lt(math.inf)]
TimeUs = Annotated[float, Gt(0), Lt(MAX_TIME_US)]
Samples = Annotated[tuple[TimeUs, ...], MinLen(1), MaxLen(MAX_SAMPLES)]
# Empty for a kernel that was not timed.
AnySamples = Annotated[tuple[TimeUs, ...], MaxLen(MAX_SAMPLES)]
Energies = Annotated[tuple[Amount, ...], MaxLen(MAX_SAMPLES)]
Ratio = Annotated[float, Gt(0), Lt(math.inf)]
RatioOrNan = Annotated[float, MaybeUnknown()]
Error = Annotated[float, MaybeInfinite()]
ParameterValue = Annotated[int | str, Checked(_parameter_value)]

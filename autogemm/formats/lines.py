"""Long files from elsewhere, line by line and within limits; a fault in one line of text."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from autogemm.support.cells import one_line
from autogemm.support.errors import AutogemmError, ExchangeError
from autogemm.support.files import decoded, unpacked

# A million trials with 30 samples each are 1 GB.
MAX_UNPACKED_BYTES = 8 * 2**30
# 250,000 configs with 32 samples each are 350 MB in a cache of Kernel Tuner; the limit for files
# with the results of one tuning.
MAX_RESULTS_BYTES = 512 * 2**20
# A source of 2 MB, each character of it escaped.
MAX_LINE_CHARS = 16 * 2**20

_MAX_FAULT = 300


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, from 1, without their ends; the file may be gzip'd.

    Raises ExchangeError for what cannot be read, is no text, or is too long.
    """
    try:
        yield from enumerate(_lines(path), start=1)
    except (OSError, ValueError) as error:
        raise ExchangeError(f"cannot read {path}: {fault(error)}") from error


def _lines(path: Path) -> Iterator[str]:
    rest = ""
    for text in decoded(unpacked(path, MAX_UNPACKED_BYTES)):
        *whole, rest = (rest + text).split("\n")
        yield from whole
        if len(rest) > MAX_LINE_CHARS:
            raise ValueError(f"a line has more than {MAX_LINE_CHARS // 2**20} million characters")
    if rest:
        yield rest


class ForeignForm(BaseModel):
    """An object of another program's file: fields that are not named are not looked at."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


@contextmanager
def named_faults(kind: str, path: Path, raised: type[AutogemmError]) -> Iterator[None]:
    """Make the faults of a file of this ``kind`` errors of one line that name it."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise raised(f"broken {kind} {path}: {fault(error)}") from error
    except OSError as error:
        raise raised(f"cannot read the {kind} {path}: {fault(error)}") from error


def fault(error: Exception) -> str:
    """The fault of an error in one line that is not too long."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        text = f"{place}: {message}" if place else message
    else:
        text = str(error)
    return one_line(text, _MAX_FAULT)

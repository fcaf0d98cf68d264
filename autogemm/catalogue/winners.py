"""The catalogue of winners: the fastest kernels of many problems on a few GPUs, timed before this
version was shipped. ``benchmarks/catalogue.py`` makes the file from committed results.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from annotated_types import MaxLen, MinLen
from pydantic import ConfigDict, TypeAdapter, ValidationError

from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState
from autogemm.model.results.stored import TimedText
from autogemm.support.cells import one_line
from autogemm.support.errors import ExchangeError, UsageError
from autogemm.support.files import unpacked, write_chunks_atomically
from autogemm.support.limits import AnySha256, Count, Error, Line, LongText, RatioOrNan, TimeUs
from autogemm.support.resources import data_folder

FILE_NAME = "winners.jsonl.gz"
MAX_UNPACKED_BYTES = 64 * 2**20
# In place of a file in AUTOGEMM_CATALOGUE.
NONE = "none"


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A config as its family has it today, and what was measured of it.

    The ratio is baseline time / own time in the same rounds (above 1 is faster than the baseline).
    """

    config: Config
    time_us: TimeUs
    ratio: RatioOrNan
    ratio_low: RatioOrNan
    ratio_high: RatioOrNan


@dataclass(frozen=True, slots=True)
class Winner:
    """One problem on one GPU: the kernels that met in its finals, the winner first.

    ``kernel_sha256`` is the hash of the winner's text that was timed, empty where it was not kept.
    ``text`` says whether its family emits that very text today; where it is another one, or where
    that is not known, the times are those of an earlier kernel of the same config. ``source`` is
    the committed result, ``commit`` the one that was measured, ``rounds`` 0 where not known.
    ``error`` and ``baseline_error`` are ||C - reference||_F / ||reference||_F of winner and
    baseline when they were timed, None where they were not kept.
    """

    gpu: Line
    problem: Problem
    kernels: Annotated[tuple[TimedKernel, ...], MinLen(1), MaxLen(99)]
    kernel_sha256: AnySha256
    text: TimedText
    baseline: Line
    baseline_us: TimeUs
    driver: Line
    compiler: Line
    cublas: Line
    date: Line
    commit: Line
    source: Line
    command: LongText
    rounds: Count = 0
    l2: CacheState = CacheState.WARM
    max_error: Line = ""
    error: Error | None = None
    baseline_error: Error | None = None

    @property
    def config(self) -> Config:
        """The config of the winner."""
        return self.kernels[0].config


# Checks one line. A tuple, because pydantic takes no config for a dataclass itself.
_LINE: TypeAdapter[tuple[Winner]] = TypeAdapter(
    tuple[Winner], config=ConfigDict(extra="forbid", allow_inf_nan=False)
)


def catalogue_path() -> Path | None:
    """The file: AUTOGEMM_CATALOGUE, else the one that ships; None where that is ``none``."""
    configured = os.environ.get("AUTOGEMM_CATALOGUE")
    if configured == NONE:
        return None
    return Path(configured) if configured else data_folder("db/catalogue") / FILE_NAME


def winners() -> tuple[Winner, ...]:
    """The catalogue, in the order of the file; empty without one. It is read once.

    Raises ExchangeError for a file that is none.
    """
    path = catalogue_path()
    return read_winners(path) if path is not None else ()


@cache
def read_winners(path: Path) -> tuple[Winner, ...]:
    """The lines of a file. Raises ExchangeError naming the line and its fault."""
    number = 0
    try:
        found: list[Winner] = []
        lines = b"".join(unpacked(path, MAX_UNPACKED_BYTES)).splitlines()
        for number, line in enumerate(lines, 1):  # noqa: B007  # names the line of a fault
            found += _LINE.validate_json(b"[%s]" % line)
    except (OSError, ValueError, UsageError) as error:
        where = f"{path}, line {number}" if number else str(path)
        raise ExchangeError(
            f"{where}: {_fault(error)} (AUTOGEMM_CATALOGUE names another catalogue, or none)"
        ) from error
    return tuple(found)


def _fault(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return one_line(str(error))
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"][1:]))
    return one_line(f"{place}: {first['msg']}" if place else first["msg"])


def write_winners(path: Path, found: Iterable[Winner]) -> None:
    """Write a file, a line for each; the same values give the same bytes."""
    lines = (_LINE.dump_json((one,), exclude_defaults=True)[1:-1] + b"\n" for one in found)
    write_chunks_atomically(path, lines)

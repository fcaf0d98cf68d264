"""Results as JSON Lines: all that a database keeps of runs, one record a line.

The first line says what the file is, the last one how many records there were: a file that was cut
short is noticed.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from autogemm.exchange.jsonl.columns import is_plain, line_texts
from autogemm.exchange.jsonl.former import FORMER_VERSION, todays_line
from autogemm.exchange.jsonl.lines import FORMAT, AnyLine, EndLine, FileLine, line_of, value_of
from autogemm.formats import fault, lines_of
from autogemm.store import Copy, Leaving, TrialColumns
from autogemm.support.errors import ExchangeError
from autogemm.support.version import __version__

# The first line of every such file begins with this.
MARK = f'{{"record":"file","format":"{FORMAT}"'.encode()
_FORMER = f'"schema_version":{FORMER_VERSION}'


def jsonl_pieces(found: Iterable[Leaving]) -> Iterator[str]:
    """The lines of the file. Raises ExchangeError for what no line may hold."""
    yield _line(FileLine(autogemm=__version__))
    num_records = 0
    for one in found:
        if not isinstance(one, TrialColumns):
            yield _line(one)
            num_records += 1
            continue
        lines = line_texts(one) if is_plain(one) else map(_line, one.copies())
        for number, line in enumerate(lines):
            if number in one.kernels:
                yield _line(one.kernels[number])
            yield line
        num_records += len(one) + len(one.kernels)
    yield _line(EndLine(num_records))


def _line(value: AnyLine) -> str:
    try:
        return line_of(value) + "\n"
    except ValueError as error:
        raise ExchangeError(f"a {value.record} cannot be written: {fault(error)}") from error


def read_jsonl(path: Path) -> Iterator[Copy]:
    """The values in the file, line by line. Raises ExchangeError naming the line and its fault."""
    num_records = 0
    end: EndLine | None = None
    todays: Callable[[str], str] = str
    for number, line in lines_of(path):
        where = f"{path}, line {number}"
        if end is not None:
            raise ExchangeError(f"{where}: something follows the last record")
        try:
            if number == 1 and _FORMER in line:
                todays = todays_line
            value = value_of(todays(line))
            if isinstance(value, FileLine) is not (number == 1):
                raise ValueError("a results file begins with its record 'file', once")
            if isinstance(value, EndLine):
                end = value
            elif not isinstance(value, FileLine):
                num_records += 1
                yield value
        except ValueError as error:
            raise ExchangeError(f"{where}: {fault(error)}") from error
    if end is None:
        raise ExchangeError(f"{path} has no last record: it was cut short")
    if end.records != num_records:
        raise ExchangeError(f"{path} holds {num_records} records, and says {end.records}")

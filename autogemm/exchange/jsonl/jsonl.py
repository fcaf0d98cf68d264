"""Results as JSON Lines: all that a database keeps of runs, one record a line.

The first line says what the file is, the last one how many records there were: a file that was cut
short is noticed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import TypeAdapter

from autogemm.exchange.jsonl.converting import copy_of, form_of
from autogemm.exchange.jsonl.fields import Form
from autogemm.exchange.jsonl.forms import FORMAT, AnyForm, CopyForm, EndForm, FileForm
from autogemm.formats import fault, lines_of
from autogemm.store import Copy
from autogemm.support.errors import ExchangeError
from autogemm.support.version import __version__

# What the first line of every such file begins with.
MARK = f'{{"record":"file","format":"{FORMAT}"'.encode()

_FORMS: TypeAdapter[FileForm | CopyForm | EndForm] = TypeAdapter(AnyForm)


def jsonl_pieces(copies: Iterable[Copy]) -> Iterator[str]:
    """The lines of the file. Raises ExchangeError for what no line may hold."""
    yield _line(FileForm(autogemm=__version__))
    num_records = 0
    for copy in copies:
        try:
            yield _line(form_of(copy))
        except ValueError as error:
            what = type(copy).__name__.removesuffix("Copy").lower()
            raise ExchangeError(f"a {what} cannot be written: {fault(error)}") from error
        num_records += 1
    yield _line(EndForm(records=num_records))


def _line(form: Form) -> str:
    return form.model_dump_json() + "\n"


def read_jsonl(path: Path) -> Iterator[Copy]:
    """What is in the file, line by line. Raises ExchangeError naming the line and its fault."""
    num_records = 0
    end: EndForm | None = None
    for number, line in lines_of(path):
        where = f"{path}, line {number}"
        if end is not None:
            raise ExchangeError(f"{where}: something follows the last record")
        try:
            form = _FORMS.validate_json(line)
            if isinstance(form, FileForm) is not (number == 1):
                raise ValueError("a results file begins with its record 'file', once")
            if isinstance(form, EndForm):
                end = form
            elif not isinstance(form, FileForm):
                num_records += 1
                yield copy_of(form)
        except ValueError as error:
            raise ExchangeError(f"{where}: {fault(error)}") from error
    if end is None:
        raise ExchangeError(f"{path} has no last record: it was cut short")
    if end.records != num_records:
        raise ExchangeError(f"{path} holds {num_records} records, and says {end.records}")

"""Trials as rows of CSV, by columns: a million in seconds.

What is the same in many cells becomes text once.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain, groupby, islice, repeat
from typing import Any

from pydantic_core import to_json

from autogemm.exchange.jsonl.columns import config_as_json
from autogemm.model.kernel import Resources
from autogemm.model.results.columns import ERRORS, RESOURCES, TELEMETRY, names_of
from autogemm.store import TrialColumns, Used, is_constant

Column = Sequence[Any]
# The cells of a column as they are written, or one text that stands in every row.
Written = list[str] | str

_TEXTS = ("status", "reason", "family", "method", "measured_l2", "measured_provenance")
_NUMBERS = ("number", "time_us", "launches_per_sample", "energy_mj", "throttled_samples", *ERRORS)
_NUMBERS += (*TELEMETRY, "compile_seconds", "measure_seconds", "gpu_number", "pace")
# Rows in one text, few enough for the processor's cache.
_ROWS = 50
# So many values are written one by one.
_FEW = 8
_PLACES = tuple(names_of(Resources).index(name) for name in RESOURCES)


@dataclass(frozen=True, slots=True)
class RunCells:
    """The cells of a run as they are written, and the operations of its problem."""

    cells: Mapping[str, str]
    flops: int


def csv_line(cells: Iterable[Any]) -> str:
    """One line with its end; quoted where need be."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def csv_cell(cell: Any) -> str:
    """One cell in a line of several."""
    return "" if cell is None else _quoted(str(cell))


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    # An empty cell alone in its line would be quoted.
    return csv_line([text, ""])[:-2]


def csv_texts(
    trials: TrialColumns, runs: Mapping[int, RunCells], order: Sequence[str]
) -> Iterator[str]:
    """Yield rows of plain trials with the columns ``order``, some in one text.

    ``runs`` has the run of each trial by number. Adjacent columns that are the same in all rows of
    a run are joined once for the run.
    """
    lengths = [(runs[run_id], len(list(same))) for run_id, same in groupby(trials.cells["run_id"])]
    columns = _columns(trials, lengths)
    pieces: list[Iterable[str]] = []
    for varies, names in groupby(order, lambda name: isinstance(columns.get(name), list)):
        if varies:
            pieces += (columns[name] for name in names)
        else:
            pieces.append(_of_runs(list(names), columns, lengths))
    rows = map(",".join, zip(*pieces, strict=True))
    while some := list(islice(rows, _ROWS)):
        yield "\n".join([*some, ""])


def _of_runs(
    names: Sequence[str], columns: Mapping[str, Written], lengths: Sequence[tuple[RunCells, int]]
) -> list[str]:
    """The cells of these columns in each row, joined once for each run."""
    found: list[str] = []
    for run, length in lengths:
        cells = (str(columns[name]) if name in columns else run.cells[name] for name in names)
        found += [",".join(cells)] * length
    return found


def _columns(trials: TrialColumns, lengths: Iterable[tuple[RunCells, int]]) -> dict[str, Written]:
    """The columns of a trial; those of its run are missing."""
    cells = trials.cells
    teraflops = chain.from_iterable(repeat(run.flops * 1e-6, length) for run, length in lengths)
    speeds = [
        amount / time_us if time_us else None
        for amount, time_us in zip(teraflops, cells["time_us"], strict=True)
    ]
    columns: dict[str, Written] = {
        "kernel_sha256": list(cells["kernel_sha256"]),
        "tflops": _numbers(speeds),
        "config": list(map(_config, cells["family"], cells["config"])),
        "samples_us": [
            f'"{text}"' if text and "," in text else text or "" for text in cells["samples_us"]
        ],
        "finished_at": _moments(cells["finished_at"]),
    }
    written: tuple[tuple[Sequence[str], Callable[[Column], list[str]]], ...]
    written = ((_TEXTS, _texts), (_NUMBERS, _numbers))
    for names, write in written:
        for name in names:
            is_one = name in trials.constant
            columns[name] = write(cells[name][:1])[0] if is_one else write(cells[name])
    return columns | _resources(trials.resources)


def _resources(column: Sequence[tuple[Used, ...]]) -> dict[str, Written]:
    """The column with all resources, and those of the first kernel."""
    names = ("resources", *RESOURCES)
    if is_constant(column):
        return dict(zip(names, _used(column[0]), strict=True))
    found = zip(*map(_used, column), strict=True)
    return dict(zip(names, map(list, found), strict=True))


@lru_cache(maxsize=4096)
def _config(family: str, text: str) -> str:
    values, _ = config_as_json(family, text)
    return csv_cell(values)


@lru_cache(maxsize=4096)
def _used(used: tuple[Used, ...]) -> tuple[str, ...]:
    """The column with all resources, and those of the first kernel."""
    whole = json.dumps([asdict(Resources(*one)) for one in used])
    return csv_cell(whole), *(str(used[0][place]) if used else "" for place in _PLACES)


def _moments(column: Column) -> list[str]:
    """The texts of `datetime.isoformat` for moments in UTC, in a tenth of its time."""
    text = to_json(column).decode()[1:-1]
    return text.replace('Z"', "+00:00").replace('"', "").split(",")


def _texts(column: Column) -> list[str]:
    known = {text: "" if text is None else csv_cell(text) for text in set(column)}
    return [known[text] for text in column]


def _numbers(column: Column) -> list[str]:
    """Write them like Python, which takes longer: the same but for very small and large ones."""
    known = set(column)
    # A set does not tell the sign of zero.
    if len(known) <= _FEW and 0 not in known:
        few = {value: "" if value is None else repr(value) for value in known}
        return [few[value] for value in column]
    texts = to_json(column, inf_nan_mode="constants").decode()[1:-1].replace("null", "").split(",")
    known -= {None, 0}
    if not known or (min(known) >= 1e-4 and max(known) < 1e16 and math.isfinite(sum(known))):
        return texts
    return [
        text if value is None or not value or 1e-4 <= value < 1e16 else repr(value)
        for text, value in zip(texts, column, strict=True)
    ]

"""The names of a result's fields in rows: of tables, JSON, CSV and the database.

A value of the program is nested (an outcome has a measurement, which has telemetry); a row is flat.
The name in a row is the name of the field. Each column's name is defined once, here, together with
names that it had before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

from autogemm.model.batch import Batch
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.kernel import Resources
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment, Sustained, Telemetry, Verification

Row = dict[str, Any]
# Where the cells of a row lie in a value: name to attributes, by points.
Paths = Mapping[str, str]
# Values that a cell holds as text. A tuple: a union would be made anew for each cell.
_AS_TEXT = (Epilogue, Batch, Groups)


@dataclass(frozen=True, slots=True)
class Column:
    """A number of a result: its name everywhere, its unit, what it says, its head for people."""

    name: str
    unit: str
    meaning: str
    head: str = ""


NUMBERS = (
    Column("time_us", "us", "median time of one GEMM", "time us"),
    Column("tflops", "TFLOP/s", "2 M N K / time_us", "TFLOP/s"),
    Column("ratio", "", "the baseline's time / own time, paired: above 1 is faster", "x cuBLAS"),
    Column("ratio_low", "", "lower end of the interval of ratio"),
    Column("ratio_high", "", "upper end of the interval of ratio"),
    Column("ratio_of_medians", "", "median of the baseline's times / time_us", "of medians"),
    Column("confidence", "", "confidence level of that interval"),
    Column("spread", "", "interquartile range of the paired ratios / their median"),
    Column("energy_mj", "mJ", "median energy of one GEMM, of the whole GPU", "energy mJ"),
    Column("baseline_energy_mj", "mJ", "energy_mj of the baseline"),
    Column("sustained_ratio", "", "sustained_baseline_us / sustained_us", "sustained x"),
    Column("sustained_us", "us", "mean time of one GEMM under sustained load, alone"),
    Column("sustained_baseline_us", "us", "sustained_us of the baseline"),
    Column("sustained_mj", "mJ", "mean energy of one GEMM during that, of the whole GPU"),
    Column("sustained_baseline_mj", "mJ", "sustained_mj of the baseline"),
    Column("sustained_s", "s", "length of each of the two runs of winner and baseline"),
    Column("edp_mj_us", "mJ us", "energy_mj times time_us"),
    Column("error", "", "norm of C - reference / norm of reference (Frobenius)", "error"),
    Column("max_abs_error", "", "largest |C - reference|"),
    Column("max_error_ratio", "", "largest |C - reference| / the error bound of that element"),
    Column("baseline_us", "us", "time_us of the baseline"),
    Column("baseline_error", "", "error of the baseline"),
    Column("bandwidth_gb_s", "GB/s", "minimum bytes to move / time_us"),
    Column("flop_per_byte", "", "operations per byte that must move"),
    Column("speedup_over_naive", "", "time of the first rung / own time"),
    Column("percent_of_roof", "%", "tflops / the roofline's limit at that intensity"),
)
HEADS = {column.name: column.head for column in NUMBERS if column.head}

# Name of before version 0.2 to name, in files and databases that are still read.
FORMER = {"relative_frobenius": "error", "median_us": "time_us", "source_sha256": "kernel_sha256"}


def names_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of a value's fields."""
    return tuple(field.name for field in fields(kind))


def under(part: str, names: Iterable[str] | Paths) -> Paths:
    """Fields of a part of a value. ``names`` are those of the part or, with paths, in it."""
    paths = names if isinstance(names, Mapping) else {name: name for name in names}
    return {name: f"{part}.{path}" if part else path for name, path in paths.items()}


PROBLEM = names_of(Problem)
ENVIRONMENT = names_of(Environment)
ERRORS = names_of(Verification)
TELEMETRY = names_of(Telemetry)
# But for the name of the kernel: in a row they are those of the first.
RESOURCES = tuple(name for name in names_of(Resources) if name != "kernel")
SPEED = ("time_us", "tflops")
RATIO = ("ratio", "ratio_low", "ratio_high")
SUSTAINED = (*names_of(Sustained), "sustained_ratio")

CONFIG: Paths = {"family": "config.family", "config": "config"}
# Where and what: of values that have a device, a problem and a provenance.
PLACE: Paths = {
    "gpu": "device.name",
    "size": "problem.size_label",
    "layout": "problem.layout",
    "dtype": "problem.dtype.label",
    "provenance": "provenance",
}
MEASURED: Paths = {
    **under("", ("samples_us", "method", "launches_per_sample", "energy_mj", "throttled_samples")),
    **under("telemetry", TELEMETRY),
}
# Columns of a trial, besides those of its run.
OUTCOME: Paths = {
    **under("", ("status", "reason", "kernel_sha256", "time_us")),
    **CONFIG,
    **under("verification", ERRORS),
    **under("measurement", MEASURED),
    **under("", ("compile_seconds", "measure_seconds", "gpu_number", "pace")),
}


def row_of(value: object, paths: Paths) -> Row:
    """The cells that lie in a value; None where a part is missing on the way."""
    parts: dict[str, Any] = {"": value}
    row: Row = {}
    for name, path in paths.items():
        where, _, last = path.rpartition(".")
        if where not in parts:
            # Many cells lie in the same part, which is looked up once.
            parts[where] = reduce(_member, where.split("."), value)
        cell = _member(parts[where], last)
        row[name] = str(cell) if isinstance(cell, _AS_TEXT) else cell
    return row


def _member(value: Any, name: str) -> Any:
    if value is None:
        return None
    return value[name] if isinstance(value, dict) else getattr(value, name)


def nested(row: Mapping[str, Any], paths: Paths) -> Row:
    """The parts of a value as they lie in each other, from a row."""
    found: Row = {}
    for name, path in paths.items():
        *parts, last = path.split(".")
        inner = found
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = row[name]
    return found

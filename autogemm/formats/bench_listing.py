"""Reads the output of ``autogemm bench --json`` back as a benchmark.

A listing has the median of each kernel, not its rounds: here each round is the median, so that the
interval of the listing keeps its confidence.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from autogemm.catalogue.gpus import find_device, known_gpus
from autogemm.catalogue.ladder import find_rung
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.benchmark import NOT_STORED, Bench, BenchEntry, BenchSpec, KernelKind
from autogemm.model.results.columns import ERRORS, FORMER
from autogemm.model.results.outcome import Environment, Provenance, Status, Verification
from autogemm.support.errors import AutogemmError, NotFoundError, RecordingError, UsageError
from autogemm.support.files import read_bounded

MAX_BYTES = 20_000_000
MAX_ROUNDS = 1000


def read_bench_listing(path: Path, gpu: str | None = None) -> Bench:
    """Return the benchmark that a listing tells of. ``gpu`` names the GPU of a listing that does
    not, as those of earlier versions; without it, a short name in the file's name does.

    Raises NotFoundError for no file, UsageError where the GPU is not known, RecordingError for a
    file that is no listing.
    """
    try:
        text = read_bounded(path, MAX_BYTES)
    except FileNotFoundError as error:
        raise NotFoundError(f"no such file: {path}") from error
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from error
    try:
        rows = json.loads(text)
        if not isinstance(rows, list) or not rows:
            raise ValueError("a list of kernels is expected")
        entries = tuple(_entry(row) for row in rows)
        device = _device(rows[0], gpu, path)
        spec = BenchSpec(device, Environment(), Provenance.RECORDED, f"read from {path.name}")
        return Bench(NOT_STORED, spec, _moment(rows[0]), None, entries)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RecordingError(f"{path} is not output of `autogemm bench --json`: {why}") from error
    except (UsageError, NotFoundError):
        raise
    except AutogemmError as error:
        raise RecordingError(f"{path}: {error}") from error


def _entry(row: Mapping[str, Any]) -> BenchEntry:
    time_us, rounds = row["time_us"], row["rounds"]
    problem = Problem.of_size(row["size"], Layout(row["layout"]), DType.parse(row["dtype"]))
    samples: tuple[float, ...] = ()
    if time_us is not None:
        if not (0 < float(time_us) < 1e12 and 1 <= int(rounds) <= MAX_ROUNDS):
            raise ValueError(f"{row['kernel']}: {time_us} us in {rounds} rounds")
        samples = (float(time_us),) * int(rounds)
    ratio, low, high = _ratios(row)
    return BenchEntry(
        kernel=str(row["kernel"]),
        kind=KernelKind(row["kind"]),
        problem=problem,
        status=Status(row["status"]),
        reason=str(row["reason"]),
        config=_config(row),
        library=str(row["library"]),
        samples_us=samples,
        method=str(row["method"]),
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        registers=row["registers"],
        verification=_verification(row),
    )


def _ratios(row: Mapping[str, Any]) -> Sequence[float | None]:
    """Return ratio and interval, which earlier versions wrote as percent."""
    names = ("ratio", "ratio_low", "ratio_high")
    if "ratio" in row:
        return [row[name] for name in names]
    percents = [row.get(name.replace("ratio", "percent_of_cublas")) for name in names]
    return [None if one is None else one / 100 for one in percents]


def _verification(row: Mapping[str, Any]) -> Verification | None:
    current = {FORMER.get(name, name): value for name, value in row.items()}
    values = {name: current.get(name) for name in ERRORS}
    known = {name: value for name, value in values.items() if value is not None}
    return None if not known else Verification(**{name: known.get(name, 0.0) for name in ERRORS})


def _config(row: Mapping[str, Any]) -> Config | None:
    """Return the config of a rung or a stored kernel.

    Earlier versions did not write its family: a stored kernel's is unknown there.
    """
    if not row["config"]:
        return None
    pairs = (word.partition("=") for word in row["config"].split())
    values: dict[str, Value] = {
        name: int(text) if re.fullmatch(r"-?\d{1,9}", text) else text for name, _, text in pairs
    }
    try:
        if row["kind"] == KernelKind.RUNG:
            return Config.of(find_rung(row["kernel"]).family, values)
        return Config.of(str(row.get("family") or "unknown"), values)
    except NotFoundError:
        return None


def _device(row: Mapping[str, Any], gpu: str | None, path: Path) -> Device:
    words = set(re.split(r"[^a-z0-9]+", path.name.lower()))
    in_name = [one.short_name for one in known_gpus() if one.short_name in words]
    name = row.get("gpu") or gpu or (in_name[0] if len(in_name) == 1 else None)
    if name is None:
        raise UsageError(f"{path} does not name its GPU: give --gpu, as in --gpu h100")
    return find_device(str(name))


def _moment(row: Mapping[str, Any]) -> datetime | None:
    """Return when it was measured; None for listings of earlier versions, which do not say."""
    said = row.get("measured_at")
    return datetime.fromisoformat(str(said)) if said else None

"""Lines of results files of version 0.1 (schema 1), brought to the shape of today's.

Their records were flat; now they are the program's values as they lie in each other. Nothing is
checked here: what a line may hold is checked afterwards, as of any other.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from autogemm.exchange.jsonl.lines import SCHEMA_VERSION
from autogemm.model.columns import FORMER, RATIO

FORMER_VERSION = 1

_PLACE = ("device", "environment")
# Of each record the fields that lie in a part of it now: innermost parts first.
_PARTS: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "run": (
        (
            "spec",
            (
                *("problem", *_PLACE, "families", "family_sha256", "fix", "sampler", "seed", "l2"),
                *("objective", "fill", "max_error", "provenance", "command"),
            ),
        ),
    ),
    "kernel": (("source", ("family", "config", "layout", "template_sha256", "text")),),
    "trial": (
        (
            "outcome",
            (
                *("status", "reason", "config", "kernel_sha256", "compile_seconds"),
                *("measure_seconds", "verification", "measurement", "resources"),
            ),
        ),
    ),
    "finals": (
        (
            "finals",
            (
                *("rounds", "method", "launches_per_sample", "provenance", "throttled_rounds"),
                *("telemetry", "baseline", "entries"),
            ),
        ),
    ),
    "certificate": (("certificate", ("made_at", "checks")),),
    "bench": (
        ("spec", (*_PLACE, "provenance", "command", "preset", "seed", "l2", "fill")),
        ("bench", ("bench_id", "spec", "started_at", "finished_at", "entries")),
    ),
    "profile": (
        (
            "profile",
            (
                *("kernel", "config", "kernel_sha256", "problem", *_PLACE, "profiler"),
                *("counters", "made_at"),
            ),
        ),
    ),
    "ceilings": (
        (
            "ceilings",
            ("fma_tflops", "copy_gb_s", "sm_clock_mhz", "measured_at", "l2_gb_s", "smem_gb_s"),
        ),
    ),
}
# Names that differ, besides those of numbers.
_FORMER = {**FORMER, "run": "run_id", "sha256": "kernel_sha256", "source": "text"}


def todays_line(line: str) -> str:
    """The line as it would be written today. Raises ValueError for what is no JSON."""
    record = from_json(line, allow_inf_nan=False)
    return json.dumps(_moved(_renamed(record)) if isinstance(record, dict) else record)


def _renamed(value: Any) -> Any:
    """Everything inside, with the names of today."""
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    members: dict[str, Any] = value
    for name, cell in members.items():
        if name in _FREE:
            found[name] = cell
        elif name == "ratios" and isinstance(cell, list):
            found |= dict(zip(RATIO, cell, strict=True))
        else:
            found[_FORMER.get(name, name)] = _renamed(cell)
    if isinstance(facts := found.get("facts"), dict):
        found |= facts
        del found["facts"]
    if isinstance(found.get("config"), dict) and "family" in found:
        found["config"] = {"family": found.pop("family"), "values": found["config"]}
    elif found.get("config", 0) is None and found.get("family", 0) is None:
        del found["family"]
    return found


# Objects whose names are a user's or another program's.
_FREE = frozenset({"config", "fix", "counters", "facts"})


def _moved(record: dict[str, Any]) -> dict[str, Any]:
    kind = str(record.get("record"))
    if kind == "file":
        record["schema_version"] = SCHEMA_VERSION
    if kind == "kernel" and isinstance(record.get("config"), dict):
        record["family"] = record["config"].get("family")
    if kind == "bench":
        record["bench_id"] = 0
    if kind == "finals" and isinstance(entries := record.get("entries"), list) and entries:
        record["baseline"], *record["entries"] = entries
    for part, names in _PARTS.get(kind, ()):
        record[part] = {name: record.pop(name) for name in names if name in record}
    return record

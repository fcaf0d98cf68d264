"""Lines of results files of version 0.1 (schema 1), brought to the shape of today's.

Their records were flat; now they are the program's values as they lie in each other. Nothing is
checked here: what a line may hold is checked afterwards, as of any other.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic_core import from_json

from autogemm.exchange.jsonl.lines import SCHEMA_VERSION
from autogemm.model.hardware.device import Ceilings
from autogemm.model.kernel import KernelSource
from autogemm.model.results.benchmark import Bench, BenchSpec
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.columns import FORMER, RATIO
from autogemm.model.results.outcome import Finals, Outcome
from autogemm.model.results.stored import Profile
from autogemm.store import RunSpec

FORMER_VERSION = 1

# The parts that the fields of each record lie in now, with the values that have these fields:
# innermost parts first.
_PARTS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "run": (("spec", RunSpec),),
    "kernel": (("source", KernelSource),),
    "trial": (("outcome", Outcome),),
    "finals": (("finals", Finals),),
    "certificate": (("certificate", Certificate),),
    "bench": (("spec", BenchSpec), ("bench", Bench)),
    "profile": (("profile", Profile),),
    "ceilings": (("ceilings", Ceilings),),
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
    for part, value in _PARTS.get(kind, ()):
        names = [field.name for field in fields(value) if field.name in record]
        record[part] = {name: record.pop(name) for name in names}
    return record

"""The measured finals in benchmarks/results, of kernels that the code as it stands still emits.

Beside each table of `suite.py` lies a file of rounds with the times of all finalists. A finalist
counts if its family renders the very text that was timed (equal sha256); others are left out,
unless the caller says which of today's configs they are.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from suite_shapes import problem_of

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.finals import FinalsSamples, decide
from autogemm.model.results.outcome import CacheState, Environment, Finals, Provenance
from autogemm.space import Family, default_families
from autogemm.store import DecidedRow, RunSpec
from autogemm.support.errors import AutogemmError

RESULTS = Path(__file__).parent / "results"
ROUNDS = ".rounds.json.gz"
# Returns a config of today for a config's values, its problem and the hash of the text timed.
ConfigOf = Callable[[dict[str, Any], Problem, str], Config | None]


@dataclass(frozen=True, slots=True)
class Committed:
    """One problem of a table: its finals as a row of a database, and its winner's row there."""

    row: DecidedRow
    listed: dict[str, Any]
    table: dict[str, Any]
    file: str


def emitted(values: dict[str, Any], problem: Problem, sha256: str) -> Config | None:
    """Return the config of the family that renders exactly that text; None where none does.

    Parameters that are newer than the text have their defaults.
    """
    for family in _families():
        with suppress(AutogemmError):
            config = family.completed(Config.of(family.name, values))
            if render(family, config, problem).sha256 == sha256:
                return config
    return None


def committed(folder: Path = RESULTS, config_of: ConfigOf = emitted) -> Iterator[Committed]:
    """Yield every problem whose winner is a config of today, oldest table first.

    By default that is one whose text is emitted today. Problems have numbers in place of those of
    runs.
    """
    files = sorted(folder.glob(f"*{ROUNDS}"), key=lambda path: (_table(path)["date"], path.name))
    number = 0
    for path in files:
        table = _table(path)
        rounds = {
            (one["size"], one["layout"]): one
            for one in json.loads(gzip.decompress(path.read_bytes()))["problems"]
        }
        for listed in table["rows"]:
            found = rounds.get((listed["shape"], listed["layout"]))
            number += 1
            row = found and _decided(number, table, listed, found, config_of)
            if row:
                yield Committed(row, listed, table, path.name.removesuffix(ROUNDS) + ".json")


def _table(rounds: Path) -> dict[str, Any]:
    beside = rounds.with_name(rounds.name.removesuffix(ROUNDS) + ".json")
    table: dict[str, Any] = json.loads(beside.read_text(encoding="utf-8"))
    return table


def listed_problem(listed: dict[str, Any]) -> Problem:
    """The problem of a table's row; rows of before had neither layout nor epilogue."""
    epilogue = listed.get("epilogue", "none")
    return problem_of(
        listed["shape"],
        Layout(listed.get("layout", "nn")),
        DType.parse(listed["dtype"]),
        Epilogue.parse("" if epilogue == "none" else epilogue),
    )


def _decided(
    number: int,
    table: dict[str, Any],
    listed: dict[str, Any],
    found: dict[str, Any],
    config_of: ConfigOf,
) -> DecidedRow | None:
    problem = listed_problem(listed)
    contestants = found["contestants"]
    (baseline,) = (one for one in contestants if one["role"] == "baseline")
    kernels = [
        _samples(one, config)
        for one in contestants
        if one["role"] == "kernel"
        and (config := config_of(one["config"], problem, one["kernel_sha256"])) is not None
    ]
    if listed["kernel_sha256"] not in {one.kernel_sha256 for one in kernels}:
        return None
    entries, base = decide(_samples(baseline, None), kernels, table["settings"]["seed"])
    # Registers, which decide among equals, are not in these files: the winner is the table's.
    entries = tuple(sorted(entries, key=lambda e: e.kernel_sha256 != listed["kernel_sha256"]))
    gpu, _, driver = table["gpu"].partition(", ")
    versions = dict(one.split() for one in table["versions"].split(", "))
    spec = RunSpec(
        problem=problem,
        device=find_device(gpu),
        environment=Environment(
            driver=driver, compiler=f"nvrtc {versions['nvrtc']}", cublas=versions["cuBLAS"]
        ),
        families=tuple(sorted(table["templates"])),
        family_sha256="",
        fix=(),
        sampler="",
        seed=table["settings"]["seed"],
        provenance=Provenance.RECORDED,
        command=table["command"],
        l2=CacheState(listed["l2"]),
        max_error=table["settings"]["max_error"],
    )
    finals = Finals(entries, base, found["rounds"], Provenance.RECORDED, method=found["method"])
    day = datetime.fromisoformat(listed["date"]).replace(tzinfo=UTC)
    return DecidedRow(number, spec, finals, day)


def _samples(contestant: dict[str, Any], config: Config | None) -> FinalsSamples:
    return FinalsSamples(
        contestant["name"],
        config,
        contestant["kernel_sha256"],
        tuple(contestant["samples_us"]),
    )


@cache
def _families() -> tuple[Family, ...]:
    return tuple(default_families(emulation=True))


def rows_of(found: Sequence[Committed]) -> list[DecidedRow]:
    """Return the rows, of each problem, GPU and kind of arithmetic the newest."""
    newest: dict[object, DecidedRow] = {}
    for one in found:
        spec, winner = one.row.spec, one.row.finals.winner
        assert winner.config is not None, "a winner has a config"
        is_emulated = "emulated" in winner.config.family
        newest[spec.device.name, spec.problem, is_emulated] = one.row
    return list(newest.values())

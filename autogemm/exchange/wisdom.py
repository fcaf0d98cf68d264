"""Kernel Launcher's wisdom files: of each GPU and problem the best config, for its C++ library.

A wisdom file is JSON Lines. The first line names the kernel (``key``), its parameters and what was
minimised; each other line is one config with the problem, the time in milliseconds and where it was
taken. Kernel Launcher takes the line of its own GPU whose problem is nearest.
"""

import json
from collections.abc import Iterator

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Fill, Provenance
from autogemm.store import BestQuery, ResultRow, Store
from autogemm.support.errors import NotFoundError, UsageError

WISDOM_VERSION = "1.0"
OBJECTIVE = "time"

# And the parameters: a family may get one more in a later version.
_Kind = tuple[str, Layout, DType, tuple[str, ...]]


def wisdom_pieces(store: Store, query: BestQuery) -> tuple[tuple[str, ...], Iterator[str]]:
    """Notes on what such a file cannot say, and its lines.

    Raises NotFoundError when nothing matches that can be said, UsageError when results are of
    several kernels: a file holds one.
    """
    rows = store.best(query)
    plain = [row for row in rows if _is_plain(row.problem)]
    notes = []
    if len(plain) < len(rows):
        notes.append(
            f"left out: {len(rows) - len(plain)} results with rows that are not packed, alpha or "
            "beta: a problem in a wisdom file is three sizes"
        )
    if not plain:
        raise NotFoundError("no results match: autogemm db best shows what there is")
    kinds = {_kind(row): None for row in plain}
    if len(kinds) > 1:
        named = "; ".join(f"{_key(kind)}, {len(kind[-1])} parameters" for kind in kinds)
        raise UsageError(
            f"a wisdom file contains one kernel, {len(kinds)} match ({named}): narrow with "
            "--family, --layout, --dtype or --run"
        )
    chosen: dict[tuple[str, Problem], ResultRow] = {}
    for row in sorted(plain, key=_preference):
        chosen.setdefault((row.device.name, row.problem), row)
    (kind,) = kinds
    return tuple(notes), _lines(_key(kind), list(chosen.values()))


def _is_plain(problem: Problem) -> bool:
    packed = Problem(problem.m, problem.n, problem.k, layout=problem.layout, dtype=problem.dtype)
    return problem == packed


def _kind(row: ResultRow) -> _Kind:
    names = tuple(name for name, _ in row.config)
    return (row.family, row.problem.layout, row.problem.dtype, names)


def _key(kind: _Kind) -> str:
    family, layout, dtype, _ = kind
    return f"{family}_{layout}_{dtype.label}"


def _preference(row: ResultRow) -> tuple[bool, bool, bool]:
    """Order the results of one GPU and problem: measured first, then those of default settings."""
    return (
        row.provenance is not Provenance.MEASURED,
        row.l2 is not CacheState.WARM,
        row.fill is not Fill.UNIFORM,
    )


def _lines(key: str, rows: list[ResultRow]) -> Iterator[str]:
    names = list(rows[0].config.as_dict())
    head = {"version": WISDOM_VERSION, "objective": OBJECTIVE}
    yield _line({**head, "tunable_parameters": names, "key": key})
    for row in rows:
        environment = {
            "device_name": row.device.name,
            "compute_capability": row.device.arch,
            "date": row.measured_at.isoformat(),
            "provenance": row.provenance.value,
        }
        yield _line(
            {
                "config": [row.config[name] for name in names],
                "problem_size": [row.problem.m, row.problem.n, row.problem.k],
                OBJECTIVE: row.time_us / 1e3,
                "environment": environment,
            }
        )


def _line(record: dict[str, object]) -> str:
    return json.dumps(record) + "\n"

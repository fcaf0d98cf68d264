"""The kernels of a bench by their names: of the ladder, of the database, of libraries."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autogemm.catalogue.ladder import Rung, find_rung, libraries, rungs
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.benchmark import KernelKind, baseline_of
from autogemm.model.results.outcome import Provenance
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.store import BestQuery, Store
from autogemm.support.errors import AutogemmError, NotFoundError, UsageError

WINNER = "winner"
"""The best kernel that the database has for the size on this GPU."""

_BESIDE_THE_LADDER = {
    *(
        baseline_of(dtype)
        for dtype in DType
        if dtype not in DType.one_each() or dtype.size_bytes == 1
    ),
    # FP32 from tensor cores, to compare with kernels that `tune --allow-emulation` finds.
    "triton_tf32x3",
    # No kernel of the ladder takes 8 bits.
    "torch_e4m3",
}
LADDER_KERNELS = (
    *(rung.name for rung in rungs(variants=True)),
    WINNER,
    *(library.name for library in libraries() if library.name not in _BESIDE_THE_LADDER),
)
GROUPS = {
    "rungs": tuple(rung.name for rung in rungs()),
    "variants": tuple(rung.name for rung in rungs(variants=True)),
    "libraries": tuple(library.name for library in libraries()),
}


class NotForThisError(Exception):
    """There is no kernel of that name for a problem; the message says why."""


@dataclass(frozen=True, slots=True)
class NamedKernel:
    """A name with what it stands for. ``key`` finds a stored kernel: its id, or WINNER."""

    name: str
    kind: KernelKind
    rung: Rung | None = None
    key: str = ""


def named_kernels(names: Iterable[str]) -> tuple[NamedKernel, ...]:
    """Return the kernels by name, in order and each once; a group (``rungs``) stands for its
    members.

    ``kernel:12`` is number 12 of the database. Raises NotFoundError for an unknown name.
    """
    single = [member for name in names for member in GROUPS.get(name, (name,))]
    return tuple(map(_named, dict.fromkeys(single)))


def _named(name: str) -> NamedKernel:
    if name == WINNER:
        return NamedKernel(WINNER, KernelKind.STORED, key=WINNER)
    if match := re.fullmatch(r"kernel:([0-9a-f]{1,64})", name):
        return NamedKernel(f"kernel {match[1]}", KernelKind.STORED, key=match[1])
    if name in GROUPS["libraries"]:
        return NamedKernel(name, KernelKind.LIBRARY)
    try:
        return NamedKernel(name, KernelKind.RUNG, rung=find_rung(name))
    except NotFoundError as error:
        raise NotFoundError(
            f"no kernel {name!r}: autogemm bench --list shows them; one of the database is "
            "kernel:ID, the best of each size is winner"
        ) from error


def render_named(
    kernel: NamedKernel, problem: Problem, device: Device, store: Store | None
) -> Candidate:
    """The kernel of a rung or of the database, not yet compiled. Raises NotForThisError."""
    if kernel.rung is not None:
        seed = load_family(kernel.rung.family).seeds[0]
        return _of_config(kernel.rung.config(seed), problem, device)
    if store is None:
        raise NotForThisError("there is no database to take it from")
    try:
        key = _winner(problem, device, store) if kernel.key == WINNER else kernel.key
        return _of_config(store.stored_kernel(key).source.config, problem, device)
    except UsageError as error:
        raise NotForThisError(str(error)) from error


def _winner(problem: Problem, device: Device, store: Store) -> int:
    """Its id in the database."""
    query = BestQuery(
        gpu=device.name,
        size=problem.size_label,
        layout=problem.layout.value,
        dtype=problem.dtype.label,
    )
    rows = [
        row
        for row in store.best(query)
        if row.device.name == device.name and row.problem == problem and row.kernel_id is not None
    ]
    if not rows:
        layout = "" if problem.layout is Layout.NN else f" --layout {problem.layout}"
        raise NotForThisError(
            "the database has no kernel for it: "
            f"autogemm tune --size {problem.size_label} --dtype {problem.dtype.label}{layout}"
        )
    best = min(rows, key=lambda row: (row.provenance is not Provenance.MEASURED, row.time_us))
    assert best.kernel_id is not None
    return best.kernel_id


def _of_config(config: Config, problem: Problem, device: Device) -> Candidate:
    family = load_family(config.family)
    try:
        broken = broken_constraints(family, config, problem, device)
    except AutogemmError as error:
        raise NotForThisError(str(error)) from error
    if broken:
        raise NotForThisError(f"its config is not legal here: {'; '.join(broken)}")
    plan = launch_plan(family, config, problem)
    return Candidate(render(family, config, problem), plan, None)


def names_of(kind: KernelKind) -> Iterator[tuple[str, str]]:
    """Names and summaries of the kernels of a kind that need no database."""
    if kind is KernelKind.RUNG:
        for rung in rungs(variants=True):
            yield rung.name, f"{rung.summary} ({rung.family})"
    elif kind is KernelKind.LIBRARY:
        for library in libraries():
            yield library.name, library.summary


def kernels_of(preset: str | None, dtype: DType = DType.F32) -> tuple[str, ...]:
    """Every rung and library for the ladder, a few for other lists of sizes; rungs are FP32."""
    if dtype is not DType.F32:
        return (WINNER, baseline_of(dtype))
    if preset == "ladder":
        return LADDER_KERNELS
    return ("naive", "pipelined", WINNER, baseline_of(dtype))

"""An explanation as tables, for the terminal and for reports."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from autogemm.compile import InstructionMix
from autogemm.insight.explain.compiled import MainLoop
from autogemm.insight.explain.explanation import Explanation
from autogemm.insight.explain.times import Missing
from autogemm.model.splitting import multiplied, splitting_of

Row = dict[str, Any]

LOOP_COLUMNS = ("kernel", *(field.name for field in fields(InstructionMix)))
ACCESS_COLUMNS = (
    *("line", "memory", "operation", "bytes_per_lane", "requests", "per_request"),
    *("ideal_per_request", "times_ideal", "text"),
)
NEIGHBOUR_FACTS = (
    *("threads", "smem_bytes", "registers", "spill_bytes", "blocks_per_sm", "waves", "lost_share"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """One section: its rows and what they add up to, or why it is ``missing``."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str = ""


def headline(explanation: Explanation) -> list[str]:
    """Return lines on the config explained, and how fast it is."""
    splitting = splitting_of(explanation.config)
    lines = [
        explanation.config.label,
        f"{explanation.problem.label} on {explanation.device.name}",
        *([splitting.words] if splitting is not None else []),
        *(f"note: {note}" for note in explanation.notes),
    ]
    timing = explanation.timing
    if isinstance(timing, Missing):
        return [*lines, f"time: {timing.missing}"]
    peak = f"{multiplied(explanation.problem.dtype, explanation.config)} peak"
    share = f"{timing.of_peak:.0%} of the GPU's {peak}, " if timing.of_peak is not None else ""
    return [
        *lines,
        f"time: {timing.time_us:.4g} us ({timing.provenance}), {timing.tflops:.4g} TFLOP/s, "
        f"{share}run {timing.run_id}",
    ]


def tables(explanation: Explanation) -> list[Table]:
    """All sections that have rows, and those that are missing."""
    compiled, resident = explanation.compiled, explanation.residency
    found = [
        _table("compiler", compiled if isinstance(compiled, Missing) else compiled.kernels),
        _loops(explanation.main_loops),
        _table("blocks per SM", resident, without=("steps",)),
    ]
    if not isinstance(resident, Missing):
        found += [
            _table(f"what {one.next_blocks_per_sm} blocks per SM would need", one.steps)
            for one in resident
        ]
    found += [
        _table("waves", explanation.waves),
        _accesses(explanation),
        _table("FLOP per byte", explanation.intensity.levels),
        _neighbours(explanation),
    ]
    return [table for table in found if table.rows or table.missing]


def _table(title: str, section: Sequence[Any] | Missing, without: tuple[str, ...] = ()) -> Table:
    if isinstance(section, Missing):
        return Table(title, missing=section.missing)
    rows = tuple(asdict(one) for one in section)
    columns = tuple(name for name in rows[0] if name not in without) if rows else ()
    return Table(title, columns, rows)


def _loops(loops: Iterable[MainLoop] | Missing) -> Table:
    title = "main loop, one iteration of one warp"
    if isinstance(loops, Missing):
        return Table(title, missing=loops.missing)
    rows = (
        {"kernel": loop.kernel} | (asdict(loop.mix) if loop.mix is not None else {})
        for loop in loops
    )
    return Table(title, LOOP_COLUMNS, tuple(rows))


def _accesses(explanation: Explanation) -> Table:
    found = explanation.accesses
    title = "memory accesses per source line: wavefronts (shared), 32-byte sectors (global)"
    if isinstance(found, Missing):
        return Table(title, missing=found.missing)
    notes = [
        f"in all: {found.shared_wavefronts} shared wavefronts ({found.ideal_shared_wavefronts} at "
        f"best), {found.global_sectors} global sectors ({found.ideal_global_sectors} at best)"
    ]
    if found.shared_share is not None:
        notes.append(
            f"shared memory is busy for {found.shared_share:.0%} of the time that the "
            "multiply-adds need"
        )
    rows = tuple(asdict(line) for line in found.lines)
    title = f"{title}; one block of {found.problem_label}"
    return Table(title, ACCESS_COLUMNS, rows, tuple(notes))


def _neighbours(explanation: Explanation) -> Table:
    def change(now: float | None, then: float | None) -> float | None:
        return None if now is None or then is None else then - now

    own = explanation.neighbours.own
    rows = tuple(
        {
            "change": f"{one.parameter} {one.before} -> {one.after}",
            "time": one.time_ratio,
            **{name: getattr(one.facts, name) for name in NEIGHBOUR_FACTS},
            "block_flop_per_byte": change(own.block_flop_per_byte, one.facts.block_flop_per_byte),
        }
        for one in explanation.neighbours.neighbours
    )
    left_out = explanation.neighbours.num_left_out
    notes = (f"not shown: {left_out} legal neighbours that the search would not try",)
    return Table(
        "neighbours that the search would try, one parameter changed (time: relative to this "
        "config; block_flop_per_byte: difference)",
        tuple(rows[0]) if rows else (),
        rows,
        notes if left_out else (),
    )

"""``autogemm explain``: why a config is as fast or slow as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.options import (
    db_option,
    device_facts,
    family_option,
    fix_option,
    gpu_option,
    problem_from,
    problem_options,
)
from autogemm.cli.output import print_table
from autogemm.cli.render import checked_config, fixed_values, given_values, seed_values
from autogemm.errors import AutogemmError, UsageError

if TYPE_CHECKING:
    from autogemm.config import Config
    from autogemm.device import Device
    from autogemm.explain import Explanation, Missing, Request, Times
    from autogemm.problem import Problem
    from autogemm.store import BestQuery, Store

LOOP_COLUMNS = (
    *("kernel", "instructions", "ffma", "shared_loads", "global_loads", "shared_stores"),
    *("local", "integer", "control", "other", "instructions_per_ffma"),
)


@click.command()
@click.argument("kernel", required=False, metavar="[ID]")
@family_option
@fix_option
@click.option(
    "--seed-index", type=click.IntRange(min=0), help="Which of the family's seeds --fix changes."
)
@click.option("--config", "config_json", metavar="JSON", help="Every parameter, instead of a seed.")
@problem_options
@gpu_option
@click.option("--compile-neighbours", is_flag=True, help="Registers of neighbours, not estimates.")
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(
    kernel: str | None,
    gpu: str,
    compile_neighbours: bool,
    db: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Say why a config is as fast or slow as it is, from static facts; nothing runs on a card.

    The config is a stored kernel (its ID or the beginning of its sha256), or a seed of the family
    changed by --fix, or --config; with none of these the best kernel in the database. Registers
    and spills come from the compiler, the main loop from nvdisasm, memory accesses from one block
    run on the CPU (g++); a part whose tool is missing says so.

    \b
    Examples:
      autogemm explain
      autogemm explain 17 --compile-neighbours
      autogemm explain --fix STAGES=2 --fix BM=64 --size 1024 --gpu a100 --json
    """
    from autogemm.explain import Tools
    from autogemm.explain import explain as explained

    chosen = any(options[name] for name in ("fix", "config_json")) or (
        options["seed_index"] is not None
    )
    if kernel and chosen:
        raise UsageError(f"kernel {kernel} is one config already: leave out --fix and the like")
    request = (
        _named(options, gpu, db, compile_neighbours)
        if chosen
        else _stored(kernel, options, gpu, db, compile_neighbours)
    )
    with closing(Tools.open()) as tools:
        explanation = explained(request, tools)
    if as_json:
        click.echo(json.dumps(explanation.as_dict(), indent=2, default=str))
    else:
        print_explanation(explanation)


def _stored(
    kernel: str | None, options: dict[str, Any], gpu: str, db: str | None, compile_neighbours: bool
) -> Request:
    """The request for a kernel of the database, or the best of those that the options name."""
    from autogemm.store import BestQuery

    context = click.get_current_context()
    typed = {
        name: options[name]
        for name in ("family", "size", "layout")
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    family_name = typed.pop("family", None)
    asked = stored_request(kernel or BestQuery(**typed), db, family_name, gpu)
    return replace(asked, compile_neighbours=compile_neighbours)


def stored_request(
    kernel: str | BestQuery, db: str | None, family_name: str | None = None, gpu: str = "auto"
) -> Request:
    """The request for a kernel of the database, on the GPU and problem that it was timed for."""
    from autogemm.explain import Request
    from autogemm.space import load_family
    from autogemm.store import open_store

    with open_store(db, create=False) as store:
        found = store.stored_kernel(kernel)
        family = load_family(family_name or found.source.family)
        device = found.device if gpu == "auto" else device_facts(gpu)
        problem = found.problem
        return Request(
            family=family,
            config=found.source.config,
            problem=problem,
            device=device,
            times=_times(store, found.source.config, problem, device),
            stored=found.source,
        )


def _named(options: dict[str, Any], gpu: str, db: str | None, compile_neighbours: bool) -> Request:
    """The request for a config that the options name."""
    from autogemm.explain import Missing, Request
    from autogemm.space import load_family
    from autogemm.store import open_store

    names = ("size", "layout", "lda", "ldb", "ldc", "alpha", "beta")
    problem = problem_from(**{name: options[name] for name in names})
    family = load_family(options["family"])
    text = options["config_json"]
    values = given_values(text) if text else seed_values(family, options["seed_index"] or 0)
    config = checked_config(family, values | fixed_values(family, options["fix"]))
    device = device_facts(gpu)
    times: Times | Missing
    try:
        with open_store(db, create=False) as store:
            times = _times(store, config, problem, device)
    except AutogemmError as error:
        times = Missing(str(error))
    return Request(family, config, problem, device, times, compile_neighbours=compile_neighbours)


def _times(store: Store, config: Config, problem: Problem, device: Device) -> Times | Missing:
    from autogemm.explain import Missing, times_of

    found = times_of(store, config, problem, device)
    return found or Missing("the database has no time of this config on this GPU and problem")


def print_explanation(explanation: Explanation) -> None:
    """All sections as tables, each with a word where it is missing."""
    from autogemm.explain import Missing

    click.echo(
        f"{explanation.config.label}\n{explanation.problem.label} on {explanation.device.name}"
    )
    for note in explanation.notes:
        click.echo(f"note: {note}")
    timing = explanation.timing
    if isinstance(timing, Missing):
        click.echo(f"time: {timing.missing}")
    else:
        click.echo(
            f"time: {timing.time_us:.4g} us ({timing.provenance}), {timing.tflops:.4g} TFLOP/s, "
            f"{timing.of_peak:.0%} of the card's FP32 peak, run {timing.run_id}"
        )
    _section("compiler", explanation.compiled, lambda facts: facts.kernels)
    _section("main loop, one turn of one warp", explanation.main_loops, _loops, LOOP_COLUMNS)
    _section("blocks per SM", explanation.residency, lambda found: found, without=("steps",))
    if not isinstance(explanation.residency, Missing):
        for resident in explanation.residency:
            title = f"what {resident.next_blocks_per_sm} blocks per SM would need"
            _section(title, resident, lambda found: found.steps)
    _section("waves", explanation.waves, lambda found: found)
    _accesses(explanation)
    _section("FLOP per byte", explanation.intensity, lambda found: found.levels)
    _neighbours(explanation)


def _section(
    title: str,
    section: Any,
    rows_of: Any,
    columns: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> None:
    from autogemm.explain import Missing

    click.echo()
    if isinstance(section, Missing):
        click.echo(f"{title}: not here: {section.missing}")
        return
    rows = [row if isinstance(row, dict) else asdict(row) for row in rows_of(section)]
    if rows:
        shown = columns or tuple(name for name in rows[0] if name not in without)
        print_table(rows, shown, title=title)


def _loops(loops: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {"kernel": loop.kernel} | (asdict(loop.mix) if loop.mix is not None else {})
        for loop in loops
    ]


def _accesses(explanation: Explanation) -> None:
    from autogemm.explain import Missing

    found = explanation.accesses
    title = "memory accesses per source line: wavefronts (shared), 32-byte sectors (global)"
    if isinstance(found, Missing):
        _section(title, found, None)
        return
    columns = ("line", "memory", "operation", "bytes_per_lane", "requests", "per_request")
    shown = (*columns, "ideal_per_request", "times_ideal", "text")
    _section(f"{title}; one block of {found.problem_label}", found, lambda it: it.lines, shown)
    click.echo(
        f"in all: {found.shared_wavefronts} shared wavefronts ({found.ideal_shared_wavefronts} at "
        f"best), {found.global_sectors} global sectors ({found.ideal_global_sectors} at best)"
    )
    if found.shared_share is not None:
        click.echo(
            f"shared memory is busy for {found.shared_share:.0%} of the time that the "
            "multiply-adds need"
        )


def _neighbours(explanation: Explanation) -> None:
    def change(now: float | None, then: float | None) -> float | None:
        return None if now is None or then is None else then - now

    own = explanation.neighbours.own
    rows = [
        {
            "change": f"{one.parameter} {one.before} -> {one.after}",
            "time": one.time_ratio,
            "threads": one.facts.threads,
            "smem_bytes": one.facts.smem_bytes,
            "registers": one.facts.registers,
            "spill_bytes": one.facts.spill_bytes,
            "blocks_per_sm": one.facts.blocks_per_sm,
            "waves": one.facts.waves,
            "lost_share": one.facts.lost_share,
            "block_flop_per_byte": change(own.block_flop_per_byte, one.facts.block_flop_per_byte),
        }
        for one in explanation.neighbours.neighbours
    ]
    title = (
        "legal neighbours, one parameter changed (time: relative to this config; "
        "block_flop_per_byte: difference)"
    )
    _section(title, rows, lambda it: it)

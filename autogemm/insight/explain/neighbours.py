"""The legal configs that differ in one parameter, and what each would change."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autogemm.insight.explain.intensity import flop_per_byte, pair_of
from autogemm.insight.explain.residency import residency, waves
from autogemm.insight.explain.times import Times
from autogemm.model.config import Config, Value
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Resources
from autogemm.model.problem import Problem
from autogemm.space import Family, broken_constraints, broken_rules, derive_values, launch_plan

# Gives the resources of a config, or None where it does not compile or was not to be compiled.
CompileOne = Callable[[Config], tuple[Resources, ...] | None]


@dataclass(frozen=True, slots=True)
class StaticFacts:
    """Facts known of a config before it runs, from the launch with the most threads.

    Unless ``registers_are_compiled``, ``registers`` are those of the config that was explained,
    moved by the difference in the family's ``least_registers`` where it derives that, and what
    follows from them is an estimate; None where nothing was compiled, and blocks per SM are then
    at most these.
    """

    threads: int
    smem_bytes: int
    registers: int | None
    registers_are_compiled: bool
    spill_bytes: int | None
    blocks: int
    blocks_per_sm: int
    waves: float | None
    lost_share: float | None
    block_flop_per_byte: float | None
    warp_flop_per_byte: float | None
    thread_flop_per_byte: float | None


@dataclass(frozen=True, slots=True)
class DerivedChange:
    """A derived quantity of the family that a neighbour changes."""

    name: str
    before: Value
    after: Value


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One change of one parameter; ``time_ratio`` is its time / the config's, of one run."""

    parameter: str
    before: Value
    after: Value
    facts: StaticFacts
    derived: tuple[DerivedChange, ...]
    time_us: float | None
    time_ratio: float | None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The config's own facts, and neighbours in the order of the family's parameters.

    ``num_left_out`` are legal, and the search would not take them.
    """

    own: StaticFacts
    neighbours: tuple[Neighbour, ...]
    num_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The family, problem and GPU that configs are compared for."""

    family: Family
    problem: Problem
    device: Device


def neighbours(
    place: Place,
    config: Config,
    resources: tuple[Resources, ...] | None,
    times: Times | None,
    compile_one: CompileOne,
) -> Neighbours:
    """Return the neighbours that the search would take. ``resources`` are the config's, or None."""
    own_derived = derive_values(place.family, config, place.problem)
    own = static_facts(place, config, resources, compiled=resources is not None)
    found: list[Neighbour] = []
    legal = list(legal_neighbours(place, config))
    broken = set(_rules(place, config))
    # A rule that the config breaks itself says nothing of its neighbours.
    taken = [one for one in legal if broken.issuperset(_rules(place, one[2]))]
    for parameter, before, other in taken:
        derived = derive_values(place.family, other, place.problem)
        compiled = compile_one(other)
        if compiled is not None:
            facts = static_facts(place, other, compiled, compiled=True)
        else:
            change = _least_change(own_derived, derived)
            assumed = _assumed(place, other, resources, change)
            facts = static_facts(place, other, assumed, compiled=False)
        time_us = times.time_us.get(other.sha256) if times else None
        found.append(
            Neighbour(
                parameter=parameter,
                before=before,
                after=other[parameter],
                facts=facts,
                derived=tuple(
                    DerivedChange(name, own_derived[name], value)
                    for name, value in derived.items()
                    if value != own_derived[name]
                ),
                time_us=time_us,
                time_ratio=time_us / times.own_us if times and time_us is not None else None,
            )
        )
    return Neighbours(own, tuple(found), len(legal) - len(taken))


def _rules(place: Place, config: Config) -> tuple[str, ...]:
    """Return the rules of ``worth_trying`` that it breaks."""
    return tuple(map(str, broken_rules(place.family, config, place.problem, place.device)))


def legal_neighbours(place: Place, config: Config) -> Iterator[tuple[str, Value, Config]]:
    """Parameter, its value now, and the config with another one, where that is legal."""
    for parameter in place.family.on(place.device).parameters:
        before = config[parameter.name]
        for value in parameter.values:
            other = Config.of(config.family, config.as_dict() | {parameter.name: value})
            if value != before and not broken_constraints(
                place.family, other, place.problem, place.device
            ):
                yield parameter.name, before, other


def static_facts(
    place: Place, config: Config, resources: tuple[Resources, ...] | None, *, compiled: bool
) -> StaticFacts:
    """Facts of one config with these resources, which were ``compiled`` or are assumed."""
    launch = launch_plan(place.family, config, place.problem).main
    by_kernel = {each.kernel: each for each in resources or ()}
    used = by_kernel.get(launch.kernel)
    # With one register the registers limit nothing.
    bound = used or Resources(launch.kernel, 1, 0, 0, 0, 0)
    resident = residency(place.device, launch, bound)
    fits = resident.blocks_per_sm > 0
    grid = waves(place.device, launch, resident.blocks_per_sm) if fits else None
    size_bytes = place.problem.dtype.size_bytes

    def of_tile(rows: str, columns: str) -> float | None:
        tile = pair_of(config, rows, columns)
        return flop_per_byte(tile, size_bytes) if tile else None

    return StaticFacts(
        threads=launch.num_threads,
        smem_bytes=resident.smem_bytes,
        registers=used.registers if used else None,
        registers_are_compiled=compiled and used is not None,
        spill_bytes=used.spill_store_bytes + used.spill_load_bytes if compiled and used else None,
        blocks=math.prod(launch.grid),
        blocks_per_sm=resident.blocks_per_sm,
        waves=grid.waves if grid else None,
        lost_share=grid.lost_share if grid else None,
        block_flop_per_byte=of_tile("BM", "BN"),
        warp_flop_per_byte=of_tile("WM", "WN"),
        thread_flop_per_byte=of_tile("TM", "TN"),
    )


def _assumed(
    place: Place, config: Config, own: tuple[Resources, ...] | None, least_change: int
) -> tuple[Resources, ...] | None:
    """The config's own resources, with as many more registers as the family's lower bound says.

    No more than leave room for the MIN_BLOCKS per SM that are promised to the compiler.
    """
    if own is None:
        return None
    launches = launch_plan(place.family, config, place.problem).launches
    threads = {launch.kernel: launch.num_threads for launch in launches}
    promised = config.as_dict().get("MIN_BLOCKS", 1)
    assert isinstance(promised, int)

    def registers(each: Resources) -> int:
        share = place.device.registers_per_sm // (threads.get(each.kernel, 1) * promised)
        # The compiler keeps a promise in steps of 8 registers.
        most = min(share // 8 * 8, place.device.max_registers_per_thread)
        return max(1, min(each.registers + least_change, most))

    return tuple(
        Resources(each.kernel, registers(each), 0, 0, 0, each.static_smem_bytes) for each in own
    )


def _least_change(before: dict[str, Value], after: dict[str, Value]) -> int:
    least, wanted = before.get("least_registers", 0), after.get("least_registers", 0)
    return wanted - least if isinstance(least, int) and isinstance(wanted, int) else 0

"""Bank conflicts and sectors: what each request of a warp costs, per line of the source.

Shared memory answers a request in passes: the whole warp at once for up to 4 bytes a lane, half of
it for 8, a quarter for 16. Where lanes n and n^1, or n and n^2, ask for the same address in all
pairs, a pass takes twice the lanes. Each pass costs as many wavefronts as its busiest of 32 banks
has different words. An asynchronous copy arrives line by line: it costs at least a wavefront for
each 128-byte line of global memory that the warp copies from. Global memory moves sectors of 32
bytes. (Found with access patterns on an H100; benchmarks/wavefronts.py compares the counts of whole
kernels with the GPU's own counters.)
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autogemm.emulator.exchange import Region
from autogemm.emulator.findings import Lines

NUM_BANKS = 32
SECTOR_BYTES = 32
LINE_BYTES = 128
WARP = 32

Trace = npt.NDArray[np.void]
Addresses = dict[int, int]  # lane -> byte offset


@dataclass(frozen=True, slots=True)
class AccessLine:
    """The requests that one line makes of shared or global memory, in the block that was traced.

    ``cost`` counts wavefronts (shared) or sectors (global) per request, ``ideal`` what as many
    different bytes need at least, asked for by as many lanes in accesses of that width.
    """

    line: int
    text: str
    called_from: Lines
    memory: str
    operation: str
    bytes_per_lane: int
    requests: int
    cost: float
    ideal: float


def analyse(trace: Trace, lines: dict[int, Lines], text: str) -> tuple[AccessLine, ...]:
    """Requests by line, in the order of the source. ``lines`` are those of the trace's calls."""
    rows = text.splitlines()
    totals: dict[tuple[Lines, str, str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for (pc, memory, operation, size), addresses, copied_lines in _requests(trace):
        if memory == "shared":
            cost, ideal = _shared_cost(addresses, size)
            cost = max(cost, copied_lines)
        else:
            cost, ideal = _sectors(addresses, size)
        total = totals[lines.get(pc, ()), memory, operation, size]
        for position, amount in enumerate((1, cost, ideal)):
            total[position] += amount
    return tuple(
        AccessLine(
            line=at[0] if at else 0,
            text=rows[at[0] - 1].strip() if at else "",
            called_from=at[1:],
            memory=memory,
            operation=operation,
            bytes_per_lane=size,
            requests=count,
            cost=cost / count,
            ideal=ideal / count,
        )
        for (at, memory, operation, size), (count, cost, ideal) in sorted(totals.items())
    )


def _requests(trace: Trace) -> Iterator[tuple[tuple[int, str, str, int], Addresses, int]]:
    """Accesses of a warp's lanes at one call, the n-th time within one barrier interval each.

    Last comes the number of lines that an asynchronous copy, which is a load and a store of one
    call, brings to shared memory; 0 for any other access.
    """
    fields = ("pc", "region_and_write", "size", "thread", "phase")
    order = np.lexsort([trace[name] for name in reversed(fields)])
    ordered = trace[order]
    new = np.ones(len(ordered), bool)
    for name in fields:
        new[1:] &= ordered[name][1:] == ordered[name][:-1]
    new[1:] = ~new[1:]
    starts = np.flatnonzero(new)
    turn = np.arange(len(ordered)) - np.repeat(starts, np.diff([*starts, len(ordered)]))
    groups: dict[tuple[int, int, int, int, int, int], Addresses] = defaultdict(dict)
    for record, nth in zip(ordered.tolist(), turn.tolist(), strict=True):
        pc, thread, region_and_write, size, offset, phase = record
        key = (pc, region_and_write, size, thread // WARP, phase, nth)
        groups[key][thread % WARP] = offset
    copied = {
        (pc, size, *when): len({at // LINE_BYTES for at in addresses.values()})
        for (pc, region_and_write, size, *when), addresses in groups.items()
        if region_and_write % 2 == 0
    }
    for (pc, region_and_write, size, *when), addresses in groups.items():
        shared = region_and_write // 2 in (Region.DYNAMIC_SHARED, Region.STATIC_SHARED)
        memory = "shared" if shared else "global"
        is_store = region_and_write % 2 == 1
        copied_lines = copied.get((pc, size, *when), 0) if is_store else 0
        yield (pc, memory, "store" if is_store else "load", size), addresses, copied_lines


def _shared_cost(addresses: Addresses, size: int) -> tuple[int, int]:
    """Wavefronts of one request, and the least for as many different words and lanes."""
    # A bulk copy has one lane, for as many bytes as it likes.
    lanes = own_lanes = max(1, WARP * 4 // max(size, 4))
    if lanes < WARP and any(_pairs_agree(addresses, distance) for distance in (1, 2)):
        lanes *= 2
    wavefronts = 0
    words_of_all: set[int] = set()
    for first in range(0, WARP, lanes):
        words = {
            (addresses[lane] + byte) // 4
            for lane in range(first, first + lanes)
            if lane in addresses
            for byte in range(0, size, 4)
        }
        words_of_all |= words
        banks = np.bincount([word % NUM_BANKS for word in words], minlength=NUM_BANKS)
        wavefronts += int(banks.max())
    least_passes = len({lane // min(2 * own_lanes, WARP) for lane in addresses})
    return wavefronts, max(-(-len(words_of_all) // NUM_BANKS), least_passes)


def _pairs_agree(addresses: Addresses, distance: int) -> bool:
    return all(
        addresses.get(lane ^ distance, address) == address for lane, address in addresses.items()
    )


def _sectors(addresses: Addresses, size: int) -> tuple[int, int]:
    """Sectors of one request, and the least for as many different bytes."""
    words = {(at + byte) // 4 for at in addresses.values() for byte in range(0, size, 4)}
    sectors = {word * 4 // SECTOR_BYTES for word in words}
    return len(sectors), -(-len(words) * 4 // SECTOR_BYTES)

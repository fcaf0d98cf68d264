"""The counters that are kept, and the raw page of Nsight Compute that they are read from.

Names are Nsight Compute's own (its documentation: "Metrics Reference"); a page has hundreds more.
"""

import csv
import io
import re
from collections.abc import Mapping

from autogemm.support.errors import ProfileError

TIME = "gpu__time_duration.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
POSSIBLE_OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
WAVES = "launch__waves_per_multiprocessor"
REGISTERS = "launch__registers_per_thread"
LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "threads": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
}

# These count all SMs from the launch's begin to its end, in cycles, so that no clock enters.
CYCLES = "gpc__cycles_elapsed.max"
CLOCK_HZ = "gpc__cycles_elapsed.avg.per_second"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"

COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
ALU = "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active"
LSU = "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"
ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"

MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_RATE = "dram__bytes.sum.per_second"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1_HITS = "l1tex__t_sector_hit_rate.pct"

LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")

GLOBAL_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_STORES = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED_LOADS = "smsp__inst_executed_op_shared_ld.sum"
SHARED_STORES = "smsp__inst_executed_op_shared_st.sum"
LOAD_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
STORE_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
LOAD_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"

KEPT = frozenset(
    {
        *(TIME, OCCUPANCY, POSSIBLE_OCCUPANCY, WAVES, REGISTERS, *LIMITS.values()),
        *(CYCLES, CLOCK_HZ, TENSOR),
        *(COMPUTE, ISSUE, FMA, ALU, LSU, ELIGIBLE),
        *(MEMORY, DRAM, DRAM_RATE, L1, L2, L1_HITS, LATENCY),
        *(GLOBAL_LOADS, GLOBAL_STORES, LOAD_SECTORS, STORE_SECTORS),
        *(SHARED_LOADS, SHARED_STORES, LOAD_WAVEFRONTS, STORE_WAVEFRONTS),
        *(LOAD_CONFLICTS, STORE_CONFLICTS),
        *("launch__grid_size", "launch__block_size", "launch__shared_mem_per_block"),
        *("dram__bytes_read.sum", "dram__bytes_write.sum"),
    }
)
MAX_PAGE_BYTES = 20_000_000

Counters = Mapping[str, float]


def parse_page(text: str) -> dict[str, float]:
    """The counters of the kernel that took the longest, from a raw page as CSV in base units.

    The counters in KEPT and all stall reasons are kept; those without a number ("n/a") are left
    out. Raises ProfileError for a text that is no such page.
    """
    start = text.find('"ID"')
    if start < 0 or len(text) > MAX_PAGE_BYTES:
        raise ProfileError(
            "this is not a raw page of Nsight Compute: make it with ncu --csv --page raw "
            "--print-units base"
        )
    try:
        rows = list(csv.DictReader(io.StringIO(text[start:])))
    except csv.Error as error:
        raise ProfileError(f"the page of Nsight Compute is broken: {error}") from error
    # The row behind the names has the units.
    kernels = [_numbers(row) for row in rows[1:]]
    longest = max(kernels, key=lambda one: one.get(TIME, 0.0), default={})
    if TIME not in longest:
        raise ProfileError("the page of Nsight Compute contains no kernel with a time")
    return longest


def _numbers(row: dict[str, str]) -> dict[str, float]:
    found = {}
    for name, text in row.items():
        if name in KEPT or (isinstance(name, str) and STALL.fullmatch(name)):
            try:
                found[name] = float((text or "").replace(",", ""))
            except ValueError:
                continue
    return found


def stalls(counters: Counters) -> dict[str, float]:
    """Reason to its share of the cycles between two instructions of a warp, the largest first.

    ``selected`` is no stall: the cycle in which the instruction is issued.
    """
    cycles = {
        match[1]: value
        for name, value in counters.items()
        if (match := STALL.fullmatch(name)) and match[1] != "selected"
    }
    total = counters.get(LATENCY) or sum(cycles.values())
    ordered = sorted(cycles.items(), key=lambda item: -item[1])
    return {reason: value / total for reason, value in ordered} if total else {}

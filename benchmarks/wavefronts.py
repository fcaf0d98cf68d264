"""Compares the emulator's memory analysis with Nsight Compute's hardware counters.

For a few configs: shared-memory wavefronts and global sectors of a whole launch, as the emulator
predicts them from one block, beside what the GPU counted. Needs a GPU, ncu and g++.

    python benchmarks/wavefronts.py --out benchmarks/results/wavefronts.csv
"""

import csv
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from autogemm.cli.output import print_rows
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Config, Value
from autogemm.model.problem import Problem
from autogemm.space import Family, launch_plan, load_family

PROBLEM = Problem(512, 512, 512)
SHARED_LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
ASYNC_STORES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"
GLOBAL_LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
# The emulator's name of an access -> the counters whose sum it predicts.
COUNTERS = {
    ("shared", "load"): (SHARED_LOADS,),
    ("shared", "store"): (SHARED_STORES, ASYNC_STORES),
    ("global", "load"): (GLOBAL_LOADS,),
    ("global", "store"): (GLOBAL_STORES,),
}

# As changes to the family's first seed: good and bad lane maps and padding, with and without
# cp.async, a sliced tile.
CASES: dict[str, dict[str, Value]] = {
    "double buffer, quads": {
        **{"BN": 128, "BK": 8, "WM": 32, "WN": 128, "TM": 16, "STAGES": 2},
        **{"GROUP_M": 8, "LANE_MAP": "quads"},
    },
    "double buffer, rows, no padding": {
        **{"BN": 128, "BK": 8, "PAD_A": 0, "STAGES": 2, "GROUP_M": 8, "MIN_BLOCKS": 2},
    },
    "pipeline, rows": {},
    "pipeline, quads": {"LANE_MAP": "quads"},
    "single buffer, sliced": {
        **{"BM": 32, "BN": 32, "BK": 32, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "SLICE_K": 4},
        **{"STAGES": 1, "LANE_MAP": "quads"},
    },
}


def predicted(family: Family, config: Config, emulator: Emulator) -> Counter[tuple[str, str]]:
    """Wavefronts and sectors of the launch, from the accesses of one block."""
    plan = launch_plan(family, config, PROBLEM)
    num_blocks = plan.launches[0].grid[0]
    total: Counter[tuple[str, str]] = Counter()
    for line in emulator.analyse(render(family, config, PROBLEM), plan, PROBLEM):
        count = round(line.requests * line.cost * num_blocks)
        total[(str(line.memory), str(line.operation))] += count
    return total


def measured(config: Config) -> Mapping[str, str]:
    """Nsight Compute's counters of the first launch that `autogemm tune` makes of this config."""
    metrics = ",".join(name for names in COUNTERS.values() for name in names)
    fix = [word for name, value in config for word in ("--fix", f"{name}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *("ncu", "--clock-control", "none", "--target-processes", "all", "--csv"),
            *("--page", "raw", "-k", "gemm_kernel", "-c", "1", "--metrics", metrics),
            *(sys.executable, "-m", "autogemm", "tune", "--size", PROBLEM.size_label),
            *("--trials", "1", "--rounds", "1", "--require-gpu", "--db", f"{folder}/x.db", *fix),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = list(csv.reader(line for line in done.stdout.splitlines() if line.startswith('"')))
    if len(rows) < 3:
        raise click.ClickException(f"ncu gave no counters: {(done.stdout + done.stderr)[-300:]}")
    return dict(zip(rows[0], rows[2], strict=True))


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="CSV to write.")
def main(out: Path | None) -> None:
    family, emulator = load_family("sgemm_simt"), Emulator()
    rows = []
    for name, changes in CASES.items():
        config = Config.of(family.name, family.seeds[0].as_dict() | changes)
        counters, forecast = measured(config), predicted(family, config, emulator)
        for (memory, operation), names in COUNTERS.items():
            counted = sum(int(counters[counter].replace(",", "")) for counter in names)
            said = forecast[(memory, operation)]
            row = {"case": name, "access": f"{memory} {operation}", "predicted": said}
            rows.append({**row, "measured": counted, "ratio": said / counted if counted else None})
    columns = list(rows[0])
    print_rows(rows, columns)
    if out is not None:
        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

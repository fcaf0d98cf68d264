"""Races one parameter: the same config with each of its values, in finals beside cuBLAS.

    benchmarks/gpu_box.sh run python3 benchmarks/race.py --family gemm_wgmma --dtype bf16 \
        --size 4096 --size 8192 --over EPILOGUE --out OUT \
        BM=128 BN=256 WM=64 WN=256 STAGES=4 SCHEDULE=cooperative CLUSTER_M=1 CLUSTER_N=1 \
        SPLIT_K=1 BOX_M=64 C_BUFFERS=2 GROUP_M=16 BLOCKS=132

Parameters that are not named are searched too; every kernel is verified before it is timed.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from autogemm.cli.output import print_rows
from autogemm.space import load_family


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--family", "-f", required=True)
@click.option("--size", "sizes", multiple=True, required=True, help="M=N=K or MxNxK; repeatable.")
@click.option("--dtype", default="f32", help="As of autogemm tune.")
@click.option("--layout", default="nn", help="As of autogemm tune.")
@click.option("--epilogue", default="", help="As of autogemm tune.")
@click.option("--over", required=True, help="The parameter; all its values, or those of --value.")
@click.option("--value", "values", multiple=True, help="One of its values; repeatable.")
@click.option("--rounds", default=25, help="Rounds of the finals.")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.argument("config", nargs=-1, metavar="NAME=VALUE...")
def main(
    family: str,
    sizes: tuple[str, ...],
    over: str,
    values: tuple[str, ...],
    config: tuple[str, ...],
    **options: Any,
) -> None:
    """One parameter's values against each other."""
    out = options["out"]
    out.mkdir(parents=True, exist_ok=True)
    known = {one.name: one.values for one in load_family(family).parameters}
    if over not in known:
        raise click.BadParameter(f"{family} has no parameter {over!r}", param_hint="--over")
    raced = values or tuple(map(str, known[over]))
    command = [sys.executable, "-m", "autogemm", "tune", "--require-gpu", "--family", family]
    command += ["--dtype", options["dtype"], "--layout", options["layout"], "--json", "-q"]
    command += ["--epilogue", options["epilogue"]] if options["epilogue"] else []
    command += ["--rounds", str(options["rounds"])]
    # A trial for each value; several where the rest of the config is not all named.
    command += ["--trials", str(8 * len(raced)), "--finalists", str(len(raced))]
    command += ["--budget", "4s", "--no-certify", "--no-warm-start", "--db", str(out / "race.db")]
    for one in config:
        command += ["--fix", one]
    command += ["--fix", f"{over}={','.join(raced)}"]
    rows: list[dict[str, Any]] = []
    for size in sizes:
        ended = subprocess.run(
            [*command, "--size", size], stdout=subprocess.PIPE, text=True, check=False
        )
        if ended.returncode:
            click.echo(f"{size}: autogemm tune ended with {ended.returncode}", err=True)
            continue
        finals = json.loads(ended.stdout)["finals"]
        rows += [_row(size, over, entry) for entry in finals["entries"]]
        rows.append({"size": size, over: finals["baseline"]["name"]} | _times(finals["baseline"]))
    (out / "race.json").write_text(json.dumps(rows, indent=1) + "\n")
    print_rows(rows, ("size", over, "time_us", "ratio", "low", "high", "error", "registers"))


def _row(size: str, over: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "size": size,
        over: entry["config"][over],
        **_times(entry),
        "low": entry["ratio_low"],
        "high": entry["ratio_high"],
        "registers": entry.get("registers"),
    }


def _times(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "time_us": entry["time_us"],
        "ratio": entry["ratio"],
        "error": entry.get("error"),
    }


if __name__ == "__main__":
    main()

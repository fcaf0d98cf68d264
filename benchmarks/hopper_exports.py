"""Exported files of the families for Hopper: built by the command in their headers, and run.

    benchmarks/gpu_box.sh run python3 benchmarks/hopper_exports.py --out OUT

Prints each file's own check and its ratio to the fastest of cuBLAS (and cuBLASLt).
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import click
from hopper_sanitizer import EMULATED, WGMMA, seed

from autogemm.codegen.export import export_cuda
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / part) for part in ("", "unit")]

ROUNDS = 20
RUN_LIMIT_S = 30


def cases() -> dict[str, tuple[Family, Config, Problem]]:
    nn, bf16, tf32 = Layout.NN, DType.BF16, DType.TF32
    wide = seed(BN=256, GROUP_M=4)
    halves = seed(BM=128, WM=128, WN=64, SPLIT_K=2, EPILOGUE="after")
    configs = {
        "bf16_4096": (wide, Problem(4096, 4096, 4096, nn, bf16)),
        "bf16_8192_cluster": (
            seed(BN=256, CLUSTER_M=2, BOX_M=16),
            Problem(8192, 8192, 8192, nn, bf16),
        ),
        "bf16_8192_swapped": (seed(SWAP_AB=1), Problem(8192, 8192, 8192, nn, bf16)),
        "bf16_8192_turns_192": (seed(BN=192), Problem(8192, 8192, 8192, nn, bf16)),
        "bf16_2048_turns": (seed(SCHEDULE="pingpong", BN=128), Problem(2048, 2048, 2048, nn, bf16)),
        "bf16_1024": (seed(BM=128, BN=64), Problem(1024, 1024, 1024, nn, bf16)),
        "bf16_64_2_parts": (seed(BM=64, BN=64, SPLIT_K=2), Problem(64, 4096, 4096, nn, bf16)),
        "bf16_64_4_parts": (seed(SPLIT_K=4), Problem(64, 4096, 4096, nn, bf16)),
        "f16_4096_tn": (wide, Problem(4096, 4096, 4096, Layout.TN, DType.F16)),
        "tf32_4096": (seed(WM=256, EPILOGUE="after"), Problem(4096, 4096, 4096, nn, tf32)),
        "tf32_1024_2_parts": (halves, Problem(1024, 1024, 1024, nn, tf32)),
    }
    emulated = EMULATED.seeds[0]
    return {name: (WGMMA, *rest) for name, rest in configs.items()} | {
        "emulated_4096": (EMULATED, emulated, Problem(4096, 4096, 4096)),
        "emulated_1000": (EMULATED, emulated, Problem(1000, 1000, 1000)),
    }


def built(name: str, family: Family, config: Config, problem: Problem, folder: Path) -> str:
    """The messages of nvcc; empty when all is well."""
    from export_samples import stored_kernel

    path = folder / f"{name}.cu"
    today = datetime.now(UTC).date()
    text = export_cuda(stored_kernel(family, problem, config), family, path.name, today)
    path.write_text(text)
    (line,) = (one for one in text.splitlines() if one.endswith(f"&& ./{name}"))
    command = line.removeprefix("//").removesuffix(f"&& ./{name}").split()
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = f"{ended.stdout}{ended.stderr}"
    return f"exit code {ended.returncode}: {said}" if ended.returncode or said else ""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--build-only", is_flag=True, help="Where there is nvcc and no GPU.")
def main(out: Path, build_only: bool) -> None:
    """Build all of them at once, then run one after the other."""
    out.mkdir(parents=True, exist_ok=True)
    begin, every = time.monotonic(), cases()
    with ThreadPoolExecutor() as pool:
        said = list(pool.map(lambda name: built(name, *every[name], folder=out), every))
    click.echo(f"{len(every)} files built in {time.monotonic() - begin:.0f} s")
    for name, complaint in zip(every, said, strict=True):
        if complaint:
            click.echo(f"{name}: nvcc: {complaint[:300]}")
            continue
        if not build_only:
            command = [str(out / name), "--rounds", str(ROUNDS)]
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
            )
            (out / f"{name}.txt").write_text(ended.stdout + ended.stderr)
            last = ended.stdout.strip().splitlines()[-5:]
            click.echo("\n   ".join([f"{name}: exit code {ended.returncode}", *last]))
        (out / name).unlink()


if __name__ == "__main__":
    main()

"""``python -m autogemm.emulator FILE.cu --m 33 --n 65 --k 17 --grid 5,3 --threads 256``.

Runs one file as it is, for authors of a kernel or a template.
"""

import argparse
import sys
from pathlib import Path

from autogemm.emulator import Data, Emulator, Mode, RunOptions
from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import AutogemmError


def main() -> int:
    """0 when nothing was found, 1 when something was or the file does not compile, 2 for usage."""
    args = _parser().parse_args()
    try:
        problem = Problem(
            args.m,
            args.n,
            args.k,
            layout=Layout(args.layout),
            lda=args.lda,
            ldb=args.ldb,
            ldc=args.ldc,
            alpha=args.alpha,
            beta=args.beta,
        )
        text = args.file.read_text()
        source = KernelSource("hand-written", "", Config("", ()), problem.layout, text)
        launch = Launch(args.kernel, args.grid, args.threads, args.smem_bytes)
        options = RunOptions(
            mode=Mode(args.mode),
            data=Data(args.data),
            seed=args.seed,
            late_copies=args.copies == "late",
            misalign_bytes=args.misalign,
            resident_blocks=args.resident_blocks,
            stack_fill=0xFF if Mode(args.mode) is Mode.UNSET else 0,
        )
        plan = LaunchPlan((launch,), args.workspace_bytes)
        report = Emulator().run(source, plan, problem, options)
    except AutogemmError as error:
        print(f"Error: {error}", file=sys.stderr)
        print(getattr(error, "log", ""), file=sys.stderr, end="")
        return error.exit_code
    except (OSError, UnicodeDecodeError) as error:
        print(f"Error: cannot read {args.file}: {error}", file=sys.stderr)
        return 2
    for finding in report.findings:
        print(finding)
    verdict = "ok" if report.ok else f"{len(report.findings)} findings"
    print(
        f"{problem.label}: {verdict}, {report.wrong_elements} wrong elements, error / bound "
        f"{report.max_error_ratio:.3g}, {report.num_accesses} accesses checked, "
        f"{report.seconds:.3f} s (compiling {report.compile_seconds:.2f} s)"
    )
    return 0 if report.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m autogemm.emulator",
        description="Run one CUDA file with a GEMM kernel on the CPU and check every access.",
    )
    parser.add_argument("file", type=Path)
    for name in ("--m", "--n", "--k"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--layout", default="nn", choices=[str(layout) for layout in Layout])
    for name in ("--lda", "--ldb", "--ldc"):
        parser.add_argument(name, type=int, default=0, help="0: packed")
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--kernel", default="gemm_kernel")
    parser.add_argument("--grid", type=extents, required=True, help="blocks: x or x,y or x,y,z")
    parser.add_argument(
        "--threads", type=extents, required=True, help="threads of a block: x or x,y or x,y,z"
    )
    parser.add_argument("--smem-bytes", type=int, default=0, help="dynamic shared memory")
    parser.add_argument("--workspace-bytes", type=int, default=0)
    parser.add_argument("--mode", default="check", choices=[str(mode) for mode in Mode])
    parser.add_argument("--data", default="integers", choices=[str(data) for data in Data])
    parser.add_argument("--seed", type=int, default=0, help="not 0: shuffle threads and blocks")
    parser.add_argument("--copies", default="late", choices=["late", "early"])
    parser.add_argument(
        "--resident-blocks", type=int, default=1, help="run so many by turns, not one by one"
    )
    parser.add_argument("--misalign", type=int, default=0, help="bytes off alignment, of A, B, C")
    return parser


def extents(text: str) -> tuple[int, int, int]:
    """``5``, ``5,3`` or ``5,3,1``. Raises ValueError for anything else, which argparse shows."""
    parts = [int(part) for part in text.split(",")]
    x, y, z = parts + [1] * (3 - len(parts))
    return x, y, z


if __name__ == "__main__":
    sys.exit(main())

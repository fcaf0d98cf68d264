"""Races our kernels with DeepGEMM: 8-bit floats with scales of blocks, and groups in BF16.

    benchmarks/gpu_box.sh run python3 benchmarks/deepgemm_race.py --commit COMMIT --out OUT
    ... deepgemm_race.py --suite grouped --out OUT
    ... deepgemm_race.py --suite grouped --out OUT --shapes "8192x1536x2048 groups=128 masked=2048"

The Python package deep_gemm must be installed, for the offline box by a wheel in .wheels/; it
chooses and compiles its kernels itself. Both get the same numbers, in the layouts that each
documents: DeepGEMM's scales are converted before they are timed, and its groups begin at multiples
of 128 rows, unless they are masked. Tuning, checks against float64 and timing are those of
grouped_race.py. Written: deepgemm_race_SUITE_GPU.json and .txt.
"""

import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

import click
from grouped_race import (
    DEVICE,
    OURS,
    Calls,
    Race,
    group_error,
    numbers_of,
    operands,
    race_options,
    unwritten,
)
from suite_shapes import EPILOGUES, NAMED, SCALED, problem_of

import autogemm
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import AutogemmError, UsageError

OTHER = "DeepGEMM"
# Each suite's element type.
DTYPES = {"block-scales": DType.E4M3, "block-scales-all": DType.E4M3, "grouped": DType.BF16}
BLOCK = 128
Raced = tuple[Calls, Callable[[str, Any], float]]


def scaled_calls(problem: Problem) -> Raced:
    """Products of E4M3 with a scale for 128 numbers of a row of A and 128 x 128 of B."""
    import deep_gemm
    import torch

    m, n, k = problem.m, problem.n, problem.k
    made = torch.Generator(DEVICE).manual_seed(1)
    given: dict[str, Any] = {"device": DEVICE, "generator": made}
    x, w = (torch.randn(rows, k, **given).to(torch.float8_e4m3fn) for rows in (m, n))
    # Far enough apart that one of another block is seen.
    sa = torch.rand(-(-k // BLOCK), m, **given) + 0.5
    sb = torch.rand(-(-n // BLOCK), -(-k // BLOCK), **given) + 0.5
    aligned = deep_gemm.get_mn_major_tma_aligned_tensor(sa.T.contiguous())
    if deep_gemm.get_mn_major_tma_aligned_tensor(aligned).data_ptr() != aligned.data_ptr():
        raise AutogemmError(f"{OTHER} would convert the scales in each call")
    ours, theirs = unwritten(m, n), unwritten(m, n)

    def other() -> Any:
        # Kernels for this N and K, which is not the default of all forks.
        deep_gemm.fp8_gemm_nt((x, aligned), (w, sb), theirs, compiled_dims="nk")
        return theirs

    scales = {"sa": sa, "sb": sb}
    calls: Calls = {
        OURS: lambda: autogemm.gemm(x, w.T, ours, epilogue=SCALED, **scales),
        OTHER: other,
    }
    along_k = [one.repeat_interleave(BLOCK, 1)[:, :k] for one in (sa.T, sb)]
    rows = x.double() * along_k[0]
    columns = w.double() * along_k[1].repeat_interleave(BLOCK, 0)[:n]
    return calls, lambda _, result: group_error(result, rows, columns[None], [(0, m)])


def grouped_calls(problem: Problem) -> Raced:
    """Products of groups in BF16: of any sizes, for which DeepGEMM's rows are padded, or masked."""
    return (masked_calls if problem.groups.masked else contiguous_calls)(problem)


def contiguous_calls(problem: Problem) -> Raced:
    """Groups one after the other. DeepGEMM's have rows of no group behind them, up to a multiple of
    its tile's height, and a number of the group for each row.
    """
    import deep_gemm
    import torch

    x, w = operands(problem)
    ranges = problem.groups.ranges(problem.m)
    step = deep_gemm.get_mk_alignment_for_contiguous_layout()
    heights = (-((first - end) // step) * step for first, end in ranges)
    *firsts, total = accumulate(heights, initial=0)
    group_of = torch.full((total,), -1, device=DEVICE, dtype=torch.int32)
    place_of = torch.empty(problem.m, device=DEVICE, dtype=torch.int64)
    for group, ((first, end), place) in enumerate(zip(ranges, firsts, strict=True)):
        group_of[place : place + end - first] = group
        place_of[first:end] = torch.arange(place, place + end - first, device=DEVICE)
    padded = torch.zeros(total, problem.k, device=DEVICE, dtype=x.dtype)
    padded[place_of] = x
    offsets, columns = numbers_of(problem), w.transpose(1, 2)
    ours, theirs = unwritten(problem.m, problem.n), unwritten(total, problem.n)

    def other() -> Any:
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(padded, w, theirs, group_of)
        return theirs

    calls: Calls = {
        OURS: lambda: autogemm.grouped_gemm(x, columns, offsets, ours),
        OTHER: other,
    }

    def error_of(name: str, result: Any) -> float:
        return group_error(result if name == OURS else result[place_of], x, w, ranges)

    return calls, error_of


def masked_calls(problem: Problem) -> Raced:
    """Groups of a capacity, with counts on the device: the same arrays for both."""
    import deep_gemm

    x, w = operands(problem)
    count, capacity = problem.groups.count, problem.m // problem.groups.count
    apart, columns = x.view(count, capacity, -1), w.transpose(1, 2)
    counts = numbers_of(problem)
    # What DeepGEMM chooses its tile by: the rows of a group in the mean.
    expected = max(1, -(-problem.used_rows // count))
    ours, theirs = (unwritten(count, capacity, problem.n) for _ in range(2))

    def other() -> Any:
        deep_gemm.m_grouped_bf16_gemm_nt_masked(apart, w, theirs, counts, expected)
        return theirs

    calls: Calls = {
        OURS: lambda: autogemm.grouped_gemm(apart, columns, out=ours, counts=counts),
        OTHER: other,
    }
    ranges = problem.groups.ranges(problem.m)
    return calls, lambda _, result: group_error(result.flatten(0, 1), x, w, ranges)


def baseline() -> str:
    """The package that has deep_gemm, and its version: forks of DeepGEMM have the same module."""
    if find_spec("deep_gemm") is None:
        raise click.ClickException("the Python package deep_gemm is not installed")
    (name, *_) = packages_distributions().get("deep_gemm") or [""]
    return f"{name} {version(name)}" if name else "deep_gemm of no known version"


def problems_of(suite: str, shapes: str) -> dict[str, Problem]:
    """The problems of a suite, or of shapes by semicolons, each by its shape. Raises BadParameter
    for a shape that is none, or not of this suite.
    """
    has_groups = suite == "grouped"
    kind = Layout.NT, DTYPES[suite], Epilogue.parse(EPILOGUES.get(suite, ""))
    found = {}
    for shape in shapes.split(";") if shapes else NAMED[suite][1]:
        try:
            problem = found[shape] = problem_of(shape, *kind)
        except UsageError as error:
            raise click.BadParameter(str(error), param_hint="--shapes") from error
        if problem.groups.is_none == has_groups:
            raise click.BadParameter(f"{shape}: {suite} needs groups", param_hint="--shapes")
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--suite",
    type=click.Choice(list(DTYPES)),
    default="block-scales",
    help="As of suite.py.",
    show_default=True,
)
@race_options
def main(suite: str, shapes: str, **options: Any) -> None:
    """Ratios to DeepGEMM."""
    problems = problems_of(suite, shapes)
    name = f"deepgemm_race_{suite.replace('-', '_')}"
    calls_of = grouped_calls if suite == "grouped" else scaled_calls
    race = Race(name, "benchmarks/deepgemm_race.py", OTHER, baseline(), calls_of)
    sys.exit(1 if race.go(problems, options)["failed"] else 0)


if __name__ == "__main__":
    main()

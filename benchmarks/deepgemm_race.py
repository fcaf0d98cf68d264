"""Races our kernels with DeepGEMM: 8-bit floats with scales of blocks, and groups in BF16 and with
such scales.

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
from suite_shapes import EPILOGUES, NAMED, SCALED, SCALED_GROUPS, problem_of

import autogemm
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import AutogemmError, UsageError

OTHER = "DeepGEMM"
# Each suite's element type.
DTYPES = {
    **dict.fromkeys(("block-scales", "block-scales-all", "grouped-block-scales"), DType.E4M3),
    "grouped": DType.BF16,
}
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
    group_of, place_of = padded_places(problem)
    total = len(group_of)
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


def padded_places(problem: Problem) -> tuple[Any, Any]:
    """The group of each of DeepGEMM's rows, -1 for those that fill up a tile, and the place there
    of each of ours.
    """
    import deep_gemm
    import torch

    ranges = problem.groups.ranges(problem.m)
    step = deep_gemm.get_mk_alignment_for_contiguous_layout()
    heights = (-((first - end) // step) * step for first, end in ranges)
    *firsts, total = accumulate(heights, initial=0)
    group_of = torch.full((total,), -1, device=DEVICE, dtype=torch.int32)
    place_of = torch.empty(problem.m, device=DEVICE, dtype=torch.int64)
    for group, ((first, end), place) in enumerate(zip(ranges, firsts, strict=True)):
        group_of[place : place + end - first] = group
        place_of[first:end] = torch.arange(place, place + end - first, device=DEVICE)
    return group_of, place_of


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


def scaled_group_calls(problem: Problem) -> Raced:
    """Products of groups in E4M3, masked or not, with scales as in `scaled_calls`: each group's B
    has its own.
    """
    import deep_gemm
    import torch

    m, n, k, count = problem.m, problem.n, problem.k, problem.groups.count
    made = torch.Generator(DEVICE).manual_seed(1)
    given: dict[str, Any] = {"device": DEVICE, "generator": made}
    x = torch.randn(m, k, **given).to(torch.float8_e4m3fn)
    w = torch.randn(count * n, k, **given).to(torch.float8_e4m3fn).view(count, n, k)
    sa = torch.rand(-(-k // BLOCK), m, **given) + 0.5
    sb = torch.rand(count, -(-n // BLOCK), -(-k // BLOCK), **given) + 0.5
    numbers, columns = numbers_of(problem), w.transpose(1, 2)
    ranges = problem.groups.ranges(m)
    scales: dict[str, Any] = {"epilogue": SCALED_GROUPS, "sa": sa, "sb": sb}
    if problem.groups.masked:
        shape = (count, m // count)
        place_of = torch.arange(m, device=DEVICE)
        of_a = deep_gemm.get_mn_major_tma_aligned_tensor(sa.T.contiguous().view(*shape, -1))
        ours, theirs = (unwritten(*shape, n) for _ in range(2))
        apart = x.view(*shape, -1)
        expected = max(1, -(-problem.used_rows // count))

        def own() -> Any:
            return autogemm.grouped_gemm(apart, columns, out=ours, counts=numbers, **scales)

        def other() -> Any:
            deep_gemm.fp8_m_grouped_gemm_nt_masked(
                (apart, of_a), (w, sb), theirs, numbers, expected
            )
            return theirs

    else:
        group_of, place_of = padded_places(problem)
        total = len(group_of)
        padded = torch.zeros(total, k, device=DEVICE).to(x.dtype)
        padded.view(torch.uint8)[place_of] = x.view(torch.uint8)
        padded_scales = torch.zeros(total, sa.shape[0], device=DEVICE)
        padded_scales[place_of] = sa.T
        of_a = deep_gemm.get_mn_major_tma_aligned_tensor(padded_scales)
        ours, theirs = unwritten(m, n), unwritten(total, n)

        def own() -> Any:
            return autogemm.grouped_gemm(x, columns, numbers, ours, **scales)

        def other() -> Any:
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous((padded, of_a), (w, sb), theirs, group_of)
            return theirs

    if deep_gemm.get_mn_major_tma_aligned_tensor(of_a).data_ptr() != of_a.data_ptr():
        raise AutogemmError(f"{OTHER} would convert the scales in each call")

    def error_of(name: str, result: Any) -> float:
        result = result.flatten(0, -2)
        result = result if name == OURS else result[place_of]
        errors = [0.0]
        for group, (first, end) in enumerate(ranges):
            if first < end:
                along_k = [
                    one.repeat_interleave(BLOCK, 1)[:, :k] for one in (sa.T[first:end], sb[group])
                ]
                rows = x[first:end].double() * along_k[0]
                of_w = w[group].double() * along_k[1].repeat_interleave(BLOCK, 0)[:n]
                own_rows = result[first:end]
                errors.append(group_error(own_rows, rows, of_w[None], [(0, end - first)]))
        # NaN is not the largest of numbers.
        return float(torch.tensor(errors).max())

    return {OURS: own, OTHER: other}, error_of


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
    has_groups = suite.startswith("grouped")
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
    calls_of = {"grouped": grouped_calls, "grouped-block-scales": scaled_group_calls}.get(
        suite, scaled_calls
    )
    race = Race(name, "benchmarks/deepgemm_race.py", OTHER, baseline(), calls_of)
    sys.exit(1 if race.go(problems, options)["failed"] else 0)


if __name__ == "__main__":
    main()

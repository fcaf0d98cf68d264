"""The exported program on the CPU: its check fails wrong kernels, its statistics are those of numpy
and scipy over what a fake clock showed.
"""

import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from exported_program import Run, Sample, compile_cublas, compile_on_cpu, exported_text, run_on_cpu
from scipy.stats import binom

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

# Tiles of 16 with edges on all sides.
M, N, K, LDC = 33, 20, 40, 22


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


def program(folder: Path, layout: Layout, dtype: DType) -> Path:
    path = folder / f"{layout}_{dtype.label}"
    problem = Problem(M, N, K, layout=layout, dtype=dtype, ldc=LDC)
    return path if path.exists() else compile_on_cpu(exported_text(problem, folder), path)


@pytest.fixture(scope="module")
def f32(folder: Path) -> Path:
    return program(folder, Layout.NT, DType.F32)


@pytest.fixture(scope="module")
def bf16(folder: Path) -> Path:
    return program(folder, Layout.TN, DType.BF16)


@pytest.fixture(scope="module")
def tf32(folder: Path) -> Path:
    return program(folder, Layout.NN, DType.TF32)


@pytest.fixture(scope="module")
def cublas(folder: Path) -> Path:
    return compile_cublas(folder)


def verdicts(run: Run) -> tuple[str, str]:
    """What is said of whole numbers and of random reals; the exit status says the same."""
    whole, reals = re.findall(r"^verify, [\w ]+: (right|WRONG), ", run.output, re.MULTILINE)
    assert run.code == (0 if (whole, reals) == ("right", "right") else 1), run.output
    return whole, reals


RIGHT, WRONG = "right", "WRONG"
FIRST, LAST, CORNER = "0 0", f"{M - 1} {N - 1}", f"16 {N - 1}"


@pytest.mark.parametrize(
    ("fault", "whole", "reals"),
    [
        ("", RIGHT, RIGHT),
        # Whole numbers are exact to the last bit, everywhere.
        (f"1 next {FIRST}", WRONG, RIGHT),
        (f"1 next {LAST}", WRONG, RIGHT),
        (f"1 next {CORNER}", WRONG, RIGHT),
        ("1 product 3 4", WRONG, RIGHT),
        ("1 beta 0 0", WRONG, RIGHT),
        ("1 alpha 0 0", WRONG, RIGHT),
        # Reals are held to the bound: 10 % above it is wrong, 10 % below it is right.
        (f"2 bounds {FIRST} 0.9", RIGHT, RIGHT),
        (f"2 bounds {LAST} -0.9", RIGHT, RIGHT),
        (f"2 bounds {FIRST} 1.1", RIGHT, WRONG),
        (f"2 bounds {LAST} -1.1", RIGHT, WRONG),
        (f"2 bounds {CORNER} 1.1", RIGHT, WRONG),
        ("2 product 3 4", RIGHT, WRONG),
        ("0 nan 5 6", WRONG, WRONG),
        (f"2 nan {LAST}", RIGHT, WRONG),
        ("2 infinity 5 6", RIGHT, WRONG),
        # beta is 0: C is NaN, which a kernel must not read, and must overwrite.
        ("2 reads 0 0", RIGHT, WRONG),
        ("2 nothing 0 0", RIGHT, WRONG),
        ("1 nothing 0 0", WRONG, RIGHT),
        # Between the rows of C, with a number and with another NaN than stands there.
        (f"1 padding 0 {N} 1", WRONG, RIGHT),
        (f"2 padding {M - 1} {LDC - 1} 1", RIGHT, WRONG),
        (f"2 padding 16 {N} 0", RIGHT, WRONG),
    ],
)
def test_a_wrong_fp32_kernel_is_found(f32: Path, fault: str, whole: str, reals: str) -> None:
    run = run_on_cpu(f32, "--rounds", 0, KERNEL_FAULT=fault)
    assert verdicts(run) == (whole, reals), run.output
    assert ("between the rows of C were written to" in run.output) == ("padding" in fault)


@pytest.mark.parametrize(
    ("fault", "whole", "reals"),
    [
        ("", RIGHT, RIGHT),
        (f"1 add {LAST} 8", WRONG, RIGHT),
        ("1 product 3 4", WRONG, RIGHT),
        # Rounding to BF16 moves it by one bound at most.
        (f"2 bounds {LAST} 2.2", RIGHT, WRONG),
        (f"2 bounds {FIRST} -2.2", RIGHT, WRONG),
        ("2 nan 5 6", RIGHT, WRONG),
        ("2 nothing 0 0", RIGHT, WRONG),
        (f"2 padding 16 {N} 1", RIGHT, WRONG),
    ],
)
def test_a_wrong_bf16_kernel_is_found(bf16: Path, fault: str, whole: str, reals: str) -> None:
    run = run_on_cpu(bf16, "--rounds", 0, KERNEL_FAULT=fault)
    assert verdicts(run) == (whole, reals), run.output


@pytest.mark.parametrize(("share", "reals"), [(0.9, RIGHT), (1.1, WRONG), (-1.1, WRONG)])
def test_sums_of_tensor_cores_have_a_bound_of_their_own(
    tf32: Path, share: float, reals: str
) -> None:
    run = run_on_cpu(tf32, "--rounds", 0, KERNEL_FAULT=f"2 bounds {LAST} {share}")
    assert verdicts(run) == (RIGHT, reals), run.output


@pytest.mark.parametrize("fault", ["", "2 bounds 1 1 0.9", "2 bounds 1 1 1.1", "2 beta", "2 alpha"])
def test_alpha_and_beta_count_in_the_bound_and_in_the_reference(f32: Path, fault: str) -> None:
    run = run_on_cpu(f32, "--rounds", 0, "--alpha", -1.5, "--beta", 40, KERNEL_FAULT=fault)
    assert verdicts(run) == (RIGHT, RIGHT if fault in {"", "2 bounds 1 1 0.9"} else WRONG)


def test_the_printed_share_of_the_bound_is_that_of_the_worst_element(f32: Path) -> None:
    run = run_on_cpu(f32, "--rounds", 0, KERNEL_FAULT="2 bounds 1 1 0.5")
    (share,) = re.findall(r"random reals.*, (\S+) of the bound", run.output)
    assert float(share) == pytest.approx(0.5, abs=0.01)


def test_a_wrong_kernel_is_not_timed(f32: Path, cublas: Path) -> None:
    run = run_on_cpu(f32, "--cublas", cublas, KERNEL_FAULT="2 nan 0 0")
    assert run.code == 1
    assert "TFLOP" not in run.output
    assert not run.samples()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--rounds", -1), "not a size or count: '-1'"),
        (("--ldc", 0), "not a size or count: '0'"),
        (("--alpha", "nan"), "not a number: 'nan'"),
        (("--beta", "1x"), "not a number: '1x'"),
        (("--beta",), "unknown option, or its value is missing: '--beta'"),
        (("--gamma", 1), "unknown option '--gamma'"),
        ((8, 8), "give one size or three (M N K), the last was '8'"),
        ((2**31, 8, 8), "not a size or count: '2147483648'"),
        (("--ldc", N - 1), "a leading dimension must be at least the number of columns stored"),
    ],
)
def test_wrong_arguments_are_one_line(f32: Path, arguments: tuple[object, ...], line: str) -> None:
    run = run_on_cpu(f32, *arguments)
    assert run.code == 2
    assert line in run.output.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), f"M={M} N={N} K={K} lda={K} ldb={K} ldc={LDC} alpha=1 beta=0"),
        ((9,), "M=9 N=9 K=9 lda=9 ldb=9 ldc=9 alpha=1 beta=0"),
        ((5, 6, 7, "--ldb", 8, "--beta", 2), "M=5 N=6 K=7 lda=7 ldb=8 ldc=6 alpha=1 beta=2"),
    ],
)
def test_the_problem_is_the_tuned_one_or_the_one_given(
    f32: Path, arguments: tuple[object, ...], words: str
) -> None:
    run = run_on_cpu(f32, "--rounds", 0, *arguments)
    assert run.code == 0
    assert f"problem  layout nt f32, {words}\n" in run.output


def interval(values: np.ndarray) -> tuple[float, float]:
    """The narrowest pair of order statistics that holds the median in 95 % of all cases."""
    count = len(values)
    ranks = [rank for rank in range(count // 2) if 1 - 2 * binom.cdf(rank, count, 0.5) >= 0.95]
    rank = max(ranks, default=0)
    ordered = np.sort(values)
    return ordered[rank], ordered[count - 1 - rank]


def timed(
    folder: Path,
    path: Path,
    rounds: int,
    times: str,
    *arguments: object,
    size: tuple[int, int, int] = (5, 6, 7),
    **more: str,
) -> tuple[Run, list[Sample]]:
    """Run a benchmark; its run, and all that it timed."""
    (folder / "times").write_text(times)
    variables = {"TIMES": str(folder / "times"), **more}
    run = run_on_cpu(path, *size, "--rounds", rounds, *arguments, **variables)
    assert run.code == 0, run.output
    return run, run.samples()


def check_finals(run: Run, finals: list[Sample], baseline: str) -> None:
    """Rounds of both; the printed figures are those of what the clock showed in them."""
    pairs = list(zip(finals[::2], finals[1::2], strict=True))
    assert all({one.name, two.name} == {"kernel", baseline} for one, two in pairs)
    ours, theirs = (
        np.array([one.time_us for one in finals if one.name == name])
        for name in ("kernel", baseline)
    )
    ratios = theirs / ours
    low, high = interval(ratios)
    assert f"kernel   {np.median(ours):10.2f} us" in run.output
    assert f"cuBLAS   {np.median(theirs):10.2f} us" in run.output
    (printed,) = re.findall(r"^ratio +(\S+) \[(\S+), (\S+)\] times", run.output, re.MULTILINE)
    assert [float(one) for one in printed] == pytest.approx(
        [np.median(ratios), low, high], abs=1.001e-4
    )
    assert f"{len(pairs)} rounds" in run.output


@pytest.mark.parametrize("rounds", [3, 6, 8, 100])
def test_the_statistics_are_those_of_the_clock(
    folder: Path, f32: Path, cublas: Path, rounds: int
) -> None:
    run, samples = timed(
        folder, f32, rounds, "kernel 300\nsgemm 330\n", "--cublas", cublas, COLD_US="250000"
    )
    finals = samples[-2 * rounds :]
    check_finals(run, finals, "sgemm")
    # Nothing of the host is timed: each sample is queued behind the same work.
    assert all(one.behind == one.name and one.launches == 1 for one in samples)
    # The clocks have settled.
    assert finals[0].begun_us >= 0.6e6
    for name in ("kernel", "sgemm"):
        assert sum(2 * one.time_us for one in samples if one.name == name) >= 0.3e6


def test_the_ratio_is_of_pairs_and_the_order_is_random(
    folder: Path, f32: Path, cublas: Path
) -> None:
    run, samples = timed(folder, f32, 101, "kernel 300\nsgemm 330\n", "--cublas", cublas)
    finals = samples[-202:]
    check_finals(run, finals, "sgemm")
    medians = [
        np.median([one.time_us for one in finals if one.name == name])
        for name in ("sgemm", "kernel")
    ]
    # The clock drifts: the ratio of medians is another one.
    (ratio,) = re.findall(r"^ratio +(\S+) ", run.output, re.MULTILINE)
    assert abs(float(ratio) - medians[0] / medians[1]) > 2e-4
    kernel_first = sum(one.name == "kernel" for one in finals[::2])
    assert 30 < kernel_first < 71
    orders = "".join(one.name[0] for one in finals[::2])
    assert "kk" in orders
    assert "ss" in orders


def test_short_kernels_are_timed_in_graphs_of_the_same_length(
    folder: Path, f32: Path, cublas: Path
) -> None:
    times = "kernel 20\nsgemm 25\n"
    run, samples = timed(folder, f32, 10, times, "--cublas", cublas, size=(128, 128, 128))
    check_finals(run, samples[-20:], "sgemm")
    shortest = min(one.time_us for one in samples[:2])
    assert {one.launches for one in samples[-20:]} == {math.ceil(2000 / shortest)}
    (tflops,) = re.findall(r"^kernel .* (\S+) TFLOP/s", run.output, re.MULTILINE)
    ours = np.median([one.time_us for one in samples[-20:] if one.name == "kernel"])
    assert float(tflops) == pytest.approx(2 * 128**3 / ours * 1e-6, abs=0.0051)


def test_the_baseline_is_full_fp32_of_the_same_problem(
    folder: Path, f32: Path, cublas: Path
) -> None:
    wanted = {"NVIDIA_TF32_OVERRIDE": "1", "CUBLAS_EMULATE_SINGLE_PRECISION": "1"}
    run, _ = timed(
        folder, f32, 1, "kernel 300\nsgemm 330\n", "--cublas", cublas, "--beta", 3, **wanted
    )
    assert "NVIDIA_TF32_OVERRIDE=0" in run.trace
    assert "CUBLAS_EMULATE_SINGLE_PRECISION=0" in run.trace
    # Column-major: C^T[6,5] = B[6,7] A^T[7,5], of which B is transposed.
    calls = {line for line in run.trace if line.startswith("call")}
    assert calls == {"call sgemm 1 0 6 5 7 1 7 7 3 6"}


def test_without_cublas_there_is_no_ratio(folder: Path, f32: Path) -> None:
    run, samples = timed(folder, f32, 9, "kernel 300\n", "--cublas", folder / "none.so")
    assert "cuBLAS   not found, so no ratio" in run.output
    assert "ratio  " not in run.output.replace("no ratio", "")
    ours = [one.time_us for one in samples[-9:]]
    assert f"kernel   {np.median(ours):10.2f} us" in run.output
    assert samples[-9].begun_us >= 0.6e6


@pytest.mark.parametrize(
    ("times", "label", "baseline"),
    [
        ("gemm_ex 340\nlt1 320\nlt3 335\n", "cuBLASLt 1 of 3", "lt1"),
        ("gemm_ex 340\nlt1 380\nlt3 325\n", "cuBLASLt 3 of 3", "lt3"),
        ("gemm_ex 310\nlt1 320\nlt3 335\n", "cuBLAS GemmEx", "gemm_ex"),
    ],
)
def test_the_baseline_in_16_bits_is_the_fastest_call(  # noqa: PLR0917
    folder: Path, bf16: Path, cublas: Path, times: str, label: str, baseline: str
) -> None:
    run, samples = timed(folder, bf16, 30, "kernel 300\n" + times, "--cublas", cublas)
    assert f"baseline {label}, the fastest of 3\n" in run.output
    check_finals(run, samples[-60:], baseline)
    assert "NVIDIA_TF32_OVERRIDE=" in run.trace
    calls = {line for line in run.trace if line.startswith("call")}
    # BF16 in and out, summed in FP32 (cudaDataType_t 14, cublasComputeType_t 68).
    assert calls == {"call gemm_ex 0 1 6 5 7 1 6 5 0 6 14 14 14 68"}

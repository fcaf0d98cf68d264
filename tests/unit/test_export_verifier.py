"""The exported program on the CPU: its check fails wrong kernels, its statistics are those of numpy
and scipy over what a fake clock showed.
"""

import math
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

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
    return compile_cublas()


def verdicts(run: Run) -> tuple[str, str]:
    """The messages for whole numbers and for random reals; the exit status says the same."""
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
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Run, list[Sample]]:
    """Run a benchmark; its run, and all that it timed."""
    (folder / "times").write_text(times)
    variables = {"TIMES": str(folder / "times"), **variables}
    run = run_on_cpu(path, *size, "--rounds", rounds, *arguments, **variables)
    assert run.code == 0, run.output
    return run, run.samples()


# The calls of cuBLAS by their names on the fake clock, as they are shown. A proposal that cannot
# run has no number.
CALLS = {
    "sgemm": "cuBLAS SGEMM",
    "gemm_ex": "cuBLAS GemmEx",
    "lt1": "cuBLASLt proposal 1",
    "lt3": "cuBLASLt proposal 2",
}

# Which calls are near is seen where the clock drifts little, as a GPU's within a few rounds.
DRIFT = {"DRIFT": "0.01"}

# SGEMM is the only call near the fastest: itself.
SGEMM = "sgemm 330\ngemm_ex 420\nlt1 450\nlt3 390\n"


def check_finals(
    run: Run,
    samples: list[Sample],
    rounds: int,
    near: set[str],
    wrong: Collection[str] = (),
) -> list[Sample]:
    """The last rounds, of the kernel and all ``near`` calls; the printed figures are those of what
    the clock showed in them, the baseline is the fastest right call there.
    """
    names = {"kernel", *near}
    finals = samples[-len(names) * rounds :]
    for begin in range(0, len(finals), len(names)):
        assert {one.name for one in finals[begin : begin + len(names)]} == names
    times = {name: np.array([one.time_us for one in finals if one.name == name]) for name in names}
    baseline = min(near.difference(wrong), key=lambda name: np.median(times[name]))
    ours, theirs = times["kernel"], times[baseline]
    assert f"baseline {CALLS[baseline]}, the fastest of " in run.output
    assert f" calls, {len(near)} of them in all rounds\n" in run.output
    assert f"kernel   {np.median(ours):10.2f} us" in run.output
    assert f"cuBLAS   {np.median(theirs):10.2f} us" in run.output
    assert f"medians  {np.median(theirs) / np.median(ours):.4f} " in run.output
    ratios = theirs / ours
    (printed,) = re.findall(r"^ratio +(\S+) \[(\S+), (\S+)\] times", run.output, re.MULTILINE)
    assert [float(one) for one in printed] == pytest.approx(
        [np.median(ratios), *interval(ratios)], abs=1.001e-4
    )
    assert f"{rounds} rounds" in run.output
    return finals


@pytest.mark.parametrize("rounds", [3, 6, 8, 100])
def test_the_statistics_are_those_of_the_clock(
    folder: Path, f32: Path, cublas: Path, rounds: int
) -> None:
    run, samples = timed(
        folder,
        f32,
        rounds,
        "kernel 300\n" + SGEMM,
        "--cublas",
        cublas,
        variables={"COLD_US": "250000"},
    )
    check_finals(run, samples, rounds, {"sgemm"})
    # Nothing of the host is timed: each sample is queued behind the same work.
    assert all(one.behind == one.name and one.launches == 1 for one in samples)
    # The clocks have settled when calls are compared.
    assert min(one.begun_us for one in samples if one.name != "kernel") >= 0.6e6


def test_the_ratio_is_of_pairs_and_the_order_is_random(
    folder: Path, f32: Path, cublas: Path
) -> None:
    run, samples = timed(folder, f32, 101, "kernel 300\n" + SGEMM, "--cublas", cublas)
    finals = check_finals(run, samples, 101, {"sgemm"})
    # The clock drifts: the ratio of medians is another one.
    (ratio,) = re.findall(r"^ratio +(\S+) ", run.output, re.MULTILINE)
    (of_medians,) = re.findall(r"^medians +(\S+) ", run.output, re.MULTILINE)
    assert abs(float(ratio) - float(of_medians)) > 2e-4
    kernel_first = sum(one.name == "kernel" for one in finals[::2])
    assert 30 < kernel_first < 71
    orders = "".join(one.name[0] for one in finals[::2])
    assert "kk" in orders
    assert "ss" in orders


def test_short_kernels_are_timed_in_graphs_of_the_same_length(
    folder: Path, f32: Path, cublas: Path
) -> None:
    times = "kernel 20\nsgemm 25\ngemm_ex 30\nlt1 30\nlt3 30\n"
    run, samples = timed(folder, f32, 10, times, "--cublas", cublas, size=(64, 64, 64))
    finals = check_finals(run, samples, 10, {"sgemm"})
    shortest = min(one.time_us for one in samples[-22:-20])
    assert {one.launches for one in finals} == {math.ceil(2000 / shortest)}
    # Which calls are near is found in shorter samples.
    assert {one.launches for one in samples[2:-22] if one.name == "lt3"} == {
        math.ceil(250 / samples[0].time_us)
    }
    (tflops,) = re.findall(r"^kernel .* (\S+) TFLOP/s", run.output, re.MULTILINE)
    ours = np.median([one.time_us for one in finals if one.name == "kernel"])
    assert float(tflops) == pytest.approx(2 * 64**3 / ours * 1e-6, abs=0.0051)


def test_the_baseline_is_full_fp32_of_the_same_problem(
    folder: Path, f32: Path, cublas: Path
) -> None:
    wanted = {"NVIDIA_TF32_OVERRIDE": "1", "CUBLAS_EMULATE_SINGLE_PRECISION": "1"}
    run, _ = timed(
        folder, f32, 1, "kernel 300\n" + SGEMM, "--cublas", cublas, "--beta", 3, variables=wanted
    )
    assert "NVIDIA_TF32_OVERRIDE=0" in run.trace
    assert "CUBLAS_EMULATE_SINGLE_PRECISION=0" in run.trace
    # Column-major: C^T[6,5] = B[6,7] A^T[7,5], of which B is transposed. FP32 in and out and
    # between (cudaDataType_t 0, cublasComputeType_t 68). Whole numbers are checked with alpha 2
    # and beta -1.
    calls = {line for line in run.trace if line.startswith("call")}
    assert calls == {
        "call sgemm 1 0 6 5 7 1 7 7 3 6",
        "call gemm_ex 1 0 6 5 7 1 7 7 3 6 0 0 0 68",
        "call sgemm 1 0 6 5 7 2 7 7 -1 6",
    }


def test_without_cublas_there_is_no_ratio(folder: Path, f32: Path) -> None:
    run, samples = timed(folder, f32, 9, "kernel 300\n", "--cublas", folder / "none.so")
    assert "cuBLAS   not found, so no ratio" in run.output
    assert "ratio  " not in run.output.replace("no ratio", "")
    ours = [one.time_us for one in samples[-9:]]
    assert f"kernel   {np.median(ours):10.2f} us" in run.output
    assert samples[-9].begun_us >= 0.6e6


@pytest.mark.parametrize(
    ("dtype", "times", "near", "count"),
    [
        ("f32", "sgemm 330\ngemm_ex 332\nlt1 320\nlt3 325\n", {*CALLS}, 4),
        ("f32", "sgemm 330\ngemm_ex 340\nlt1 380\nlt3 320\n", {"sgemm", "lt3"}, 4),
        ("f32", "sgemm 330\ngemm_ex 310\nlt1 380\nlt3 380\n", {"gemm_ex"}, 4),
        ("f32", "sgemm 310\ngemm_ex 330\nlt1 315\nlt3 380\n", {"sgemm", "lt1"}, 4),
        ("bf16", "gemm_ex 345\nlt1 320\nlt3 380\n", {"lt1"}, 3),
        ("bf16", "gemm_ex 330\nlt1 380\nlt3 325\n", {"gemm_ex", "lt3"}, 3),
        ("bf16", "gemm_ex 315\nlt1 320\nlt3 350\n", {"gemm_ex", "lt1"}, 3),
        ("tf32", "gemm_ex 330\nlt1 380\nlt3 310\n", {"lt3"}, 3),
    ],
)
def test_the_baseline_is_the_fastest_call_over_the_rounds(  # noqa: PLR0917
    folder: Path,
    cublas: Path,
    request: pytest.FixtureRequest,
    dtype: str,
    times: str,
    near: set[str],
    count: int,
) -> None:
    path = request.getfixturevalue(dtype)
    run, samples = timed(
        folder, path, 30, "kernel 300\n" + times, "--cublas", cublas, variables=DRIFT
    )
    check_finals(run, samples, 30, near)
    assert f"the fastest of {count} calls, " in run.output
    assert "left out" not in run.output


def test_the_baseline_in_16_bits_is_of_the_same_problem(
    folder: Path, bf16: Path, cublas: Path
) -> None:
    times = "kernel 300\ngemm_ex 310\nlt1 400\nlt3 400\n"
    run, _ = timed(folder, bf16, 3, times, "--cublas", cublas)
    assert "NVIDIA_TF32_OVERRIDE=" in run.trace
    calls = {line for line in run.trace if line.startswith("call")}
    # BF16 in and out, summed in FP32 (cudaDataType_t 14, cublasComputeType_t 68).
    problem = "0 1 6 5 7 {} 6 5 {} 6 14 14 14 68"
    assert calls == {f"call gemm_ex {problem.format(*one)}" for one in ((1, 0), (2, -1))}


def test_the_choice_is_made_in_the_rounds_that_are_shown(
    folder: Path, bf16: Path, cublas: Path
) -> None:
    times = "kernel 300\ngemm_ex 320\nlt1 325\nlt3 400\n"
    # Fast as long as it is only looked at who is near.
    run, samples = timed(
        folder,
        bf16,
        30,
        times,
        "--cublas",
        cublas,
        variables={"SLOWER": "gemm_ex 20 1.04", **DRIFT},
    )
    check_finals(run, samples, 30, {"gemm_ex", "lt1"})
    assert "baseline cuBLASLt proposal 1, " in run.output


@pytest.mark.parametrize(
    ("dtype", "fault", "near", "said"),
    [
        # However fast, it makes no other look slow.
        ("f32", "lt1 double", {"sgemm", "gemm_ex", "lt3"}, "whole numbers: WRONG"),
        ("bf16", "lt1 last", {"gemm_ex", "lt3"}, "whole numbers: WRONG"),
        ("tf32", "lt1 double", {"gemm_ex", "lt3"}, "random reals: WRONG"),
        ("f32", "lt1 tf32", {"sgemm", "gemm_ex", "lt3"}, "few products: LESS THAN FP32"),
        ("f32", "lt1 fails", {"sgemm", "gemm_ex", "lt3"}, ""),
    ],
)
def test_a_wrong_call_is_no_baseline(  # noqa: PLR0917
    folder: Path,
    cublas: Path,
    request: pytest.FixtureRequest,
    dtype: str,
    fault: str,
    near: set[str],
    said: str,
) -> None:
    path = request.getfixturevalue(dtype)
    times = "kernel 300\nsgemm 331\ngemm_ex 335\nlt1 100\nlt3 325\n"
    run, samples = timed(
        folder, path, 30, times, "--cublas", cublas, variables={"CALL_FAULT": fault, **DRIFT}
    )
    check_finals(run, samples, 30, near)
    assert ("left out cuBLASLt proposal 1, which is wrong here\n" in run.output) == bool(said)
    assert f"cuBLASLt proposal 1, {said}" in run.output or not said
    assert f"the fastest of {len(CALLS) - (dtype != 'f32') - (not said)} calls" in run.output


def test_a_wrong_call_that_is_the_fastest_in_the_rounds_only_is_no_baseline(
    folder: Path, bf16: Path, cublas: Path
) -> None:
    times = "kernel 300\ngemm_ex 320\nlt1 325\nlt3 400\n"
    faults = {"SLOWER": "gemm_ex 20 1.04", "CALL_FAULT": "lt1 double", **DRIFT}
    run, samples = timed(folder, bf16, 30, times, "--cublas", cublas, variables=faults)
    check_finals(run, samples, 30, {"gemm_ex", "lt1"}, {"lt1"})
    assert "baseline cuBLAS GemmEx, " in run.output


def test_without_a_right_call_there_is_no_ratio(folder: Path, bf16: Path, cublas: Path) -> None:
    times = "kernel 300\ngemm_ex 320\nlt1 325\nlt3 325\n"
    faults = "gemm_ex double lt1 last lt3 fails"
    run, _ = timed(
        folder, bf16, 3, times, "--cublas", cublas, variables={"CALL_FAULT": faults, **DRIFT}
    )
    assert run.output.endswith("\ncuBLAS   has no call that is right here, so no ratio\n")
    assert "kernel  " in run.output
    assert "ratio  " not in run.output


@pytest.mark.parametrize(
    ("proposals", "time_us", "timed_calls", "near"),
    [
        # All that cuBLASLt says when it is asked for a hundred; the second cannot run.
        (300, 320, 101, 12),
        (7, 320, 8, 8),
        # Ten at least, and no more where these took two seconds.
        (300, 120_000, 10, 10),
        # The mean is 25.5 ms, each queued behind itself.
        (300, 25_000, 40, 12),
    ],
)
def test_calls_are_looked_at_while_there_is_time(  # noqa: PLR0917
    folder: Path,
    f32: Path,
    cublas: Path,
    proposals: int,
    time_us: int,
    timed_calls: int,
    near: int,
) -> None:
    names = ["kernel", "sgemm", "gemm_ex", *(f"lt{i + 1}" for i in range(proposals))]
    times = "".join(f"{name} {time_us}\n" for name in names)
    run, _ = timed(
        folder, f32, 2, times, "--cublas", cublas, variables={"PROPOSALS": str(proposals), **DRIFT}
    )
    (found,) = re.findall(r"the fastest of (\d+) calls, (\d+) of them in all", run.output)
    assert [int(one) for one in found] == [timed_calls, near]


@pytest.mark.parametrize(("kernel_us", "is_tied"), [(300, False), (330, True), (360, False)])
def test_a_tie_is_called_a_tie(
    folder: Path, f32: Path, cublas: Path, kernel_us: int, is_tied: bool
) -> None:
    run, _ = timed(folder, f32, 50, f"kernel {kernel_us}\n{SGEMM}", "--cublas", cublas)
    assert run.output.endswith(" rounds: a tie\n" if is_tied else " rounds\n")

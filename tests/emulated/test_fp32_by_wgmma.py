"""FP32 of two F16 numbers each, behind a power of two per line: hard numbers, accuracy, the bound.

The emitted kernels run on the CPU with inputs of this file's own.
"""

import numpy as np
import pytest
from fp32_runner import (
    Matrix,
    Runner,
    errors_of_few,
    exact,
    in_fp32,
    relative_error,
    relative_errors,
)

from autogemm.emulator import Emulator
from autogemm.model.problem import Problem
from autogemm.targets.cuda.worker.problem.precision import MOST_OF_FEW

pytestmark = pytest.mark.emulated

PROBLEM = Problem(128, 64, 256)
FALLBACK = "store_tile_in_fp32(A, lda, B, ldb, place, M, N, K, with, C, ldc);"
# Shares of |A||B|: what splitting may lose, and what sums of 256 products in FP32 may.
BOUND = 2.0**-20 + 2.0**-19


def runner(emulator: Emulator, chunk: int = 64, problem: Problem = PROBLEM) -> Runner:
    values = {
        **{"CHUNK": chunk, "BM": 128, "BN": 64, "BK": 32, "CLUSTER": 1, "STAGES": 3},
        **{"GROUP_M": 1, "BLOCKS": 0},
    }
    return Runner(emulator, "sgemm_emulated_wgmma", values, problem)


@pytest.fixture
def run(emulator: Emulator) -> Runner:
    return runner(emulator)


def without_fallback(text: str) -> str:
    assert FALLBACK in text
    return text.replace(FALLBACK, "")


def test_few_products_are_as_exact_as_fp32(run: Runner) -> None:
    assert 0 < errors_of_few(run, without_fallback) < 0.6 * MOST_OF_FEW


@pytest.mark.parametrize("kind", ["normal", "uniform", "wide"])
def test_errors_are_those_of_fp32_or_smaller(run: Runner, kind: str) -> None:
    a, b = run.inputs_of(kind)
    mine = relative_error(run(a, b, without_fallback), a, b)
    assert 0 < mine <= relative_error(in_fp32(a, b), a, b)


def test_sums_drift_in_long_chunks(emulator: Emulator) -> None:
    # The bits that tensor cores cut off have one sign where all products do.
    a, b = runner(emulator).inputs_of("uniform")
    short, long = (runner(emulator, chunk)(a, b) - exact(a, b) for chunk in (32, 256))
    assert long.mean() < 0
    assert np.abs(short).mean() < 0.5 * np.abs(long).mean()


@pytest.mark.parametrize("scale", [2.0**-120, 1.0, 2.0**120])
def test_plain_fp32_takes_over_only_where_it_must(run: Runner, scale: float) -> None:
    a, b = run.normal(scale)
    result = run(a, b, without_fallback)
    assert np.array_equal(run(a, b), result)
    assert relative_error(result, a, b) < 2.0**-21


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinity_and_nan_come_out_as_ieee_has_them(run: Runner, value: float) -> None:
    a, b = run.normal()
    a[3, 7] = value
    b[11, 5] = value
    with np.errstate(invalid="ignore"):
        expected = in_fp32(a, b)
    result, finite = run(a, b), np.isfinite(expected)
    assert not finite.all()
    assert np.array_equal(result[~finite], expected[~finite], equal_nan=True)
    assert np.allclose(result[finite], expected[finite], rtol=0, atol=1e-4)
    assert np.isnan(run(a, b, without_fallback)).all()


def test_an_infinity_among_large_numbers_is_no_number_to_be_split(run: Runner) -> None:
    """No spread of exponents tells: the check of the line's largest alone does."""
    a, b = run.normal()
    a[3] = np.ldexp(a[3], 110)
    a[3, 7] = np.inf

    def unchecked(text: str) -> str:
        check = "if (most >= 0x7f800000u) {"
        assert check in text
        return text.replace(check, "if (false) {")

    assert np.array_equal(run(a, b)[3], np.where(b[7] > 0, np.inf, -np.inf))
    assert np.isnan(run(a, b, unchecked)[3]).all()


def test_infinity_times_zero_is_nan(run: Runner) -> None:
    a, b = run.normal()
    a[0, 0], b[:, :] = np.inf, 0.0
    result = run(a, b)
    assert np.isnan(result[0]).all()
    assert np.all(result[1:] == 0)


@pytest.mark.parametrize("exponent", [-149, -140, -127, -126, -112])
def test_tiny_numbers_keep_their_bits(run: Runner, exponent: int) -> None:
    rng = np.random.default_rng(1)
    a = np.ldexp(rng.uniform(1, 2, (PROBLEM.m, PROBLEM.k)), exponent).astype(np.float32)
    b = np.ldexp(rng.uniform(1, 2, (PROBLEM.k, PROBLEM.n)), 120).astype(np.float32)
    assert relative_error(run(a, b, without_fallback), a, b) < 2.0**-20


def test_numbers_near_overflow(run: Runner) -> None:
    largest = float(np.finfo(np.float32).max)
    a, b = run.normal()
    a[:, :] = 0.0
    a[np.arange(128), np.arange(128)] = largest
    b = np.where(np.arange(PROBLEM.k)[:, None] < 128, np.sign(b), b).astype(np.float32)
    # Products of the largest number and 1, which is split exactly but for its last two bits.
    assert np.allclose(run(a, b, without_fallback), exact(a, b), rtol=2.0**-22)
    a[:, 128:] = largest
    with np.errstate(over="ignore"):
        expected = exact(a, b).astype(np.float32)
        result = run(a, b, without_fallback)
    # Sums that overflow on the way and come back are finite here, unlike in FP32.
    assert np.isinf(expected).any()
    assert np.array_equal(np.isinf(result), np.isinf(expected))


def test_cancellation_leaves_what_fp32_leaves(run: Runner) -> None:
    # The second half of k takes back the first; what stays is a small, exact rest.
    a, b = run.normal()
    half = PROBLEM.k // 2
    a[:, half:], b[half:] = -a[:, :half], b[:half]
    a[:, 0] += np.float32(2.0**-10)
    assert relative_error(run(a, b), a, b) <= relative_error(in_fp32(a, b), a, b)


def spread_over(
    exponents: float, zeros: float, seed: int, problem: Problem = PROBLEM
) -> tuple[Matrix, Matrix]:
    """Normal numbers with exponents within +-exponents, some of them zero."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Matrix:
        numbers = rng.standard_normal((rows, columns))
        numbers *= np.exp2(rng.uniform(-exponents, exponents, numbers.shape))
        numbers[rng.random(numbers.shape) < zeros] = 0
        return numbers.astype(np.float32)

    return matrix(problem.m, problem.k), matrix(problem.k, problem.n)


def lone_numbers(size: float) -> tuple[Matrix, Matrix]:
    """Rows of A: 1, which meets zero, and smaller numbers."""
    a = np.full((PROBLEM.m, PROBLEM.k), size, np.float32)
    a *= np.random.default_rng(3).uniform(1, 2, a.shape).astype(np.float32)
    b = np.ones((PROBLEM.k, PROBLEM.n), np.float32)
    a[:, 0], b[0] = 1, 0
    return a, b


CERTAIN = {
    **{f"exponents +-{e}": spread_over(e, 0, e) for e in (0, 6, 12)},
    "half zeros": spread_over(0, 0.5, 1),
    "half zeros, exponents +-4": spread_over(4, 0.5, 2),
    "numbers of 2^-20 alone": lone_numbers(2.0**-20),
}
UNCERTAIN = {
    **{f"exponents +-{e}": spread_over(e, 0, e) for e in (18, 40)},
    "half zeros, exponents +-16": spread_over(16, 0.5, 2),
    "numbers of 2^-40 alone": lone_numbers(2.0**-40),
    "numbers of 2^-60 alone": lone_numbers(2.0**-60),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_the_bound_holds_where_tensor_cores_are_used(run: Runner, name: str) -> None:
    a, b = CERTAIN[name]
    assert relative_error(run(a, b, without_fallback), a, b) <= BOUND


@pytest.mark.parametrize("name", UNCERTAIN)
def test_plain_fp32_where_the_bound_is_not_certain(run: Runner, name: str) -> None:
    a, b = UNCERTAIN[name]
    assert np.isnan(run(a, b, without_fallback)).all()
    assert relative_error(run(a, b), a, b) <= BOUND


def test_plain_fp32_adds_up_short_chains(emulator: Emulator) -> None:
    problem = Problem(128, 64, 2048)
    a, b = spread_over(16, 0, 6, problem)
    a[:, 0], b[0] = 1, 0  # nothing is certain of tiles with such rows
    a[:, 1] = 2.0**20
    errors = [
        relative_errors(c, a, b).mean()
        for c in (runner(emulator, problem=problem)(a, b), in_fp32(a, b))
    ]
    assert errors[0] < 0.6 * errors[1]


def test_without_the_check_numbers_would_be_silently_wrong(run: Runner) -> None:
    def unchecked(text: str) -> str:
        check = "if (is_exact(space, place, K)) {"
        assert check in text
        return text.replace(check, "if (true) {")

    a, b = lone_numbers(2.0**-45)
    assert relative_error(run(a, b, unchecked), a, b) > 100 * BOUND


def test_a_lost_lower_part_shows(run: Runner) -> None:
    a, b = run.normal()

    def coarse(text: str) -> str:
        lower = "f16_from_float(left * 2048.0f);"
        assert lower in text
        return text.replace(lower, "f16_from_float(0.0f * left);")

    assert relative_error(run(a, b, coarse), a, b) > 10 * relative_error(in_fp32(a, b), a, b)

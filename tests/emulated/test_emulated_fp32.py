"""FP32 made of tensor-core products: hard numbers, accuracy, and when plain FP32 takes over.

The emitted kernels run on the CPU with inputs of this file's own.
"""

import numpy as np
import pytest
from fp32_runner import Runner, errors_of_few, exact, in_fp32, relative_error

from autogemm.emulator import Emulator
from autogemm.model.problem import Layout, Problem
from autogemm.targets.cuda.worker.problem.precision import MOST_OF_FEW

pytestmark = pytest.mark.emulated

SPLITS = ("tf32x3", "bf16x6", "bf16x9")
PROBLEM = Problem(64, 64, 256, Layout.NN)
FALLBACK = "store_tile_in_fp32(tile, lda, ldb, ldc, K, with);"


def runner(emulator: Emulator, split: str, chunk: int = 0) -> Runner:
    values = {
        **{"SPLIT": split, "BM": 64, "BN": 64, "BK": 32},
        **{"CHUNK": chunk or (8 if split == "tf32x3" else 16)},
        **{"WM": 32, "WN": 32, "STAGES": 2, "REG_STAGES": 1, "SWIZZLE": 1},
        **{"GROUP_M": 1, "MIN_BLOCKS": 1},
    }
    return Runner(emulator, "sgemm_emulated", values, PROBLEM)


@pytest.fixture(params=SPLITS)
def run(emulator: Emulator, request: pytest.FixtureRequest) -> Runner:
    return runner(emulator, request.param)


def without_fallback(text: str) -> str:
    assert FALLBACK in text
    return text.replace(FALLBACK, "")


@pytest.mark.parametrize("kind", ["normal", "uniform", "wide"])
def test_errors_are_those_of_fp32_or_smaller(run: Runner, kind: str) -> None:
    a, b = run.inputs_of(kind)
    mine = relative_error(run(a, b, without_fallback), a, b)
    plain = relative_error(in_fp32(a, b), a, b)
    assert 0 < mine <= plain


def test_few_products_are_as_exact_as_fp32(run: Runner) -> None:
    assert 0 < errors_of_few(run, without_fallback) < 0.6 * MOST_OF_FEW


def test_sums_drift_without_chunks(emulator: Emulator) -> None:
    # The bits that tensor cores cut off have one sign where all products do.
    a, b = runner(emulator, "bf16x6").inputs_of("uniform")
    short, long = (runner(emulator, "bf16x6", chunk)(a, b) for chunk in (64, 256))
    reference = exact(a, b)
    assert np.all(long <= reference)
    assert np.abs(short - reference).mean() < 0.5 * np.abs(long - reference).mean()


def test_plain_fp32_takes_over_only_where_it_must(run: Runner) -> None:
    a, b = run.normal()
    assert np.array_equal(run(a, b), run(a, b, without_fallback))
    # Near the ends of what is split: no harm yet.
    for scale in (2.0**-80, 2.0**100):
        large, _ = run.normal(scale)
        result = run(large, b, without_fallback)
        assert relative_error(result, large, b) < 2.0**-21


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinity_and_nan_come_out_as_ieee_has_them(run: Runner, value: float) -> None:
    a, b = run.normal()
    a[3, 7] = value
    b[11, 5] = value
    with np.errstate(invalid="ignore"):
        expected = in_fp32(a, b)
    assert not np.all(np.isfinite(expected))
    assert np.array_equal(run(a, b), expected, equal_nan=True)
    # Without plain FP32 an infinity would become NaN, or nothing would be stored at all.
    assert np.isnan(run(a, b, without_fallback)).all()


def test_infinity_times_zero_is_nan(run: Runner) -> None:
    a, b = run.normal()
    a[0, 0], b[0, :] = np.inf, 0.0
    result = run(a, b)
    assert np.isnan(result[0]).all()
    assert np.isfinite(result[1:]).all()


@pytest.mark.parametrize("exponent", [-149, -140, -127, -126, -112])
def test_tiny_numbers_keep_their_bits(run: Runner, exponent: int) -> None:
    rng = np.random.default_rng(1)
    a = np.ldexp(rng.uniform(1, 2, (PROBLEM.m, PROBLEM.k)), exponent).astype(np.float32)
    b = np.ldexp(rng.uniform(1, 2, (PROBLEM.k, PROBLEM.n)), 120).astype(np.float32)
    assert relative_error(run(a, b), a, b) < 2.0**-20


def test_numbers_near_overflow(run: Runner) -> None:
    largest = float(np.finfo(np.float32).max)
    a, b = run.normal()
    a[:, :] = 0.0
    a[np.arange(64), np.arange(64)] = largest
    b = np.where(np.arange(PROBLEM.k)[:, None] < 64, np.sign(b), b).astype(np.float32)
    # Products of the largest number and 1: the number itself, of either sign.
    assert np.array_equal(run(a, b), exact(a, b).astype(np.float32))
    a[:, 64] = largest
    with np.errstate(over="ignore"):
        expected = in_fp32(a, b)
    assert np.isinf(expected).any()
    assert np.array_equal(run(a, b), expected)


def test_cancellation_leaves_what_fp32_leaves(run: Runner) -> None:
    # The second half of k takes back the first; what stays is a small, exact rest.
    a, b = run.normal()
    half = PROBLEM.k // 2
    a[:, half:], b[half:] = -a[:, :half], b[:half]
    a[:, 0] += np.float32(2.0**-10)
    mine, plain = run(a, b), in_fp32(a, b)
    sizes = np.abs(a) @ np.abs(b)
    assert np.max(np.abs(mine - exact(a, b)) / sizes) <= np.max(np.abs(plain - exact(a, b)) / sizes)


def test_a_lost_lower_part_shows(run: Runner) -> None:
    a, b = run.normal()

    def coarse(text: str) -> str:
        lower = (
            "low = __float_as_uint(__uint_as_float(number) - __uint_as_float(high));"
            if run.values["SPLIT"] == "tf32x3"
            else "hazard.left_over |= first | second;"
        )
        assert lower in text
        lost = "low = 0u;" if run.values["SPLIT"] == "tf32x3" else "parts[stride] = 0u;"
        return text.replace(lower, lost)

    assert relative_error(run(a, b, coarse), a, b) > relative_error(in_fp32(a, b), a, b)

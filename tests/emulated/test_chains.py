"""CHAIN_K: the order of additions, bit by bit, and what it is for."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from fp32_runner import Matrix, Runner
from mutations_chains import CHAIN_BASES

from autogemm.emulator import Emulator
from autogemm.model.config import Value
from autogemm.model.problem import Problem

pytestmark = pytest.mark.emulated


@dataclass(frozen=True)
class Case:
    """A base, what of it is other here, and how its sums come about."""

    base: str
    changes: dict[str, Value]
    k: int
    chain: int
    slices: Callable[[int], list[npt.NDArray[np.int64]]]
    """The k's of each sum for a K, in order, and the sums in the order in which they are added."""

    def runner(self, emulator: Emulator) -> Runner:
        base = CHAIN_BASES[self.base]
        values = base.config.as_dict() | self.changes
        return Runner(emulator, base.family_name, values, Problem(32, 64, self.k))


def halves(k: int) -> list[npt.NDArray[np.int64]]:
    return np.array_split(np.arange(k), 2)


def turns(k: int) -> list[npt.NDArray[np.int64]]:
    """Two warps take eight k's each in turn."""
    return [np.flatnonzero(np.arange(k) // 8 % 2 == warp) for warp in range(2)]


CASES = (
    Case("chains of slices", {}, 640, 128, halves),
    Case("chains of shared tiles", {"STREAM_BLOCKS": 0}, 304, 128, lambda k: [np.arange(k)]),
    Case("chains of few rows", {}, 320, 64, turns),
)


def products(a: Matrix, b: Matrix) -> Matrix:
    """One FP32 sum of all products for each element, rounded after each of them."""
    sums = np.zeros((len(a), b.shape[1]), np.float32)
    for column, row in zip(a.T.astype(np.float64), b.astype(np.float64), strict=True):
        sums = (sums + np.multiply.outer(column, row)).astype(np.float32)
    return sums


def in_chains(case: Case, a: Matrix, b: Matrix) -> Matrix:
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for ks in case.slices(case.k):
        finished = np.zeros_like(total)
        for first in range(0, len(ks), case.chain):
            chain = ks[first : first + case.chain]
            finished += products(a[:, chain], b[chain])
        total += finished
    return total


def error(c: Matrix, a: Matrix, b: Matrix) -> float:
    right = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c - right) / np.linalg.norm(right))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.base)
def test_sums_come_about_in_chains(emulator: Emulator, case: Case) -> None:
    run = case.runner(emulator)
    a, b = run.normal()
    result = run(a, b)
    assert np.array_equal(result, in_chains(case, a, b))
    # The same kernel with chains twice as long shows that the comparison tells them apart.
    longer = run(a, b, lambda text: text.replace("CHAIN_K_TILES = ", "CHAIN_K_TILES = 2 * "))
    assert not np.array_equal(longer, result)
    assert error(result, a, b) < error(longer, a, b)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.base)
def test_infinity_and_nan_go_through_chains(emulator: Emulator, case: Case) -> None:
    run = case.runner(emulator)
    a, b = run.normal()
    a[3, 7], a[4, 9], a[4, -1], b[11, 5] = np.inf, np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = in_chains(case, a, b)
    assert np.isnan(expected[4]).any()
    assert np.isinf(expected[3]).any()
    assert np.array_equal(run(a, b), expected, equal_nan=True)

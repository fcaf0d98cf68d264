"""8-bit floats by wgmma in the emulator: right kernels pass, planted bugs do not."""

import ctypes
import math
import re
import subprocess
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.emulator.toolchain import find_toolchain
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import rounded
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.targets.cuda.worker.problem.reference import rounding_allowance

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 3, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 132, "PROMOTE": 256},
}
# Edges on all sides; five k tiles, of which the last is partial and promoted alone.
PROBLEM = Problem(72, 136, 592, Layout.NT, DType.E4M3_F32)
SCALED = PROBLEM.with_epilogue(Epilogue("acc * sa[m] * sb[n]"))
SECOND = replace(PROBLEM, dtype=DType.E4M3).with_epilogue(
    Epilogue("aux[m, n] = acc * s; relu(aux); aux: f32")
)


def config(**changes: Value) -> Config:
    return load_family("gemm_wgmma").completed(Config.of("gemm_wgmma", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, PROBLEM),
        ({"PROMOTE": 128}, replace(PROBLEM, dtype=DType.E4M3, alpha=0.5, beta=-1.5)),
        (
            {"SCHEDULE": "pingpong", "BOX_M": 16, "PROMOTE": 128},
            replace(PROBLEM, dtype=DType.E5M2_F16),
        ),
        ({"SPLIT_K": 2, "BLOCKS": 0, "PROMOTE": 128}, PROBLEM),
        ({"BM": 128, "WM": 128, "PROMOTE": 128}, PROBLEM),
        ({"PROMOTE": 128, "PROMOTION": "alternating"}, PROBLEM),
        (
            {"SPLIT_K": 2, "BLOCKS": 0, "PROMOTE": 128, "PROMOTION": "alternating"},
            replace(PROBLEM, dtype=DType.E5M2),
        ),
        ({"EPILOGUE": "overlapped", "PROMOTE": 0}, replace(PROBLEM, dtype=DType.E5M2)),
        ({}, SCALED),
        ({}, replace(PROBLEM, lda=640, ldb=608, groups=Groups.parse("3"))),
        ({}, SECOND),
    ],
    ids=[
        *("f32", "bf16", "pingpong", "split", "two row tiles", "alternating", "alternating split"),
        *("overlapped", "scaled", "groups", "second"),
    ],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_wgmma"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    report = emulator.verify(
        render(family, one, problem), launch_plan(family, one, problem), problem
    )
    assert report.ok, report.message


@pytest.mark.parametrize("layout", [Layout.NN, Layout.TN, Layout.TT])
def test_other_layouts_are_refused(layout: Layout) -> None:
    problem = replace(PROBLEM, layout=layout)
    broken = broken_constraints(load_family("gemm_wgmma"), config(), problem, find_device("h200"))
    assert any("along k alone: layout nt" in one for one in broken)


ADDED = "accum[i][j] += partial[i][j];"
BUGS = {
    "the last partial sums are not promoted": (
        ADDED,
        f"if (end - first == K_TILES) {ADDED}",
    ),
    "promoted twice": (ADDED, f"{ADDED} if (first > 0) {ADDED}"),
    "sums do not begin anew": ("k_tile > first || step > 0", "k_tile > 0 || step > 0"),
    "read as the other type": ("wgmma_e4m3_kk(partial", "wgmma_e5m2_kk(partial"),
    "half of the depth": ("step < BK / STEP", "step < BK / STEP / 2"),
    "promoted before products are done": ("wgmma_wait_0();\n        pipeline", "pipeline"),
    "the scale of another row": ("with.sa[m]", "with.sa[m ^ 1]"),
    "the scale of another column": ("with.sb[n]", "with.sb[n ^ 1]"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    old, new = BUGS[name]
    family = load_family("gemm_wgmma")
    source = render(family, config(), SCALED)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, config(), SCALED), SCALED).ok


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The emulator's sum of products, compiled alone, over a whole dot product."""
    text = files("autogemm.emulator").joinpath("shim", "tensor_cores.h").read_text("utf-8")
    found = re.search(r"constexpr int kFp8AccumFractionBits.*?\n}\n", text, re.DOTALL)
    assert found
    folder = tmp_path_factory.mktemp("twin")
    source, library = folder / "twin.cpp", folder / "twin.so"
    source.write_text(
        "#include <algorithm>\n#include <cstdint>\n#include <cstdlib>\n"
        + found[0]
        + """
extern "C" int bits() { return kFp8AccumFractionBits; }
extern "C" float one_step(float accum, const double* products, int count) {
    return aligned_sum(accum, products, count);
}
extern "C" float dot(const double* products, int count, int promote) {
    float sum = 0.0f, accum = 0.0f;
    for (int k = 0; k < count; k += 32) {
        accum = aligned_sum(accum, products + k, std::min(32, count - k));
        if ((k + 32) % promote == 0 || k + 32 >= count) {
            sum += accum;
            accum = 0.0f;
        }
    }
    return sum;
}
"""
    )
    options = ["-std=c++17", "-O2", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([find_toolchain().gxx, *options, str(source)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.one_step.restype = loaded.dot.restype = ctypes.c_float
    loaded.one_step.argtypes = (ctypes.c_float, ctypes.c_void_p, ctypes.c_int)
    loaded.dot.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    return loaded


def step(twin: Any, accum: float, products: list[float]) -> float:
    terms = np.array(products, np.float64)
    return float(twin.one_step(accum, terms.ctypes.data, len(terms)))


def test_the_twin_keeps_as_many_bits_as_the_row_says(twin: Any) -> None:
    bits = twin.bits()
    assert bits == Element.E4M3.accum_fraction_bits == Element.E5M2.accum_fraction_bits
    large = 2.0**bits
    assert step(twin, large, [1.0]) == large + 1
    assert step(twin, 2 * large, [1.0, 1.0]) == 2 * large
    # A term loses bits before the sum, toward zero, even where the largest cancels.
    assert step(twin, 2 * large, [-2 * large, 1.0, 1.0]) == 0
    assert step(twin, 2 * large, [-1.5]) == 2 * large
    assert step(twin, large, [large, 1.0]) == 2 * large
    assert step(twin, 1 + 2.0**-20, [0.0]) == 1
    assert step(twin, 0.0, [0.0, 0.0]) == 0
    assert math.isnan(step(twin, 1.0, [math.nan]))
    assert step(twin, 1.0, [math.inf]) == math.inf


def errors(twin: Any, k: int, promote: int) -> tuple[float, float]:
    """Errors over C, relative in the Frobenius norm, and the largest as a share of the bound."""
    rng = np.random.default_rng(0)
    a, b = (
        rounded(rng.uniform(-1, 1, (rows, k)), Element.E4M3).astype(np.float64) for rows in (24, 16)
    )
    products: npt.NDArray[np.float64] = np.ascontiguousarray(a[:, None] * b[None])
    got = np.array(
        [[twin.dot(one.ctypes.data, k, promote or k) for one in row] for row in products]
    )
    exact, squares = products.sum(2), (products**2).sum(2)
    problem = Problem(24, 16, k, Layout.NT, DType.E4M3_F32)
    off = np.abs(got - exact)
    bound = rounding_allowance(problem) * np.sqrt(squares)
    return float(np.linalg.norm(off) / np.linalg.norm(exact)), float((off / bound).max())


def test_max_error_tells_promoted_sums_from_others(twin: Any) -> None:
    """At K = 16384 a limit of 0.001 takes sums promoted every 128 and no others."""
    never, of_bound = errors(twin, 16384, 0)
    every_128, less_of_bound = errors(twin, 16384, 128)
    assert every_128 < 0.0005, every_128
    assert never > 0.002
    assert less_of_bound < of_bound < 1

"""Each element of C goes through the one epilogue once, with its own row and column.

The arithmetic of that function is replaced by its indices, so that C says what every store passed.
Row and column are told by a sum of multiples, modulo a prime below 256, which 16-bit elements hold
exactly: a wrong one of them gives another number, unless it is off by a multiple of the prime.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from golden_cases import GOLDEN_CASES, GoldenCase
from sampling import one_in
from test_emulator_goldens import cut_down

from autogemm.emulator import Emulator
from autogemm.emulator import emulator as module
from autogemm.model.elements import used_rows
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.reference import Data, Inputs, make_inputs
from autogemm.space import launch_plan, load_family

pytestmark = pytest.mark.emulated

PRIME = 251
EPILOGUE = re.compile(r"((?:float|int) epilogue\(.*?\{\n).*?(\n\})", re.DOTALL)
OF_ROW, OF_COLUMN = 5, 8
INDICES = f"return (float)((({OF_ROW} * m) % {PRIME} + ({OF_COLUMN} * n) % {PRIME}) % {PRIME});"


def indices_for(problem: Problem, plan: LaunchPlan, data: Data, seed: int) -> Inputs:
    """The usual inputs, with the indices as what C must be."""
    inputs = make_inputs(problem, plan, data, seed)
    rows, columns = np.indices((problem.m, problem.n))
    indices = ((OF_ROW * rows + OF_COLUMN * columns) % PRIME).astype(np.float64)
    indices = indices[used_rows(problem)]
    expected = np.broadcast_to(indices, inputs.expected.shape)  # the same of every product
    return replace(inputs, expected=expected, bound=np.zeros_like(expected))


def telling_indices(text: str) -> str:
    """The text with an epilogue that tells where it was called."""
    text, count = EPILOGUE.subn(rf"\1{INDICES}\2", text)
    assert count == 1
    return text


def told_by(emulator: Emulator, case: GoldenCase, text: str, beta: float) -> str:
    """The emulator's message for a text whose epilogue tells indices; empty if all are right."""
    family = load_family(case.family)
    # Where alpha = 1 and beta = 0, gemm_wgmma may skip the epilogue of a whole tile. C of integers
    # has no other alpha.
    dtype = case.problem.dtype
    alpha, beta = dtype.legal_factors(0.5, 1.0 if dtype.has_exact_sums else beta)
    problem = replace(cut_down(case), alpha=alpha, beta=beta)
    source = KernelSource(family.name, "", case.config, problem.layout, text)
    report = emulator.run(source, launch_plan(family, case.config, problem), problem)
    return "" if report.ok else report.message


# Stores are the same with an epilogue of the user's.
PLAIN_CASES = [case for case in GOLDEN_CASES if case.problem.epilogue.is_plain]


@pytest.mark.parametrize("case", one_in(9, PLAIN_CASES, lambda case: case.family), ids=str)
def test_every_store_passes_its_row_and_column(
    emulator: Emulator, case: GoldenCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = telling_indices(case.path.read_text())
    monkeypatch.setattr(module, "make_inputs", indices_for)
    # Half of the kernels read the old C.
    beta = float(PLAIN_CASES.index(case) % 2)
    assert told_by(emulator, case, text, beta) == ""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("sgemm_simt_pipeline_any_size", "tile.m0 + m,", "m,"),
        ("sgemm_simt_pipeline_any_size", "tile.n0 + n,", "n,"),
        ("sgemm_simt_pipeline_split", "m, n + e, with", "m, n, with"),
    ],
)
def test_a_store_with_a_wrong_index_is_seen(
    emulator: Emulator, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in GOLDEN_CASES if str(case) == name)
    text = case.path.read_text()
    assert old in text
    monkeypatch.setattr(module, "make_inputs", indices_for)
    wrong = telling_indices(text).replace(old, new)
    assert told_by(emulator, case, wrong, beta=0.0)

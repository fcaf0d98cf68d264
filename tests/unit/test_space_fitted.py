"""A kernel tuned without edges, at a problem that has some."""

from contextlib import suppress
from itertools import product

import numpy as np
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import (
    EXPECTED_TIME,
    broken_constraints,
    build_space,
    default_families,
    derive_values,
    derived_columns,
    expected_time,
    fitted,
    load_family,
    nearest_legal,
)
from autogemm.space.build import nearest_config
from autogemm.support.errors import EmptySpaceError

H100 = find_device("h100")
SIMT = load_family("sgemm_simt")
GUARDED = SIMT.seeds[0]
INWARD = Config.of(SIMT.name, {**GUARDED.as_dict(), "EDGES": "inward"})


def test_edges_are_written_as_the_search_would_write_them() -> None:
    assert GUARDED["EDGES"] == "guarded"
    assert fitted(SIMT, GUARDED, Problem(900, 900, 900), H100) == INWARD
    assert fitted(SIMT, INWARD, Problem(900, 900, 900), H100) == INWARD
    assert nearest_legal(SIMT, GUARDED, Problem(900, 900, 900), H100) == GUARDED


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (100, 900, 900)])
def test_without_edges_or_another_way_it_stays_as_it_is(size: tuple[int, int, int]) -> None:
    """100 rows are less than a tile: there is nowhere to move it to."""
    assert fitted(SIMT, GUARDED, Problem(*size), H100) == GUARDED


def test_rules_that_it_breaks_without_edges_too_are_none_of_theirs() -> None:
    """So many blocks share tiles is seldom worth trying, and was tuned all the same."""
    shared = next(seed for seed in SIMT.seeds if seed["STREAM_BLOCKS"] == 264)
    few = fitted(SIMT, shared, Problem(300, 300, 300), H100)
    assert few is not None
    assert few["STREAM_BLOCKS"] == 264


@pytest.mark.parametrize("layout", list(Layout))
def test_every_seed_of_every_family_stays_legal(layout: Layout) -> None:
    problem = Problem(1500, 700, 300, layout)
    for family in default_families():
        for seed in family.seeds:
            found = fitted(family, seed, problem, H100) if family.fits(problem.dtype) else None
            if found is not None:
                assert broken_constraints(family, found, problem, H100) == []
                assert all(
                    found[name] == seed[name] for name in ("BM", "BN", "BK") if name in dict(seed)
                )


def test_a_gated_problem_takes_seeds_with_half_of_the_columns() -> None:
    """As many columns of the product: two for each of C."""
    problem = Problem(4096, 4096, 4096).with_epilogue(Epilogue("silu(acc[n]) * acc[n + N]"))
    found = nearest_legal(SIMT, GUARDED, problem, H100)
    assert found is not None
    assert broken_constraints(SIMT, found, problem, H100) == []
    assert [found[name] * 2 for name in ("BN", "WN", "TN")] == [
        GUARDED[name] for name in ("BN", "WN", "TN")
    ]
    # 6 columns for each thread are none of the family's values.
    twelve = next(seed for seed in SIMT.seeds if seed["TN"] == 12 and seed["TM"] == 12)
    assert nearest_legal(SIMT, twelve, problem, H100) is None


@pytest.mark.parametrize(
    "problem",
    [
        Problem(1000, 1304, 776),
        Problem(1000, 77, 775, Layout.TT),
        # Seeds are more than the first few steps from what is legal here.
        Problem(40, 8, 3000, Layout.NT, lda=3001),
        Problem(512, 256, 256, dtype=DType.BF16),
        Problem(512, 256, 256, dtype=DType.I8),
    ],
    ids=lambda problem: problem.label,
)
@pytest.mark.parametrize("name", ["sgemm_simt", "sgemm_skinny", "gemm_mma", "gemm_wgmma"])
def test_the_nearest_config_is_that_of_the_whole_space(name: str, problem: Problem) -> None:
    family = load_family(name)
    for seed in family.seeds[::9]:
        fix = {one: (value,) for one, value in seed if one in ("BM", "BN", "BK", "STAGES", "WM")}
        try:
            space = build_space(family, problem, H100, fix)
            expected = space.config(space.nearest(seed))
        except EmptySpaceError:
            expected = None
        found = None
        with suppress(EmptySpaceError):
            found = nearest_config(family, problem, H100, fix, seed)
        assert found == expected


def test_columns_of_derived_quantities_are_those_of_each_pair() -> None:
    pairs = [
        (seed, Problem(64 + 8 * i, 77, 300, layout))
        for i, (seed, layout) in enumerate(product(SIMT.seeds[:5], Layout))
    ]
    columns = derived_columns(SIMT, pairs, H100)
    for row, (config, problem) in enumerate(pairs):
        derived = derive_values(SIMT, config, problem)
        derived[EXPECTED_TIME] = expected_time(SIMT, config, problem, H100) or 0
        assert {name: np.broadcast_to(columns[name], 20)[row] for name in derived} == derived

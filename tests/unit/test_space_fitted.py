"""A kernel tuned without edges, at a problem that has some."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.config import Config
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, default_families, fitted, load_family, nearest_legal

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

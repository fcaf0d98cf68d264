"""A failing case is cut down, as long as there is time for it."""

from autogemm.catalogue.gpus import find_device
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family
from autogemm.verify import smallest_failure
from autogemm.verify.cases import Case, CaseResult

NAIVE, DEVICE = load_family("naive"), find_device("h100")
FAILURE = CaseResult(Case(NAIVE.seeds[0], Problem(64, 48, 32, alpha=2.0)), False, "wrong", 9.0, 0.1)


def wrong_from_k_of_3(tried: list[Case], case: Case) -> CaseResult:
    """A kernel that is wrong from K = 3 on."""
    tried.append(case)
    return CaseResult(case, case.problem.k < 3, "wrong", 9.0, 0.1)


def test_it_is_cut_down_as_far_as_it_fails() -> None:
    tried: list[Case] = []
    found = smallest_failure(NAIVE, DEVICE, lambda case: wrong_from_k_of_3(tried, case), FAILURE)
    assert found.case.problem == Problem(1, 1, 3, lda=32, ldb=48, ldc=48)
    assert tried


def test_rows_of_a_transposed_matrix_are_cut_down_too() -> None:
    tall = Problem(64, 3, 5, Layout.TT)
    failure = CaseResult(Case(NAIVE.seeds[0], tall), False, "wrong", 9.0, 0.1)
    found = smallest_failure(NAIVE, DEVICE, lambda case: wrong_from_k_of_3([], case), failure)
    assert (found.case.problem.m, found.case.problem.n, found.case.problem.k) == (1, 1, 3)


def test_when_the_time_is_up_it_stays_as_it_is() -> None:
    tried: list[Case] = []
    found = smallest_failure(
        NAIVE, DEVICE, lambda case: wrong_from_k_of_3(tried, case), FAILURE, deadline_s=-1.0
    )
    assert found is FAILURE
    assert not tried

"""Kernels checked on edge cases, on the CPU and on a GPU, and the certificate of a winner."""

from autogemm.verify.cases import (
    Case,
    CaseResult,
    CaseSet,
    Check,
    cases_of,
    cases_of_tuned,
    count_cases,
    legal_case,
    legal_edge_case,
    on_cpu,
    on_gpu,
    planned_cases,
    run_cases,
    sample_configs,
    smallest_failure,
)
from autogemm.verify.certify import Certifier
from autogemm.verify.edge_cases import Batches, reduced
from autogemm.verify.lines import CaseLines, Reach, Unreached, counting, reach_of
from autogemm.verify.mutants import (
    Draw,
    Fate,
    MutantResult,
    Planted,
    draw_mutants,
    fate_of,
    mutants_of,
    run_mutants,
)
from autogemm.verify.order import coverage_order, covering_cases
from autogemm.verify.schedule import verified_by_default

__all__ = [
    "Batches",
    "Case",
    "CaseLines",
    "CaseResult",
    "CaseSet",
    "Certifier",
    "Check",
    "Draw",
    "Fate",
    "MutantResult",
    "Planted",
    "Reach",
    "Unreached",
    "cases_of",
    "cases_of_tuned",
    "count_cases",
    "counting",
    "coverage_order",
    "covering_cases",
    "draw_mutants",
    "fate_of",
    "legal_case",
    "legal_edge_case",
    "mutants_of",
    "on_cpu",
    "on_gpu",
    "planned_cases",
    "reach_of",
    "reduced",
    "run_cases",
    "run_mutants",
    "sample_configs",
    "smallest_failure",
    "verified_by_default",
]

"""A wrong PTX wrapper is refused: by results on random inputs, by a deadline or by a sanitizer.

The emulator has twins of these functions, so that it cannot see a bug in them. What no run can
show stands in `ptx_wrappers.yaml` as `unseen`, and is held by that table's text alone.
"""

from collections.abc import Callable

import pytest
from wrapper_bugs import BASES, BUGS, Bug

from autogemm.compile import Compiler
from autogemm.model.kernel import Candidate, KernelSource, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Verdict
from autogemm.model.results.outcome import Outcome, Status
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu

# As edge cases are verified; a mutant that hangs costs its deadline and a new process.
OPTIONS = MeasureOptions(deadline_s=2.0, max_samples=1, compares=False)
SANITIZER_S = 60.0
PASSED = (Status.OK, Status.TOO_SLOW)

Measure = Callable[[Problem, KernelSource, LaunchPlan], Outcome]


@pytest.fixture(scope="module")
def measure(target: CudaTarget, compiler: Compiler) -> Measure:
    """Verifies a source on a problem; the same one is verified once."""
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} lacks instructions of these wrappers")
    done: dict[tuple[Problem, str], Outcome] = {}

    def measured(problem: Problem, source: KernelSource, plan: LaunchPlan) -> Outcome:
        key = (problem, source.text)
        if key not in done:
            candidate = Candidate(source, plan, compiler.compile(source, target.device.sm))
            target.prepare(problem, OPTIONS)
            done[key] = target.measure(candidate, None)
        return done[key]

    return measured


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_wrong_wrapper_is_refused(
    target: CudaTarget, compiler: Compiler, measure: Measure, bug: Bug
) -> None:
    said = []
    for problem, source, plan in BASES[bug.base].runs():
        right = measure(problem, source, plan)
        assert (right.status, right.reason) == (Status.OK, "")
        mutant = bug.planted_in(source)
        outcome = measure(problem, mutant, plan)
        print(problem.label, outcome.status, outcome.reason)
        if outcome.status not in PASSED:
            return
        said.append(f"{problem.label}: {outcome.status}")
    # The results are right: compute-sanitizer must see it, and see nothing in the right source.
    problem, source, plan = next(BASES[bug.base].runs())
    found = []
    for text in (source, bug.planted_in(source)):
        candidate = Candidate(text, plan, compiler.compile(text, target.device.sm))
        checks = target.sanitize(candidate, problem, SANITIZER_S)
        print(*(check.line for check in checks), sep="\n")
        found.append([check for check in checks if check.verdict is Verdict.FAILED])
    assert not found[0]
    assert found[1], f"nothing refuses it: {said}"

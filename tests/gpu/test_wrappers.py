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
# What a right kernel may be beside one that hangs.
LATE = (Status.TIMED_OUT, Status.TOO_SLOW)
# A race may go well once.
TRIES = 5

Verify = Callable[[Problem, KernelSource, LaunchPlan], Outcome]


@pytest.fixture(scope="module")
def verify(target: CudaTarget, compiler: Compiler) -> Verify:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} lacks instructions of these wrappers")

    def verified(problem: Problem, source: KernelSource, plan: LaunchPlan) -> Outcome:
        target.prepare(problem, OPTIONS)
        compiled = compiler.compile(source, target.device.sm)
        return target.measure(Candidate(source, plan, compiled), None)

    return verified


@pytest.fixture(scope="module")
def verify_right(verify: Verify) -> Verify:
    """Verifies a source that has no bug; one that is right, once."""
    done: dict[tuple[Problem, str], Outcome] = {}

    def verified(problem: Problem, source: KernelSource, plan: LaunchPlan) -> Outcome:
        key = (problem, source.text)
        for _ in range(TRIES):
            if key in done and done[key].status not in LATE:
                break
            # A mutant of another test that hangs takes its share of the GPU, too.
            done[key] = verify(problem, source, plan)
        return done[key]

    return verified


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_wrong_wrapper_is_refused(
    target: CudaTarget, compiler: Compiler, verify: Verify, verify_right: Verify, bug: Bug
) -> None:
    for problem, source, plan in BASES[bug.base].runs():
        right = verify_right(problem, source, plan)
        assert (right.status, right.reason) == (Status.OK, "")
        mutant = bug.planted_in(source)
        for attempt in range(TRIES):
            outcome = verify(problem, mutant, plan)
            print(problem.label, attempt, outcome.status, outcome.reason)
            if outcome.status not in PASSED:
                return
    # The results are right: compute-sanitizer must see it, and see nothing in the right source.
    problem, source, plan = next(BASES[bug.base].runs())
    found = []
    for text in (source, bug.planted_in(source)):
        candidate = Candidate(text, plan, compiler.compile(text, target.device.sm))
        checks = target.sanitize(candidate, problem, SANITIZER_S)
        print(*(check.line for check in checks), sep="\n")
        found.append([check for check in checks if check.verdict is Verdict.FAILED])
    assert not found[0]
    assert found[1], "nothing refuses it"

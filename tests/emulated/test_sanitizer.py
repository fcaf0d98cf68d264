"""compute-sanitizer's answers judged, and the program that it watches run with CuPy on the CPU."""

import os
import shutil
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from test_cuda_worker_on_cpu import candidate
from waiting import PATIENCE_S

from autogemm.model.dtypes import Element
from autogemm.model.kernel import TensorMap
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.certificate import Certificate, Verdict
from autogemm.targets.cuda.tools import sanitizer, toolkit
from autogemm.targets.cuda.tools.sanitizer import TOOLS, Job, judged, sanitize

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

PROBLEM = Problem(40, 31, 17, ldc=36, alpha=1.5, beta=0.5)
BANNER = "========= COMPUTE-SANITIZER\n"

# The stand-in for compute-sanitizer: BEFORE, the watched program, AFTER.
SCRIPT = """\
#!/bin/sh
if [ "$1" = --version ]; then
    echo "NVIDIA (R) Compute Sanitizer"
    echo "Version 2025.3.1.0 (build 36398880) (public-release)"
    exit 0
fi
tool=$2
shift 6
echo "========= COMPUTE-SANITIZER"
BEFORE
"$@"
AFTER
"""
CLEAN = """\
if [ $tool = racecheck ]; then
    echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
else
    echo "========= ERROR SUMMARY: 0 errors"
fi"""


@pytest.fixture
def install(simulated_cuda: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Install":
    toolkit.program_version.cache_clear()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return Install(tmp_path / "bin" / "compute-sanitizer")


class Install:
    """Puts a stand-in on PATH."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, before: str = "", after: str = CLEAN) -> None:
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(SCRIPT.replace("BEFORE", before).replace("AFTER", after))
        self._path.chmod(0o755)


def job(problem: Problem = PROBLEM, /, **changes: str) -> Job:
    return Job(candidate(problem, **changes), problem, 0)


def test_a_right_kernel_passes_all_tools(install: Install) -> None:
    install()
    checks = sanitize(job(), PATIENCE_S)
    assert [(check.name, check.verdict) for check in checks] == [
        (name, Verdict.PASSED) for name in TOOLS
    ], checks
    for check in checks:
        assert check.tool == "compute-sanitizer 2025.3.1.0"
        assert check.what == f"nothing found on {PROBLEM.label}"
        assert check.seconds > 0


@pytest.mark.parametrize(("layout", "beta"), list(zip(Layout, (0.0, 0.5, 0.0, 0.5), strict=True)))
def test_the_watched_program_knows_right_from_wrong(
    install: Install, layout: Layout, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizer, "TOOLS", ("memcheck",))
    install()
    problem = replace(PROBLEM, layout=layout, lda=0, ldb=0, beta=beta)
    problem = replace(problem, lda=problem.lda + 3)
    (right,) = sanitize(job(problem), PATIENCE_S)
    assert right.verdict is Verdict.PASSED, right
    (wrong,) = sanitize(job(problem, DEPTH="K - 1"), PATIENCE_S)
    assert wrong.verdict is Verdict.FAILED
    assert "wrong result" in wrong.what
    assert "elements, first C[0, 0]" in wrong.what


def test_what_a_kernel_must_not_read_is_not_written(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizer, "TOOLS", ("initcheck",))
    install()
    # Memory that nobody wrote to is full of these bytes here; else the kernel gives up.
    untouched = r'if (memcmp(C, "\xab\xab\xab\xab", 4)) return 1;'
    for beta, verdict in ((0.0, Verdict.PASSED), (0.5, Verdict.NOT_DONE)):
        (check,) = sanitize(job(replace(PROBLEM, beta=beta), BEFORE=untouched), PATIENCE_S)
        assert check.verdict is verdict, check
    assert "did not run to its end" in check.what
    assert "illegal memory access" in check.what


# As the driver's, which looks at what it is asked for and writes what nobody reads.
ENCODER = r"""
extern "C" int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                      const unsigned long *extent, const unsigned long *ld_bytes,
                                      const unsigned *box, const unsigned *step, int interleave,
                                      int swizzle, int l2, int outside) {
    const bool good = type == 7 && rank == 2 && address && extent[0] == 31 && extent[1] == 40 &&
                      ld_bytes[0] == 4 * 36 && box[0] == 32 && box[1] == 8 && step[0] == 1 &&
                      step[1] == 1 && interleave == 0 && swizzle == 3 && l2 == 2 && outside == 0;
    memset(map, 1, 128);
    return good && (unsigned long)map % 64 == 0 ? 0 : 1;
}
"""


@pytest.mark.parametrize(("swizzle_bytes", "verdict"), [(128, Verdict.PASSED), (0, None)])
def test_c_that_tma_writes_holds_nan_before(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    swizzle_bytes: int,
    verdict: Verdict | None,
) -> None:
    """initcheck does not see TMA's stores: what it says of C then is no finding."""
    monkeypatch.setattr(sanitizer, "TOOLS", ("memcheck", "initcheck"))
    install()
    command = ["g++", "-shared", "-fPIC", "-include", "cstring", "-xc++", "-", "-o"]
    subprocess.run([*command, tmp_path / "libcuda.so.1"], input=ENCODER, text=True, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    problem = replace(PROBLEM, beta=0.0)
    right = job(problem, BEFORE="if (C[0] == C[0]) return 1;")
    c = TensorMap("map_c", "C", Element.F32, (31, 40), 36, (32, 8), swizzle_bytes)
    candidate = right.candidate
    plan = replace(candidate.plan, tensor_maps=(c,))
    checks = sanitize(replace(right, candidate=replace(candidate, plan=plan)), PATIENCE_S)
    assert [check.verdict for check in checks] == [verdict or Verdict.NOT_DONE] * 2, checks
    assert ["TMA" in check.what for check in checks] == [False, True]
    if verdict is None:
        assert "makes no tensor map of C" in checks[0].what


def test_what_is_found_fails(install: Install) -> None:
    found = (
        'echo "========= Invalid __global__ read of size 4 bytes"\n'
        'echo "=========     at gemm_kernel+0x5a0"\n'
        'echo "========= ERROR SUMMARY: 12 errors"'
    )
    install(after=found)
    check = sanitize(job(), PATIENCE_S)[0]
    assert check.verdict is Verdict.FAILED
    assert check.what == (
        f"12 found on {PROBLEM.label}, first: Invalid __global__ read of size 4 bytes"
    )


def test_what_synccheck_alone_finds_fails_the_kernel(install: Install) -> None:
    found = (
        'echo "========= Barrier error detected. Divergent thread(s) in block."\n'
        'echo "========= ERROR SUMMARY: 3 errors"'
    )
    install(after=f"[ $tool = synccheck ] || {{ {CLEAN}\nexit; }}\n{found}")
    checks = {check.name: check for check in sanitize(job(), PATIENCE_S)}
    certificate = Certificate(tuple(checks.values()), datetime.now(UTC))
    assert certificate.verdict is Verdict.FAILED
    synccheck = checks.pop("synccheck")
    assert certificate.reason == synccheck.line
    assert synccheck.what == (
        f"3 found on {PROBLEM.label}, first: Barrier error detected. Divergent thread(s) in block."
    )
    assert {check.verdict for check in checks.values()} == {Verdict.PASSED}


def test_one_that_hangs_is_ended(install: Install) -> None:
    install(before="sleep 600")
    begin = time.monotonic()
    checks = sanitize(job(), 1.0)
    assert time.monotonic() - begin < PATIENCE_S
    assert {(check.verdict, check.what) for check in checks} == {
        (Verdict.NOT_DONE, "it did not end in time")
    }


def test_one_that_cannot_watch_here_says_nothing_of_the_kernel(install: Install) -> None:
    install(before='echo "========= Error: Target application could not be attached"; exit 1')
    (check, *_) = sanitize(job(), PATIENCE_S)
    assert check.verdict is Verdict.NOT_DONE
    assert check.what.endswith("Target application could not be attached")


def test_one_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: None)
    checks = sanitize(job(), PATIENCE_S)
    assert [check.name for check in checks] == list(TOOLS)
    assert {check.what for check in checks} == {"compute-sanitizer is not installed"}


@pytest.mark.parametrize(
    ("output", "verdict", "says"),
    [
        ("right\n========= ERROR SUMMARY: 0 errors\n", Verdict.PASSED, "nothing found"),
        ("right\n========= ERROR SUMMARY: 1 error\n", Verdict.FAILED, "1 found"),
        (
            "right\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
            Verdict.PASSED,
            "nothing found",
        ),
        (
            "========= Error: Race reported between Write access at gemm_kernel+0x110\n"
            "=========     and Read access at gemm_kernel+0x250 [16 hazards]\n"
            "right\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
            Verdict.FAILED,
            "1 found on 1 nn f32, first: Error: Race reported between Write access at "
            "gemm_kernel+0x110 and Read access at gemm_kernel+0x250 [16 hazards]",
        ),
        # A hazard of two writes of one value is a warning.
        (
            "right\n========= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)\n",
            Verdict.PASSED,
            "nothing found",
        ),
        ("========= ERROR SUMMARY: 0 errors\n", Verdict.NOT_DONE, "did not run to its end"),
        ("wrong: 3 of 4\n========= ERROR SUMMARY: 0 errors\n", Verdict.FAILED, "wrong result"),
        ("right\n", Verdict.NOT_DONE, "cannot watch programs here: right"),
        ("", Verdict.NOT_DONE, "exit code 7"),
    ],
)
def test_answers_are_judged_by_the_tools_own_summary(
    output: str, verdict: Verdict, says: str
) -> None:
    found, what = judged(7, BANNER * bool(output) + output, Problem(1, 1, 1))
    assert found is verdict
    assert says in what

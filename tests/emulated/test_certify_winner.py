"""A winner is checked on edge cases before it is one; who fails gives way to the next."""

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from unit.fake_target import FakeCompiler, FakeTarget
from waiting import PATIENCE_S

from autogemm.cli import main
from autogemm.emulator import Emulator, EmulatorReport
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Check, Verdict
from autogemm.model.results.finals import without_winner
from autogemm.model.results.outcome import Finals, Outcome, Status
from autogemm.space import Family, load_family
from autogemm.store import BestQuery, RunState, Store, open_store
from autogemm.support.errors import CertificationError, UsageError
from autogemm.targets import Chosen
from autogemm.tuning import Certifier, Certifying, Event, TuneRequest, tune
from autogemm.tuning.task.build import Builder
from autogemm.verify import certify as certify_module

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

# At the size that is tuned for, the faster kernel (U = 4) is right; its fault needs K % 8 != 0.
YAML = """\
family: plain
summary: one thread for each element, with a fault where U is 4
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [32], doc: rows}
  BN: {values: [32, 64], doc: columns}
  U: {values: [1, 4], doc: 4 has a fault}
derive:
  threads: "64"
launch:
  - kernel: gemm_kernel
    threads: threads
    grid: "ceil_div(M, BM) * ceil_div(N, BN)"
    smem_bytes: 0
workspace_bytes: 0
seeds:
  - {BM: 32, BN: 32, U: 1}
"""
TEMPLATE = """\
extern "C" __global__ void gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda,
                                       const float* B, int ldb, float beta, float* C, int ldc) {
    const int blocks_n = (N + {{ config.BN }} - 1) / {{ config.BN }};
    const int row0 = blockIdx.x / blocks_n * {{ config.BM }};
    const int col0 = blockIdx.x % blocks_n * {{ config.BN }};
    for (int i = threadIdx.x; i < {{ config.BM * config.BN }}; i += 64) {
        const int row = row0 + i / {{ config.BN }};
        const int col = col0 + i % {{ config.BN }};
        if (row >= M || col >= N) {
            continue;
        }
        float sum = 0.0f;
        for (int k = 0; k < {{ "K" if config.U == 1 else "(K + 7) / 8 * 8" }}; ++k) {
            const float a = A[(long long){{ "k * lda + row" if trans_a else "row * lda + k" }}];
            const float b = B[(long long){{ "col * ldb + k" if trans_b else "k * ldb + col" }}];
            sum = fmaf(a, b, sum);
        }
        float* c = &C[(long long)row * ldc + col];
        *c = alpha * sum + (beta != 0.0f ? beta * *c : 0.0f);
    }
}
"""
PROBLEM = Problem(64, 64, 64)
MATRIX_S = 250.0


class Compiler(FakeCompiler):
    """Certifying waits for each kernel."""

    def compile(self, source: KernelSource, arch: str) -> CompiledKernel:
        return self.submit(source, arch).result()


class Sanitizing(FakeTarget):
    """Says what it was asked to watch; finds what the test wants."""

    found = Verdict.PASSED
    can_sanitize = True

    def sanitize(
        self, candidate: Candidate, problem: Problem, deadline_s: float
    ) -> tuple[Check, ...]:
        self.sanitized = (candidate, problem)
        return (Check("memcheck", self.found, f"on {problem.label}", "a fake"),)


@pytest.fixture(autouse=True)
def quickly(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify_module, "MATRIX_S", MATRIX_S)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain.yaml").write_text(YAML)
    (folder / "plain.cu.jinja").write_text(TEMPLATE)
    return load_family(folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


def candidate(family: Family, unroll: int) -> Candidate:
    config = Config.of("plain", {"BM": 32, "BN": 32, "U": unroll})
    builder = Builder((family,), PROBLEM, FakeTarget().device, Compiler())
    return builder.start(builder.render(config)).candidate()


def request_for(family: Family, **changes: Any) -> TuneRequest:
    return replace(
        TuneRequest(PROBLEM, (family,), sampler="exhaustive", rounds=3, certify=True), **changes
    )


def test_a_right_kernel_passes_and_the_certificate_tells_all(family: Family) -> None:
    steps: list[str] = []
    target = Sanitizing()
    certifier = Certifier(family, target, Compiler(), progress=steps.append)
    before = [Check("finals", Verdict.PASSED, "30 more results")]
    right = candidate(family, 1)
    certificate = certifier.certify(right, PROBLEM, before)
    assert certificate.verdict is Verdict.PASSED, certificate
    finals, gpu, emulator, memcheck = certificate.checks
    assert finals is before[0]
    assert emulator.what.startswith("75 of 75 edge cases, 24 of them with exactly this source")
    assert "g++" in emulator.tool
    assert (gpu.name, gpu.verdict) == ("gpu", Verdict.PASSED)
    assert gpu.tool == "NVIDIA H100 80GB HBM3, fake 1.0"
    # The machine code of the winner, with the launches of the small problem.
    watched, problem = target.sanitized
    assert (watched.source, watched.compiled) == (right.source, right.compiled)
    assert problem.flops <= PROBLEM.flops
    assert watched.plan.launches[0].grid == (-(-problem.m // 32) * -(-problem.n // 32), 1, 1)
    assert memcheck.verdict is Verdict.PASSED
    assert len(steps) == 2


def test_a_fault_that_the_tuned_size_hides_is_found(family: Family) -> None:
    target = Sanitizing()
    certificate = Certifier(family, target, Compiler()).certify(candidate(family, 4), PROBLEM)
    assert certificate.verdict is Verdict.FAILED
    failed = certificate.checks[-1]
    assert failed.name == "emulator"
    assert "out of bounds" in failed.what
    assert certificate.reason == failed.line
    assert "\n" not in certificate.reason
    assert not hasattr(target, "sanitized"), "nothing more is done after a failure"


def test_the_next_finalist_takes_the_place_of_one_that_fails(family: Family, store: Store) -> None:
    events: list[Event] = []
    result = tune(request_for(family), FakeTarget(), Compiler(), store, events.append)
    assert {one.status for one in result.outcomes if one.config["U"] == 4} == {Status.WRONG_RESULT}
    assert result.best is not None
    assert result.best.config["U"] == 1, "what failed is no best, however fast"
    finals, certificate = result.finals, result.certificate
    assert finals is not None
    assert certificate is not None
    assert certificate.verdict is Verdict.PASSED
    assert {entry.config and entry.config["U"] for entry in finals.entries} == {1}
    assert {lost.config["U"] for lost in finals.disqualified} == {4}
    assert all("emulator failed" in lost.reason for lost in finals.disqualified)
    assert any(isinstance(event, Certifying) for event in events)
    # The same in the database, and nobody who asks for the best gets one that failed.
    assert store.run(result.run_id).state is RunState.FINISHED
    best = store.stored_kernel(BestQuery())
    assert best.source.sha256 == finals.winner.kernel_sha256
    assert best.certificate == certificate
    for lost in finals.disqualified:
        stored = store.stored_kernel(lost.kernel_sha256)
        assert stored.certificate is not None
        assert stored.certificate.reason == lost.reason


def test_when_all_fail_there_is_no_winner(family: Family, store: Store) -> None:
    request = request_for(family, fix={"U": (4,)})
    with pytest.raises(CertificationError, match=r"no finalist passes.*emulator failed"):
        tune(request, FakeTarget(), Compiler(), store)
    assert store.best() == []
    assert len(store.trials(1)) == 2, "the trials are kept"
    # Without the checks it is the user who answers for it.
    result = tune(replace(request, certify=False), FakeTarget(), Compiler(), store)
    assert result.finals is not None
    assert result.certificate is None


@pytest.mark.parametrize("found", [Verdict.FAILED, Verdict.NOT_DONE])
def test_what_a_sanitizer_finds_counts_and_its_absence_does_not(
    family: Family, found: Verdict
) -> None:
    target = Sanitizing()
    target.found = found
    certificate = Certifier(family, target, Compiler()).certify(candidate(family, 1), PROBLEM)
    passed = found is Verdict.NOT_DONE
    assert certificate.verdict is (Verdict.PASSED if passed else Verdict.FAILED)


class WrongOnEdges(FakeTarget):
    """A GPU on which the kernel is right at the tuned size alone."""

    def prepare(self, problem: Problem, *arguments: Any) -> None:
        super().prepare(problem, *arguments)
        self._is_edge = problem.m % 32 != 0

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        outcome = super().measure(candidate, best_us)
        if not self._is_edge:
            return outcome
        return replace(outcome, status=Status.WRONG_RESULT, reason="3 elements", measurement=None)


def test_the_gpu_has_its_say(family: Family) -> None:
    certificate = Certifier(family, WrongOnEdges(), Compiler()).certify(
        candidate(family, 1), PROBLEM
    )
    failed = [check for check in certificate.checks if check.verdict is Verdict.FAILED]
    assert [check.name for check in failed] == ["gpu"]
    assert failed[0].what.endswith("wrong_result: 3 elements")


def test_a_problem_that_cannot_be_run_hides_no_failure(family: Family) -> None:
    class Full(WrongOnEdges):
        """Has no room for the first problem."""

        is_full = True

        def prepare(self, problem: Problem, *arguments: Any) -> None:
            if self.is_full:
                self.is_full = False
                raise UsageError("0.0 GiB are free: choose a smaller size")
            super().prepare(problem, *arguments)

    certificate = Certifier(family, Full(), Compiler()).certify(candidate(family, 1), PROBLEM)
    (gpu,) = [check for check in certificate.checks if check.name == "gpu"]
    assert gpu.verdict is Verdict.FAILED
    assert gpu.what.endswith("wrong_result: 3 elements")


def test_without_gxx_the_certificate_says_so(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEMM_GXX", "no-such-compiler")
    certificate = Certifier(family, FakeTarget(), Compiler()).certify(candidate(family, 4), PROBLEM)
    (emulator,) = [check for check in certificate.checks if check.name == "emulator"]
    assert emulator.verdict is Verdict.NOT_DONE
    assert "found no 'no-such-compiler'" in emulator.what
    assert certificate.verdict is Verdict.PASSED, "the GPU alone"


def test_a_kernel_that_the_emulator_cannot_build_is_not_blamed(
    family: Family, tmp_path: Path
) -> None:
    (tmp_path / "plain.yaml").write_text(YAML)
    asm = 'asm volatile("wgmma.fence.sync.aligned;");\n    const int blocks_n'
    (tmp_path / "plain.cu.jinja").write_text(TEMPLATE.replace("const int blocks_n", asm))
    other = load_family(tmp_path)
    certificate = Certifier(other, FakeTarget(), Compiler()).certify(candidate(other, 1), PROBLEM)
    (emulator,) = [check for check in certificate.checks if check.name == "emulator"]
    assert emulator.verdict is Verdict.NOT_DONE
    assert "the emulator does not run this kernel" in emulator.what


def test_the_emulators_own_parts_do_not_take_the_time_of_the_cases(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compiled at the first use on a machine."""
    now_s = 0.0

    def made_slowly() -> Emulator:
        nonlocal now_s
        now_s += MATRIX_S + 1
        return Emulator()

    clock = SimpleNamespace(monotonic=lambda: now_s, perf_counter=time.perf_counter)
    monkeypatch.setattr(certify_module, "time", clock)
    monkeypatch.setattr(certify_module, "Emulator", made_slowly)
    certificate = Certifier(family, FakeTarget(), Compiler()).certify(candidate(family, 1), PROBLEM)
    (emulator,) = [check for check in certificate.checks if check.name == "emulator"]
    assert emulator.what.startswith("75 of 75 edge cases"), emulator.what


def test_the_time_is_kept_and_what_was_left_out_is_said(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FakeTarget):
        """By its own clock each candidate takes 20 s; once the time is up, it is slow indeed."""

        def now_s(self) -> float:
            return 20.0 * len(self.measured)

        def measure(self, *arguments: Any) -> Outcome:
            outcome = super().measure(*arguments)
            if self.now_s() > MATRIX_S:
                time.sleep(0.2)
            return outcome

    slow = Slow()
    clock = SimpleNamespace(monotonic=slow.now_s, perf_counter=slow.now_s)
    monkeypatch.setattr(certify_module, "time", clock)
    certifier = Certifier(family, slow, Compiler(), matrix_s=MATRIX_S)
    certificate = certifier.certify(candidate(family, 1), PROBLEM)
    assert MATRIX_S / 20 <= len(slow.measured) < 75
    (gpu,) = [check for check in certificate.checks if check.name == "gpu"]
    assert gpu.verdict is Verdict.PASSED
    assert "of 75 edge cases" in gpu.what
    assert gpu.what.endswith(f"then the {MATRIX_S:g} s were over")


def test_ctrl_c_keeps_the_winner_and_says_what_was_not_done(
    family: Family, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(Sanitizing):
        def sanitize(self, *_: Any) -> tuple[Check, ...]:
            raise KeyboardInterrupt

    result = tune(request_for(family, fix={"U": (1,)}), Interrupting(), Compiler(), store)
    assert result.finals is not None
    assert result.certificate is not None
    assert result.certificate.verdict is Verdict.PASSED
    assert result.certificate.checks[-1] == Check("the rest", Verdict.NOT_DONE, "interrupted")
    assert store.run(result.run_id).state is RunState.FINISHED


def test_ctrl_c_does_not_wait_for_the_matrix(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_interrupted = threading.Event()
    emulated: list[int] = []

    class Interrupted(FakeTarget):
        def measure(self, *_: Any) -> Outcome:
            is_interrupted.set()
            raise KeyboardInterrupt

    def slow(*_: Any) -> EmulatorReport:
        emulated.append(1)
        assert is_interrupted.wait(PATIENCE_S)
        time.sleep(0.2)
        return EmulatorReport((), 0.0, 0, 1, 0.0, 1.0)

    monkeypatch.setattr(certify_module.Emulator, "verify", slow)
    certificate = Certifier(family, Interrupted(), Compiler()).certify(
        candidate(family, 1), PROBLEM
    )
    # Those that were begun are awaited, the rest of the 75 is not.
    assert len(emulated) < 30
    assert certificate.verdict is Verdict.NOT_DONE


def test_ties_are_decided_anew_without_the_winner(family: Family) -> None:
    target = FakeTarget()
    candidates = [candidate(family, 4), candidate(family, 1)]
    finals: Finals = target.finals(candidates, 10, seed=1)
    assert finals.winner.config == candidates[0].config
    others = without_winner(finals, "memcheck failed", seed=1)
    assert [entry.config for entry in others.entries] == [candidates[1].config]
    assert others.winner.ratio == pytest.approx(finals.entries[1].ratio)
    assert others.baseline.samples_us == finals.baseline.samples_us
    assert [(lost.config, lost.reason) for lost in others.disqualified] == [
        (candidates[0].config, "memcheck failed")
    ]


@pytest.fixture
def tuned(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the plain family's kernels, tuned without certificates; a GPU for later."""
    database = str(tmp_path / "tune.db")
    with open_store(database) as store:
        tune(request_for(family, certify=False), FakeTarget(), Compiler(), store)
    target = FakeTarget()
    monkeypatch.setattr(target, "compiler", Compiler)
    monkeypatch.setattr("autogemm.cli.kernels.run.certify.choose_target", lambda *_: Chosen(target))
    return database


@pytest.mark.parametrize(("unroll", "exit_code"), [(1, 0), (4, 1)])
def test_verify_makes_a_certificate_of_a_stored_kernel(
    family: Family, tuned: str, unroll: int, exit_code: int
) -> None:
    kernel = candidate(family, unroll).source.sha256
    arguments = ["verify", "--kernel", kernel[:16], "--certify", "--db", tuned]
    result = CliRunner().invoke(main, [*arguments, "--family", str(family.yaml_path.parent)])
    assert result.exit_code == exit_code, result.output
    assert "edge cases" in result.output
    with open_store(tuned) as store:
        certificate = store.stored_kernel(kernel).certificate
    assert certificate is not None
    assert certificate.verdict is (Verdict.FAILED if exit_code else Verdict.PASSED)


def test_verify_certifies_one_kernel_only(family: Family) -> None:
    result = CliRunner().invoke(main, ["verify", "--certify"])
    assert result.exit_code == 2
    assert "add --kernel ID" in result.output

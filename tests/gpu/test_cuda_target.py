"""The CUDA target on a GPU: right kernels are timed, wrong ones found, broken ones survived."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_kernels import (
    FAULTS,
    FINE,
    FLAKY,
    HANG,
    ILLEGAL_ADDRESS,
    MISALIGNED,
    NO_SUCH_KERNEL,
    TOO_MANY_THREADS,
    TOO_MUCH_SMEM,
    TRAP,
    Build,
    Fault,
    family_candidate,
    sleeping,
)

from autogemm.compile import Compiler
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Fill, Objective, Outcome, Provenance, Status
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget, attached_devices, why_no_device

pytestmark = pytest.mark.gpu

# Padded rows of C and both scalars, so that every kind of stray access has somewhere to show.
PROBLEM = Problem(150, 131, 77, ldc=140, alpha=1.5, beta=0.5)
OPTIONS = MeasureOptions(deadline_s=10.0)


@pytest.fixture
def prepared(target: CudaTarget) -> CudaTarget:
    target.prepare(PROBLEM, OPTIONS)
    return target


def assert_fine(outcome: Outcome) -> None:
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert outcome.time_us is not None
    assert outcome.time_us > 0
    assert outcome.verification is not None
    assert 0 < outcome.verification.max_error_ratio <= 1
    assert outcome.verification.error < 1e-5


def in_layout(problem: Problem, layout: Layout) -> Problem:
    """The same problem in another layout; packed stays packed."""
    packed = problem.lda == problem.a_shape[1]
    lda, ldb = (0, 0) if packed else (problem.lda, problem.ldb)
    return replace(problem, layout=layout, lda=lda, ldb=ldb)


def test_device_facts_are_those_of_a_gpu(target: CudaTarget) -> None:
    device = attached_devices()[0]
    assert why_no_device() == ""
    assert device == target.device
    assert device.arch >= 70
    assert device.max_threads_per_block == 1024
    assert device.registers_per_sm == 65536
    assert 48 * 1024 < device.max_smem_per_block_bytes <= device.smem_per_sm_bytes
    assert 8 <= device.max_blocks_per_sm <= 32
    assert device.reserved_smem_per_block_bytes in {0, 1024}
    assert 500 < device.sm_clock_mhz < 5000
    assert device.l2_bytes > 2**20
    assert 1 < device.peak_f32_tflops < 500
    assert 100 < device.peak_bandwidth_gb_s < 20_000


def test_an_h100_has_its_known_facts(target: CudaTarget) -> None:
    device = target.device
    if "H100 80GB HBM3" not in device.name:
        pytest.skip(f"this is a {device.name}")
    assert (device.arch, device.num_sms, device.fp32_cores_per_sm) == (90, 132, 128)
    assert device.max_smem_per_block_bytes == 227 * 1024
    assert device.sm_clock_mhz == 1980


def test_the_environment_is_filled(target: CudaTarget) -> None:
    environment = target.environment
    for name in ("driver", "cuda_runtime", "cublas", "cupy", "python", "autogemm"):
        assert getattr(environment, name), name
    assert environment.compiler == ""


def test_a_gpu_that_does_not_exist_is_one_clear_error() -> None:
    with pytest.raises(DeviceError, match="there is no GPU 99"):
        CudaTarget(99)


def test_a_problem_larger_than_the_gpu_names_both_sizes(target: CudaTarget) -> None:
    with pytest.raises(UsageError, match=r"needs \d+\.\d GiB.*\d+\.\d GiB are free"):
        target.prepare(Problem(300_000, 300_000, 300_000), OPTIONS)


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize(
    "problem",
    [
        Problem(64, 64, 64),
        Problem(1, 1, 1),
        Problem(127, 65, 33, alpha=-0.3, beta=0.7),
        Problem(60, 50, 70, lda=101, ldb=102, ldc=103, alpha=2.0, beta=-1.0),
        Problem(5, 3, 9000, beta=1.0),
    ],
    ids=lambda problem: problem.label.replace(" ", "-"),
)
def test_a_right_kernel_and_cublas_pass(
    target: CudaTarget, build: Build, problem: Problem, layout: Layout
) -> None:
    problem = in_layout(problem, layout)
    target.prepare(problem, OPTIONS)  # raises DeviceError if cuBLAS were wrong
    assert target.baseline_us is not None
    assert target.baseline_us > 0
    assert target.baseline_error is not None
    assert 0 < target.baseline_error < 1e-5
    assert_fine(target.measure(build(problem, FINE), None))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize(
    "problem",
    [
        Problem(66, 258, 1026, Layout.TT, lda=68, ldb=1028, ldc=260),
        Problem(64, 256, 1533, lda=1536, ldb=264, ldc=264),
        Problem(131, 257, 769, Layout.NT, ldc=259, lda=771, ldb=771, alpha=-1.25, beta=0.5),
    ],
    ids=lambda problem: problem.label.replace(" ", "-"),
)
def test_a_call_of_cublas_that_is_right_is_found(
    target: CudaTarget, problem: Problem, dtype: DType
) -> None:
    """Some of its calls add up parts of K in 16 bits here and are wrong, or right at times."""
    for _ in range(3):
        target.prepare(replace(problem, dtype=dtype), OPTIONS)  # raises DeviceError without one


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_a_wrong_result(prepared: CudaTarget, build: Build, name: str) -> None:
    outcome = prepared.measure(build(PROBLEM, FAULTS[name]), None)
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.measurement is None
    assert outcome.reason
    assert_fine(prepared.measure(build(PROBLEM, FINE), None))


def test_wrong_results_say_where_and_how_much(prepared: CudaTarget, build: Build) -> None:
    missing_k = prepared.measure(build(PROBLEM, FAULTS["one product too few"]), None)
    assert f"{150 * 131} of {150 * 131} elements are wrong on integer inputs" in missing_k.reason
    missing_col = prepared.measure(build(PROBLEM, FAULTS["last column not computed"]), None)
    # Here and there the C that was left alone may happen to be right.
    assert re.match(r"1[45]\d of 19650 elements", missing_col.reason)
    assert ", 130]" in missing_col.reason
    coarse = prepared.measure(build(PROBLEM, FAULTS["rounds its inputs to TF32"]), None)
    assert "on real inputs" in coarse.reason
    beyond = prepared.measure(build(PROBLEM, FAULTS["writes beyond N into ldc"]), None)
    assert beyond.reason.startswith("150 elements")


def test_tf32_is_rejected_at_a_large_depth_too(target: CudaTarget, build: Build) -> None:
    problem = Problem(512, 512, 4096)
    target.prepare(problem, OPTIONS)
    coarse = target.measure(build(problem, FAULTS["rounds its inputs to TF32"]), None)
    assert coarse.status is Status.WRONG_RESULT
    assert_fine(target.measure(build(problem, FINE), None))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (TOO_MUCH_SMEM, "300000 bytes"),
        (TOO_MANY_THREADS, "2048 threads"),
        (NO_SUCH_KERNEL, "other_kernel"),
    ],
)
@pytest.mark.alone
def test_a_refused_launch_is_no_crash(
    prepared: CudaTarget, build: Build, fault: Fault, says: str
) -> None:
    outcome = prepared.measure(build(PROBLEM, fault), None)
    assert outcome.status is Status.LAUNCH_FAILED
    assert says in outcome.reason
    assert outcome.measure_seconds < 1
    assert_fine(prepared.measure(build(PROBLEM, FINE), None))


def test_machine_code_of_another_kind_is_refused(prepared: CudaTarget, build: Build) -> None:
    fine = build(PROBLEM, FINE)
    assert fine.compiled is not None
    broken = replace(fine, compiled=replace(fine.compiled, cubin=b"no machine code at all"))
    outcome = prepared.measure(broken, None)
    assert outcome.status is Status.LAUNCH_FAILED
    assert "loading the machine code" in outcome.reason


@pytest.mark.parametrize("fault", [ILLEGAL_ADDRESS, MISALIGNED, TRAP])
def test_a_crash_poisons_nothing_for_the_next(
    prepared: CudaTarget, build: Build, fault: Fault
) -> None:
    outcome = prepared.measure(build(PROBLEM, fault), None)
    assert outcome.status is Status.CRASHED
    assert "the kernel crashed: cudaError" in outcome.reason
    assert_fine(prepared.measure(build(PROBLEM, FINE), None))


def test_an_endless_kernel_is_killed_at_its_deadline(target: CudaTarget, build: Build) -> None:
    target.prepare(PROBLEM, MeasureOptions(deadline_s=2.0))
    outcome = target.measure(build(PROBLEM, HANG), None)
    assert outcome.status is Status.TIMED_OUT
    assert outcome.measure_seconds < 10
    assert_fine(target.measure(build(PROBLEM, FINE), None))


@pytest.mark.alone
def test_the_memory_of_the_problem_before_is_free(target: CudaTarget) -> None:
    cupy = pytest.importorskip("cupy")
    target.prepare(PROBLEM, OPTIONS)
    target.prepare(Problem(8192, 8192, 8192), OPTIONS)
    large, _ = cupy.cuda.runtime.memGetInfo()
    target.prepare(PROBLEM, OPTIONS)
    small, _ = cupy.cuda.runtime.memGetInfo()
    matrices = 3 * 4 * 8192**2
    assert small - large > 2 * matrices


@pytest.mark.alone
def test_a_kernel_too_slow_to_repeat_says_so(target: CudaTarget, build: Build) -> None:
    target.prepare(PROBLEM, MeasureOptions(deadline_s=3.0))
    outcome = target.measure(build(PROBLEM, sleeping(0.9)), None)
    assert outcome.status is Status.TOO_SLOW
    assert outcome.time_us is None
    assert outcome.measurement is not None
    assert outcome.measurement.time_us == pytest.approx(0.9e6, rel=0.1)


@pytest.mark.alone
def test_a_hopeless_candidate_is_timed_once(target: CudaTarget, build: Build) -> None:
    target.prepare(PROBLEM, OPTIONS)
    for seconds in (10e-6, 5e-3):
        slow = target.measure(build(PROBLEM, sleeping(seconds)), best_us=1.0)
        assert slow.status is Status.OK
        assert slow.measurement is not None
        assert len(slow.measurement.samples_us) == 1
        assert slow.time_us == pytest.approx(1e6 * seconds, rel=0.9)


@pytest.mark.alone
def test_short_kernels_are_timed_in_a_graph_and_long_ones_by_events(
    prepared: CudaTarget, build: Build
) -> None:
    short = prepared.measure(build(PROBLEM, FINE), None).measurement
    assert short is not None
    assert short.method == "graph"
    assert short.time_us * short.launches_per_sample == pytest.approx(1000, rel=0.5)
    long = prepared.measure(build(PROBLEM, sleeping(2e-3)), None).measurement
    assert long is not None
    assert (long.method, long.launches_per_sample) == ("events", 1)
    assert long.time_us == pytest.approx(2000, rel=0.02)
    assert len(long.samples_us) >= 4
    assert long.provenance is Provenance.MEASURED


@pytest.mark.alone
def test_a_cache_without_the_inputs_is_slower_than_a_warm_one(
    target: CudaTarget, build: Build
) -> None:
    # A and B fit into L2 together; the kernel reads each once from there or from memory.
    problem = Problem(16, 2048, 1024)
    times = {}
    for l2 in CacheState:
        target.prepare(problem, replace(OPTIONS, l2=l2))
        outcome = target.measure(build(problem, FINE), None)
        assert_fine(outcome)
        assert outcome.measurement is not None
        assert outcome.measurement.l2 is l2
        times[l2] = outcome.measurement.time_us
    assert times[CacheState.COLD] > times[CacheState.WARM]
    assert times[CacheState.ROTATE] > times[CacheState.WARM]


@pytest.mark.parametrize("fill", list(Fill))
def test_kernels_are_timed_on_the_inputs_asked_for(
    target: CudaTarget, build: Build, fill: Fill
) -> None:
    target.prepare(PROBLEM, replace(OPTIONS, fill=fill))
    assert_fine(target.measure(build(PROBLEM, FINE), None))
    wrong = target.measure(build(PROBLEM, FAULTS["one product too few"]), None)
    assert wrong.status is Status.WRONG_RESULT


@pytest.mark.alone
def test_finals_of_the_same_kernel_twice_are_a_tie(prepared: CudaTarget, build: Build) -> None:
    fine = build(PROBLEM, FINE)
    finals = prepared.finals([fine, fine], rounds=30, seed=1)
    first, second = finals.entries
    # A 95 % interval misses once in twenty; then the difference must at least be tiny.
    assert second.tied or second.ratio == pytest.approx(first.ratio, rel=0.005)
    assert len(first.samples_us) == len(finals.baseline.samples_us) == finals.rounds == 30
    for entry in (first, second, finals.baseline):
        assert entry.verification is not None
        assert entry.verification.max_error_ratio <= 1
    assert finals.method == "graph"
    assert finals.baseline.time_us == pytest.approx(prepared.baseline_us, rel=0.5)


@pytest.mark.alone
def test_finals_order_by_speed_and_leave_out_who_fails(prepared: CudaTarget, build: Build) -> None:
    candidates = [
        build(PROBLEM, sleeping(1e-4)),
        build(PROBLEM, FAULTS["one product too few"]),
        build(PROBLEM, FINE),
        build(PROBLEM, TOO_MUCH_SMEM),
    ]
    finals = prepared.finals(candidates, rounds=8, seed=1)
    assert [entry.config for entry in finals.entries] == [
        candidates[2].config,
        candidates[0].config,
    ]
    assert not finals.entries[1].tied
    with_crash = prepared.finals([candidates[2], build(PROBLEM, TRAP)], rounds=8, seed=1)
    assert [entry.config for entry in with_crash.entries] == [candidates[2].config]


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_kernel_wrong_once_in_ten_launches_is_caught_in_the_finals(
    target: CudaTarget, build: Build, beta: float
) -> None:
    problem = replace(PROBLEM, beta=beta)
    target.prepare(problem, OPTIONS)
    fine, flaky = build(problem, FINE), build(problem, FLAKY)
    finals = target.finals([flaky, fine], rounds=30, seed=1)
    assert [entry.config for entry in finals.entries] == [fine.config]
    (lost,) = finals.disqualified
    assert lost.config == flaky.config
    assert "elements are wrong" in lost.reason


@pytest.mark.alone
def test_energy_of_a_kernel_is_that_of_the_gpu_while_it_runs(
    target: CudaTarget, compiler: Compiler
) -> None:
    problem = Problem.of_size("4096")
    options = replace(OPTIONS, objective=Objective.ENERGY)
    target.prepare(problem, options)
    candidate = family_candidate(problem, compiler, target.device)
    measured = [target.measure(candidate, None).measurement for _ in range(3)]
    energies = [one.energy_mj for one in measured if one is not None and one.energy_mj is not None]
    assert len(energies) == 3
    assert max(energies) / min(energies) < 1.1
    time_us = measured[0].time_us if measured[0] is not None else 0.0
    # A data centre's GPU draws between 100 and 1200 W under load.
    assert 0.1 < energies[0] / time_us < 1.2
    hopeless = target.measure(candidate, best_us=0.1 * time_us).measurement
    assert hopeless is not None
    assert hopeless.energy_mj is None
    finals = target.finals([candidate], rounds=5, seed=1)
    for entry in (finals.winner, finals.baseline):
        assert len(entry.samples_mj) == 5
    assert finals.winner.energy_mj == pytest.approx(energies[-1], rel=0.1)


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize(
    "problem",
    [
        Problem(512, 512, 512),
        Problem(257, 130, 67, lda=300, ldb=301, ldc=303, alpha=0.5, beta=-0.25),
    ],
    ids=["aligned", "odd"],
)
def test_the_family_that_ships_is_right(
    target: CudaTarget, compiler: Compiler, problem: Problem, layout: Layout
) -> None:
    problem = in_layout(problem, layout)
    target.prepare(problem, OPTIONS)
    assert_fine(target.measure(family_candidate(problem, compiler, target.device), None))


@pytest.mark.alone
def test_one_candidate_at_4096_costs_little_and_is_near_cublas(
    target: CudaTarget, compiler: Compiler
) -> None:
    problem = Problem.of_size("4096")
    target.prepare(problem, OPTIONS)
    candidate = family_candidate(problem, compiler, target.device)
    outcome = target.measure(candidate, None)
    assert_fine(outcome)
    assert outcome.measure_seconds < 0.5
    finals = target.finals([candidate], rounds=10, seed=1)
    assert 0.5 < finals.winner.ratio < 1.5
    assert finals.winner.ratio_high - finals.winner.ratio_low < 0.05


def test_a_module_in_the_working_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build
) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    target = CudaTarget()
    target.prepare(PROBLEM, OPTIONS)
    assert_fine(target.measure(build(PROBLEM, FINE), None))
    target.close()

"""The worker's answers on a simulated GPU: what became of a candidate, when the baseline is timed
again, what a new worker need not find out again.
"""

import ctypes
import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from simulated_gpu import CublasLibrary, Kernel, SimulatedGpu, compiled_helpers

from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    CacheState,
    Call,
    Fill,
    Objective,
    Outcome,
    Provenance,
    Status,
    Telemetry,
)
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.messages import (
    KnownCalls,
    Measure,
    Measured,
    Prepare,
    RunFinals,
    RunSustained,
    Start,
)
from autogemm.targets.cuda.worker import backend as worker
from autogemm.targets.cuda.worker.backend import BASELINE_INTERVAL, CudaBackend
from autogemm.targets.cuda.worker.gpu import cublas
from autogemm.targets.cuda.worker.gpu.launching import CandidateError
from autogemm.targets.cuda.worker.gpu.timing import MIN_SAMPLES
from autogemm.targets.cuda.worker.problem.prepared import LibraryCalls, PreparedProblem

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]
PROBLEM = Problem(13, 9, 40, alpha=1.25, beta=0.5)
BASELINE_US = 500.0
LEFT_OUT = (Call("cuBLAS GemmEx", Status.TOO_SLOW, "1.200 times as long"),)


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled_helpers(tmp_path_factory.mktemp("verify"))


class Worker:
    """A backend on a simulated GPU. ``kernels`` are all that were loaded."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self.backend = CudaBackend()
        self.kernels: list[Kernel] = []
        self.known: list[KnownCalls | None] = []
        self.environment: Any = None
        self.baseline: Any = None
        self.spoil: Any = lambda c: None

    def calls(self, known: KnownCalls | None, prepared: PreparedProblem, _: Any) -> LibraryCalls:
        self.known.append(known)
        self.baseline = Kernel(prepared, BASELINE_US, self.spoil)
        self.baseline.name = "cuBLAS SGEMM"
        return LibraryCalls((self.baseline,), LEFT_OUT)

    def prepare(self, problem: Problem = PROBLEM, **options: Any) -> Any:
        return self.backend.prepare(Prepare(problem, MeasureOptions(**options)))

    def measure(self, best_us: float | None = None, **how: Any) -> Measured:
        """Make a kernel that takes ``time_us`` and does what ``spoil`` says."""
        config = Config.of("tiny", {"BM": len(self.kernels)})
        source = SimpleNamespace(sha256=f"{len(self.kernels):064}")
        candidate: Any = SimpleNamespace(config=config, source=source, compiled=None, how=how)
        return self.backend.measure(Measure(candidate, best_us))

    def outcome(self, best_us: float | None = None, **how: Any) -> Outcome:
        return self.measure(best_us, **how).outcome


@pytest.fixture
def started(helpers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Worker:
    gpu: Any = SimulatedGpu(helpers)
    gpu.runtime.driverGetVersion = lambda: 13010
    gpu.runtime.runtimeGetVersion = lambda: 12090
    gpu.telemetry.driver_version = ""
    gpu.cupy = SimpleNamespace(__version__="13.6.0")
    one = Worker(gpu)

    def contestant(prepared: PreparedProblem, candidate: Any) -> Kernel:
        how = {"time_us": 400.0, **candidate.how}
        if error := how.pop("error", None):
            raise error
        one.kernels.append(how.pop("kind", Kernel)(prepared, **how))
        return one.kernels[-1]

    monkeypatch.setattr(cublas, "load_library", CublasLibrary)
    monkeypatch.setattr(worker, "Gpu", lambda index: gpu)
    monkeypatch.setattr(worker, "near_calls", one.calls)
    monkeypatch.setattr(PreparedProblem, "contestant", contestant)
    monkeypatch.setenv("CUBLAS_EMULATE_SINGLE_PRECISION", "0")
    one.environment = one.backend.start(Start(0)).environment
    return one


@pytest.fixture
def ready(started: Worker) -> Worker:
    started.prepare()
    return started


def broken(c: Any) -> None:
    c[0, 0] += 1.0


def test_the_environment_has_the_versions_of_all_that_times_depend_on(started: Worker) -> None:
    found = started.environment
    assert (found.driver, found.cuda_runtime, found.cublas, found.cupy) == (
        "13.1",
        "12.9",
        "12.9.1",
        "13.6.0",
    )
    gpu: Any = started.gpu
    gpu.telemetry.driver_version = "580.65"
    assert CudaBackend().start(Start(0)).environment.driver == "580.65"


@pytest.mark.parametrize("ask", ["measure", "finals", "sustained"])
def test_nothing_is_measured_before_a_problem_is_prepared(started: Worker, ask: str) -> None:
    with pytest.raises(UsageError, match="prepare"):
        if ask == "measure":
            started.measure()
        elif ask == "finals":
            started.backend.finals(RunFinals((), 1, 0))
        else:
            started.backend.sustained(RunSustained(None, "", 1.0))  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="no GPU"):
        CudaBackend().prepare(Prepare(PROBLEM, MeasureOptions()))


def test_a_prepared_problem_tells_time_error_and_calls_for_the_next_worker(
    started: Worker,
) -> None:
    found = started.prepare()
    assert found.baseline_us == pytest.approx(BASELINE_US)
    assert 0 < found.baseline_error < 1e-6
    assert found.known == KnownCalls(PROBLEM, ("cuBLAS SGEMM",), LEFT_OUT)
    started.backend.prepare(Prepare(PROBLEM, MeasureOptions(), known=found.known))
    assert started.known == [None, found.known]


def test_without_a_baseline_none_is_looked_for(started: Worker) -> None:
    found = started.prepare(compares=False)
    assert (found.baseline_us, found.baseline_error, found.known) == (None, None, None)
    assert not started.known
    measured = started.measure()
    assert (measured.outcome.status, measured.baseline_us) == (Status.OK, None)


def test_a_wrong_baseline_is_none_and_the_problem_not_ready(started: Worker) -> None:
    started.prepare()
    started.spoil = broken
    with pytest.raises(DeviceError, match="cuBLAS gives a wrong result here: 1 of 117"):
        started.prepare()
    with pytest.raises(UsageError, match="prepare"):
        started.measure()


def test_a_right_candidate_has_its_time_and_how_it_was_taken(ready: Worker) -> None:
    outcome = ready.outcome(time_us=400.0)
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    found = outcome.measurement
    assert found is not None
    assert outcome.time_us == found.time_us == 400.0
    assert (found.method, found.launches_per_sample) == ("events", 1)
    assert (found.provenance, found.l2) == (Provenance.MEASURED, CacheState.WARM)
    assert found.throttled_samples == 0
    assert len(found.samples_us) == MIN_SAMPLES
    assert outcome.verification is not None
    assert outcome.verification.error < 1e-6
    assert outcome.kernel_sha256 == f"{0:064}"


def test_a_short_candidate_is_timed_in_a_graph(ready: Worker) -> None:
    found = ready.outcome(time_us=20.0).measurement
    assert found is not None
    assert (found.method, found.launches_per_sample) == ("graph", 50)
    assert found.time_us == pytest.approx(20.0)


def test_a_wrong_candidate_has_no_time_and_poisons_nothing(ready: Worker) -> None:
    measured = ready.measure(spoil=broken)
    assert measured.outcome.status is Status.WRONG_RESULT
    assert "1 of 117 elements are wrong" in measured.outcome.reason
    assert measured.outcome.measurement is None
    assert not measured.poisoned
    assert measured.baseline_us == pytest.approx(BASELINE_US)
    assert not any(one.is_loaded for one in ready.kernels)


class Damaging(Kernel):
    """Spoils an input of all that come after it."""

    def queue(self, inputs: Any) -> None:
        super().queue(inputs)
        self.prepared.gpu.write(inputs.a.address, np.array([7.0], np.float32))


def test_a_candidate_that_damages_inputs_poisons_the_worker(ready: Worker) -> None:
    measured = ready.measure(kind=Damaging)
    assert measured.outcome.status is Status.WRONG_RESULT
    assert measured.poisoned


@pytest.mark.parametrize("poisoned", [False, True])
def test_a_candidate_that_cannot_be_run_says_why(ready: Worker, poisoned: bool) -> None:
    error = CandidateError(Status.LAUNCH_FAILED, "too much\nshared memory", poisoned=poisoned)
    measured = ready.measure(error=error)
    assert measured.outcome.status is Status.LAUNCH_FAILED
    assert measured.outcome.reason == "too much shared memory"
    assert (measured.poisoned, measured.baseline_us) == (poisoned, pytest.approx(BASELINE_US))


class Crashing(Kernel):
    def queue(self, inputs: Any) -> None:
        raise self.prepared.gpu.cuda_errors[0]("an illegal address")


def test_an_error_of_the_gpu_is_the_candidates_and_breaks_the_context(ready: Worker) -> None:
    measured = ready.measure(kind=Crashing)
    assert measured.outcome.status is Status.CRASHED
    assert measured.outcome.reason == "the kernel crashed: an illegal address"
    assert measured.poisoned
    assert not ready.kernels[-1].is_loaded


@pytest.mark.parametrize(
    ("time_us", "best_us", "samples"),
    [
        (3000.0, None, MIN_SAMPLES),
        (3000.0, 2900.0, MIN_SAMPLES),
        # Hopeless: the launch that was checked is the only one.
        (3000.0, 1400.0, 1),
        # Slower, and not yet hopeless.
        (2200.0, 1500.0, MIN_SAMPLES),
        # A short launch was not timed alike: a sample of many launches decides.
        (150.0, 50.0, 1),
    ],
)
def test_hopeless_candidates_are_timed_once(
    ready: Worker, time_us: float, best_us: float | None, samples: int
) -> None:
    outcome = ready.outcome(best_us, time_us=time_us)
    assert outcome.status is Status.OK
    assert outcome.measurement is not None
    assert outcome.time_us == pytest.approx(time_us)
    assert len(outcome.measurement.samples_us) == samples
    # Three checks, and where it is hopeless nothing but them.
    if samples == 1 and time_us > 1000:
        assert ready.kernels[-1].num_launches == 3
        assert outcome.measurement.method == "events"
    elif samples == 1:
        assert outcome.measurement.method == "graph"


@pytest.mark.parametrize("options", [{"l2": CacheState.COLD}, {"fill": Fill.ZEROS}], ids=str)
def test_a_launch_in_another_state_does_not_make_hopeless(
    started: Worker, options: dict[str, Any]
) -> None:
    """It is timed as it should be once."""
    started.prepare(**options)
    started.outcome(10.0, time_us=3000.0)
    assert started.kernels[-1].num_launches > 3


def test_a_throttled_launch_does_not_make_hopeless(ready: Worker) -> None:
    """Its samples are taken again until the GPU is itself."""
    readings = iter([Telemetry(throttle_reasons=0x40)])
    gpu: Any = ready.gpu
    gpu.telemetry.read = lambda: next(readings, Telemetry(throttle_reasons=0))
    outcome = ready.outcome(10.0, time_us=3000.0)
    assert ready.kernels[-1].num_launches > 3
    assert outcome.status is Status.OK


def test_a_launch_that_leaves_no_time_to_repeat_it_is_too_slow(started: Worker) -> None:
    started.prepare(deadline_s=2.0)
    outcome = started.outcome(time_us=0.9e6)
    assert outcome.status is Status.TOO_SLOW
    assert outcome.reason == (
        "one launch takes 0.9 s, no time to repeat it within the deadline of 2 s"
    )
    assert outcome.measurement is not None
    assert outcome.measurement.samples_us == (0.9e6,)
    assert outcome.verification is not None
    assert started.outcome(time_us=0.7e6).status is Status.OK


def test_the_baseline_is_timed_beside_each_new_best_and_now_and_then(ready: Worker) -> None:
    ready.baseline.time_us = 600.0

    def baseline_us(best_us: float | None, time_us: float) -> float:
        found = ready.measure(best_us, time_us=time_us).baseline_us
        assert found is not None
        return found

    assert baseline_us(300.0, 300.0) == pytest.approx(BASELINE_US), "no better than the best"
    assert baseline_us(300.0, 299.0) == pytest.approx(600.0)
    ready.baseline.time_us = 700.0
    for _ in range(BASELINE_INTERVAL - 1):
        assert baseline_us(250.0, 300.0) == pytest.approx(600.0)
    assert baseline_us(250.0, 300.0) == pytest.approx(700.0)
    # Counted anew.
    ready.baseline.time_us = 800.0
    assert baseline_us(250.0, 300.0) == pytest.approx(700.0)
    assert baseline_us(None, 300.0) == pytest.approx(800.0), "the first is the best"


def test_a_wrong_candidate_is_no_best(ready: Worker) -> None:
    ready.baseline.time_us = 600.0
    assert ready.measure(None, spoil=broken).baseline_us == pytest.approx(BASELINE_US)


def test_the_baseline_is_not_timed_where_the_deadline_is_near(started: Worker) -> None:
    """Twice its five samples must fit: else the worker is killed for the baseline's sake."""
    started.prepare(deadline_s=0.2)
    started.baseline.time_us = 600.0
    started.backend._baseline_us = 0.2e6
    assert started.measure(None, time_us=300.0).baseline_us == 0.2e6


def test_energy_is_taken_of_contenders_alone(
    started: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.prepare(objective=Objective.ENERGY)
    prepared: Any = started.backend._prepared_problem
    asked: list[float] = []

    def energy_mj(stopwatch: Any, sample_us: float) -> float:
        asked.append(sample_us)
        return 5.0

    prepared.energy = SimpleNamespace(energy_mj=energy_mj)
    contender = started.outcome(time_us=20.0).measurement
    assert contender is not None
    assert contender.energy_mj == 5.0
    # One sample is 50 launches of a graph.
    assert asked == [pytest.approx(20.0 * contender.launches_per_sample)]
    hopeless = started.outcome(1.0, time_us=100.0).measurement
    assert hopeless is not None
    assert hopeless.energy_mj is None
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("number", "text"), [(13000, "13.0"), (12090, "12.9"), (11080, "11.8"), (12110, "12.11")]
)
def test_versions_of_cuda_are_read(number: int, text: str) -> None:
    assert worker.cuda_version(number) == text


def test_phases_and_the_floor_of_a_candidate_are_told(ready: Worker) -> None:
    measured = ready.measure(time_us=400.0)
    assert {"load", "verify", "compare", "inputs", "sparse", "time"} <= measured.seconds.keys()
    # All launches, those of the checks and the untimed ones included, and none of the baseline's.
    launches = ready.kernels[-1].num_launches
    assert measured.launches_s == pytest.approx(400e-6 * launches)
    again = ready.measure(time_us=400.0, best_us=100.0)
    assert again.launches_s == pytest.approx(400e-6 * ready.kernels[-1].num_launches)


def test_the_first_look_at_a_short_candidate_is_its_first_sample(ready: Worker) -> None:
    outcome = ready.outcome(50.0, time_us=150.0)
    assert outcome.measurement is not None
    launches = outcome.measurement.launches_per_sample
    # Three checks, what is captured on this GPU runs as well, an untimed graph and the timed one.
    assert ready.kernels[-1].num_launches == 3 + 2 * launches


@pytest.mark.parametrize(("row", "col"), [(0, 0), (-1, -1), (7, 4), (-1, 0), (0, -1)])
def test_one_element_that_is_wrong_at_the_tuned_size_ends_a_candidate(
    ready: Worker, row: int, col: int
) -> None:
    """A kernel that is right on fewer rows, columns or k tiles only has no time, so cannot win."""

    def spoil(c: Any) -> None:
        if c.shape == (PROBLEM.m, PROBLEM.n):
            c[row, col] += 1.0

    outcome = ready.outcome(1e9, time_us=20.0, spoil=spoil)
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.measurement is None

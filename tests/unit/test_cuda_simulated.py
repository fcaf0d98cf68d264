"""Inputs, references and verdicts on a simulated GPU: right kernels pass, faults are named."""

import ctypes
import itertools
import math
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from simulated_gpu import (
    L2_BYTES,
    CublasLibrary,
    Kernel,
    SimulatedGpu,
    compiled_helpers,
    memory,
    operands,
    prepared_problem,
    product,
)

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.elements import rounded
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import (
    CacheState,
    Call,
    Fill,
    Objective,
    Provenance,
    Status,
    Telemetry,
)
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.messages import RunFinals
from autogemm.targets.cuda.worker.finals import run_finals
from autogemm.targets.cuda.worker.gpu import cublas
from autogemm.targets.cuda.worker.gpu.timing import Method
from autogemm.targets.cuda.worker.problem import inputs, reference
from autogemm.targets.cuda.worker.problem.inputs import GUARD
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem
from autogemm.targets.cuda.worker.problem.reference import rounding_allowance

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.usefixtures("library"),
]

U = 2.0**-24
LEFT_OUT = (Call("cuBLAS GemmEx", Status.TOO_SLOW, "1.200 times as long"),)
Floats = npt.NDArray[Any]


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled_helpers(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def gpu(helpers: ctypes.CDLL) -> SimulatedGpu:
    return SimulatedGpu(helpers)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> CublasLibrary:
    one = CublasLibrary()
    monkeypatch.setattr(cublas, "load_library", lambda: one)
    return one


def sized(dtype: DType = DType.F32, layout: Layout = Layout.NN, beta: float = 0.5) -> Problem:
    m, n, k = 13, 9, 40
    alpha, beta = dtype.legal_factors(1.25, beta)
    return Problem(m, n, k, layout=layout, dtype=dtype, alpha=alpha, beta=beta, ldc=n + 3)


def reals_of(address: int, problem: Problem, kind: Any = np.float64) -> Floats:
    return np.array(memory(address, problem.m, problem.n, problem.n, kind))


@pytest.mark.parametrize("tile", [4096, 8])
@pytest.mark.parametrize("layout", list(Layout), ids=str)
def test_the_reference_is_the_gemm_in_float64_and_exact_on_integers(
    gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch, layout: Layout, tile: int
) -> None:
    """Also where C and K are cut into tiles."""
    monkeypatch.setattr(reference, "TILE", tile)
    problem = sized(layout=layout)
    prepared = prepared_problem(gpu, problem)
    for one, found in ((prepared.integers, prepared.exact), (prepared.reals, prepared.close)):
        assert one.c0 is not None
        old = np.array(memory(one.c0.address, problem.m, problem.n, problem.n, np.float32))
        expected = one.alpha * product(problem, one) + one.beta * old
        if one.integers:
            shown = reals_of(found.exact_address, problem, np.float32)
            assert np.array_equal(shown, expected)
        else:
            shown = reals_of(found.real_address, problem)
            assert np.allclose(shown, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [one for one in DType if one.c.saturates], ids=str)
def test_a_c_of_8_bits_is_between_the_nearest_to_both_ends(gpu: SimulatedGpu, dtype: DType) -> None:
    problem = sized(dtype, beta=0.0)
    prepared = prepared_problem(gpu, problem)
    a, b = operands(problem, prepared.reals)
    scaled = prepared.reals.alpha * (a @ b)
    error = prepared.reals.alpha * rounding_allowance(problem) * np.sqrt(a**2 @ b**2)
    error += 4 * U * np.abs(scaled)
    low, nearest, high = (rounded(scaled + sign * error, dtype.c) for sign in (-1, 0, 1))
    assert np.array_equal(reals_of(prepared.close.real_address, problem), nearest)
    bound = reals_of(prepared.close.bound_address, problem, np.float32)
    assert np.array_equal(bound, np.maximum(high - nearest, nearest - low))
    # Whole numbers are too large in a row, and NaN in a column.
    exact = reals_of(prepared.exact.exact_address, problem, np.float32)
    assert np.isnan(exact).sum() == np.isnan(exact[:, problem.n // 2]).sum() == problem.m
    assert (np.abs(exact[0]) == dtype.c.largest).sum() >= problem.n // 2
    assert np.nanmax(np.abs(exact[1:])) < dtype.c.largest


@pytest.mark.parametrize("dtype", [one for one in DType if not one.c.saturates], ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_the_bound_is_that_of_the_sum_the_scalars_and_the_last_rounding(
    gpu: SimulatedGpu, dtype: DType, beta: float
) -> None:
    problem = sized(dtype, beta=beta)
    prepared = prepared_problem(gpu, problem)
    reals = prepared.reals
    a, b = operands(problem, reals)
    scaled = reals.alpha * (a @ b)
    whole = reals_of(prepared.close.real_address, problem)
    added = whole - scaled
    error = reals.alpha * rounding_allowance(problem) * np.sqrt(a**2 @ b**2)
    error += 0.0 if dtype.has_exact_sums else 4 * U * (np.abs(scaled) + np.abs(added))
    if dtype.c.size_bytes < 4:
        error += dtype.c.unit_roundoff * (np.abs(whole) + error)
        error += dtype.c.half_step if dtype.c.exponent_bits < 8 else 0.0
    bound = reals_of(prepared.close.bound_address, problem, np.float32)
    assert np.allclose(bound, error, rtol=1e-5)
    assert (bound >= error).all()


def off_by(share: float, prepared: PreparedProblem) -> Callable[[Floats], None]:
    """Moves one element by that share of its bound, on real inputs."""
    bound = reals_of(prepared.close.bound_address, prepared.problem, np.float32)
    whole = reals_of(prepared.close.real_address, prepared.problem)

    def spoil(c: Floats) -> None:
        if np.allclose(c, whole, rtol=1e-3, atol=1e-3):
            c[7, 5] = whole[7, 5] + share * bound[7, 5]

    return spoil


@pytest.mark.parametrize(("share", "is_right"), [(0.9, True), (-0.9, True), (1.2, False)])
def test_an_element_may_be_off_by_its_bound_and_no_more(
    gpu: SimulatedGpu, share: float, is_right: bool
) -> None:
    prepared = prepared_problem(gpu, sized(DType.TF32))
    checked = prepared.check(Kernel(prepared, spoil=off_by(share, prepared)))
    assert bool(checked.complaint) is not is_right
    if not is_right:
        assert "1 of 117 elements are wrong on real inputs, worst C[7, 5]" in checked.complaint


def in_fp32(prepared: PreparedProblem) -> Callable[[Floats], None]:
    """Rounds the sums of integers to FP32 where they have more bits."""

    def spoil(c: Floats) -> None:
        c[:] = c.astype(np.float32)

    return spoil


def in_16_bits(prepared: PreparedProblem) -> Callable[[Floats], None]:
    """Sums that stop at the largest number of 16 bits, as saturating ones do."""

    def spoil(c: Floats) -> None:
        c[:] = np.clip(c, -(2.0**15), 2.0**15 - 1)

    return spoil


def unsigned(prepared: PreparedProblem) -> Callable[[Floats], None]:
    """Operands of A read as unsigned: 256 is added to the negative ones."""

    def spoil(c: Floats) -> None:
        for one in (prepared.integers, prepared.reals):
            a, b = operands(prepared.problem, one)
            if np.array_equal(c, a @ b):
                c[:] = np.where(a < 0, a + 256, a) @ b

    return spoil


@pytest.mark.parametrize(
    ("spoiled", "k", "complaint"),
    [
        # At this K FP32 holds the sums of integer inputs exactly, and not those of all numbers.
        (in_fp32, 2112, "on real inputs"),
        (in_16_bits, 40, "on real inputs"),
        (unsigned, 40, "on integer inputs"),
    ],
)
def test_sums_of_integers_are_exact_to_the_last_bit(
    gpu: SimulatedGpu, spoiled: Any, k: int, complaint: str
) -> None:
    prepared = prepared_problem(gpu, Problem(17, 9, k, Layout.NT, DType.I8))
    assert prepared.check(Kernel(prepared)).complaint == ""
    checked = prepared.check(Kernel(prepared, spoil=spoiled(prepared)))
    assert complaint in checked.complaint


def one_bit(c: Floats) -> None:
    c[12, 8] = np.nextafter(np.float32(c[12, 8]), np.float32(np.inf))


def nothing(c: Floats) -> None:
    c[3, 2] = math.nan


def as_tf32(c: Floats) -> None:
    c[:] = rounded(c, DType.TF32.ab)


@pytest.mark.parametrize("dtype", list(DType), ids=str)
@pytest.mark.parametrize("layout", [Layout.NT, Layout.TN], ids=str)
def test_a_right_kernel_passes(gpu: SimulatedGpu, dtype: DType, layout: Layout) -> None:
    prepared = prepared_problem(gpu, sized(dtype, layout))
    checked = prepared.check(Kernel(prepared, time_us=17.0))
    assert checked.complaint == ""
    assert checked.launch_us == 17.0
    assert checked.verification is not None
    assert checked.verification.error <= (1e-7 if dtype.c.size_bytes == 4 else 4e-3)
    assert not prepared.reals.changed()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (one_bit, "1 of 117 elements are wrong on integer inputs, worst C[12, 8]"),
        (nothing, "1 of 117 elements are wrong on integer inputs, worst C[3, 2]: got nan"),
    ],
)
def test_one_bit_shows_on_integers(
    gpu: SimulatedGpu, spoil: Callable[[Floats], None], complaint: str
) -> None:
    prepared = prepared_problem(gpu, sized())
    assert complaint in prepared.check(Kernel(prepared, spoil=spoil)).complaint
    assert complaint in prepared.complaint_once(Kernel(prepared, spoil=spoil), integers=True)


def test_coarser_sums_are_told_by_few_products(gpu: SimulatedGpu) -> None:
    """Each element is within its bound, and all of them are less exact than FP32's."""
    problem = Problem(24, 24, 4096)
    prepared = prepared_problem(gpu, problem)

    def coarse(c: Floats) -> None:
        c[:] = np.where(c == np.rint(c), c, np.ldexp(np.rint(np.ldexp(c, 19)), -19))

    checked = prepared.check(Kernel(prepared, spoil=coarse))
    assert "less exact than FP32 on sparse inputs" in checked.complaint
    # A is as it was.
    assert not prepared.reals.changed()
    assert prepared.check(Kernel(prepared)).complaint == ""


class Writing(Kernel):
    """Writes one element where it should not: ``at`` elements from the first of a matrix."""

    def __init__(self, prepared: PreparedProblem, of: str, at: int) -> None:
        super().__init__(prepared)
        self.of, self.at = of, at

    def queue(self, inputs: Any) -> None:
        super().queue(inputs)
        address = self.prepared.result.address if self.of == "c" else inputs.b.address
        memory(address + 4 * self.at, 1, 1, 1, np.float32)[:] = 3.0


@pytest.mark.parametrize("at", [-1, -GUARD, 9, 11, 12 * 12 + 9, 12 * 12 + 9 + GUARD - 1])
def test_writes_outside_c_are_seen(gpu: SimulatedGpu, at: int) -> None:
    """Before it, between its rows, behind it."""
    prepared = prepared_problem(gpu, sized())
    complaint = prepared.check(Writing(prepared, "c", at)).complaint
    assert complaint == "1 elements outside C (between or around its rows) were written"


@pytest.mark.parametrize("at", [-1, -GUARD, 40 * 9, 40 * 9 + GUARD - 1])
def test_writes_next_to_inputs_are_seen(gpu: SimulatedGpu, at: int) -> None:
    prepared = prepared_problem(gpu, sized())
    assert prepared.intact()
    complaint = prepared.check(Writing(prepared, "b", at)).complaint
    assert complaint == "the kernel writes to its inputs, or next to them"
    assert not prepared.intact()


def test_inputs_are_of_the_kind_that_was_asked_for(gpu: SimulatedGpu) -> None:
    problem = Problem(64, 64, 64)
    prepared = prepared_problem(gpu, problem)
    whole, _ = operands(problem, prepared.integers)
    assert set(np.unique(whole)) == {-3, -2, -1, 1, 2, 3}
    real, other = operands(problem, prepared.reals)
    assert abs(real.mean()) < 0.05
    assert abs(real.std() - math.sqrt(1 / 3)) < 0.02
    assert abs(real).max() < 1
    # A and B, and two runs of other seeds, have other numbers; one of the same seed has the same.
    assert not np.array_equal(real, other)
    again, more = (operands(problem, prepared_problem(gpu, problem, seed=s).reals) for s in (0, 1))
    assert np.array_equal(again[0], real)
    assert not np.array_equal(more[0], real)


@pytest.mark.parametrize("fill", list(Fill), ids=str)
def test_kernels_are_timed_on_the_fill_that_was_asked_for(gpu: SimulatedGpu, fill: Fill) -> None:
    problem = Problem(64, 64, 64)
    (timed,) = prepared_problem(gpu, problem, fill=fill).timed
    values, _ = operands(problem, timed)
    deviation = {Fill.ZEROS: 0.0, Fill.UNIFORM: 0.577, Fill.INTEGERS: 2.16, Fill.NORMAL: 1.0}
    assert values.std() == pytest.approx(deviation[fill], rel=0.05)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_rotation_goes_through_more_inputs_than_l2_holds_twice(
    gpu: SimulatedGpu, beta: float
) -> None:
    problem = Problem(16, 16, 16, beta=beta)
    prepared = prepared_problem(gpu, problem, l2=CacheState.ROTATE)
    bytes_of_others = (len(prepared.timed) - 1) * inputs.input_bytes(problem)
    assert 2 * L2_BYTES <= bytes_of_others < 2 * L2_BYTES + inputs.input_bytes(problem)
    # Where C is read each set has one of its own, which begins as the others do.
    owned = {one.own_c for one in prepared.timed}
    assert owned == {None} if beta == 0 else len(owned) == len(prepared.timed)
    assert len({one.a.address for one in prepared.timed}) == len(prepared.timed)
    used: list[Any] = []

    class Noting(Kernel):
        def queue(self, inputs: Any) -> None:
            used.append(inputs)
            super().queue(inputs)

    stopwatch = prepared.stopwatches([Noting(prepared)], Method("events", 1))[0]
    stopwatch.samples(2 * len(prepared.timed))
    assert used[: len(prepared.timed)] == list(prepared.timed)
    assert all(one is not other for one, other in itertools.pairwise(used))


def test_a_cold_l2_is_emptied_before_each_launch(gpu: SimulatedGpu) -> None:
    prepared = prepared_problem(gpu, sized(), l2=CacheState.COLD)
    assert gpu.allocated[-1] == 2 * L2_BYTES
    assert prepared.flush is not None
    emptied: list[tuple[int, int]] = []
    gpu.runtime.memsetAsync = lambda at, value, size, stream: emptied.append((value, size))
    assert prepared.stopwatches([Kernel(prepared)], Method())[0].samples(3) == [10.0] * 3
    assert emptied == [(0, 2 * L2_BYTES)] * 3
    assert prepared_problem(gpu, sized()).flush is None


@pytest.mark.parametrize("objective", list(Objective), ids=str)
def test_energy_is_counted_where_the_objective_needs_it(
    gpu: SimulatedGpu, objective: Objective
) -> None:
    prepared = prepared_problem(gpu, sized(), objective=objective)
    assert (prepared.energy is None) is (objective is Objective.TIME)


@pytest.mark.parametrize(
    ("time_us", "name", "launches"),
    [
        (10.0, "graph", 100),
        (100.0, "graph", 10),
        (199.0, "graph", 6),
        (250.0, "events", 1),
        (5000.0, "events", 1),
    ],
)
@pytest.mark.parametrize("shown_us", [0.0, 400.0])
def test_a_stopwatch_fits_the_kernel_not_its_first_launch(
    gpu: SimulatedGpu, time_us: float, name: str, launches: int, shown_us: float
) -> None:
    """A first launch that looked 400 us longer than it is changes nothing."""
    prepared = prepared_problem(gpu, sized())
    stopwatch = prepared.stopwatch_about(Kernel(prepared, time_us), time_us + shown_us)
    assert stopwatch.method == Method(name, launches)
    assert stopwatch.samples(2) == pytest.approx([time_us] * 2)


@pytest.mark.parametrize(
    ("l2", "method"),
    [(CacheState.WARM, Method("graph", 100)), (CacheState.COLD, Method("events", 1))],
)
def test_with_a_cold_l2_short_launches_are_timed_alone(
    gpu: SimulatedGpu, l2: CacheState, method: Method
) -> None:
    """A graph would run all but the first with a warm one."""
    prepared = prepared_problem(gpu, sized(), l2=l2)
    assert prepared.stopwatch_about(Kernel(prepared, 10.0), 10.0).method == method


def test_where_a_graph_is_refused_all_are_timed_by_events(gpu: SimulatedGpu) -> None:
    prepared = prepared_problem(gpu, sized())
    kernels = [Kernel(prepared, 5.0), Kernel(prepared, 8.0)]
    captured = gpu.capture
    count = itertools.count()

    def capture(work: Callable[[], None]) -> Any:
        if next(count):
            raise RuntimeError("not permitted while capturing")
        return captured(work)

    gpu.capture = capture  # type: ignore[method-assign]
    both = prepared.stopwatches(kernels, Method("graph", 20))
    assert [one.method for one in both] == [Method("events", 20)] * 2
    assert [one.samples(1) for one in both] == [[5.0], [8.0]]
    gpu.capture = lambda work: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        prepared.stopwatches(kernels, Method("graph", 20))


def test_the_baseline_is_timed_again_by_one_stopwatch(gpu: SimulatedGpu) -> None:
    prepared = prepared_problem(gpu, sized(), baseline_us=500.0)
    assert prepared.baseline_us() == pytest.approx(500.0)
    before_us = gpu.now_us
    assert prepared.baseline_us() == pytest.approx(500.0)
    # One sample more than are kept: the first is work that the rest waits behind.
    assert gpu.now_us - before_us == pytest.approx(6 * 500.0)
    assert prepared.batch_us(prepared.baseline, 4) == pytest.approx(2000.0)


@pytest.mark.parametrize("layout", list(Layout), ids=str)
def test_cublas_is_asked_for_the_row_major_product(
    gpu: SimulatedGpu, library: CublasLibrary, layout: Layout
) -> None:
    """SGEMM, whose result passes as any kernel's must; and DGEMM, of which references are made."""
    problem = sized(layout=layout)
    prepared = prepared_problem(gpu, problem)

    class Sgemm(Kernel):
        def queue(self, inputs: Any) -> None:
            gemm = reference.Gemm(
                m=problem.m,
                n=problem.n,
                k=problem.k,
                trans_a=layout.trans_a,
                trans_b=layout.trans_b,
                alpha=inputs.alpha,
                a=inputs.a.address,
                lda=problem.lda,
                b=inputs.b.address,
                ldb=problem.ldb,
                beta=inputs.beta,
                c=prepared.result.address,
                ldc=problem.ldc,
            )
            prepared._cublas.sgemm(gemm)

    assert prepared.check(Sgemm(prepared)).complaint == ""
    assert set(library.modes) == {0}
    assert prepared._cublas.version == "12.9.1"


class Aging(Kernel):
    """Right for twenty launches, for all checks before the rounds; wrong from then on."""

    def queue(self, inputs: Any) -> None:
        if self.num_launches == 20:
            self.spoil = one_bit
        super().queue(inputs)


@pytest.mark.parametrize("aging", ["baseline", "candidate", ""])
def test_what_becomes_wrong_in_the_finals_does_not_count(
    gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch, aging: str
) -> None:
    prepared = prepared_problem(gpu, sized(), baseline_us=300.0)
    candidates: list[Any] = [
        SimpleNamespace(
            config=Config.of("tiny", {"BM": bm}),
            source=SimpleNamespace(sha256=f"{bm}"),
            compiled=None,
        )
        for bm in (16, 32)
    ]
    kinds: tuple[type[Kernel], ...] = (Aging if aging == "candidate" else Kernel, Kernel)
    runs = {
        one.config: kind(prepared, time_us)
        for one, kind, time_us in zip(candidates, kinds, (250.0, 270.0), strict=True)
    }
    monkeypatch.setattr(prepared, "contestant", lambda one: runs[one.config])
    if aging == "baseline":
        old = Aging(prepared, 300.0)
        monkeypatch.setattr(prepared, "_find_baseline", lambda *_: old, raising=False)
        monkeypatch.setattr(prepared, "_find_calls", lambda *_: old, raising=False)
        with pytest.raises(DeviceError, match="cuBLAS gives a wrong result here: 1 of 117"):
            run_finals(prepared, RunFinals(tuple(candidates), 30, 0))
    else:
        finals = run_finals(prepared, RunFinals(tuple(candidates), 30, 0))
        lost = [one.config for one in finals.disqualified]
        assert lost == ([candidates[0].config] if aging else [])
        assert finals.winner.config == candidates[1 if aging else 0].config
        assert finals.winner.ratio == pytest.approx(300.0 / (270.0 if aging else 250.0))
        assert len(finals.winner.samples_us) == finals.rounds == 30
        assert finals.num_checks >= 44
        # As fits the shortest, whose samples are those of two milliseconds.
        assert (finals.method, finals.launches_per_sample) == ("events", 1)
    # The memory of machine code is given back whatever happens.
    assert not any(one.is_loaded for one in runs.values())


def test_finals_say_how_all_were_timed_and_what_the_gpu_did(
    gpu: SimulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One method for all, which fits the shortest; readings of the rounds, energy once."""
    prepared = prepared_problem(gpu, sized(), baseline_us=90.0)
    prepared.baseline.left_out = LEFT_OUT  # type: ignore[attr-defined]
    config = Config.of("tiny", {"BM": 16})
    used = SimpleNamespace(resources=[SimpleNamespace(registers=n) for n in (40, 96, 8)])
    source = SimpleNamespace(sha256="16")
    candidate: Any = SimpleNamespace(config=config, source=source, compiled=used)
    monkeypatch.setattr(prepared, "contestant", lambda one: Kernel(prepared, 40.0))
    readings = itertools.cycle([Telemetry(1500, power_w=300.0), Telemetry(1700, power_w=500.0)])
    gpu.telemetry.read = lambda: next(readings)
    spare = SimpleNamespace(energy_mj=lambda stopwatch, sample_us: 1e-3 * sample_us)
    prepared.spare_energy = spare  # type: ignore[assignment]
    finals = run_finals(prepared, RunFinals((candidate,), 10, 0))
    assert (finals.method, finals.launches_per_sample) == ("graph", 50)
    assert (finals.telemetry.sm_clock_mhz, finals.telemetry.power_w) == (1600, 400.0)
    assert (finals.throttled_rounds, finals.provenance) == (0, Provenance.MEASURED)
    assert finals.winner.ratio == pytest.approx(90.0 / 40.0)
    assert finals.winner.registers == 96
    assert finals.winner.verification is not None
    assert finals.baseline.verification is not None
    assert finals.calls == LEFT_OUT
    # A sample is 50 launches.
    assert finals.winner.samples_mj == pytest.approx((2.0,))
    assert finals.baseline.samples_mj == pytest.approx((4.5,))

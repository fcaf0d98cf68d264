"""Decisions of the CUDA worker that need no GPU: methods, scalars, bounds, summaries."""

from dataclasses import replace

import numpy as np
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, Fill, Telemetry
from autogemm.support.errors import UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.devices import device_facts
from autogemm.targets.cuda.worker.backend import was_timed_alike
from autogemm.targets.cuda.worker.gpu.cublas_lt import WORKSPACE_BYTES
from autogemm.targets.cuda.worker.gpu.telemetry import summary
from autogemm.targets.cuda.worker.gpu.timing import Method, method_for, settled
from autogemm.targets.cuda.worker.problem.inputs import (
    SPARE_BYTES,
    bytes_needed,
    exact_scalar,
    num_rotated,
    require_memory,
)
from autogemm.targets.cuda.worker.problem.reference import rounding_allowance
from autogemm.targets.cuda.worker.problem.verification import summarised


@pytest.mark.parametrize(
    ("launch_us", "method"),
    [
        (5000.0, Method("events", 1)),
        (200.0, Method("events", 1)),
        (199.0, Method("graph", 6)),
        (2.0, Method("graph", 500)),
        (0.0, Method("graph", 2000)),
    ],
)
def test_short_launches_are_timed_in_graphs_of_a_millisecond(
    launch_us: float, method: Method
) -> None:
    assert method_for(launch_us, CacheState.WARM) == method
    assert method_for(launch_us, CacheState.COLD) == Method("events", 1)


@pytest.mark.parametrize(
    ("launch_us", "num_rotated", "launches"),
    [(2.0, 1, 500), (2.0, 300, 600), (10.0, 801, 801), (100.0, 7, 14), (300.0, 7, 1)],
)
def test_a_graph_goes_through_all_sets_of_inputs_equally_often(
    launch_us: float, num_rotated: int, launches: int
) -> None:
    method = method_for(launch_us, CacheState.ROTATE, num_rotated=num_rotated)
    assert method.launches == launches


@pytest.mark.parametrize(
    ("problem", "num_sets"),
    [
        # 128 MiB of A and B: twice an L2 of 50 MiB goes by between two launches on one set.
        (Problem(4096, 4096, 4096), 2),
        (Problem(1024, 1024, 1024), 1 + 13),
        # C is read too.
        (Problem(1024, 1024, 1024, beta=1.0), 1 + 9),
        (Problem(128, 128, 128), 1 + 800),
    ],
)
def test_l2_is_read_full_of_other_inputs_before_a_set_comes_again(
    problem: Problem, num_sets: int
) -> None:
    assert num_rotated(problem, CacheState.ROTATE, 50 * 2**20) == num_sets
    assert num_rotated(problem, CacheState.WARM, 50 * 2**20) == 1
    assert num_rotated(problem, CacheState.COLD, 50 * 2**20) == 1


def test_tiny_inputs_cannot_fill_l2() -> None:
    with pytest.raises(UsageError, match=r"3201 copies .* 2000 are the most; use --l2 cold"):
        num_rotated(Problem(64, 64, 64), CacheState.ROTATE, 50 * 2**20)


def test_more_sets_of_inputs_take_more_memory() -> None:
    problem = Problem(4096, 4096, 4096)
    per_set = (bytes_needed(problem, 2) - bytes_needed(problem)) / 2
    assert per_set == pytest.approx(2 * 4 * 4096**2, rel=0.1)
    with pytest.raises(UsageError, match="choose a smaller size"):
        require_memory(problem, bytes_needed(problem), 1)


def test_calm_samples_settle_and_noisy_ones_do_not() -> None:
    calm = [100.0, 100.1, 99.9, 100.0, 100.05]
    noisy = [100.0, 110.0, 90.0, 105.0, 95.0]
    assert settled(calm, launches=1)
    assert not settled(noisy, launches=1)
    # Enough time was spent: 5 x 100 us x 200.
    assert settled(noisy, launches=200)


@pytest.mark.parametrize(
    ("value", "exact"),
    [(1.0, 1.0), (0.0, 0.0), (-0.25, -0.25), (4.0, 4.0), (0.3, 9.0), (5.0, 9.0), (1e-3, 9.0)],
)
def test_scalars_that_would_round_are_replaced(value: float, exact: float) -> None:
    assert exact_scalar(value, 9.0) == exact


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds_for_float32_and_rejects_tf32(seed: int) -> None:
    m, n, k = 64, 64, 1000
    generator = np.random.default_rng(seed)
    a = generator.uniform(-1, 1, (m, k)).astype(np.float32)
    b = generator.uniform(-1, 1, (k, n)).astype(np.float32)
    exact = a.astype(float) @ b.astype(float)
    bound = rounding_allowance(Problem(m, n, k)) * np.sqrt(a.astype(float) ** 2 @ b**2.0)

    one_by_one = np.zeros((m, n), np.float32)
    for i in range(k):
        one_by_one += np.outer(a[:, i], b[i])
    ratio = np.abs(one_by_one - exact) / bound
    assert 0 < ratio.max() < 0.25

    coarse_a, coarse_b = (
        (x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(float) for x in (a, b)
    )
    assert (np.abs(coarse_a @ coarse_b - exact) / bound).max() > 2


def test_memory_counts_two_sets_of_inputs_and_the_references() -> None:
    n = 10_000
    tiles = 8 * 4 * 4096**2
    counted = (4 * 4 + 4 + 16) * n * n + tiles + SPARE_BYTES
    # The workspace of cuBLASLt is among the spare bytes; some more, for matrices that begin where
    # they are aligned.
    assert SPARE_BYTES >= WORKSPACE_BYTES
    assert counted <= bytes_needed(Problem(n, n, n)) < 1.02 * counted
    with_c = bytes_needed(Problem(n, n, n, beta=1.0))
    assert with_c - bytes_needed(Problem(n, n, n)) == 2 * 4 * n * n


def test_a_problem_that_just_fits_is_let_through() -> None:
    problem = Problem(1000, 1000, 1000)
    require_memory(problem, bytes_needed(problem))
    with pytest.raises(UsageError, match="choose a smaller size"):
        require_memory(problem, bytes_needed(problem) - 1)


def test_blocks_are_summarised_to_the_worst_element() -> None:
    fields = np.zeros((3, 10))
    fields[:, 1] = [0.5, 2.0, -1.0]
    fields[1, :5] = [4, 2.0, 25, 7.0, 8.0]
    fields[0, 5], fields[1, 5] = 0.1, 1.0
    fields[:, 6], fields[:, 7] = 1.0, 100.0
    result = summarised(fields, (10, 10))
    assert result.worst_at == (2, 5)
    assert (result.mismatches, result.max_abs_error) == (4, 1.0)
    assert result.relative_frobenius == pytest.approx(0.1)
    assert result.complaint("real") == (
        "4 of 100 elements are wrong on real inputs, worst C[2, 5]: got 7, expected 8"
    )


def test_a_result_with_nan_has_no_errors_to_keep() -> None:
    fields = np.zeros((1, 10))
    fields[0, [0, 1, 5, 6]] = [1, np.inf, np.inf, np.inf]
    fields[0, 3], fields[0, 7] = np.nan, 1.0
    result = summarised(fields, (1, 1))
    assert result.verification is None
    assert "got nan" in result.complaint("real")


def test_readings_become_medians_and_all_reasons() -> None:
    readings = [
        Telemetry(sm_clock_mhz=1980, power_w=600.0, throttle_reasons=0),
        Telemetry(sm_clock_mhz=1900, power_w=700.0, throttle_reasons=4),
        Telemetry(),
        Telemetry(sm_clock_mhz=1700, power_w=650.0, throttle_reasons=8),
    ]
    assert summary(readings) == Telemetry(sm_clock_mhz=1900, power_w=650.0, throttle_reasons=12)
    assert summary([]) == Telemetry()


# driver_types.h, cudaDevAttr..., with what an H100 SXM answers.
H100_ANSWERS = {
    1: 1024,  # MaxThreadsPerBlock
    13: 1_980_000,  # ClockRate
    16: 132,  # MultiProcessorCount
    36: 2_619_000,  # MemoryClockRate
    37: 5120,  # GlobalMemoryBusWidth
    38: 50 * 2**20,  # L2CacheSize
    39: 2048,  # MaxThreadsPerMultiProcessor
    75: 9,  # ComputeCapabilityMajor
    76: 0,  # ComputeCapabilityMinor
    81: 233472,  # MaxSharedMemoryPerMultiprocessor
    82: 65536,  # MaxRegistersPerMultiprocessor
    97: 232448,  # MaxSharedMemoryPerBlockOptin
    106: 32,  # MaxBlocksPerMultiprocessor
    111: 1024,  # ReservedSharedMemoryPerBlock
}


@pytest.mark.parametrize(
    ("major", "minor", "cores"), [(9, 0, 128), (7, 5, 64), (8, 0, 64), (8, 6, 128), (8, 9, 128)]
)
def test_facts_of_a_gpu_are_those_of_the_runtime(major: int, minor: int, cores: int) -> None:
    answers = H100_ANSWERS | {75: major, 76: minor}
    known = find_device("h100")
    found = device_facts(known.name, known.memory_bytes, answers.__getitem__)
    assert found == replace(known, arch=10 * major + minor, fp32_cores_per_sm=cores)


@pytest.mark.parametrize(
    ("launch_us", "options", "is_alike"),
    [
        (200.0, MeasureOptions(), True),
        (199.0, MeasureOptions(), False),
        (900.0, MeasureOptions(l2=CacheState.COLD), False),
        (900.0, MeasureOptions(fill=Fill.NORMAL), False),
    ],
)
def test_only_a_launch_that_was_timed_as_candidates_are_shows_that_one_is_hopeless(
    launch_us: float, options: MeasureOptions, is_alike: bool
) -> None:
    assert was_timed_alike(launch_us, options) is is_alike

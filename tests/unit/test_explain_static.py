"""The static facts of an explanation, against numbers worked out by hand."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.insight.explain.explanation import fma_per_clock
from autogemm.insight.explain.intensity import intensity
from autogemm.insight.explain.neighbours import Place, legal_neighbours, neighbours
from autogemm.insight.explain.residency import residency, waves
from autogemm.insight.explain.times import Times
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.occupancy import Limiter
from autogemm.model.kernel import Launch, Resources
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance
from autogemm.space import broken_constraints, broken_rules, load_family

H100 = find_device("h100")
PROBLEM = Problem(4096, 4096, 4096)
FAMILY = load_family("sgemm_simt")
CONFIG = FAMILY.seeds[1]


def used(registers: int) -> Resources:
    return Resources("gemm_kernel", registers, 0, 0, 0, 0)


def test_intensity_of_each_level() -> None:
    found = intensity(CONFIG, PROBLEM, H100)
    by_level = {level.level.split(",")[0]: level for level in found.levels}
    # 2 * 128 * 128 operations for 4 * (128 + 128) bytes.
    assert by_level["global loads"].flop_per_byte == 32
    # 2 * 4096^3 operations for three matrices of 64 MiB.
    assert by_level["DRAM"].flop_per_byte == pytest.approx(2 * 4096 / 12)
    # 256 FP32 operations and 128 bytes of shared memory each clock.
    assert {level.ridge_flop_per_byte for level in found.levels if "shared" in level.level} == {2}
    thread = found.levels[-1]
    assert (thread.rows, thread.columns) == (CONFIG["TM"], CONFIG["TN"])
    assert found.accumulators == 128
    assert found.fma_per_fragment_float == pytest.approx(128 / 24)


def test_beta_reads_c_once_more() -> None:
    with_beta = Problem(4096, 4096, 4096, beta=1.0)
    found = intensity(CONFIG, with_beta, H100).levels[0]
    assert found.flop_per_byte == pytest.approx(2 * 4096 / 16)


@pytest.mark.parametrize(
    ("family", "dtype", "expected"),
    [
        ("sgemm_simt", DType.F32, 64),
        # 312 TFLOP/s of 108 SMs at 1410 MHz; on FP32 cores it would be a sixteenth.
        ("gemm_mma", DType.BF16, 1024),
        # Three products of TF32 for each, which has half the rate of BF16.
        ("sgemm_emulated", DType.F32, 1024 / 6),
    ],
)
def test_multiply_adds_per_clock_are_those_of_the_units_in_use(
    family: str, dtype: DType, expected: float
) -> None:
    problem, loaded = Problem(256, 256, 256, dtype=dtype), load_family(family)
    found = fma_per_clock(loaded, loaded.seeds[0], problem, find_device("a100"))
    assert found == pytest.approx(expected, rel=0.01)


def test_the_last_wave_is_lost_as_far_as_it_is_empty() -> None:
    launch = Launch("gemm_kernel", (1024, 1, 1), (128, 1, 1), 16640)
    found = waves(H100, launch, blocks_per_sm=2)
    assert found.blocks_per_wave == 264
    assert found.waves == pytest.approx(3.8788, abs=1e-4)
    # Four waves of 264 could hold 1056 blocks.
    assert found.lost_share == pytest.approx(32 / 1056)


def test_a_full_last_wave_loses_nothing() -> None:
    launch = Launch("gemm_kernel", (132, 2, 1), (128, 1, 1), 0)
    assert waves(H100, launch, blocks_per_sm=1).lost_share == 0


def test_residency_names_its_limiter_and_what_one_more_block_needs() -> None:
    launch = Launch("gemm_kernel", (1024, 1, 1), (128, 1, 1), 16640)
    found = residency(H100, launch, used(213))
    assert (found.blocks_per_sm, found.limiter, found.next_blocks_per_sm) == (
        2,
        Limiter.REGISTERS,
        3,
    )
    steps = {step.limiter: step for step in found.steps}
    # 65536 registers for 3 x 128 threads: 170 each, in steps of 8.
    assert steps[Limiter.REGISTERS].needs_at_most == 168
    assert residency(H100, launch, used(168)).blocks_per_sm == 3
    assert residency(H100, launch, used(169)).blocks_per_sm == 2


def test_neighbours_are_legal_and_differ_in_one_parameter() -> None:
    place = Place(FAMILY, PROBLEM, H100)
    found = list(legal_neighbours(place, CONFIG))
    assert len(found) > 10
    for name, before, other in found:
        changed = {key for key, value in other if value != CONFIG[key]}
        assert changed == {name}
        assert before == CONFIG[name]
        assert broken_constraints(FAMILY, other, PROBLEM, H100) == []


def test_neighbours_are_those_that_the_search_would_take() -> None:
    # A split of K is legal at any size, and where the GPU is full not worth a trial.
    place = Place(FAMILY, PROBLEM, H100)
    found = neighbours(place, CONFIG, None, None, lambda config: None)
    legal = list(legal_neighbours(place, CONFIG))
    assert 0 < found.num_left_out == len(legal) - len(found.neighbours)
    shown = {(one.parameter, one.after) for one in found.neighbours}
    out = [other for name, _, other in legal if (name, other[name]) not in shown]
    assert all(broken_rules(FAMILY, other, PROBLEM, H100) for other in out)


def test_neighbours_carry_measured_times_relative_to_the_config() -> None:
    place = Place(FAMILY, PROBLEM, H100)
    _, _, slower = next(iter(legal_neighbours(place, CONFIG)))
    times = Times(7, Provenance.MEASURED, 100.0, {CONFIG.sha256: 100.0, slower.sha256: 125.0})
    found = neighbours(place, CONFIG, (used(213),), times, lambda config: None)
    ratios = [one.time_ratio for one in found.neighbours if one.time_ratio is not None]
    assert ratios == [1.25]


def test_a_config_without_tiles_has_only_the_matrices() -> None:
    found = intensity(Config.of("naive", {"COARSE": 2}), PROBLEM, H100)
    assert [level.level for level in found.levels] == ["DRAM, each matrix once"]
    assert found.accumulators is None

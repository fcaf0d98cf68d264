"""The figures of a benchmark, recomputed by hand."""

from dataclasses import replace

import pytest
from bench_samples import entries
from store_samples import H100

from autogemm.model.hardware.device import Roof
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import metrics

ROOF = Roof(peak_tflops=60.0, bandwidth_gb_s=3000.0)


def test_figures_of_one_kernel() -> None:
    # 512x256x64 in 80 us: 2*512*256*64 = 16.777 MFLOP; 4*(512*64 + 64*256 + 512*256) = 720,896 B.
    all_entries = (*entries("1024"), *entries("512x256x64"))
    own = all_entries[7]
    found = metrics(own, all_entries, ROOF)
    assert found is not None
    assert found.time_us == 80.0
    assert found.tflops == pytest.approx(0.2097152)
    assert found.bandwidth_gb_s == pytest.approx(9.0112)
    assert found.flop_per_byte == pytest.approx(23.27272727)
    assert found.ratio == 1.25
    assert found.ratio_low == pytest.approx(1.225)
    assert found.speedup_over_naive == 12.5
    # The ridge is at 20 FLOP a byte: arithmetic bounds it.
    assert found.percent_of_roof == pytest.approx(100 * 0.2097152 / 60)


def test_an_interval_of_few_rounds_says_what_it_is_worth() -> None:
    all_entries = entries("1024")
    own, cublas = all_entries[2], all_entries[3]
    few = metrics(own, all_entries, ROOF)
    assert few is not None
    assert (few.confidence, few.interval("..")) == (0.75, "122.5..127.5 (75 %)")
    # A baseline that sat later rounds out leaves fewer of both.
    longer = replace(own, samples_us=own.samples_us * 3)
    beside = (longer, cublas)
    assert (found := metrics(longer, beside, ROOF)) is not None
    assert found.confidence == 0.75
    beside = (longer, replace(cublas, samples_us=cublas.samples_us * 2))
    assert (found := metrics(longer, beside, ROOF)) is not None
    assert (found.confidence, found.interval(" to ")) == (0.95, "122.5 to 127.5")
    without = metrics(replace(own, ratio=None, ratio_low=None, ratio_high=None), all_entries, ROOF)
    assert without is not None
    assert (without.confidence, without.interval("..")) == (None, None)


def test_memory_is_the_roof_below_the_ridge() -> None:
    assert ROOF.ridge_flop_per_byte == pytest.approx(20.0)
    assert ROOF.attainable_tflops(5.0) == pytest.approx(15.0)
    assert ROOF.attainable_tflops(50.0) == 60.0


def test_what_was_not_timed_has_no_figures() -> None:
    all_entries = entries("1024")
    assert metrics(all_entries[4], all_entries, ROOF) is None
    alone = metrics(all_entries[2], all_entries[2:], None)
    assert alone is not None
    assert (alone.speedup_over_naive, alone.percent_of_roof) == (None, None)


def test_naive_of_another_size_is_none_to_compare_with() -> None:
    found = metrics(entries("512x256x64")[2], entries("1024"), ROOF)
    assert found is not None
    assert found.speedup_over_naive is None


def test_bytes_that_move() -> None:
    assert Problem(512, 256, 64, lda=100, beta=1.0).moved_bytes == 720896
    assert H100.peak_f32_tflops == pytest.approx(66.908, abs=1e-3)

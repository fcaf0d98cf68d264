"""The ladder, the libraries, the ceilings and the profiler on a GPU."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from autogemm.bench.kernels import BenchRequest, Listener, named_kernels, run_bench
from autogemm.catalogue.gpus import roof_of
from autogemm.catalogue.ladder import rungs
from autogemm.cli import main
from autogemm.compile import Compiler
from autogemm.model.dtypes import DType
from autogemm.model.results.benchmark import KernelKind
from autogemm.model.results.outcome import Status
from autogemm.store import open_store
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.tools.profiler import find_profiler

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("size", [(256, 256, 256), (260, 132, 100)])
def test_every_rung_is_right(
    target: CudaTarget, compiler: Compiler, size: tuple[int, int, int]
) -> None:
    request = BenchRequest(named_kernels(("variants", "cublas_f32")), sizes=(size,), rounds=3)
    done = run_bench(request, target, compiler, None, Listener())
    assert len(done.entries) > len(rungs())
    for entry in done.entries:
        assert (entry.kernel, entry.status, entry.reason) == (entry.kernel, Status.OK, "")
        assert entry.verification is not None
        assert entry.verification.max_error_ratio < 1


def test_libraries_are_right_or_say_why_they_are_not_here(
    target: CudaTarget, compiler: Compiler
) -> None:
    request = BenchRequest(named_kernels(("libraries",)), sizes=((512, 384, 256),), rounds=3)
    done = run_bench(request, target, compiler, None, Listener())
    for entry in done.entries:
        assert entry.kind is KernelKind.LIBRARY
        assert entry.status in (Status.OK, Status.REJECTED), entry.reason
        if entry.status is Status.REJECTED:
            why = ("install", "has no call", "nothing to compare with", "need layout nt")
            assert any(words in entry.reason for words in why), entry.reason


@pytest.mark.alone
def test_ceilings_lie_below_the_theory_and_not_far(target: CudaTarget, compiler: Compiler) -> None:
    found = target.ceilings(compiler)
    roof = roof_of(target.device, DType.F32)
    assert roof is not None
    assert 0.5 < found.fma_tflops / roof.peak_tflops <= 1.02
    assert 0.5 < found.copy_gb_s / roof.bandwidth_gb_s <= 1.02
    assert found.smem_gb_s is not None
    assert 0.5 < found.smem_gb_s / target.device.peak_smem_gb_s <= 1.02
    assert found.l2_gb_s is not None
    assert found.copy_gb_s < found.l2_gb_s < found.smem_gb_s


@pytest.mark.alone
def test_latencies_grow_from_level_to_level(target: CudaTarget, compiler: Compiler) -> None:
    found = target.ceilings(compiler)
    smem, l1 = found.smem_latency_cycles, found.l1_latency_cycles
    l2, memory = found.l2_latency_cycles, found.memory_latency_cycles
    assert smem is not None and l1 is not None and l2 is not None and memory is not None
    assert 15 < smem <= l1 < 80
    assert 2 * l1 < l2 < 0.8 * memory < 2000


@pytest.mark.skipif(find_profiler() is None, reason="Nsight Compute is not installed")
@pytest.mark.alone
def test_a_rung_is_profiled(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    result = CliRunner().invoke(main, ["profile", "naive_uncoalesced", "--size", "256", "--db", db])
    if "ERR_NVGPUCTRPERM" in result.stderr:
        pytest.skip("counters are for administrators only here")
    assert result.exit_code == 0, result.output
    assert "a warp touches more sectors than its bytes need" in result.stdout
    with open_store(db) as store:
        (stored,) = store.profiles()
    assert stored.kernel == "naive_uncoalesced"

"""`autogemm bench` from names to the database, on a simulated GPU (cuda_on_cpu/).

The stand-in for the compiler gives plain C++ in place of machine code; everything else is the
program's own.
"""

import csv
import io
import json
import shutil
import statistics
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from test_cuda_worker_on_cpu import KERNEL, RIGHT

from autogemm.bench.kernels import BenchRequest, Listener, SizeDone, named_kernels, run_bench
from autogemm.cli import main
from autogemm.cli.bench.run import LiveLine
from autogemm.cli.progress import bars
from autogemm.model.kernel import CompiledKernel, KernelSource, Resources
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import KernelKind
from autogemm.model.results.outcome import Status
from autogemm.store import Store, open_store
from autogemm.support.errors import KernelCompileError
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.target import LEAST_ROUNDS, SHARE_US, rounds_of

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

OURS = ("naive", "tiled", "register_blocked", "vectorized", "winner")
# Not cutlass_f32: where it is installed, it would be compiled.
LIBRARIES = ("cublas_f32", "cublas_tf32", "cublas_f16", "torch_f32", "triton_f32")
WRONG_FAMILY, BROKEN_FAMILY, SLOW_FAMILY = "tiled", "register_blocked", "naive"


class PlainCompiler:
    """Every family is the same plain loop in C++, but for three that have their ways."""

    version = "g++"

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        future: Future[CompiledKernel] = Future()
        if source.family == BROKEN_FAMILY:
            future.set_exception(KernelCompileError("it does not compile"))
            return future
        changes = {"TRANS_A": "0", "TRANS_B": "0"}
        if source.family == WRONG_FAMILY:
            changes["DEPTH"] = "K - 1"
        if source.family == SLOW_FAMILY:
            changes["AFTER"] = "wait_s(0.05);"
        text = KERNEL
        for name, value in {**RIGHT, **changes}.items():
            text = text.replace(name, value)
        resources = (Resources("gemm_kernel", 40, 0, 0, 0, 0),)
        code = b"C++" + text.encode()
        future.set_result(CompiledKernel(source.sha256, arch, code, resources, "", "", (), 0.0))
        return future

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def store(simulated_cuda: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """With one benchmark: ours, wrong, not compiling, slow, libraries here and missing."""
    request = BenchRequest(
        named_kernels((*OURS, *LIBRARIES)),
        sizes=((40, 24, 32), (16, 16, 16)),
        rounds=8,
    )
    with (
        open_store(str(tmp_path_factory.mktemp("store") / "bench.db")) as store,
        closing(CudaTarget()) as target,
    ):
        run_bench(request, target, PlainCompiler(), store, Listener())  # type: ignore[arg-type]
        yield store


def test_everybody_has_an_entry_at_every_size(store: Store) -> None:
    bench = store.bench()
    assert bench.finished_at is not None
    assert bench.spec.environment.compiler == "g++"
    found = [(entry.kernel, entry.problem.size_label) for entry in bench.entries]
    sizes = ("40x24x32", "16")
    assert found == [(name, size) for size in sizes for name in (*OURS, *LIBRARIES)]


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("naive", Status.OK, ""),
        ("tiled", Status.WRONG_RESULT, "elements"),
        ("register_blocked", Status.COMPILE_FAILED, "does not compile"),
        ("vectorized", Status.OK, ""),
        ("winner", Status.REJECTED, "autogemm tune --size 40x24x32"),
        ("cublas_f32", Status.OK, ""),
        ("cublas_tf32", Status.OK, ""),
        ("cublas_f16", Status.OK, ""),
        # Not installed, or built without CUDA.
        ("torch_f32", Status.REJECTED, "PyTorch"),
        ("triton_f32", Status.REJECTED, "Triton"),
    ],
)
def test_what_became_of_each(store: Store, name: str, status: Status, reason: str) -> None:
    entry = next(entry for entry in store.bench().entries if entry.kernel == name)
    assert (entry.status, reason in entry.reason) == (status, True), entry.reason
    is_timed = status is Status.OK
    assert bool(entry.samples_us) == is_timed == (entry.verification is not None)
    assert (entry.ratio is not None) == is_timed
    expected = {"cublas_tf32": "tf32", "cublas_f16": "f16"}.get(name, "f32")
    assert entry.problem.dtype.label == expected
    assert entry.problem.size_label == "40x24x32"


def test_ours_are_stored_with_their_source(store: Store) -> None:
    entry = next(entry for entry in store.bench().entries if entry.kernel == "vectorized")
    assert entry.config is not None
    assert (entry.config.family, entry.config["VEC"], entry.registers) == ("block_tiled", 4, 40)
    assert len(entry.kernel_sha256) == 64
    library = next(entry for entry in store.bench().entries if entry.kernel == "cublas_f32")
    assert (library.kind, library.kernel_sha256) == (KernelKind.LIBRARY, "")
    # The fastest of its calls, of which each may be the fastest on a processor.
    assert library.library.startswith("cuBLAS") and library.library.endswith(" 13.0.0")


def test_a_slow_kernel_sits_out_the_later_rounds(store: Store) -> None:
    slow, quick = (
        next(entry for entry in store.bench().entries if entry.kernel == name)
        for name in ("naive", "cublas_f32")
    )
    assert slow.time_us is not None
    assert slow.time_us > 40_000
    assert len(quick.samples_us) == 8
    rounds = len(slow.samples_us)
    assert LEAST_ROUNDS <= rounds < 8
    # Paired with what the baseline took in the same rounds.
    same_rounds = [a / b for a, b in zip(quick.samples_us, slow.samples_us, strict=False)]
    assert slow.ratio == pytest.approx(statistics.median(same_rounds))
    assert (slow.ratio_low, slow.ratio_high) == (
        pytest.approx(min(same_rounds)),
        pytest.approx(max(same_rounds)),
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("raise OSError('libcudart.so.13: cannot open')", "OSError: libcudart.so.13: cannot open"),
        ("raise ImportError('half installed')", "PyTorch is not installed"),
        ("__version__ = '0'", "AttributeError: "),
    ],
)
def test_a_library_that_breaks_costs_only_itself(
    simulated_cuda: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    reason: str,
) -> None:
    (tmp_path / "torch.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    kernels = named_kernels(("vectorized", "torch_f32", "cublas_f32"))
    request = BenchRequest(kernels, sizes=((16, 16, 16),), rounds=2)
    with closing(CudaTarget()) as target:
        done = run_bench(request, target, PlainCompiler(), None, Listener())  # type: ignore[arg-type]
    ours, torch, cublas = done.entries
    assert (ours.status, cublas.status) == (Status.OK, Status.OK)
    assert torch.status is Status.REJECTED
    assert torch.reason.startswith(reason)


def test_verifications_and_rounds_are_told(simulated_cuda: None) -> None:
    told: list[object] = []

    class Telling(Listener):
        def verifying(self, problem: Problem, kernel: str) -> None:
            told.append((problem.m, kernel))

        def timing(self, problem: Problem, done: int, total: int) -> None:
            told.append((problem.m, done, total))

    kernels = named_kernels(("vectorized", "cublas_f32"))
    request = BenchRequest(kernels, sizes=((16, 16, 16), (32, 16, 16)), rounds=2)
    with closing(CudaTarget()) as target:
        run_bench(request, target, PlainCompiler(), None, Telling())  # type: ignore[arg-type]
    assert told == [step for m in (16, 32) for step in ((m, "vectorized"), (m, 1, 2), (m, 2, 2))]


def test_the_bar_counts_verifications_and_rounds() -> None:
    kernels = named_kernels(("vectorized", "cublas_f32"))
    request = BenchRequest(kernels, sizes=((16, 16, 16), (32, 16, 16)), rounds=4)
    first, second = request.problems
    with bars(Console(file=io.StringIO(), force_terminal=True)) as progress:
        line = LiveLine(request, progress)
        (task,) = progress.tasks
        assert (task.completed, task.total) == (0, 2 * (1 + 4))
        line.verifying(first, "vectorized")
        line.timing(first, 2, 2)
        assert task.completed == 3
        assert "16: 2 of 2 rounds timed" in task.description
        # Slow kernels take part in fewer rounds than were asked for.
        line.done(SizeDone(1, 2, ()))
        assert task.completed == 5
        line.verifying(second, "vectorized")
        line.timing(second, 4, 4)
        line.done(SizeDone(2, 2, ()))
        assert task.completed == task.total


def test_rounds_by_the_time_of_a_sample() -> None:
    assert rounds_of(2000.0, 20) == 20
    assert rounds_of(SHARE_US / 7, 20) == 7
    assert rounds_of(10 * SHARE_US, 20) == LEAST_ROUNDS
    assert rounds_of(10 * SHARE_US, 2) == 2


@pytest.fixture
def run(simulated_cuda: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Run":
    from autogemm.targets.cuda import devices

    monkeypatch.setattr(CudaTarget, "compiler", lambda _: PlainCompiler())
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "bench.db"))
    devices.probed.cache_clear()
    yield Run()
    devices.probed.cache_clear()


class Run:
    def __call__(self, *arguments: str) -> Result:
        given = ["bench", "--kernels", "vectorized,tiled,cublas_f32", "--rounds", "3", *arguments]
        return CliRunner().invoke(main, given)


def test_the_table_the_csv_and_the_database_agree(run: Run, tmp_path: Path) -> None:
    result = run("--sizes", "16,8x24x40", "--csv", "-q")
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["kernel"], row["size"]) for row in rows] == [
        (kernel, size)
        for size in ("16", "8x24x40")
        for kernel in ("vectorized", "tiled", "cublas_f32")
    ]
    with open_store(str(tmp_path / "bench.db")) as store:
        entries = store.bench().entries
    for row, entry in zip(rows, entries, strict=True):
        assert row["status"] == entry.status.value
        if entry.time_us is None:
            assert (row["time_us"], row["tflops"]) == ("", "")
            continue
        problem = Problem.of_size(row["size"])
        assert float(row["time_us"]) == entry.time_us
        assert float(row["tflops"]) == pytest.approx(problem.flops / entry.time_us / 1e6)
        moved = 4 * (problem.m * problem.k + problem.k * problem.n + problem.m * problem.n)
        assert float(row["bandwidth_gb_s"]) == pytest.approx(moved / entry.time_us / 1e3)
        assert float(row["flop_per_byte"]) == pytest.approx(problem.flops / moved)
        assert entry.ratio is not None
        assert float(row["ratio"]) == pytest.approx(entry.ratio)


def test_a_stored_benchmark_is_shown_again(run: Run) -> None:
    first = run("--sizes", "16", "--csv", "-q")
    assert run("--show", "last", "--csv").stdout == first.stdout
    assert run("--show", "1", "--csv").stdout == first.stdout
    assert "no benchmark 7" in run("--show", "7").stderr
    assert run("--show", "[red]").exit_code == 2


def test_a_stored_kernel_is_timed_where_nothing_is_to_be_stored(run: Run) -> None:
    asked = ("--kernels", "kernel:1", "--sizes", "16", "--json", "-q", "--no-store")
    (row,) = json.loads(run(*asked).stdout)
    assert row["reason"] == "there is no database to take it from"
    assert run("--kernels", "vectorized", "--sizes", "16", "-q").exit_code == 0
    result = run(*asked)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["status"], row["reason"]) == ("ok", "")
    assert "no benchmark 2" in run("--show", "2").stderr


def test_a_person_sees_a_table_for_each_size_and_who_was_left_out(run: Run) -> None:
    result = run("--sizes", "16", "--no-store")
    assert result.exit_code == 0, result.output
    assert "M x N x K: 16" in result.stdout
    assert "Not timed" in result.stdout
    assert "wrong_result" in result.stdout
    assert "benchmark " not in result.stdout
    assert "1 of 1: 16, 2 of 3 timed" in result.stderr


def test_json_has_every_row(run: Run) -> None:
    result = run("--sizes", "16", "--json", "-q", "--no-store")
    rows = json.loads(result.stdout)
    assert [row["kernel"] for row in rows] == ["vectorized", "tiled", "cublas_f32"]
    assert rows[2]["ratio"] == 1.0


@pytest.mark.parametrize("dtype", ["e4m3", "i8"])
def test_types_of_8_bits_are_compared_with_cublas_in_the_same_types(run: Run, dtype: str) -> None:
    """In layout nt, which need not be named."""
    names = f"winner,cublas_{dtype}" + (",torch_e4m3" if dtype == "e4m3" else "")
    asked = ("--kernels", names, "--dtype", dtype, "--sizes", "32", "--json", "-q")
    result = run(*asked)
    assert result.exit_code == 0, result.output
    winner, cublas, *torch = json.loads(result.stdout)
    assert (cublas["status"], cublas["ratio"]) == ("ok", 1.0), cublas["reason"]
    assert {one["layout"] for one in (winner, cublas, *torch)} == {"nt"}
    assert {one["dtype"] for one in (winner, cublas, *torch)} == {dtype}
    assert f"autogemm tune --size 32 --dtype {dtype} --layout nt" in winner["reason"]
    assert all("PyTorch" in one["reason"] for one in torch)


def test_a_report_of_what_was_just_timed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ladder.html"
    for stored in ((), ("--no-store",)):
        result = run("--sizes", "16", "-q", "--report", str(path), *stored)
        assert result.exit_code == 0, result.output
        page = path.read_text()
        assert "<h1>2 kernels on a CPU</h1>" in page
        assert "vectorized is the fastest" in page
        assert ("autogemm benchmark 1," in page) is not bool(stored)
    path.write_text("mine")
    result = run("--sizes", "16", "-q", "--report", str(path))
    assert result.exit_code == 2
    assert result.stdout == "", "nothing was timed for a report that cannot be written"
    assert path.read_text() == "mine"


# In place of ceilings.cu: as slow as a CPU is, a copy that a test can tell from none, and sums of
# what would have been read. 270336 threads are what the GPU holds at once.
CEILINGS = b"""C++
extern "C" int fma_kernel(float *out, float factor, float addend, int steps) {
    for (volatile int i = 0; i < 100000; ++i) {
    }
    return 0;
}
extern "C" int copy_kernel(char *to, const char *from, int count) {
    memcpy(to, from, 4096);
    return 0;
}
extern "C" int smem_kernel(unsigned *sums, const unsigned *from, int mask, int steps) {
    for (int thread = 0; thread < 270336; ++thread) {
        sums[thread] = 16u * steps * from[4 * (thread & mask)];
    }
    return 0;
}
extern "C" int l2_kernel(unsigned *sums, const unsigned *from, int mask, int steps) {
    for (int thread = 0; thread < 270336; ++thread) {
        sums[thread] = 16u * steps * from[4 * (thread & mask)];
    }
    return 0;
}
extern "C" int smem_latency_kernel(unsigned long long *out, unsigned long long start, int steps) {
    out[0] = 30ull * steps, out[1] = (start + steps) % 256;
    return 0;
}
// The first passes take longer: what they read comes from farther away.
static int chase(unsigned long long *out, unsigned long long start, int steps, int cycles) {
    static int num_passes = 0;
    for (int step = 0; step < steps; ++step) {
        start = *(const unsigned long long *)start;
    }
    out[0] = (unsigned long long)(num_passes++ == 0 ? 1000 : cycles) * steps, out[1] = start;
    return 0;
}
extern "C" int l1_latency_kernel(unsigned long long *out, unsigned long long start, int steps) {
    return chase(out, start, steps, 40);
}
extern "C" int l2_latency_kernel(unsigned long long *out, unsigned long long start, int steps) {
    return chase(out, start, steps, 250);
}
"""


class CeilingsCompiler(PlainCompiler):
    source = CEILINGS

    def compile(self, source: KernelSource, arch: str) -> CompiledKernel:
        return CompiledKernel(source.sha256, arch, self.source, (), "", "", (), 0.0)


def test_ceilings_are_measured_stored_and_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(CudaTarget, "compiler", lambda _: CeilingsCompiler())
    result = CliRunner().invoke(main, ["gpus", "--measure", "--json"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["kind"], row["name"]) == ("attached", "a CPU")
    with open_store(str(tmp_path / "bench.db")) as store, closing(CudaTarget()) as target:
        stored = store.ceilings(target.device)
    assert stored is not None
    assert row["measured_f32_tflops"] == stored.fma_tflops > 0
    assert row["measured_gb_s"] == stored.copy_gb_s > 0
    assert row["measured_l2_gb_s"] == stored.l2_gb_s
    assert row["measured_smem_gb_s"] == stored.smem_gb_s
    latencies = [row[f"{level}_latency_cycles"] for level in ("smem", "l1", "l2", "memory")]
    assert latencies == [30.0, 40.0, 250.0, 250.0]
    assert latencies[1:] == [
        *(stored.l1_latency_cycles, stored.l2_latency_cycles, stored.memory_latency_cycles)
    ]
    assert stored.smem_latency_cycles == 30.0
    assert row["measured_sm_clock_mhz"] == stored.sm_clock_mhz
    # The bytes that the threads of the GPU read, in no less than a microsecond.
    assert stored.l2_gb_s is not None
    assert stored.smem_gb_s is not None
    assert 0 < stored.l2_gb_s < 270336 * 64 * 1024 * 1e-3
    assert 0 < stored.smem_gb_s < 270336 * 64 * 1024 * 1e-3


@pytest.mark.parametrize("kernel", ["l1_latency_kernel", "smem_latency_kernel"])
def test_a_latency_of_loads_that_were_not_made_is_none(
    run: Run, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    """One load too few in each pass."""
    short = CEILINGS.replace(b"step = 0; step < steps", b"step = 1; step < steps")
    if kernel == "smem_latency_kernel":
        short = CEILINGS.replace(b"(start + steps) % 256", b"(start + steps - 1) % 256")
    monkeypatch.setattr(CeilingsCompiler, "source", short)
    monkeypatch.setattr(CudaTarget, "compiler", lambda _: CeilingsCompiler())
    result = CliRunner().invoke(main, ["gpus", "--measure"])
    assert result.exit_code == 1
    assert f"{kernel} did not follow its chain" in result.stderr


def test_a_rate_of_reads_that_were_not_made_is_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = CEILINGS.replace(b"thread & mask", b"0").replace(b"16u * steps * from[4", b"from[4")
    monkeypatch.setattr(CeilingsCompiler, "source", lazy)
    monkeypatch.setattr(CudaTarget, "compiler", lambda _: CeilingsCompiler())
    result = CliRunner().invoke(main, ["gpus", "--measure"])
    assert result.exit_code == 1
    assert "l2_kernel did not read the expected data" in result.stderr

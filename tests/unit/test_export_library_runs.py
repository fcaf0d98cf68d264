"""The exported library compiled by g++ and run on the CPU: its self-test, benchmark and threads."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from exported_program import SHIM, compile_cublas, run_on_cpu, standard_headers
from library_on_cpu import part_on_cpu, shortened, write_library

from autogemm.codegen.export.library import LIBRARY_DTYPES, source_name
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout

needs_gpp = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

# Small ones: loops on the CPU are slow.
SIZES = "sizes = {{1, 1, 1}, {7, 5, 19}, {24, 16, 8}, {66, 3, 17}};"


def build(program: Path, sources: list[str], level: str, *flags: str) -> Path:
    """One file that includes all sources, compiled."""
    whole = program.with_suffix(".cpp")
    whole.write_text("".join(f'#include "{name}"\n' for name in sources))
    headers = standard_headers(level)
    command = ["g++", *headers, "-rdynamic", f"-I{SHIM}", f"-I{program.parent}", *flags]
    subprocess.run([*command, whole, "-o", program, "-ldl"], check=True)
    return program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with kernels for three of the dtypes, in some layouts."""
    folder = tmp_path_factory.mktemp("library")
    parts = (
        part_on_cpu(folder, DType.F32, (Layout.NN, Layout.NT, Layout.TN, Layout.TT)),
        part_on_cpu(folder, DType.BF16, (Layout.TN,)),
        part_on_cpu(folder, DType.F16_F32, (Layout.NT,)),
    )
    write_library(folder, parts)
    return folder


# In the kernel, the call by columns and the fallback of one dtype: wrong where BUG is set.
BUG = '(std::getenv("BUG") != nullptr ? -1 : 1)'
BUGS = (
    ("alpha * sum + old", f"alpha * sum + {BUG} * old"),
    ("(layout, N, M, K, alpha,", f"(layout, N, M, K, {BUG} * alpha,"),
    ("sums[i][j] + old", f"sums[i][j] + {BUG} * old"),
)


@needs_gpp
def test_the_self_test_passes_and_finds_a_kernel_that_is_wrong(folder: Path) -> None:
    """Each dtype by its kernels and its fallback, by rows and by columns, and what is refused."""
    text = (folder / "selftest.cu").read_text()
    (folder / "selftest.cu").write_text(shortened(text, SIZES))
    planted = (folder / "gemm_bf16.cu").read_text()
    for good, bad in BUGS:
        assert planted.count(good) == 1, good
        planted = planted.replace(good, bad)
    (folder / "planted.cu").write_text(planted)
    sources = [source_name(dtype).replace("gemm_bf16.cu", "planted.cu") for dtype in LIBRARY_DTYPES]
    program = build(folder / "selftest", [*sources, "selftest.cu"], "-O1")

    done = run_on_cpu(program)
    assert (done.code, done.output.splitlines()[-1]) == (0, "0 failed"), done.output
    checked = re.findall(r"^(\S+): (\d+) checks, 0 failed$", done.output, re.M)
    assert [dtype for dtype, _ in checked] == [dtype.label for dtype in LIBRARY_DTYPES]
    kernels = re.findall(r"^ +(\d+)  (.*)$", done.output, re.M)
    assert len(kernels) == 6 + len(LIBRARY_DTYPES)
    assert all(int(runs) > 0 for runs, _ in kernels)

    wrong = run_on_cpu(program, BUG="1")
    assert wrong.code == 1
    for named in ("config 0 tn, any size", "the call by columns", "fallback"):
        assert f"WRONG  bf16, {named}: " in wrong.output
    assert "WRONG  f16" not in wrong.output


@needs_gpp
def test_the_benchmark_races_every_call_of_cublas(folder: Path) -> None:
    """By the code of an exported program: proposals of cuBLASLt too, and no call that is wrong."""
    program = build(folder / "benchmark", ["gemm_f32.cu", "benchmark_f32.cu"], "-O0")
    times = folder / "times"
    times.write_text("kernel 100\nsgemm 130\ngemm_ex 125\nlt1 105\nlt3 120\n")
    wrong = {"CALL_FAULT": "lt1 double"}
    options = ("--rounds", 5, "--cublas", compile_cublas())
    done = run_on_cpu(program, *options, TIMES=str(times), DRIFT="0", **wrong)
    assert done.code == 0, done.output
    assert "problem  M=24 N=16 K=8 nn f32, config 0 nn, any size" in done.output
    assert "left out cuBLASLt proposal 1, which is wrong here" in done.output
    assert "baseline cuBLASLt proposal 2, the fastest of 4 calls" in done.output
    ratio = re.search(r"^ratio +([\d.]+) ", done.output, re.M)
    mean = re.search(r"geometric mean of 1 ratios: ([\d.]+)", done.output)
    assert ratio is not None and mean is not None
    assert float(mean[1]) == pytest.approx(float(ratio[1]), abs=0.001)
    for words in ("4x4", "0", "--rounds", "1 2"):
        assert run_on_cpu(program, *words.split()).code == 2


THREADS = """
#include <thread>

// Matrices and sizes of its own, again and again, by rows and by columns. Returns how many fail.
int work(int id) {
    const int M = 5 + id, N = 9, K = 3;
    std::vector<float> a(M * K, 2.0f), b(K * N, 3.0f), c(M * N);
    const float *A = a.data(), *B = b.data();
    float* const C = c.data();
    int wrong = 0;
    for (int round = 0; round < 50; ++round) {
        const auto layout = (autogemm_layout)(round % 4);
        const bool ta = layout >= 2, tb = layout % 2 == 1;
        const int lda = ta ? M : K, ldb = tb ? K : N;
        const size_t bytes = autogemm_sgemm_workspace_bytes(layout, M, N, K, lda, ldb, N);
        const int kernel = autogemm_sgemm_choice(layout, M, N, K, A, lda, B, ldb, C, N, bytes);
        std::fill(c.begin(), c.end(), -1.0f);
        wrong += cudaSuccess !=
                 (round % 3 == 0
                      ? autogemm_sgemm_by_columns(tb ? 'T' : 'N', ta ? 'T' : 'N', N, M, K, 1.0f, B,
                                                  ldb, A, lda, 0.0f, C, N, nullptr, 0, nullptr)
                      : autogemm_sgemm_with(kernel, layout, M, N, K, 1.0f, A, lda, B, ldb, 0.0f, C,
                                            N, nullptr, 0, nullptr));
        wrong += C[0] != 18.0f || C[M * N - 1] != 18.0f;
    }
    return wrong;
}

int main() {
    std::vector<int> wrong(8);
    std::vector<std::thread> threads;
    for (int id = 0; id < 8; ++id) {
        threads.emplace_back([id, &wrong] { wrong[id] = work(id); });
    }
    int all_wrong = 0;
    for (int id = 0; id < 8; ++id) {
        threads[id].join();
        all_wrong += wrong[id];
    }
    std::printf("%d wrong\\n", all_wrong);
    return all_wrong;
}
"""


@needs_gpp
def test_threads_call_at_the_same_time(folder: Path) -> None:
    """Under ThreadSanitizer, which sees the host code: the GPU is left out."""
    (folder / "threads.cpp").write_text(THREADS)
    flags = ("-O1", "-g", "-fsanitize=thread", "-DMANY_THREADS")
    try:
        program = build(folder / "together", ["gemm_f32.cu", "threads.cpp"], *flags)
    except subprocess.CalledProcessError:
        pytest.skip("g++ has no ThreadSanitizer here")
    done = run_on_cpu(program)
    if "unexpected memory mapping" in done.output:
        pytest.skip("ThreadSanitizer does not run on this kernel")
    assert (done.code, done.output) == (0, "0 wrong\n")
    text = (folder / "gemm_f32.cu").read_text()
    shared = text.replace("int chosen = variant_for(", "static int chosen; chosen = variant_for(")
    assert shared != text
    (folder / "shared.cu").write_text(shared)
    racing = run_on_cpu(build(folder / "racing", ["shared.cu", "threads.cpp"], *flags))
    assert "data race" in racing.output

"""An exported kernel with an epilogue: its program checks it, on the CPU, fails wrong ones, and
compares it with calls of cuBLAS that do the same.
"""

import re
import shutil
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import FAMILY, Run, compile_cublas, compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.codegen.fused import fused_of
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Problem
from autogemm.space import load_family

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

TEMPLATE = """\
{% from "parts/epilogue/epilogue.cu.jinja" import epilogue, epilogue_arguments %}
#include <cuda_runtime.h>

#include <cmath>
#include <cstdlib>
inline float loaded(float value) { return value; }
inline float float_from_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
inline float loaded(unsigned short bits) { return float_from_bf16(bits); }
inline void put(float& to, float value) { to = value; }
// Values are no NaN.
inline void put(unsigned short& to, float value) {
    const unsigned bits = __float_as_uint(value);
    to = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned short bf16_from_float(float value) {
    unsigned short bits;
    put(bits, value);
    return bits;
}
#define AUTOGEMM_EMULATOR
inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_reciprocal(float x) { return 1.0f / x; }
#define __forceinline__ inline
{{ epilogue(fused=fused) }}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("ELEMENT") }}) {
{% endfilter %}
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    const bool is_wrong = std::getenv("WRONG") != nullptr;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum = 0.0f, second = 0.0f;
            for (int k = 0; k < K; ++k) {
                {% if fused.gated %}
                const int first = {{ "2 * n" if fused.gate == "interleaved" else "n" }};
                const int other = {{ "2 * n + 1" if fused.gate == "interleaved" else "n + N" }};
                sum += loaded(A[m * lda + k]) * loaded(B[k * ldb + first]);
                second += loaded(A[m * lda + k]) * loaded(B[k * ldb + (is_wrong ? first : other)]);
                {% else %}
                sum += loaded(A[m * lda + k]) * loaded(B[k * ldb + n]);
                {% endif %}
            }
            auto& c = C[m * ldc + n];
            {% if fused.output %}
            const int column = n;
            {% else %}
            const int column = is_wrong && n == N - 1 ? n - 1 : n;
            {% endif %}
            put(c, epilogue(sum, {{ "second, " if fused.gated }}loaded(c), m, column, with));
            {% if fused.output %}
            if (is_wrong && n == N - 1) {
                put({{ fused.output.argument }}[m * N + n], 77.0f);
            }
            {% endif %}
        }
    }
}
"""
TEXT = "gelu_tanh(acc + bias[n]) * scale[m] + 0.5 * rest[m, n] + c[m, n]"


def program_of(problem: Problem, folder: Path) -> tuple[str, Path]:
    """The exported file, and the program that g++ makes of it."""
    own = folder / problem.dtype.label
    own.mkdir()
    element = problem.dtype.ab
    (own / "on_cpu.yaml").write_text(FAMILY.format(ab=element.label))
    (own / "on_cpu.cu.jinja").write_text(TEMPLATE.replace("ELEMENT", element.c_name))
    family = load_family(own)
    text = export_cuda(stored_kernel(family, problem), family, "best.cu", date(2026, 11, 21))
    arrays = sum(bool(one.axes) for one in problem.epilogue.arrays)
    return text, compile_on_cpu(f"#define KERNEL_ARRAYS {arrays}\n{text}", own / "best")


def test_the_program_checks_the_epilogue(tmp_path: Path) -> None:
    problem = Problem(33, 20, 40, ldc=22, dtype=DType.F32, epilogue=Epilogue(TEXT))
    text, program = program_of(problem, tmp_path)
    assert "const float* epilogue_bias, const float* epilogue_scale," in text
    assert f"// C[m, n] = {TEXT}\n" in text
    right = run_on_cpu(program, "--rounds", 0)
    assert (right.code, right.output.count(": right, ")) == (0, 2), right.output
    # The bias of the column before, in the last one.
    wrong = run_on_cpu(program, "--rounds", 0, WRONG="1")
    assert (wrong.code, wrong.output.count(": WRONG, ")) == (1, 2), wrong.output


@pytest.fixture(scope="module")
def cublas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cublas()


def ratio_of(run: Run) -> float:
    (ratio,) = re.findall(r"^ratio +(\S+) ", run.output, re.MULTILINE)
    return float(ratio)


def test_values_that_multiply_sums_are_the_alpha_of_cublas(tmp_path: Path) -> None:
    problem = Problem(33, 24, 40, dtype=DType.BF16, epilogue=Epilogue("relu(s * acc * t)"))
    text, _ = program_of(problem, tmp_path)
    values = {one.name: one.value for one in fused_of(problem).inputs}
    assert f"const float alpha = {values['s']} * {values['t']};" in text
    assert len(set(values.values())) == 2


def test_the_program_compares_it_with_calls_that_do_the_same(tmp_path: Path, cublas: Path) -> None:
    """Fused by cuBLASLt, or plain products and a kernel behind them: the fastest right one."""
    problem = Problem(33, 24, 40, dtype=DType.BF16, epilogue=Epilogue("relu(acc + bias[n])"))
    _, program = program_of(problem, tmp_path)
    times = tmp_path / "times"
    (tmp_path / "times").write_text(
        "kernel 30000\ngemm_ex 33000\nlt1 40000\nlt3 42000\nfused1 42000\nfused3 31500\n"
    )

    def run(**variables: str) -> Run:
        fixed = {"TIMES": str(times), "DRIFT": "0.01"}
        found = run_on_cpu(program, "--rounds", 9, "--cublas", cublas, **fixed, **variables)
        assert found.code == 0, found.output
        return found

    fused = run()
    assert "baseline cuBLASLt proposal 2, fused, the fastest of 5 calls" in fused.output
    assert ratio_of(fused) == pytest.approx(315 / 300, abs=0.02)
    # A fused call that is wrong makes no other look slow; the kernel behind GemmEx is right.
    behind = run(CALL_FAULT="fused3 last")
    assert "left out cuBLASLt proposal 2, fused, which is wrong here" in behind.output
    assert "baseline cuBLAS GemmEx + pointwise kernel" in behind.output
    assert ratio_of(behind) == pytest.approx(330 / 300, abs=0.02)
    # Rounded sums have a bound of their own, within which no product is lost.
    wrong = run(CALL_FAULT="fused3 last gemm_ex last")
    assert "left out cuBLAS GemmEx + pointwise kernel, which is wrong here" in wrong.output


def test_a_matrix_that_is_added_is_read_where_it_lies(tmp_path: Path, cublas: Path) -> None:
    """The old C, and sums that then need memory of their own."""
    text = "acc + bias[n] + c[m, n]"
    problem = Problem(9, 12, 8, ldc=14, dtype=DType.BF16, epilogue=Epilogue(text))
    _, program = program_of(problem, tmp_path)
    times = tmp_path / "times"
    for fastest, name in {"fused1": "cuBLASLt proposal 1, fused", "lt1": "pointwise"}.items():
        text = "kernel 30000\ngemm_ex 43000\nlt1 40000\nlt3 42000\nfused1 42000\nfused3 41500\n"
        times.write_text(text.replace(f"{fastest} 4", f"{fastest} 3"))
        run = run_on_cpu(program, "--rounds", 3, "--cublas", cublas, TIMES=str(times))
        assert run.code == 0, run.output
        assert re.search(f"^baseline .*{name}", run.output, re.MULTILINE), run.output
        assert "WRONG" not in run.output


@pytest.mark.parametrize(
    "text", ["silu(acc[n] + bias[n]) * acc[n + N]", "silu(acc[2 * n] + bias[n]) * acc[2 * n + 1]"]
)
def test_two_columns_of_the_product_make_one_of_c(tmp_path: Path, cublas: Path, text: str) -> None:
    problem = Problem(17, 24, 20, ldb=50, ldc=26, dtype=DType.BF16, epilogue=Epilogue(text))
    exported, program = program_of(problem, tmp_path)
    assert "B [K,2N]" in exported
    times = tmp_path / "times"
    times.write_text("kernel 30000\ngemm_ex 33000\nlt1 40000\nlt3 42000\n")
    fixed = {"TIMES": str(times), "DRIFT": "0.01"}
    right = run_on_cpu(program, "--rounds", 9, "--cublas", cublas, **fixed)
    assert (right.code, right.output.count(": right, ")) == (0, 2), right.output
    # The baseline is a product of all columns, and a kernel behind it.
    assert re.search("^baseline cuBLAS GemmEx [+] pointwise", right.output, re.MULTILINE)
    assert ratio_of(right) == pytest.approx(330 / 300, abs=0.02)
    # The gate from the wrong half.
    wrong = run_on_cpu(program, "--rounds", 0, WRONG="1")
    assert (wrong.code, wrong.output.count(": WRONG, ")) == (1, 2), wrong.output
    # Another size has packed rows of all columns.
    assert run_on_cpu(program, 5, 6, 7, "--rounds", 0).code == 0
    narrow = run_on_cpu(program, 5, 6, 7, "--ldb", 11, "--rounds", 0)
    assert "a leading dimension must be at least" in narrow.output


@pytest.mark.parametrize("declared", ["", "; aux: f32"])
def test_the_program_checks_a_second_output(tmp_path: Path, cublas: Path, declared: str) -> None:
    text = f"aux[m, n] = acc + bias[n]; gelu_tanh(aux){declared}"
    problem = Problem(17, 24, 20, ldc=26, dtype=DType.BF16, epilogue=Epilogue(text))
    exported, program = program_of(problem, tmp_path)
    assert "// aux[m, n] = acc + bias[n]\n// C[m, n] = gelu_tanh(aux)" in exported
    assert f"{'float' if declared else '__nv_bfloat16'}* epilogue_aux" in exported
    assert "`epilogue_aux`: aux[m, n], the second output of the epilogue" in exported
    times = tmp_path / "times"
    times.write_text("kernel 30000\ngemm_ex 33000\nlt1 40000\nlt3 42000\n")
    fixed = {"TIMES": str(times), "DRIFT": "0.01"}
    right = run_on_cpu(program, "--rounds", 9, "--cublas", cublas, **fixed)
    assert (right.code, right.output.count(": right, ")) == (0, 2), right.output
    assert re.search(r"^  aux: max .error. \S+, 0(\.\d+)? of the bound", right.output, re.MULTILINE)
    # The baseline's kernel behind a product writes it as well.
    assert re.search("^baseline cuBLAS GemmEx [+] pointwise", right.output, re.MULTILINE)
    # C is right, and the last column of the second output is not.
    wrong = run_on_cpu(program, "--rounds", 0, WRONG="1")
    assert (wrong.code, wrong.output.count(": WRONG, ")) == (1, 2), wrong.output
    assert re.search(
        r"^verify.* max .error. \S+, 0(\.\d+)? of.*\n  aux: max .error. 7\d",
        wrong.output,
        re.MULTILINE,
    )


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize("text", ["acc / 0", "acc * 1e38 * 1e38 / 1e38", "1 / exp(acc * 300)"])
def test_what_is_too_large_is_infinite(tmp_path: Path, text: str, dtype: DType) -> None:
    """With a second output, which is as large."""
    both = f"aux[m, n] = {text}; aux - c[m, n]"
    problem = Problem(9, 12, 8, dtype=dtype, epilogue=Epilogue(both))
    _, program = program_of(problem, tmp_path)
    right = run_on_cpu(program, "--rounds", 0)
    assert (right.code, right.output.count(": right, ")) == (0, 2), right.output
    # A number in the last column of the second output.
    wrong = run_on_cpu(program, "--rounds", 0, WRONG="1")
    assert (wrong.code, wrong.output.count(": WRONG, ")) == (1, 2), wrong.output

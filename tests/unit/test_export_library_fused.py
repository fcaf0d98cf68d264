"""A library with an epilogue: its functions, header and self-test, on the CPU and by nvcc."""

import re
import shutil
import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from exported_program import FAMILY, run_on_cpu
from library_on_cpu import as_cpp
from store_samples import H100, SPEC
from test_export_cli import add_run
from test_export_library_runs import build

from autogemm.cli import main
from autogemm.codegen import render
from autogemm.codegen.export import Library, Part, Variant, export_library
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Leaf, Tree
from autogemm.space import load_family, nearest_legal
from autogemm.store import open_store

needs_gpp = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

KERNEL = """\
{% from "parts/epilogue/epilogue.cu.jinja" import epilogue, epilogue_arguments %}
inline float loaded(float value) { return value; }
inline float float_from_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
inline float loaded(unsigned short bits) { return float_from_bf16(bits); }
inline unsigned short bf16_from_float(float value) {
    const unsigned bits = __float_as_uint(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline void put(float& to, float value) { to = value; }
inline void put(unsigned short& to, float value) { to = bf16_from_float(value); }
{{ epilogue(fused=fused) }}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("ELEMENT") }}) {
{% endfilter %}
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum = 0.0f, second = 0.0f;
            for (int k = 0; k < K; ++k) {
                const float a = loaded(A[m * lda + k]);
                sum += a * loaded(B[n * ldb + k]);
                {% if fused.gated %}
                second += a * loaded(B[(n + N) * ldb + k]);
                {% endif %}
            }
            auto& c = C[m * ldc + n];
            const float old_c = loaded(c);
            put(c, epilogue(sum, {{ "second, " if fused.gated }}old_c, m, n, with));
        }
    }
}
"""
# Where the one number of an epilogue is among the arguments of a kernel; functions of CUDA.
SHIM_LINES = """\
#define KERNEL_ARRAYS {arrays}
#define KERNEL_NUMBER {number}
#include <cuda_runtime.h>
#include <cmath>
#define AUTOGEMM_EMULATOR
inline float fast_exp2(float x) {{ return std::exp2(x); }}
inline float fast_reciprocal(float x) {{ return 1.0f / x; }}
#define __forceinline__ inline
"""


def fused_part(folder: Path, dtype: DType, epilogue: str) -> Part:
    """A kernel for nt that g++ compiles; all other layouts take the fallback."""
    own = folder / f"family_{dtype}"
    own.mkdir()
    (own / "on_cpu.yaml").write_text(FAMILY.format(ab=dtype.ab.label))
    (own / "on_cpu.cu.jinja").write_text(KERNEL.replace("ELEMENT", dtype.ab.c_name))
    family = load_family(own)
    problem = Problem(64, 64, 64, Layout.NT, dtype).with_epilogue(Epilogue(epilogue))
    config = family.seeds[0]
    return Part(
        dtype=dtype,
        rule=Tree(Leaf(0)),
        configs=(config,),
        variants=(Variant(0, family, config, problem, "any size"),),
        by_merit=(0,),
        tuned=((24, 16, 8),),
        best_at=(0,),
        findings=("made up",),
        layout=Layout.NT,
        epilogue=problem.epilogue,
    )


def written(folder: Path, *fused: tuple[Part, ...]) -> dict[str, str]:
    files = export_library(Library(H100, (), fused), date(2026, 11, 23))
    for name, text in files.items():
        (folder / name).write_text(as_cpp(text))
    return files


# A product that is a quarter larger, where BUG is set.
BUG = '(std::getenv("BUG") != nullptr ? 1.25f : 1.0f)'
SIZES = "sizes = {{1, 1, 1}, {7, 5, 19}, {24, 16, 8}};"
TEXTS = (
    "gelu_tanh(alpha * acc + bias[n]) * scale[m] + rest[m, n] + s + beta * c[m, n]; bias: f32",
    "silu(acc[n] + bias[n]) * acc[n + N]",
    "aux[m, n] = acc + bias[n]; relu(aux)",
)


@needs_gpp
@pytest.mark.parametrize("text", TEXTS)
def test_the_self_test_passes_and_finds_a_kernel_that_is_wrong(tmp_path: Path, text: str) -> None:
    parts = [fused_part(tmp_path, dtype, text) for dtype in (DType.F32, DType.BF16)]
    files = written(tmp_path, tuple(parts))
    small = re.sub(r"sizes = \{.*?\n    \};", SIZES, files["selftest_fused.cu"], flags=re.S)
    (tmp_path / "selftest_fused.cu").write_text(as_cpp(small.replace("256u << 20", "1024u")))
    arrays = sum(bool(one.axes) for one in Epilogue(text).arrays)
    number = 11 + arrays if "+ s " in text else 3
    (tmp_path / "shim.h").write_text(SHIM_LINES.format(arrays=arrays, number=number))
    planted = (tmp_path / "fused_bf16.cu").read_text()
    in_fallback = "(float)B[k * b_k + " + ("other" if "acc[n + N]" in text else "n * b_n")
    for good in ("loaded(B[n * ldb + k])", in_fallback):
        assert planted.count(good) == 1, good
        planted = planted.replace(good, f"{BUG} * {good}")
    (tmp_path / "planted.cu").write_text(planted)
    sources = ["shim.h", "fused_f32.cu", "planted.cu", "selftest_fused.cu"]
    program = build(tmp_path / "selftest_fused", sources, "-O0")
    done = run_on_cpu(program)
    assert (done.code, done.output.splitlines()[-1]) == (0, "0 failed"), done.output
    kernels = re.findall(r"^ +(\d+)  (.*)$", done.output, re.M)
    assert [name for _, name in kernels] == ["config 0 nt, any size", "fallback"] * 2
    assert all(int(runs) > 0 for runs, _ in kernels)
    wrong = run_on_cpu(program, BUG="1")
    assert wrong.code == 1
    for named in ("config 0 nt, any size", "fallback"):
        assert f"WRONG  bf16, {named}: " in wrong.output
    assert "WRONG  f32" not in wrong.output


@needs_gpp
def test_several_epilogues_have_functions_and_self_tests_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    first = fused_part(tmp_path, DType.F32, TEXTS[1])
    second = fused_part(tmp_path / "second", DType.F32, "relu(acc + bias[n])")
    files = written(tmp_path, (first,), (second,))
    alone = written(tmp_path / "second", (first,))
    # Functions of the first stay as they are.
    assert alone["fused_f32.cu"] == files["fused_f32.cu"]
    assert alone["selftest_fused.cu"] == files["selftest_fused.cu"]
    assert "AUTOGEMM_EPILOGUE_2" not in alone["autogemm_fused.h"]
    assert '#define AUTOGEMM_EPILOGUE_2 "relu(acc + bias[n])"' in files["autogemm_fused.h"]
    assert "selftest_masked_tn selftest_fused selftest_fused_2" in files["CMakeLists.txt"]
    assert "    fused_f32.cu\n    fused_2_f32.cu\n" in files["CMakeLists.txt"]
    small = re.sub(r"sizes = \{.*?\n    \};", SIZES, files["selftest_fused_2.cu"], flags=re.S)
    (tmp_path / "selftest_fused_2.cu").write_text(as_cpp(small.replace("256u << 20", "1024u")))
    (tmp_path / "shim.h").write_text(SHIM_LINES.format(arrays=1, number=3))
    planted = (tmp_path / "fused_2_f32.cu").read_text()
    good = "loaded(B[n * ldb + k])"
    assert planted.count(good) == 1
    (tmp_path / "planted.cu").write_text(planted.replace(good, f"{BUG} * {good}"))
    sources = ["shim.h", "fused_f32.cu", "planted.cu", "selftest_fused_2.cu"]
    program = build(tmp_path / "selftest_fused_2", sources, "-O0")
    done = run_on_cpu(program)
    assert (done.code, done.output.splitlines()[-1]) == (0, "0 failed"), done.output
    wrong = run_on_cpu(program, BUG="1")
    assert wrong.code == 1
    assert "WRONG  f32, config 0 nt, any size: " in wrong.output


SWIGLU = "silu(acc[n] + bias[n]) * acc[n + N]"
BIASED = "relu(acc + bias[n])"
CALLS = """
#include <autogemm_fused.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    float some[64];
    const cudaError_t refused = autogemm_sgemm_fused(AUTOGEMM_NN, 0, 1, 1, 1, some, 1, some, 2, 0,
                                                     some, 1, some, NULL, 0, NULL);
    /* Rows of B have two columns for each of C. */
    const cudaError_t narrow = autogemm_sgemm_fused(AUTOGEMM_NN, 4, 4, 4, 1, some, 4, some, 7, 0,
                                                    some, 4, some, NULL, 0, NULL);
    const int kernels = autogemm_sgemm_fused_num_kernels();
    const int chosen = autogemm_sgemm_fused_choice(AUTOGEMM_NN, 4096, 4096, 4096, some, 4096, some,
                                                   8192, some, 4096, 0);
    printf("%s: %d kernels, %s, %d %d\\n", AUTOGEMM_EPILOGUE, kernels,
           autogemm_sgemm_fused_kernel_name(chosen), refused == cudaErrorInvalidValue,
           narrow == cudaErrorInvalidValue);
    return 0;
}
"""


def export(folder: Path, *arguments: str) -> Result:
    place = ["--library", str(folder / "out"), "--db", str(folder / "a.db")]
    return CliRunner().invoke(main, ["export", *place, *arguments])


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A database with results of two epilogues in sgemm_simt, of which one is gated."""
    family = load_family("sgemm_simt")
    with open_store(str(tmp_path / "a.db")) as store:
        for text in (SWIGLU, BIASED):
            problem = Problem(4096, 4096, 4096).with_epilogue(Epilogue(text))
            config = nearest_legal(family, family.seeds[0], problem, H100)
            assert config is not None
            add_run(store, replace(SPEC, problem=problem), render(family, config, problem))
    return tmp_path


def test_the_command_writes_functions_that_take_the_inputs(tuned: Path) -> None:
    result = export(tuned, "--epilogue", "silu(acc[n]+bias[n]) * acc[n+N]; bias: f32")
    assert result.exit_code == 0, result.output
    assert f"f32, {SWIGLU}: " in result.output
    out = tuned / "out"
    header = (out / "autogemm_fused.h").read_text()
    assert f'#define AUTOGEMM_EPILOGUE "{SWIGLU}"' in header
    declared = " ".join(header.split())
    assert "float* C, int ldc, const float* epilogue_bias, void* workspace" in declared
    assert "autogemm_sgemm_fused_by_columns" not in header
    assert "op(B) has 2 N columns, of which n and n + N make one of C." in header
    # The plain functions have no kernel here, and their header is that of every library.
    plain = (out / "autogemm.h").read_text()
    assert "autogemm_gemm_bf16_f32(" in plain
    assert "epilogue_bias" not in plain
    cmake = (out / "CMakeLists.txt").read_text()
    assert "install(FILES autogemm.h autogemm_fused.h DESTINATION" in cmake
    for name in ("fused_f32.cu", "selftest_masked_tn selftest_fused", "COMMAND selftest_fused"):
        assert name in cmake


def test_the_command_takes_several_epilogues(tuned: Path) -> None:
    result = export(tuned, "--epilogue", SWIGLU, "--epilogue", BIASED, "--epilogue", SWIGLU)
    assert result.exit_code == 0, result.output
    for text in (SWIGLU, BIASED):
        assert f"f32, {text}: " in result.output
    header = (tuned / "out" / "autogemm_fused.h").read_text()
    assert re.findall(r"#define (AUTOGEMM_EPILOGUE.*)", header) == [
        f'AUTOGEMM_EPILOGUE "{SWIGLU}"',
        f'AUTOGEMM_EPILOGUE_2 "{BIASED}"',
    ]
    declared = re.findall(r"cudaError_t (\w+)\(", header)
    assert declared == [f"autogemm_sgemm_fused{one}" for one in ("", "_with", "_2", "_2_with")]
    assert header.count("op(B) has 2 N columns") == 1


def test_what_a_library_with_an_epilogue_lacks_is_said(tuned: Path) -> None:
    for arguments, words in (
        (["--epilogue", "relu(acc)"], "no result with the epilogue relu(acc) on"),
        (
            ["--epilogue", SWIGLU, "--epilogue", "relu(acc)"],
            "no result with the epilogue relu(acc)",
        ),
        (["--epilogue", SWIGLU, "--dtype", "bf16"], "no result matches"),
        (["--epilogue", SWIGLU, "--format", "torch"], "torch supports only plain products"),
        (["--batch", "8"], "leave out --batch"),
        ([], "have no result on"),
    ):
        result = export(tuned, *arguments)
        assert result.exit_code == 2, result.output
        assert words in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.compile
@pytest.mark.skipif(
    not all(map(shutil.which, ("nvcc", "gcc"))), reason="nvcc or gcc is not installed"
)
def test_a_program_in_c_calls_the_compiled_library(tuned: Path) -> None:
    """The calls launch nothing: they need no GPU."""
    assert export(tuned, "--epilogue", SWIGLU).exit_code == 0
    out = tuned / "out"
    (out / "calls.c").write_text(CALLS)
    nvcc = ["nvcc", "-O0", "-Xptxas", "-O0", "-std=c++17", "-arch=sm_90", "-c"]
    for command in (
        [*nvcc, "fused_f32.cu", "-o", "fused.o"],
        [*nvcc, "selftest_fused.cu", "-o", "test.o"],
        ["nvcc", "-x", "c", "-I.", "-c", "calls.c", "-o", "calls.o"],
        ["nvcc", "calls.o", "fused.o", "-o", "calls"],
        ["nvcc", "test.o", "fused.o", "-o", "selftest_fused"],
    ):
        done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.run([out / "calls"], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(re.escape(SWIGLU) + r": \d+ kernels, config 0 nn, no edges, 1 1\n", said)

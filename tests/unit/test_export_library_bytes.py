"""8-bit elements in the exported library: conversions, self-tests with planted bugs, refusals."""

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result
from exported_program import FAMILY, SHIM, compile_cublas, run_on_cpu
from library_on_cpu import (
    BUG_BY_NUMBER,
    as_cpp,
    ended_by_a_bug,
    of_these,
    part_on_cpu,
    shortened,
    write_library,
)
from store_samples import H100, SPEC
from test_export_cli import add_run
from test_export_library_fused import SHIM_LINES, written
from test_export_library_runs import SIZES, build

from autogemm.cli import main
from autogemm.codegen import render
from autogemm.codegen.export import Kind, Part, Variant
from autogemm.codegen.export.library import FALLBACKS, source_name, stacked_name
from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import loaded, stored
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Leaf, Tree
from autogemm.space import load_family, nearest_legal
from autogemm.store import open_store
from autogemm.support.templating import environment

needs_gpp = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
BYTES = tuple(dtype for dtype in DType if dtype.size_bytes == 1)


# What makes a bug, one at a time; a byte read as of the other format.
SHIM_TEXT = f"""\
#include <cuda_fp8.h>
{BUG_BY_NUMBER}
inline float as_e5m2(unsigned char bits) {{
    __nv_fp8_e5m2 element;
    element.__x = bits;
    return element;
}}
"""
# Sums of whole numbers that do not fit in the 8 bits of a BF16, and more than a block of scales.
LARGER = "sizes = {{1, 1, 1}, {7, 5, 19}, {24, 16, 8}, {3, 140, 260}, {30, 30, 600}};"


def planted(folder: Path, sources: tuple[str, ...], bugs: tuple[tuple[str, str], ...]) -> None:
    """Each bug is in one of the sources, where it is asked for by its number."""
    texts = {name: (folder / name).read_text() for name in sources}
    for number, (good, bad) in enumerate(bugs):
        found = {
            name: re.subn(good, bad.replace("BUG", f"bug({number})"), text)
            for name, text in texts.items()
        }
        assert sum(count for _, count in found.values()), good
        texts = {name: text for name, (text, _) in found.items()}
    for name, text in texts.items():
        (folder / name).write_text(text)


def passes_and_finds(program: Path, bugs: tuple[tuple[str, str], ...]) -> str:
    """Run a self-test without a bug, and with each; returns what it prints without."""
    done = run_on_cpu(program)
    assert (done.code, done.output.splitlines()[-1]) == (0, "0 failed"), done.output
    for number, (good, _) in enumerate(bugs):
        assert run_on_cpu(program, BUG=str(number)).code != 0, good
    return done.output


# The conversions of the library, and those of its self-test, for all bytes and for many floats.
CONVERSIONS = """
#include <cuda_runtime.h>
{own}
#include "bytes.h"
extern "C" void load(const unsigned char* bits, float* own, float* test, int count) {{
    for (int i = 0; i < count; ++i) {{
        own[i] = float_from_{dtype}(bits[i]);
        {test} element;
        element.bits = bits[i];
        test[i] = (float)element;
    }}
}}
extern "C" void store(const float* values, unsigned char* own, unsigned char* test, int count) {{
    for (int i = 0; i < count; ++i) {{
        own[i] = {dtype}_from_float(values[i]);
        test[i] = {test}(values[i]).bits;
    }}
}}
"""


@needs_gpp
@pytest.mark.parametrize("element", [Element.E4M3, Element.E5M2], ids=str)
def test_conversions_are_those_of_the_format(tmp_path: Path, element: Element) -> None:
    """Ties to even, subnormal numbers, the largest for what is larger, NaN: in both of them."""
    template = environment().get_template("library/byte_floats.cu.jinja")
    own = template.render(dtype=element.label, narrow=True)
    (tmp_path / "bytes.h").write_text(
        environment().get_template("library/bytes.h.jinja").render(first_line="//")
    )
    test = element.label.capitalize()
    text = CONVERSIONS.format(own=own, dtype=element.label, test=test)
    (tmp_path / "conversions.cpp").write_text(text)
    library = tmp_path / "conversions.so"
    flags = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{SHIM}", f"-I{tmp_path}")
    subprocess.run(["g++", *flags, tmp_path / "conversions.cpp", "-o", library], check=True)
    functions = ctypes.CDLL(str(library))

    def both(name: str, given: npt.NDArray[np.generic], kind: str) -> list[npt.NDArray[np.generic]]:
        found = [np.empty(given.size, kind) for _ in range(2)]
        function = getattr(functions, name)
        function(*(ctypes.c_void_p(one.ctypes.data) for one in (given, *found)), given.size)
        return found

    bits = np.arange(256, dtype=np.uint8)
    numbers = loaded(bits, element).astype(np.float32)
    for floats in both("load", bits, "f4"):
        np.testing.assert_array_equal(floats, numbers)
    finite = np.unique(numbers[np.isfinite(numbers)])
    halfway = (finite[1:] + finite[:-1]) / 2
    near = [np.nextafter(halfway, np.float32(to)) for to in (-np.inf, np.inf)]
    large = np.array([449, 464, 465, 6e4, 7e4, 3e38, np.inf, np.nan, 1e-12, 0.0], np.float32)
    values = np.concatenate([finite, halfway, *near, large, -large]).astype(np.float32)
    right = loaded(stored(values, element), element)
    for made in both("store", values, "u1"):
        np.testing.assert_array_equal(loaded(made, element), right)
    # Nothing but NaN becomes NaN.
    assert np.isnan(right).sum() == 2


# By dtype: in the fallback or the kernel (regular expressions), and what is there with a bug.
READ_A, READ_B = r"float_from_(\w+)\((a\[[^]]*\])\)", r"= B\[n \* ldb \+ k\]"
PLAIN_BUGS: dict[DType, tuple[tuple[str, str], ...]] = {
    DType.E4M3: (
        # Read as E5M2: in the fallback, and in the kernel.
        (READ_A, r"(BUG ? as_e5m2(\2) : \g<0>)"),
        (READ_B, r"= BUG ? as_e5m2(B[n * ldb + k].__x) : (float)B[n * ldb + k]"),
        # NaN a number, subnormal numbers like others, no sign.
        ("size == 0x7fu", "size == (BUG ? 0x80u : 0x7fu)"),
        ("size < 0x08u", "size < (BUG ? 0u : 0x08u)"),
        ("bits & 0x80u", "(bits & (BUG ? 0u : 0x80u))"),
        # Sums of 16 bits: in the fallback, and in the kernel.
        (
            r"sums\[i\]\[j\] \+= (.*?);",
            r"sums[i][j] += \1; if (BUG) sums[i][j] = (float)autogemm_bf16(sums[i][j]);",
        ),
        (r"sum \+= \(double\)a \* b;", r"\g<0> if (BUG) sum = (float)autogemm_bf16((float)sum);"),
        # Another layout, in which A and B are read as if it were nt.
        (r"call\.layout == AUTOGEMM_NT", r"(BUG || \g<0>)"),
    ),
    DType.E5M2_F32: (
        ("size == 0x7cu", "size == (BUG ? 0x80u : 0x7cu)"),
        ("size > 0x7cu", "size > (BUG ? 0x7fu : 0x7cu)"),
        ("size < 0x04u", "size < (BUG ? 0u : 0x04u)"),
    ),
    DType.I8: (
        # Without the sign; sums of 16 bits, in FP32: in the fallback, and in the kernel.
        (r"in_a \? (a\[[^]]*\])", r"in_a ? (BUG ? (unsigned char)\1 : \1)"),
        (r"\(int\)\(sums\[i\]\[j\]", r"(int)((BUG ? (short)sums[i][j] : sums[i][j])"),
        (
            r"sums\[i\]\[j\] \+= (.*?);",
            r"sums[i][j] = BUG ? (long long)((float)sums[i][j] + (\1)) : sums[i][j] + \1;",
        ),
        (r"int\(\(alpha \* sum \+ old\)", r"int((BUG ? (float)sum : alpha * sum + old)"),
        # What C held is left out, and factors that have no meaning are accepted.
        (r"beta == 0\.0f \? 0 : to", r"BUG || \g<0>"),
        (r"\(alpha != 1\.0f \|\|", "((!BUG && alpha != 1.0f) ||"),
        (r"beta != 0\.0f && beta != 1\.0f", r"!BUG && \g<0>"),
    ),
    DType.I8_F16: ((r"\(float\)sums", "(float)(BUG ? 0.5 : 1.0) * sums"),),
}


@needs_gpp
@pytest.mark.parametrize("dtype", PLAIN_BUGS, ids=str)
def test_the_self_test_passes_and_finds_each_bug(tmp_path: Path, dtype: DType) -> None:
    """All bytes with each other, the longest sums, and layouts and factors that are refused."""
    write_library(tmp_path, (part_on_cpu(tmp_path, dtype, (Layout.NT,)),))
    text = shortened((tmp_path / "selftest.cu").read_text(), LARGER)
    identifier = dtype.label.replace("-", "_")
    text = re.sub(rf"    failures \+= .*<Gemm_(?!{identifier}>).*\n", "", text)
    (tmp_path / "selftest.cu").write_text(ended_by_a_bug(text))
    (tmp_path / "shim.h").write_text(SHIM_TEXT)
    planted(tmp_path, (source_name(dtype),), PLAIN_BUGS[dtype])
    sources = ["shim.h", source_name(dtype), "selftest.cu"]
    # Functions of the other dtypes are not called.
    program = build(tmp_path / "selftest", sources, "-O1", "-Wl,--unresolved-symbols=ignore-all")
    said = passes_and_finds(program, PLAIN_BUGS[dtype])
    kernels = re.findall(r"^ +(\d+)  (.*)$", said, re.M)
    assert [name for _, name in kernels] == ["config 0 nt, any size", "fallback"]
    assert all(int(runs) > 0 for runs, _ in kernels)


KIND_BUGS: dict[Kind, tuple[tuple[str, str], ...]] = {
    Kind.BATCH: (
        (r"B \+ product \* step_b", "B + product * (BUG ? step_a : step_b)"),
        (r"call\.layout == AUTOGEMM_NT", r"(BUG || \g<0>)"),
    ),
    Kind.GROUPED: (
        (r"B \+ group \* step_b", "B + (BUG ? 0 : group) * step_b"),
        (READ_A, r"(BUG ? as_e5m2(\2) : \g<0>)"),
    ),
    Kind.MASKED: ((r"call\.layout == AUTOGEMM_NT", r"(BUG || \g<0>)"),),
}


@needs_gpp
@pytest.mark.parametrize("kind", KIND_BUGS, ids=lambda kind: kind.word)
def test_batches_and_groups_of_bytes(tmp_path: Path, kind: Kind) -> None:
    write_library(tmp_path, (), (part_on_cpu(tmp_path, DType.E4M3, (Layout.NT,), kind),))
    name = f"selftest{kind.suffix}"
    text = shortened((tmp_path / f"{name}.cu").read_text(), SIZES).replace(
        "++variant)", "variant += 3)"
    )
    others = rf"    failures \+= .*<Gemm_(?!(?:e4m3|i8)_{kind.word}>).*\n"
    (tmp_path / f"{name}.cu").write_text(ended_by_a_bug(re.sub(others, "", text)))
    kernel = "GROUPED" if kind.is_grouped else "BATCHED"
    (tmp_path / "shim.h").write_text(f"#define KERNEL_IS_{kernel}\n{SHIM_TEXT}")
    sources = (stacked_name(DType.E4M3, kind), FALLBACKS)
    fallbacks = (tmp_path / FALLBACKS).read_text()
    (tmp_path / FALLBACKS).write_text(of_these(fallbacks, {f"i8{kind.suffix}"}))
    planted(tmp_path, sources, KIND_BUGS[kind])
    program = build(tmp_path / name, ["shim.h", *sources, f"{name}.cu"], "-O1")
    said = passes_and_finds(program, KIND_BUGS[kind])
    assert re.findall(r"^(\S+): \d+ checks, 0 failed$", said, re.M) == ["e4m3", "i8"]


def test_groups_of_k_have_no_functions_for_bytes(tmp_path: Path) -> None:
    """They are in layout tn."""
    header = write_library(tmp_path, ())["autogemm.h"]
    assert "autogemm_gemm_e4m3_masked(" in header
    assert not re.search(r"_(e4m3|e5m2|i8)\w*_tn\(", header)
    assert "autogemm_gemm_bf16_masked_tn(" in header


KERNEL = """\
{% from "parts/epilogue/epilogue.cu.jinja" import epilogue, epilogue_arguments %}
{{ epilogue(fused=fused) }}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("TYPE_AB", "TYPE_C") }}) {
{% endfilter %}
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum = 0.0f;
            for (int k = 0; k < K; ++k) {
                const float a = A[m * lda + k], b = B[n * ldb + k];
                float scale = 1.0f;
                {% if fused.scales %}
                scale = with.sa[k / 128 * M + m] * with.sb[n / 128 * ((K + 127) / 128) + k / 128];
                {% endif %}
                sum += a * b * scale;
            }
            C[m * ldc + n] = TYPE_C(epilogue(sum, 0.0f, m, n, with));
        }
    }
}
"""


def part_with(folder: Path, dtype: DType, text: str, *, kernel: bool) -> Part:
    """A kernel that g++ compiles, or the fallback alone."""
    own = folder / f"family_{dtype}"
    own.mkdir()
    form = FAMILY.format(ab=dtype.ab.label)
    own_c = re.sub(r"c: \[\w+\], accumulate", f"c: [{dtype.c.label}], accumulate", form)
    (own / "on_cpu.yaml").write_text(own_c)
    of_types = KERNEL.replace("TYPE_AB", dtype.ab.host_type).replace("TYPE_C", dtype.c.host_type)
    (own / "on_cpu.cu.jinja").write_text(of_types)
    family = load_family(own)
    problem = Problem(64, 64, 64, Layout.NT, dtype).with_epilogue(Epilogue(text).in_dtype(dtype))
    config = family.seeds[0]
    variants = (Variant(0, family, config, problem, "any size"),) if kernel else ()
    tuned = ((24, 16, 8),)
    return Part(
        *(dtype, Tree(Leaf(0)), (config,), variants, (0,), tuned, (0,), ("",), Layout.NT),
        epilogue=problem.epilogue,
    )


SCALED = "acc * sa[m] * sb[n]; sa: f32; sb: f32"
BLOCKS = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
WRONG_ROW = (r"with\.sa\[m\]", "with.sa[BUG ? 0 : m]")
FUSED = {
    # dtype, epilogue, whether there is a kernel, bugs
    "scaled-e4m3": (
        *(DType.E4M3, SCALED, True),
        # In the kernel and in the fallback alike: the scale of another row.
        (WRONG_ROW, (r"float_from_e4m3\((A\[[^]]*\])\)", r"(BUG ? as_e5m2(\1) : \g<0>)")),
    ),
    "scaled-i8-bf16": (
        *(DType.I8_BF16, SCALED, True),
        (WRONG_ROW, (r"\(float\)sum", "(float)(BUG ? (short)sum : sum)")),
    ),
    "blocks-e4m3": (
        *(DType.E4M3, BLOCKS, True),
        (
            # The kernel's, then the fallback's: of another row, of another block of A and of B.
            (r"k / 128 \* M \+ m", "k / 128 * M + (BUG ? 0 : m)"),
            (r"\[block \* M \+ m\]", "[block * M + (BUG ? 0 : m)]"),
            (r"\[block \* M", "[(BUG ? 0 : block) * M"),
            (r"\[n / 128 \* blocks \+ block\]", "[n / (BUG ? 256 : 128) * blocks + block]"),
        ),
    ),
    "blocks-e5m2-f16": (
        *(DType.E5M2_F16, BLOCKS, False),
        ((r"block \* 128 \+ 128", "block * 128 + (BUG ? 64 : 128)"),),
    ),
    "narrow-e4m3": (
        *(DType.E4M3_E4M3, "acc * scale", True),
        # Cut off in place of rounded; numbers below the normal ones taken for zero.
        (
            (r"wide \+ 0x7ffffu \+ \(wide >> 20 & 1u\)", r"wide + (BUG ? 0u : \g<0> - wide)"),
            (r"rintf\(size \* 0x1p9f\)", r"(BUG ? 0.0f : \g<0>)"),
        ),
    ),
    "narrow-e5m2-blocks": (
        *(DType.E5M2_E5M2, f"relu({BLOCKS}) * scale + c[m, n]", False),
        ((r"float_from_e5m2\(\*c\)", r"(BUG ? 0.0f : \g<0>)"),),
    ),
    "narrow-bf16": (
        *(DType.BF16_E4M3, "relu(acc + bias[n]) * scale", False),
        ((r"with\.bias\[n\]", "with.bias[BUG ? 0 : n]"),),
    ),
    "gated-e4m3": (
        *(DType.E4M3, "silu(acc[n] + bias[n]) * acc[n + N]", False),
        ((r"float_from_e4m3\((B\[k \* b_k \+ other[^]]*\])\)", r"(BUG ? as_e5m2(\1) : \g<0>)"),),
    ),
    "gated-i8-f16": (
        *(DType.I8_F16, "(acc[n] + bias[n]) * sa[m] * (acc[n + N] * 0.001)", False),
        ((r"\(float\)second", "(float)(BUG ? (short)second : second)"),),
    ),
    "output-e4m3": (
        *(DType.E4M3_E4M3, "aux[m, n] = acc + bias[n]; relu(aux) * scale", False),
        ((r"bf16_from_float\(aux\)", "bf16_from_float(aux * (BUG ? 1.1f : 1.0f))"),),
    ),
}


@needs_gpp
@pytest.mark.parametrize("name", FUSED)
def test_the_self_test_with_scales_passes_and_finds_each_bug(tmp_path: Path, name: str) -> None:
    dtype, text, kernel, bugs = FUSED[name]
    part = part_with(tmp_path, dtype, text, kernel=kernel)
    files = written(tmp_path, (part,))
    (tmp_path / "selftest_fused.cu").write_text(
        ended_by_a_bug(as_cpp(shortened(files["selftest_fused.cu"], LARGER)))
    )
    arrays = sum(bool(one.axes) for one in part.epilogue.arrays)
    (tmp_path / "shim.h").write_text(SHIM_LINES.format(arrays=arrays, number=11) + SHIM_TEXT)
    source = f"fused_{dtype.label.replace('-', '_')}.cu"
    planted(tmp_path, (source,), bugs)
    sources = ["shim.h", source, "selftest_fused.cu"]
    said = passes_and_finds(build(tmp_path / "selftest_fused", sources, "-O1"), bugs)
    named = re.findall(r"^ +\d+  (.*)$", said, re.M)
    assert named == [*(["config 0 nt, any size"] if kernel else []), "fallback"]


@needs_gpp
@pytest.mark.parametrize("dtype", [DType.E4M3, DType.I8], ids=str)
def test_the_benchmark_casts_bytes(tmp_path: Path, dtype: DType) -> None:
    write_library(tmp_path, (part_on_cpu(tmp_path, dtype, (Layout.NT,)),))
    name = f"benchmark_{dtype}"
    sources = ["cuda_fp8.h", source_name(dtype), f"{name}.cu"]
    program = build(tmp_path / name, sources, "-O0")
    options = ("24", "16", "8", "33", "7", "40", "--rounds", 0)
    done = run_on_cpu(program, *options, "--cublas", compile_cublas())
    assert done.code == 0, done.output
    assert f"problem  M=33 N=7 K=40 nt {dtype}, config 0 nt, any size" in done.output


def export(folder: Path, *arguments: str) -> Result:
    place = ["--library", str(folder / "out"), "--db", str(folder / "a.db")]
    return CliRunner().invoke(main, ["export", *place, *arguments])


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A database with results of gemm_wgmma in 8 bits, some with scales."""
    family = load_family("gemm_wgmma")
    e4m3 = Problem(4096, 4096, 4096, Layout.NT, DType.E4M3)
    narrow = replace(e4m3, dtype=DType.E4M3_E4M3)
    problems = (
        *(e4m3, replace(e4m3, dtype=DType.I8), narrow),
        *(e4m3.with_epilogue(Epilogue(BLOCKS)), narrow.with_epilogue(Epilogue("acc * scale"))),
    )
    with open_store(str(tmp_path / "a.db")) as store:
        for problem in problems:
            configs = (nearest_legal(family, seed, problem, H100) for seed in family.seeds)
            config = next(one for one in configs if one is not None)
            add_run(store, replace(SPEC, problem=problem), render(family, config, problem))
    return tmp_path


def test_the_command_writes_functions_for_bytes(tuned: Path) -> None:
    result = export(tuned)
    assert result.exit_code == 0, result.output
    assert re.findall(r"out: (\S+): [1-9]\d* kernels? of 1 config", result.output) == ["e4m3", "i8"]
    out = tuned / "out"
    assert "autogemm:kernel:begin" in (out / "gemm_e4m3.cu").read_text()
    # Types that were not tuned have the fallback alone.
    assert "autogemm:kernel:begin" not in (out / "gemm_e5m2.cu").read_text()
    assert (out / "benchmark_i8.cu").exists()
    declared = " ".join((out / "autogemm.h").read_text().split())
    assert (
        "autogemm_gemm_e4m3(autogemm_layout layout, int M, int N, int K, float alpha, " in declared
    )
    for types in (
        "const autogemm_e4m3* B, int ldb, float beta, autogemm_bf16* C",
        "const autogemm_e5m2* B, int ldb, float beta, float* C",
        "const signed char* B, int ldb, float beta, int* C",
    ):
        assert types in declared


def test_the_command_writes_functions_with_scales(tuned: Path) -> None:
    result = export(tuned, "--epilogue", BLOCKS, "--epilogue", "acc * scale")
    assert result.exit_code == 0, result.output
    header = (tuned / "out" / "autogemm_fused.h").read_text()
    declared = " ".join(header.split())
    assert (
        "int ldc, const float* epilogue_sa, const float* epilogue_sb, void* workspace" in declared
    )
    assert "autogemm_gemm_e4m3_e4m3_fused_2(autogemm_layout" in declared
    assert "autogemm_e4m3* C, int ldc, float epilogue_scale, void* workspace" in declared
    assert "Scales of blocks are packed, too" in header
    assert "// e4m3-e4m3, C in e4m3" in header


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dtype", "e4m3-e4m3"], "functions for a C of e4m3 with an epilogue alone"),
        (["--dtype", "e4m3", "--layout", "nn"], "functions for e4m3 in layout nt alone"),
        (["--layout", "nn"], "have no result on"),
        (["--dtype", "e5m2"], "no result matches"),
        (["--dtype", "i8", "--epilogue", "acc * 2"], "no result for i8 with the epilogue acc * 2"),
    ],
)
def test_what_bytes_do_not_have_is_one_line(tuned: Path, arguments: list[str], words: str) -> None:
    result = export(tuned, *arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1

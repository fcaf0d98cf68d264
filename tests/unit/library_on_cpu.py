"""A library of kernels that g++ compiles: loops, one for each element type."""

import re
from datetime import date
from pathlib import Path

from exported_program import FAMILY, LAUNCH
from store_samples import H100

from autogemm.codegen.export import Kind, Library, Part, Variant, export_library
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Leaf, Tree
from autogemm.space import load_family

KERNEL = """\
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("TYPE_AB", "TYPE_C") }}) {
    const auto multiply = [=](auto* A, auto* B, auto* C, long rows, long length) {
        for (long m = 0; m < rows; ++m) {
            for (long n = 0; n < N; ++n) {
                double sum = 0.0;
                for (long k = 0; k < length; ++k) {
                    const float a = A[{{ "k * lda + m" if trans_a else "m * lda + k" }}];
                    const float b = B[{{ "n * ldb + k" if trans_b else "k * ldb + n" }}];
                    sum += (double)a * b;
                }
                const double old = beta == 0.0f ? 0.0 : (double)beta * (float)C[m * ldc + n];
                C[m * ldc + n] = TYPE_C({{ "" if exact else "(float)" }}(alpha * sum + old));
            }
        }
    };
    {% if batched %}
    for (long i = 0; i < batch; ++i) {
        TYPE_C* const c = C + i * batch_rows_c * ldc;
        multiply(A + i * batch_rows_a * lda, B + i * batch_rows_b * ldb, c, M, K);
    }
    {% elif divides_k %}
    for (long g = 0; g < groups; ++g) {
        const long first = {{ "g * (K / groups)" if masked else "offsets[g]" }};
        const long rows = {{ "counts[g]" if masked else "offsets[g + 1] - first" }};
        multiply(A + first * lda, B + first * ldb, C + g * M * ldc, M, rows);
    }
    {% elif grouped %}
    for (long g = 0; g < groups; ++g) {
        const long first = {{ "g * (M / groups)" if masked else "offsets[g]" }};
        const long rows = {{ "counts[g]" if masked else "offsets[g + 1] - first" }};
        const long rows_b = {{ "N" if trans_b else "K" }};
        multiply(A + first * lda, B + g * rows_b * ldb, C + first * ldc, rows, K);
    }
    {% else %}
    multiply(A, B, C, M, K);
    {% endif %}
}
"""
# A grid that reads their number says that a family takes batches, or groups of rows or K.
GRIDS = {"": "1", "batch": "[1, 1, batch]", "groups": "[1, 1, 1 + groups * (1 + divides_k)]"}


def part_on_cpu(
    folder: Path, dtype: DType, layouts: tuple[Layout, ...], kind: Kind = Kind.ONE
) -> Part:
    """Kernels for these layouts; all other calls take the fallback. Those of 8-bit floats need
    ``cuda_fp8.h`` before them.
    """
    own = folder / f"family_{dtype}{kind.suffix}"
    own.mkdir()
    text = FAMILY.format(ab=dtype.ab.label).replace("grid: 1", f"grid: {GRIDS[kind.counted]}")
    of_c = f"c: [{dtype.c.label}], accumulate"
    (own / "on_cpu.yaml").write_text(re.sub(r"c: \[\w+\], accumulate", of_c, text))
    kernel = KERNEL.replace("TYPE_AB", dtype.ab.host_type).replace("TYPE_C", dtype.c.host_type)
    kernel = kernel.replace("if exact", f"if {dtype.has_exact_sums}")
    (own / "on_cpu.cu.jinja").write_text(kernel)
    family = load_family(own)
    config = family.seeds[0]
    problems = [kind.example(Problem(64, 64, 64, layout, dtype)) for layout in layouts]
    variants = tuple(
        Variant(0, family, config, problem, "any size")
        for problem in problems
        if problem is not None
    )
    tuned = ((24, 16, 8, *([4] if kind.counted else [])),)
    return Part(
        *(dtype, Tree(Leaf(0)), (config,), variants, (0,), tuned, (0,), ("",), layouts[0]),
        kind=kind,
    )


def as_cpp(text: str) -> str:
    """Launches as calls; of kernels that walk through arrays one thread does all."""
    text = text.replace("<<<1024, 256>>>", "<<<1, 1>>>").replace(", 0, stream>>>", ">>>")
    return LAUNCH.sub(r"launch_on_cpu(\2, [&] { \1(\3); });", text)


def shortened(text: str, sizes: str) -> str:
    """A self-test of these sizes, with short sums and little memory: loops on the CPU are slow."""
    text = re.sub(r"sizes = \{.*?\n    \};", sizes, text, flags=re.S)
    text = re.sub(r"\b(256|64)u << 20", "1024u", text)
    return text.replace("LONGEST = 131071, LONGER = 200000", "LONGEST = 4001, LONGER = 4099")


# Asks for one of the bugs that are planted in a program. Asked in loops, so that the environment is
# read once.
BUG_BY_NUMBER = """\
#include <cstdlib>
const int the_bug = std::getenv("BUG") != nullptr ? std::atoi(std::getenv("BUG")) : -1;
inline bool bug(int number) {
    return number == the_bug;
}
"""


def ended_by_a_bug(text: str) -> str:
    """A self-test that ends at its first failure, if there is a bug: more of them say no more."""
    counted = "        ++failures;\n"
    assert counted in text
    return text.replace(counted, f"{counted}        if (the_bug >= 0) std::exit(1);\n")


# What a library has for one dtype and kind of call; twice in each section.
SECTION = re.compile(
    r"^namespace autogemm_for_(\w+) \{\n.*?^\}  // namespace autogemm_for_\1\n", re.M | re.S
)


def of_these(text: str, names: set[str]) -> str:
    """The sections of a library's source that have these names: g++ takes ten seconds for all."""
    assert names <= set(SECTION.findall(text))
    return SECTION.sub(lambda found: found[0] if found[1] in names else "", text)


def write_library(
    folder: Path, parts: tuple[Part, ...], stacked: tuple[Part, ...] = ()
) -> dict[str, str]:
    """Write a library's files as C++, and return them."""
    files = export_library(Library(H100, parts, stacked=stacked), date(2026, 11, 21))
    for name, text in files.items():
        (folder / name).write_text(as_cpp(text))
    return files

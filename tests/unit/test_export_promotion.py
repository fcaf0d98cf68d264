"""The exported program of a kernel that promotes sums of 8-bit floats, on the CPU: it is told when
they are promoted more seldom than it says.
"""

import os
import re
import shutil
import tempfile
from datetime import date
from functools import cache
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

FAMILY = """
family: on_cpu
summary: A loop that runs on the CPU.
dtypes: {a: e4m3, b: e4m3, c: [bf16, f16, f32], accumulate: f32}
architectures: ">=70"
parameters:
  PROMOTE: {values: [0, 1, 128, 256], doc: nothing}
launch:
  - {kernel: gemm_kernel, threads: 1, grid: 1, smem_bytes: 0}
fp32_every: PROMOTE
seeds:
  - {PROMOTE: 128}
"""
# Sums as tensor cores make them: 13 bits of fraction, 32 products at a time.
KERNEL = """\
{% from "parts/epilogue/epilogue.cu.jinja" import epilogue, epilogue_arguments %}
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cmath>
#include <cstdlib>
#define __forceinline__ inline
{{ epilogue(fused=fused) if fused }}
static double value(unsigned char bits) {
    const int exponent = bits >> 3 & 15;
    const double size = exponent ? std::ldexp(8 + (bits & 7), exponent - 10)
                                 : std::ldexp(bits & 7, -9);
    return bits & 0x80 ? -size : size;
}
static double step_of(double largest) {
    return largest == 0 ? 0.0 : std::ldexp(1.0, std::ilogb(largest) - 13);
}
static double cut(double value, double step) {
    return step == 0 ? value : (double)(long long)(value / step) * step;
}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("unsigned char", type_c) }}) {
{% endfilter %}
    const int every = std::atoi(std::getenv("EVERY"));
    const int left_out = std::atoi(std::getenv("LEFT_OUT"));
    static double values[256];
    for (int bits = 0; bits < 256; ++bits) {
        values[bits] = value(bits);
    }
    {% if fused %}
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    {% endif %}
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float total = 0.0f;
            double sum = 0.0, exact = 0.0;
            const unsigned char* a = (const unsigned char*)A + m * lda;
            const unsigned char* b = (const unsigned char*)B + n * ldb;
            for (int k = 0; k < K - left_out; k += 32) {
                double largest = std::fabs(sum), next = 0.0;
                const int end = k + 32 < K ? k + 32 : K;
                for (int i = k; i < end; ++i) {
                    const double product = values[a[i]] * values[b[i]];
                    largest = std::fmax(largest, std::fabs(product));
                    exact += product;
                }
                const double step = step_of(largest);
                for (int i = k; i < end; ++i) {
                    next += cut(values[a[i]] * values[b[i]], step);
                }
                next += cut(sum, step);
                sum = cut(next, step_of(next));
                if (every > 1 && (k + 32) % every == 0) {
                    total += (float)sum;
                    sum = 0.0;
                }
            }
            const float acc = every == 1 ? (float)exact : total + (float)sum;
            {% if fused %}
            const float result = epilogue(acc, 0.0f, m, n, with);
            {% else %}
            const float result = alpha * acc + (beta != 0.0f ? beta * (float)C[m * ldc + n] : 0.0f);
            {% endif %}
            C[m * ldc + n] = {{ type_c }}(result);
        }
    }
}
"""
PROBLEM = Problem(16, 32, 2048, Layout.NT, DType.E4M3_F32)
SCALED = PROBLEM.with_epilogue(Epilogue("relu(acc * sa[m] * sb[n] + bias[n])"))
FEW = Problem(3, 5, 2048, Layout.NT, DType.E4M3_F32)


@cache
def program(problem: Problem, said: int) -> Path:
    """The exported program of a kernel that says to promote so often."""
    folder = Path(tempfile.mkdtemp(dir=Path(os.environ["AUTOGEMM_CACHE"]).parent))
    kernel = KERNEL.replace("type_c", f'"{problem.dtype.c.host_type}"')
    (folder / "on_cpu.yaml").write_text(FAMILY)
    (folder / "on_cpu.cu.jinja").write_text(kernel)
    family = load_family(folder)
    stored = stored_kernel(family, problem, Config.of("on_cpu", {"PROMOTE": said}))
    text = export_cuda(stored, family, "best.cu", date(2026, 11, 24))
    arrays = len(problem.epilogue.inputs)
    return compile_on_cpu(f"#define KERNEL_ARRAYS {arrays}\n{text}", folder / "program")


def verdicts(problem: Problem, said: int, every: int, left_out: int = 0) -> list[str]:
    """What the program says of whole numbers, random reals and promotion, if it says so."""
    run = run_on_cpu(
        program(problem, said), "--rounds", 0, EVERY=str(every), LEFT_OUT=str(left_out)
    )
    found = re.findall(r"^(?:verify|promotion).*?: (right|WRONG), ", run.output, re.MULTILINE)
    assert run.code == int("WRONG" in found), run.output
    return found


@pytest.mark.parametrize(
    ("problem", "said", "every", "right"),
    [
        (PROBLEM, 128, 128, True),
        (PROBLEM, 128, 1, True),
        (PROBLEM, 1, 1, True),
        (PROBLEM, 128, 1024, False),
        (PROBLEM, 128, 2048, False),
        (PROBLEM, 1, 128, False),
        (SCALED, 128, 128, True),
        (SCALED, 128, 1024, False),
    ],
    ids=lambda one: one.epilogue.text or "plain" if isinstance(one, Problem) else str(one),
)
def test_a_kernel_is_held_to_its_interval(
    problem: Problem, said: int, every: int, right: bool
) -> None:
    found = verdicts(problem, said, every)
    assert found == ["right", "right", "right" if right else "WRONG"]


def test_what_says_nothing_is_held_to_nothing() -> None:
    assert verdicts(PROBLEM, 0, 2048) == ["right", "right"]


def test_few_sums_cannot_tell() -> None:
    assert verdicts(FEW, 128, 2048) == ["right", "right"]


def test_a_rounded_c_shows_what_is_larger_than_its_rounding() -> None:
    f16 = Problem(16, 32, 2048, Layout.NT, DType.E4M3_F16)
    assert verdicts(f16, 128, 128) == ["right"] * 3
    assert verdicts(f16, 128, 2048) == ["right", "right", "WRONG"]
    bf16 = Problem(16, 32, 2048, Layout.NT, DType.E4M3)
    assert verdicts(bf16, 128, 2048) == ["right"] * 3


def test_a_last_partial_sum_that_is_left_out_is_told() -> None:
    # So few products are a share of the sum that the bound of reals may show, or not.
    whole, _, promotion = verdicts(PROBLEM, 128, 128, left_out=32)
    assert (whole, promotion) == ("WRONG", "WRONG")

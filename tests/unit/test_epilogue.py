"""Expressions of epilogues: their language, their canonical text, the bound on their rounding."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.model.batch import Batch
from autogemm.model.bounded import Bounded, exactly, result_of
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.formula import INDICES
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family
from autogemm.support.errors import EpilogueError, UsageError
from autogemm.verify import count_cases, planned_cases


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("relu( alpha*acc+bias[ n ])", "relu(alpha * acc + bias[n])"),
        ("(acc) + (b[m,n] + c[m , n])", "acc + (b[m, n] + c[m, n])"),
        ("acc - (a - 0.50) - -2", "acc - (a - 0.5) - -2"),
        ("-(acc*s)/(2 * s)", "-(acc * s) / (2 * s)"),
        ("acc + bias[n];bias:f16", "acc + bias[n]; bias: f16"),
        ("acc * 1e-3", "acc * 0.001"),
        ("alpha * acc + beta * c[m, n]", ""),
        ("silu(acc[n]) * acc[n+N]", "silu(acc[n]) * acc[n + N]"),
        ("acc[2*n+1] - acc[ 2*n ]", "acc[2 * n + 1] - acc[2 * n]"),
        ("aux[m,n]=acc+b[n] ; gelu( aux );aux:f32", "aux[m, n] = acc + b[n]; gelu(aux); aux: f32"),
        ("up[m, n] = acc[n]; silu(up)*acc[n+N]", "up[m, n] = acc[n]; silu(up) * acc[n + N]"),
    ],
)
def test_one_text_for_all_ways_to_write_it(text: str, canonical: str) -> None:
    found = Epilogue.parse(text)
    assert str(found) == canonical
    assert Epilogue.parse(canonical) == found


@pytest.mark.parametrize(
    ("text", "column", "rule"),
    [
        ("relu(acc + bias[k])", 17, INDICES),
        ("acc + res[n, m]", 11, "an index is"),
        ("swish(acc)", 1, "'swish' is not a function; there are abs clamp"),
        ("acc + sum(acc)", 7, "needs a whole row of C"),
        ("aux[m, n] = acc", 16, "expected ';' and the expression of C"),
        ("aux[n] = acc; relu(aux)", 8, "a second output is written NAME[m, n] = ..."),
        ("acc + 1 = acc; acc", 9, "a second output is written NAME[m, n] = ..."),
        ("aux[m, n] = acc; other[m, n] = acc; acc", 30, "there is one second output"),
        ("c[m, n] = acc; relu(acc)", 1, "'c' cannot name an output"),
        ("aux[m, n] = acc + aux; relu(aux)", 29, "aux is written, and is none of its own inputs"),
        ("aux[m, n] = bias[n]; acc + aux", 1, "aux does not read acc"),
        ("aux[m, n] = acc; bias[n] + 1", 1, "C reads neither acc nor aux"),
        ("aux[m, n] = acc; relu(aux[m, n])", 23, "aux is read without an index"),
        ("acc + aux[m, n]", 7, "cannot name an input"),
        ("silu(acc[n])", 6, "acc[n] is one column of two: read acc[n + N] too"),
        ("acc[n] * acc[2 * n]", 10, "of two columns acc has the index [n] and [n + N], or"),
        ("acc * acc[n] * acc[n + N]", 16, "of two columns acc has the index"),
        ("acc[m]", 1, "of two columns acc has the index"),
        ("acc + bias[n + N]", 7, INDICES),
        ("acc +", 6, "expected a value"),
        ("acc bias", 5, "expected an operator"),
        ("bias[n]", 1, "does not read acc"),
        ("acc + c", 7, "c is read [m, n]"),
        ("acc + b[n] + b[m]", 7, "two different indices"),
        ("acc + Bias[n]", 7, "cannot name an input"),
        ("acc + float[n]", 7, "cannot name an input"),
        ("clamp(acc, 0)", 1, "clamp takes 3 values, got 2"),
        ("acc + b[n]; b: tf32", 16, "unknown type 'tf32'"),
        ("acc * s; s: bf16", 13, "one value, which is f32"),
        ("acc; b: f32", 6, "a name that the expression reads"),
        ("acc + b[n]; b: f32; b: f16", 21, "two types"),
        ("acc ^ 2", 5, "'^' is not part of the language"),
        ("acc * 1e99", 7, "does not fit FP32"),
        ("(" * 40 + "acc", 33, "nested deeper"),
        ("acc" + "+1" * 98, 1, "with blanks it has 395 characters"),
    ],
)
def test_a_mistake_is_one_line_and_a_caret_under_the_place(
    text: str, column: int, rule: str
) -> None:
    with pytest.raises(EpilogueError) as caught:
        Epilogue.parse(text)
    assert rule in str(caught.value)
    assert f"column {column}:" in str(caught.value)
    assert caught.value.place.splitlines()[1:] == [f"    {text}", " " * (column + 3) + "^"]


def test_a_second_output_is_of_cs_type_or_f32_and_of_one_product() -> None:
    text = "aux[m, n] = acc + bias[n]; gelu(aux)"
    in_bf16 = Problem(8, 6, 4, dtype=DType.BF16, epilogue=Epilogue(f"{text}; aux: bf16"))
    assert str(in_bf16.epilogue) == text
    assert (in_bf16.of_output.dtype, in_bf16.of_output.ldc) == (DType.BF16, 6)
    wide = replace(in_bf16, epilogue=Epilogue(f"{text}; aux: f32"), ldc=9)
    assert (wide.of_output.dtype, wide.of_output.ldc) == (DType.BF16_F32, 6)
    assert wide.moved_bytes - in_bf16.moved_bytes == 8 * 6 * 2
    # The type of A and B stays where they have 8 bits, and C more.
    for output, dtype in (("bf16", DType.E4M3), ("f32", DType.E4M3_F32)):
        narrow = Problem(8, 6, 16, dtype=DType.E4M3, epilogue=Epilogue(f"{text}; aux: {output}"))
        assert narrow.of_output.dtype is dtype
    assert in_bf16.moved_bytes == 2 * (8 * 4 + 4 * 6 + 6 + 2 * 8 * 6)
    with pytest.raises(UsageError, match=r"aux\[m, n\] is f32 where dtype is f32, got bf16"):
        Problem(8, 6, 4, epilogue=Epilogue(f"{text}; aux: bf16"))
    with pytest.raises(UsageError, match=r"bf16 or f32 where dtype is bf16, got f16"):
        Problem(8, 6, 4, dtype=DType.BF16, epilogue=Epilogue(f"{text}; aux: f16"))
    with pytest.raises(UsageError, match=r"would write the same aux\[m, n\]: leave out the batch"):
        Problem(8, 6, 4, epilogue=Epilogue(text), batch=Batch(3))


def test_a_problem_has_no_factor_that_its_epilogue_does_not_read() -> None:
    bias = Epilogue("acc + bias[n]")
    with pytest.raises(UsageError, match="alpha=2 has no effect"):
        Problem(8, 8, 8, alpha=2.0, epilogue=bias)
    assert Problem(8, 8, 8, alpha=2.0, beta=3.0).with_epilogue(bias) == Problem(
        8, 8, 8, epilogue=bias
    )
    assert not Problem(8, 8, 8, epilogue=Epilogue("acc * 2")).reads_c
    assert Problem(8, 8, 8, epilogue=Epilogue("acc + c[m, n]")).reads_c
    scaled = Problem(8, 8, 8, epilogue=Epilogue("relu(acc + beta * c[m, n])"))
    assert not scaled.reads_c
    assert scaled.with_factors(1.0, 0.5).reads_c


def test_a_type_that_arrays_have_anyway_is_not_part_of_the_identity() -> None:
    declared = Epilogue("acc + bias[n]; bias: bf16")
    in_bf16 = Problem(8, 8, 8, dtype=DType.BF16, epilogue=declared)
    assert in_bf16.epilogue == Epilogue("acc + bias[n]")
    assert Problem(8, 8, 8, epilogue=declared).epilogue == declared
    assert Problem(8, 8, 8).epilogue == PLAIN


def test_a_gated_problem_has_a_wider_b_and_counts_columns_of_c() -> None:
    gated = Problem(8, 6, 4, epilogue=Epilogue("silu(acc[n]) * acc[n + N]"))
    plain = Problem(8, 6, 4)
    assert (gated.b_shape, gated.ldb, gated.ldc, gated.a_shape) == ((4, 12), 12, 6, (8, 4))
    assert gated.flops == 2 * plain.flops == gated.plain_product.flops
    assert gated.plain_product == Problem(8, 12, 4)
    assert Problem(8, 6, 4, ldb=9).with_epilogue(gated.epilogue).ldb == 15
    transposed = Problem(8, 6, 4, Layout.NT).with_epilogue(gated.epilogue)
    assert (transposed.b_shape, transposed.ldb) == ((12, 4), 4)
    assert transposed.moved_bytes == 4 * (8 * 4 + 12 * 4 + 8 * 6)


def f32(value: object) -> np.ndarray:
    return np.asarray(value, np.float32)


# The emitted functions, each step in FP32.
IN_FP32: Mapping[str, object] = {
    "relu(acc + x)": lambda acc, x: np.maximum(acc + x, f32(0)),
    "gelu(acc) * x": lambda acc, x: (
        f32(0.5) * acc * (f32(1) + f32(np.vectorize(math.erf)(acc * f32(0.707106781)))) * x
    ),
    "gelu_tanh(acc)": lambda acc, x: acc / (
        f32(1) + np.exp(acc * (f32(-1.59576912) - f32(0.0713548163) * acc * acc))
    ),
    "silu(acc + x)": lambda acc, x: (acc + x) / (f32(1) + np.exp(-(acc + x))),
    "sigmoid(acc) / (3 + tanh(x))": lambda acc, x: (
        f32(1) / (f32(1) + np.exp(-acc)) / (f32(3) + np.tanh(x))
    ),
    "exp(min(acc, 2)) - abs(x)": lambda acc, x: np.exp(np.minimum(acc, f32(2))) - np.abs(x),
    "clamp(acc, -1, x) * acc": lambda acc, x: (
        np.where(acc < f32(-1), f32(-1), acc).clip(None, x) * acc
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", IN_FP32)
def test_fp32_keeps_the_bound_and_wrong_values_do_not(text: str) -> None:
    rng = np.random.default_rng(1)
    acc = rng.normal(0, 3, 2000)
    x = f32(rng.uniform(0.5, 4, 2000))
    # The sum that the kernel has is off by up to 1e-5.
    off = f32(acc + rng.uniform(-1e-5, 1e-5, 2000))
    given = {"acc": Bounded(acc, np.full(2000, 1e-5 + 4e-7)), "x": exactly(x.astype(np.float64))}
    bound = result_of(Epilogue(text), given)
    with np.errstate(over="ignore"):
        got = IN_FP32[text](off, x)  # type: ignore[operator]
    assert got.dtype == np.float32
    error = np.abs(got.astype(np.float64) - bound.value)
    assert np.all(error <= bound.error)
    # The bound is of use: it is near what happens, and a relative error of 1e-3 is beyond it.
    assert np.max(error / bound.error) > 0.05
    big = np.abs(bound.value) > 0.5
    assert np.all(1e-3 * np.abs(bound.value[big]) > bound.error[big])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("relu(acc + bias[n])", 0),
        ("gelu_tanh(acc + bias[n])", 2),
        ("silu(acc[n]) * acc[n + N] / scale", 3),
        ("aux[m, n] = exp(acc); gelu(aux)", 4),
    ],
)
def test_special_instructions_of_all_functions_are_counted(text: str, count: int) -> None:
    assert Epilogue(text).special_instructions == count


def test_a_kernel_without_an_epilogue_is_what_it_was() -> None:
    family = load_family("sgemm_simt")
    problem = Problem(4096, 4096, 4096)
    written_out = Problem(4096, 4096, 4096, epilogue=Epilogue("alpha*acc + beta*c[m,n]"))
    assert written_out == problem
    assert render(family, family.seeds[0], problem) == render(family, family.seeds[0], written_out)


@pytest.mark.parametrize("text", ["aux[m, n] = acc; relu(aux)", "silu(acc[n]) * acc[n + N]"])
def test_no_edge_case_has_a_batch_where_the_epilogue_takes_none(text: str) -> None:
    family = load_family("gemm_wgmma")
    given = (family, family.seeds[0], find_device("h100"), DType.BF16)
    cases = planned_cases(*given, epilogue=Epilogue(text))
    assert all(case.problem.batch.is_one for case in cases)
    assert len(cases) == count_cases(*given, Epilogue(text))
    plain = planned_cases(*given)
    assert any(not case.problem.batch.is_one for case in plain)
    assert len(plain) == count_cases(*given)


def test_the_upper_limit_of_a_clamp_wins_where_the_limits_cross() -> None:
    given = {"acc": exactly(np.array([-3.0, -1.1, 2.0])), "low": exactly(-0.75)}
    given["high"] = exactly(-1.25)
    found = result_of(Epilogue("clamp(acc, low, high)"), given)
    assert found.value.tolist() == [-1.25, -1.25, -1.25]

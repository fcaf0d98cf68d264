"""Epilogues of a user's in every family, and bugs planted in them: the emulator sees each."""

from dataclasses import replace

import pytest

from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.space import launch_plan, load_family

pytestmark = pytest.mark.emulated

TEXT = "gelu(alpha * acc + bias[n]) * scale[m] + rest[m, n] + beta * c[m, n]"
SMALL: dict[str, Value] = {
    **{"BM": 32, "BN": 32, "BK": 8, "WM": 16, "WN": 8, "TM": 2, "TN": 2, "STAGES": 1},
    **{"VEC_LOAD": 1, "VEC_STORE": 1, "REG_STAGES": 1, "LANE_MAP": "rows"},
}
CASES: dict[str, tuple[DType, tuple[int, int, int], dict[str, Value]]] = {
    "sgemm_simt": (DType.F32, (33, 45, 20), SMALL),
    "sgemm_skinny": (DType.F32, (16, 64, 640), {}),
    "gemm_skinny": (DType.BF16, (5, 40, 2056), {}),
    "gemm_mma": (DType.F16, (40, 136, 40), {}),
    "gemm_wgmma": (DType.BF16, (72, 264, 72), {}),
    "sgemm_emulated": (DType.F32, (40, 72, 40), {}),
}


GATED: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 2, "CLUSTER_M": 1, "CLUSTER_N": 1},
    **{"SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
    **{"SCHEDULE": "cooperative", "K_ORDER": "forward"},
}
HALVES = "silu(acc[n] + bias[n]) * acc[n + N]"
INTERLEAVED = "gelu(acc[2 * n]) * acc[2 * n + 1] + c[m, n]"


def gated(text: str, layout: Layout, **changes: Value) -> tuple[KernelSource, Problem]:
    """Edges on all sides, but for k where columns alternate."""
    family = load_family("gemm_wgmma")
    problem = Problem(72, 136, 72 if text == HALVES else 128, layout, DType.BF16)
    values = family.seeds[0].as_dict() | GATED | changes
    config = replace(family.seeds[0], values=tuple(values.items()))
    problem = problem.with_epilogue(Epilogue(text))
    return render(family, family.completed(config), problem), problem


@pytest.mark.parametrize(
    ("text", "layout", "changes"),
    [
        (HALVES, Layout.NN, {}),
        (HALVES, Layout.NT, {"EPILOGUE": "overlapped", "BLOCKS": 2}),
        (INTERLEAVED, Layout.NT, {"SCHEDULE": "pingpong", "BLOCKS": 2}),
    ],
)
def test_two_columns_of_the_product_make_one_of_c(
    emulator: Emulator, text: str, layout: Layout, changes: dict[str, Value]
) -> None:
    assert complaint(emulator, *gated(text, layout, **changes)) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The gate from the wrong half, both from one half, and the half of another tile.
        ("return epilogue(accum, second,", "return epilogue(second, accum,"),
        ("map, N + n0, k0", "map, n0, k0"),
        ("map, N + n0, k0", "map, N + n0 % 64, k0"),
    ],
)
def test_a_wrong_half_is_seen(emulator: Emulator, old: str, new: str) -> None:
    source, problem = gated(HALVES, Layout.NT)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert " is " in complaint(emulator, wrong, problem)


def of_family(name: str, text: str = TEXT, **changes: Value) -> tuple[KernelSource, Problem]:
    dtype, (m, n, k), own = CASES[name]
    family = load_family(name)
    problem = Problem(m, n, k, Layout.NT, dtype, alpha=1.5, beta=0.5).with_epilogue(Epilogue(text))
    config = replace(
        family.seeds[0], values=tuple((family.seeds[0].as_dict() | own | changes).items())
    )
    return render(family, config, problem), problem


def complaint(emulator: Emulator, source: KernelSource, problem: Problem) -> str:
    family = load_family(source.family)
    plan = launch_plan(family, source.config, problem)
    report = emulator.verify(source, plan, problem, both_betas=True)
    return "" if report.ok else report.message


@pytest.mark.parametrize("name", CASES)
def test_every_family_takes_an_epilogue(emulator: Emulator, name: str) -> None:
    assert complaint(emulator, *of_family(name)) == ""


SPLIT: dict[str, Value] = {"SPLIT_K": 2, "STREAM_BLOCKS": 0}
BUGS = {
    "bias of the column before, in the last tile": (
        {}, "with.bias[n]", "with.bias[n >= 32 ? n - 1 : n]", "C[0,32] is",
    ),
    "bias behind the last column": ({}, "with.bias[n]", "with.bias[n + 1]", "epilogue_bias[45]"),
    "scale by the column": ({}, "with.scale[m]", "with.scale[n]", "epilogue_scale[39]"),
    "rows of an input as far apart as those of C": (
        {}, "(long long)m * with.columns + n", "(long long)n * with.columns + m",
        "epilogue_rest[1767]",
    ),
    "applied by each block that splits K": (
        SPLIT, "epilogue(accum[e], result[e]",
        "epilogue(epilogue(accum[e], 0.0f, m, n + e, with), result[e]", "is",
    ),
    "the old C read after it was written": (
        {}, "const float old_c = with.reads_c() ? c[e] : 0.0f;",
        "c[e] = accum[e]; const float old_c = with.reads_c() ? c[e] : 0.0f;", "is",
    ),
    "C read where beta is 0": ({}, "return beta != 0.0f;", "return true;", "read"),
    "an input is written": (
        {}, "const float bias = with.bias[n];",
        "const float bias = with.bias[n]; *(float*)&with.bias[n] = 0.0f;", "epilogue_bias",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen(emulator: Emulator, bug: str) -> None:
    changes, old, new, seen = BUGS[bug]
    source, problem = of_family("sgemm_simt", **changes)
    if old not in source.text:
        # A vector of one element has no rest.
        old, new = (
            "result[e] = epilogue(accum[e], result[e]",
            "result[e] = epilogue(accum[e], with.reads_c() ? accum[e] : 0.0f",
        )
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert seen in complaint(emulator, wrong, problem)


TWO_OUTPUTS = "aux[m, n] = acc + bias[n]; gelu(aux) + rest[m, n] + beta * c[m, n]"
WRITES = "with.aux[place] = aux;"
WRITES_BF16 = "with.aux[place] = bf16_from_float(aux);"


@pytest.mark.parametrize("name", CASES)
def test_every_family_writes_a_second_output(emulator: Emulator, name: str) -> None:
    """It has C's type, and is FP32 where the name begins with sgemm; golden sources have more."""
    assert complaint(emulator, *of_family(name, TWO_OUTPUTS)) == ""


def test_a_second_output_has_a_type_of_its_own(emulator: Emulator) -> None:
    assert complaint(emulator, *of_family("gemm_mma", f"{TWO_OUTPUTS}; aux: f32")) == ""


def test_a_gated_epilogue_may_have_a_second_output(emulator: Emulator) -> None:
    text = "up[m, n] = acc[n]; silu(up) * acc[n + N]; up: f32"
    source, problem = gated(text, Layout.NT)
    assert complaint(emulator, source, problem) == ""
    wrong = replace(
        source, text=source.text.replace("with.up[place] = up;", "with.up[place] = second;")
    )
    assert "up[0,0] is" in complaint(emulator, wrong, problem)


BUGS_OF_OUTPUTS = {
    "not written in the last rows": (
        "sgemm_simt", {}, WRITES, f"if (m < 32) {{ {WRITES} }}",
        "never written: epilogue_aux[1440]",
    ),
    "not written in the last columns": (
        "gemm_wgmma", {}, WRITES_BF16, f"if (n < 256) {{ {WRITES_BF16} }}",
        "never written: epilogue_aux[256]",
    ),
    "rows as far apart as those of a wider matrix": (
        "sgemm_simt", {}, WRITES, "with.aux[place + m] = aux;", "out of bounds: epilogue_aux[1486]",
    ),
    "written for elements outside C at the last inside": (
        "gemm_wgmma", {}, "if (m >= M || n >= N) {\n            return 0.0f;\n        }",
        "m = min(m, M - 1);\n        n = min(n, N - 1);", "epilogue_aux",
    ),
    "written by a block that splits K, before the one that is right": (
        "sgemm_simt", {"SPLIT_K": 2, "STREAM_BLOCKS": 0},
        "store_partial(partials + (long long)partial * PARTIAL, accum);",
        "store_partial(partials + (long long)partial * PARTIAL, accum);"
        "if (partial == 0 && threadIdx.x == 0)"
        " with.aux[tile.m0 * with.columns + tile.n0] = accum[0][0];",
        "second output written twice: epilogue_aux[0]",
    ),
    "what C is in place of what is under the function": (
        "gemm_mma", {}, "with.aux[place] = f16_from_float(aux);",
        "with.aux[place] = f16_from_float(gelu(aux));", "aux[0,0] is",
    ),
    "an addend read from where the second output was written": (
        "sgemm_simt", {}, "const float rest = with.rest[place];",
        f"{WRITES.replace('= aux', '= accum')} const float rest = with.aux[place];", "C[0,0] is",
    ),
    "the old C read after it was written": (
        "sgemm_simt", {"VEC_STORE": 1}, "result[e] = epilogue(accum[e], result[e]",
        "result[e] = epilogue(accum[e], accum[e]", "C[0,0] is",
    ),
    "read before it is written": (
        "sgemm_simt", {}, "return gelu(aux)", "return gelu(with.aux[place + 1])", "epilogue_aux[1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS_OF_OUTPUTS)
def test_a_bug_of_a_second_output_is_seen(emulator: Emulator, bug: str) -> None:
    name, changes, old, new, seen = BUGS_OF_OUTPUTS[bug]
    source, problem = of_family(name, TWO_OUTPUTS, **changes)
    assert old in source.text
    text = source.text.replace(old, new)
    assert seen in complaint(emulator, replace(source, text=text), problem)


BEYOND = [
    "acc / 0",
    "1 / acc",
    "acc * 1e38 * 1e38",
    "acc * 1e38 * 1e38 / 1e38",
    "gelu(acc * 1e38)",
    "exp(acc * 100)",
    "1 / exp(acc * 100)",
]


@pytest.mark.parametrize("name", ["sgemm_simt", "gemm_skinny", "gemm_wgmma"])
@pytest.mark.parametrize("text", BEYOND)
def test_what_is_too_large_is_infinite(emulator: Emulator, name: str, text: str) -> None:
    assert complaint(emulator, *of_family(name, text)) == ""


@pytest.mark.parametrize("wrong", ["3.4e38f", "-accum / 0.0f", "0.0f / 0.0f"])
def test_another_result_is_seen_where_infinity_is_right(emulator: Emulator, wrong: str) -> None:
    source, problem = of_family("sgemm_simt", "acc / 0")
    right = "return accum / 0.0f;"
    assert right in source.text
    text = source.text.replace(right, f"return {wrong};")
    assert ", must be " in complaint(emulator, replace(source, text=text), problem)

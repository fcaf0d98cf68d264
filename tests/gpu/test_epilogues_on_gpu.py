"""Epilogues of a user's on a GPU: each family, several expressions, odd sizes."""

from dataclasses import replace

import pytest

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.space import Family, broken_constraints, build_space, launch_plan, load_family
from autogemm.support.errors import EmptySpaceError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu

EXPRESSIONS = (
    "relu(acc + bias[n])",
    "gelu(alpha * acc + bias[n]) * scale[m] + beta * c[m, n]",
    "gelu_tanh(acc + bias[n]) + rest[m, n]",
    "silu(acc) * gate[m, n]",
    "clamp(tanh(acc) / 2 - sigmoid(acc), low, high) + exp(-abs(acc)) + c[m, n]",
    "max(acc * scale[n] + bias[n], min(acc, 6)); scale: f32; bias: f16",
    "aux[m, n] = acc + bias[n]; gelu(aux); aux: f32",
)
FAMILIES = (
    *(("sgemm_simt", DType.F32), ("sgemm_skinny", DType.F32), ("naive", DType.F32)),
    *(("tiled", DType.F32), ("register_blocked", DType.F32), ("block_tiled", DType.F32)),
    *(("gemm_mma", DType.BF16), ("gemm_mma", DType.F16_F32), ("gemm_mma", DType.TF32)),
    *(("gemm_wgmma", DType.BF16), ("gemm_wgmma", DType.F16), ("gemm_wgmma", DType.BF16_F32)),
    *(("gemm_wgmma", DType.TF32), ("sgemm_emulated", DType.F32)),
    ("sgemm_emulated_wgmma", DType.F32),
)
# Aligned as TMA and vectors need it, in two layouts; and not at all, which some families refuse.
# Each has one expression of its own: the text of an expression is the same in all families,
# and what differs is the way in which each stores C.
TURNS = (
    (Layout.NN, (264, 392, 328)),
    (Layout.NT, (264, 392, 328)),
    (Layout.NT, (131, 257, 99)),
)
# Configs of a family that are tried, of its seeds and of its space.
SEEDS, OTHERS = 1, 1
OPTIONS = MeasureOptions(deadline_s=20.0, compares=False, max_samples=1)


def configs(family: Family, problem: Problem, target: CudaTarget) -> list[Config]:
    """Some legal configs: seeds first, then some of the space, evenly apart."""
    legal = [
        family.completed(one)
        for one in family.seeds
        if not broken_constraints(family, family.completed(one), problem, target.device)
    ]
    try:
        space = build_space(family, problem, target.device, {})
    except EmptySpaceError:
        return legal[:SEEDS]
    places = range(len(space) // (OTHERS + 1), len(space), len(space) // (OTHERS + 1) + 1)
    return legal[:SEEDS] + [space.config(place) for place in places][:OTHERS]


@pytest.mark.parametrize(("name", "dtype"), FAMILIES, ids=str)
def test_a_familys_kernels_are_right_with_epilogues(
    target: CudaTarget, compiler: Compiler, name: str, dtype: DType
) -> None:
    family = load_family(name).on(target.device)
    if "wgmma" in name and target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    tried = 0
    for turn, (layout, size) in enumerate(TURNS):
        text = EXPRESSIONS[(FAMILIES.index((name, dtype)) + 2 * turn) % len(EXPRESSIONS)]
        plain = Problem(*size, layout, dtype, alpha=1.5, beta=-0.5)
        problem = plain.with_epilogue(Epilogue(text))
        found = configs(family, problem, target)
        if found:
            target.prepare(problem, OPTIONS)
        for config in found:
            assert_right(target, compiler, family, config, problem)
            tried += 1
    assert tried > 0


@pytest.mark.parametrize(("name", "dtype"), [("sgemm_simt", DType.F32), ("gemm_mma", DType.F16)])
@pytest.mark.parametrize("text", ["acc / 0", "acc * 1e38 * 1e38 / 1e38", "1 / exp(acc * 300)"])
def test_what_is_too_large_is_infinite(
    target: CudaTarget, compiler: Compiler, name: str, dtype: DType, text: str
) -> None:
    family = load_family(name).on(target.device)
    problem = Problem(256, 384, 320, Layout.NT, dtype).with_epilogue(Epilogue(text))
    found = configs(family, problem, target)
    assert found
    target.prepare(problem, OPTIONS)
    assert_right(target, compiler, family, found[0], problem)


GATED = (
    ("sgemm_simt", DType.F32, Layout.NN, "silu(acc[n] + bias[n]) * acc[n + N]"),
    ("sgemm_simt", DType.F32, Layout.NT, "gelu(acc[2 * n]) * acc[2 * n + 1]"),
    ("gemm_mma", DType.BF16, Layout.NN, "silu(acc[n]) * acc[n + N] + c[m, n]"),
    ("gemm_mma", DType.F16, Layout.NT, "silu(acc[2 * n]) * acc[2 * n + 1]"),
    ("gemm_mma", DType.TF32, Layout.TT, "gelu(acc[n]) * acc[n + N]"),
    ("gemm_skinny", DType.BF16, Layout.NT, "silu(acc[n]) * acc[n + N]"),
    ("gemm_skinny", DType.F16, Layout.NT, "silu(acc[2 * n] + bias[n]) * acc[2 * n + 1]"),
    ("gemm_skinny", DType.BF16_F32, Layout.NN, "silu(acc[n]) * acc[n + N] + c[m, n]"),
)


@pytest.mark.parametrize("case", GATED, ids=str)
def test_gated_kernels_are_right(
    target: CudaTarget, compiler: Compiler, case: tuple[str, DType, Layout, str]
) -> None:
    name, dtype, layout, text = case
    family = load_family(name).on(target.device)
    few = name == "gemm_skinny"
    for size in ((16, 384, 1088), (5, 257, 99)) if few else ((256, 384, 320), (131, 257, 99)):
        problem = Problem(*size, layout, dtype).with_epilogue(Epilogue(text))
        found = configs(family, problem, target)
        assert found
        target.prepare(problem, OPTIONS)
        for config in found:
            assert_right(target, compiler, family, config, problem)


# Tiles of inputs that come through the stages: C and C^T, tiles of two heights, in turns, shared.
AHEAD: dict[str, tuple[str, dict[str, Value]]] = {
    "cooperative": ("silu(acc) * gate[m, n]", {"BM": 128, "BN": 256, "WM": 64, "WN": 256}),
    "overlapped": (
        "acc * scale[m] + rest[m, n] + beta * c[m, n]",
        {"BM": 128, "BN": 256, "WM": 64, "WN": 256, "BLOCKS": 132, "EPILOGUE": "overlapped"},
    ),
    "two heights": (
        "gelu_tanh(acc + bias[n]) + rest[m, n]",
        {
            **{"BM": 256, "BN": 128, "WM": 256, "WN": 64, "SWAP_AB": 1, "SHORT_BY": 24},
            **{"BLOCKS": 132, "EPILOGUE": "overlapped", "K_ORDER": "serpentine"},
        },
    ),
    "pingpong": (
        "aux[m, n] = acc + rest[m, n]; gelu(aux)",
        {"BM": 128, "BN": 128, "WM": 128, "WN": 128, "SCHEDULE": "pingpong", "BLOCKS": 132},
    ),
    "pingpong, C^T": (
        "acc + rest[m, n]",
        {
            **{"BM": 200, "BN": 128, "WM": 200, "WN": 128, "SCHEDULE": "pingpong", "SWAP_AB": 1},
            **{"BOX_M": 40, "C_BUFFERS": 2, "BLOCKS": 132},
        },
    ),
    "cluster": (
        "silu(acc + bias[n]) * gate[m, n]",
        {"BM": 128, "BN": 192, "WM": 64, "WN": 192, "CLUSTER_M": 2, "BLOCKS": 132},
    ),
}


@pytest.mark.parametrize("name", AHEAD)
def test_inputs_that_come_ahead_are_right(
    target: CudaTarget, compiler: Compiler, name: str
) -> None:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    family = load_family("gemm_wgmma").on(target.device)
    text, changes = AHEAD[name]
    base = family.seeds[0].as_dict() | {"C_BUFFERS": 1, "BOX_M": 64, "BLOCKS": 0, "STAGES": 4}
    values = base | {"EPILOGUE": "after", "INPUTS": "ahead"} | changes
    config = family.completed(replace(family.seeds[0], values=tuple(values.items())))
    for size, dtype in (((264, 392, 328), DType.BF16), ((4000, 2056, 520), DType.F16)):
        plain = Problem(*size, Layout.NT, dtype, beta=-0.5 if "beta" in text else 0.0)
        problem = plain.with_epilogue(Epilogue(text))
        assert broken_constraints(family, config, problem, target.device) == []
        target.prepare(problem, OPTIONS)
        assert_right(target, compiler, family, config, problem)


# What another warpgroup's products leave of shared memory's bandwidth is little: loads wait.
RACING: dict[str, Value] = {
    **{"BM": 128, "BN": 128, "WM": 128, "WN": 128, "SCHEDULE": "pingpong", "STAGES": 6},
    **{"BOX_M": 16, "C_BUFFERS": 2, "GROUP_M": 8, "BLOCKS": 132, "INPUTS": "ahead"},
}
RUNS = 8
FENCED = "    fence_before_bulk_copies();\n    __syncwarp();\n    for"


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "not fenced"])
def test_a_stage_is_not_filled_anew_while_loads_are_under_way(
    target: CudaTarget, compiler: Compiler, fenced: bool
) -> None:
    """Without the fence, the same kernel is wrong in some run."""
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    family = load_family("gemm_wgmma").on(target.device)
    values = family.seeds[0].as_dict() | {"EPILOGUE": "after", "K_ORDER": "forward"} | RACING
    config = family.completed(replace(family.seeds[0], values=tuple(values.items())))
    problem = Problem(
        4096, 4096, 2048, Layout.NT, DType.BF16, epilogue=Epilogue("acc + rest[m, n]")
    )
    source = render(family, config, problem)
    assert FENCED in source.text
    if not fenced:
        text = source.text.replace(FENCED, FENCED.removeprefix("    fence_before_bulk_copies();\n"))
        source = replace(source, text=text)
    compiled = compiler.compile(source, target.device.sm)
    candidate = Candidate(source, launch_plan(family, config, problem), compiled)
    target.prepare(problem, OPTIONS)
    found = {target.measure(candidate, None).status for _ in range(RUNS)}
    assert found == {Status.OK} if fenced else Status.WRONG_RESULT in found


def assert_right(
    target: CudaTarget, compiler: Compiler, family: Family, config: Config, problem: Problem
) -> None:
    source = render(family, config, problem)
    compiled = compiler.compile(source, target.device.sm)
    plan = launch_plan(family, config, problem)
    outcome = target.measure(Candidate(source, plan, compiled), None)
    assert (outcome.status, outcome.reason) == (Status.OK, ""), (problem.label, config)


BASELINES = {
    "acc + bias[n]": "fused",
    "relu(acc + bias[n])": "fused",
    "gelu_tanh(acc + bias[n])": "fused",
    "acc + rest[m, n]": "fused",
    "silu(acc) * gate[m, n]": "pointwise kernel",
    "aux[m, n] = acc + bias[n]; gelu_tanh(aux)": "pointwise kernel",
}


@pytest.mark.parametrize("text", BASELINES)
def test_the_baseline_does_the_same(target: CudaTarget, text: str) -> None:
    """Fused or not, whichever is faster; where cuBLASLt has the epilogue, it is among the calls."""
    problem = Problem(*(1024, 1024, 1024), Layout.NT, DType.BF16, epilogue=Epilogue(text))
    target.prepare(problem, MeasureOptions(deadline_s=20.0))
    assert target.baseline_us is not None and target.baseline_us > 0
    prepared = target._prepare
    assert prepared is not None and prepared.known is not None
    known = prepared.known
    # Some proposals add up in C's own type, which may be too coarse.
    right = [one.name for one in known.left_out if one.status is not Status.WRONG_RESULT]
    names = [*known.near, *right]
    assert any(name.endswith(BASELINES[text]) for name in names), known

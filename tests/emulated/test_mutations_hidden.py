"""Bugs that luck hides on this processor: indices of 32 bits where rows are near, variables that
begin as they should, static arrays at better addresses than they ask for.
"""

from dataclasses import dataclass, replace

import pytest
from handwritten import RIGHT, Tiny
from mutations import Base, ragged
from test_mutations import ALL_BASES

from autogemm.codegen import render
from autogemm.emulator import Emulator, Mode, RunOptions
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError
from autogemm.verify.edge_cases import FAR_ROWS

pytestmark = pytest.mark.emulated

BLOCK_TILED = Base(
    {"BM": 64, "BN": 64, "BK": 8, "TM": 4, "TN": 4, "VEC": 4}, ragged(Layout.NN, 4), "block_tiled"
)
BASES = {
    **{name: ALL_BASES[name] for name in ("pipeline", "bf16", "half warps", "wgmma", "f16x3")},
    **{name: ALL_BASES[name] for name in ("split", "inward stream K")},
    "block tiled": BLOCK_TILED,
    "splitting, odd rows": replace(ALL_BASES["tf32x3"], problems=ragged(Layout.NN, 7)),
}


@dataclass(frozen=True)
class Slip:
    """Each ``(old, new)`` is edited in the text of a base."""

    base: str
    name: str
    edits: tuple[tuple[str, str], ...]

    def apply(self, source: KernelSource) -> KernelSource:
        text = source.text
        for old, new in self.edits:
            assert old in text, f"the emitted kernel no longer has {old!r}"
            text = text.replace(old, new)
        return replace(source, text=text)


def slip(base: str, name: str, *edits: tuple[str, str]) -> Slip:
    return Slip(base, name, edits)


def far(problem: Problem) -> Problem:
    return replace(problem, lda=FAR_ROWS, ldb=FAR_ROWS, ldc=FAR_ROWS)


FAR_SLIPS = (
    slip("pipeline", "rows of A", ("tile.A + (long long)copy_m * lda", "tile.A + copy_m * lda")),
    slip("pipeline", "tiles of C", ("C + (long long)m0 * ldc", "C + m0 * ldc")),
    slip("pipeline", "k_tiles of B", ("(long long)BK * ldb", "BK * ldb")),
    slip("bf16", "rows of B", ("(long long)row_b * ldb", "(unsigned)row_b * ldb")),
    slip("half warps", "passes over A", ("a + (long long)m * lda", "a + (unsigned)m * lda")),
    slip("wgmma", "old C alone", ("C[(long long)m * ldc + n]", "C[m * ldc + n]")),
    slip("block tiled", "rows of B", ("(long long)k * ldb", "k * ldb")),
)


def problems_of(one: Slip) -> tuple[Problem, ...]:
    return tuple(far(problem) for problem in BASES[one.base].problems)


@pytest.mark.parametrize("base", ["pipeline", "wgmma"])
def test_rows_gigabytes_apart_are_all_right(emulator: Emulator, base: str) -> None:
    problem = far(BASES[base].problems[-1])
    source = render(BASES[base].family, BASES[base].config, problem)
    report = emulator.verify(source, BASES[base].plan(problem), problem)
    assert report.ok, report.message


@pytest.mark.parametrize("one", FAR_SLIPS, ids=lambda one: f"{one.base}: {one.name}")
def test_an_index_of_32_bits_is_caught(emulator: Emulator, one: Slip) -> None:
    base = BASES[one.base]
    caught = False
    for problem in base.problems:
        for apart in (problem, far(problem)):
            mutant = one.apply(render(base.family, base.config, apart))
            report = emulator.run(mutant, base.plan(apart), apart)
            assert report.ok or apart is not problem, "rows that are near must not show it"
            caught |= not report.ok
    assert caught


def test_an_index_of_32_bits_is_caught_in_fast_mode(emulator: Emulator) -> None:
    base, problem = BASES["block tiled"], far(BLOCK_TILED.problems[0])
    source = render(base.family, base.config, problem)
    options = RunOptions(mode=Mode.FAST)
    assert emulator.run(source, base.plan(problem), problem, options).ok
    report = emulator.run(FAR_SLIPS[-1].apply(source), base.plan(problem), problem, options)
    assert "SIGSEGV" in report.message


def test_what_is_said_of_far_rows_names_the_element(emulator: Emulator) -> None:
    problem = Problem(3, 1, 1, ldc=FAR_ROWS)
    kernel = Tiny("if (t < 3) C[(long long)t * ldc + (t == 2)] = A[t] * B[0];", problem=problem)
    report = emulator.run(kernel.source, kernel.plan, problem)
    found = {(finding.kind.value, finding.where) for finding in report.findings}
    assert found == {
        ("out of bounds", "C[2,1] (padding between rows)"),
        ("elements never written", "C[2,0]"),
        ("wrong value", "C[2,0]"),
    }


def test_rows_beyond_all_addresses_are_refused(emulator: Emulator) -> None:
    kernel = Tiny(RIGHT, problem=Problem(40_000, 1, 1, lda=2**31 - 1, ldc=2**31 - 1))
    with pytest.raises(UsageError, match="cannot reserve address space"):
        emulator.run(kernel.source, kernel.plan, kernel.problem)


UNSET_SLIPS = (
    slip("split", "whether a block adds", ("bool is_last = false;", "bool is_last;")),
    slip("inward stream K", "whether a block adds", ("bool is_last = false;", "bool is_last;")),
    slip(
        "bf16",
        "old C times a beta of 0",
        ("float old_c[2] = {};", "float old_c[2];"),
        ("with.beta == 0.0f ? with.alpha * accum : fmaf(", "fmaf("),
    ),
    slip(
        "splitting, odd rows",
        "the first element of a vector",
        ("for (int i = 0; i < VECTOR; ++i) {", "for (int i = 1; i < VECTOR; ++i) {"),
    ),
)


@pytest.mark.parametrize("one", UNSET_SLIPS, ids=lambda one: f"{one.base}: {one.name}")
def test_a_variable_read_before_it_is_written_is_caught(emulator: Emulator, one: Slip) -> None:
    base = BASES[one.base]
    messages = []
    for problem in base.problems:
        plan, source = base.plan(problem), render(base.family, base.config, problem)
        assert emulator.verify_unset(source, plan, problem).ok
        mutant = one.apply(source)
        assert emulator.verify(mutant, plan, problem).ok, "else it needs no runs of its own"
        messages.append(emulator.verify_unset(mutant, plan, problem).message)
    assert any("one may be read before it is written" in message for message in messages)


def test_a_greatest_value_that_begins_as_garbage_is_caught(emulator: Emulator) -> None:
    """-1, as which all ones begin, is below all counts, and so is GCC's own pattern."""
    kernel = Tiny(f"int most; most = most > K ? most : K; if (most == 1) {{ {RIGHT} }}")
    assert emulator.verify(kernel.source, kernel.plan, kernel.problem).ok
    assert not emulator.verify_unset(kernel.source, kernel.plan, kernel.problem).ok


STATIC_SLIPS = (
    slip(
        "f16x3",
        "vectors as words",
        (
            "__shared__ uint4 vectors[SPLIT_K_TILES][32 * VECTORS];",
            "__shared__ unsigned words[SPLIT_K_TILES][4 * 32 * VECTORS];\n"
            "    auto& vectors = reinterpret_cast<uint4(&)[SPLIT_K_TILES][32 * VECTORS]>(words);",
        ),
    ),
    slip(
        "pipeline",
        "destinations of copies",
        ("extern __shared__ __align__(16) float shared[];", "__shared__ float shared[12288];"),
    ),
    slip(
        "bf16",
        "destinations of copies",
        ("extern __shared__ __align__(128) Element shared[];", "__shared__ Element shared[24576];"),
    ),
)


@pytest.mark.parametrize("one", STATIC_SLIPS, ids=lambda one: f"{one.base}: {one.name}")
def test_a_static_array_that_is_read_in_longer_vectors_is_caught(
    emulator: Emulator, one: Slip
) -> None:
    base, problem = BASES[one.base], BASES[one.base].problems[0]
    source = render(base.family, base.config, problem)
    report = emulator.run(one.apply(source), base.plan(problem), problem)
    assert "misaligned access: static smem" in report.message
    new = one.edits[0][1]
    aligned = replace(
        source,
        text=one.apply(source).text.replace(
            new, new.replace("__shared__", "__shared__ __align__(128)")
        ),
    )
    assert emulator.run(aligned, base.plan(problem), problem).ok


FOUR = "reinterpret_cast<float4*>(tile)[t] = make_float4(0, 0, 0, 0);"
TWO = "reinterpret_cast<float2*>(tile)[t] = make_float2(0, 0);"


@pytest.mark.parametrize(
    ("declared", "store", "is_right"),
    [
        ("__shared__ float tile[64];", TWO, False),
        ("__shared__ float2 tile[64];", FOUR, False),
        ("__shared__ __align__(8) float head[3]; __shared__ float tile[64];", TWO, False),
        ("__shared__ float2 tile[64];", TWO, True),
        ("__shared__ __align__(16) float tile[128];", FOUR, True),
        ("alignas(16) __shared__ float tile[128];", FOUR, True),
        ("__shared__ volatile unsigned head; __shared__ float4 tile[64];", FOUR, True),
        ("struct Pair { double x, y; }; __shared__ Pair tile[32];", "tile[t].y = 0;", True),
    ],
)
def test_static_arrays_are_aligned_as_declared(
    emulator: Emulator, declared: str, store: str, is_right: bool
) -> None:
    kernel = Tiny(f"{declared}\n{store}\n{RIGHT}", threads=16)
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert report.ok == is_right, report.message
    assert is_right or "misaligned access: static smem float" in report.message

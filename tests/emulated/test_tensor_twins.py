"""The emulator's tensor cores: which lane holds what, exact products, sums cut off to FP32."""

import pytest
from handwritten import RIGHT, Tiny

from autogemm.emulator import Emulator, FindingKind

pytestmark = pytest.mark.emulated

# Small whole numbers as elements of each type: A[row][k] and B[k][column], all different.
PRELUDE = """
unsigned bf16(float x) { return __float_as_uint(x) >> 16; }
unsigned f16(float x) { return f16_from_float(x); }
float a_at(int row, int k) { return (float)((row * 16 + k) % 31 - 15); }
float b_at(int k, int column) { return (float)((k * 8 + column) % 13 - 6); }
"""
# Registers as the PTX ISA lays them out: pairs along k for 16 bits, single elements for TF32.
SHORT = """
const int g = t / 4, q = t % 4;
unsigned a[4], b[2];
for (int i = 0; i < 4; ++i) {
    const int row = g + i % 2 * 8, k = q * 2 + i / 2 * 8;
    a[i] = TYPE(a_at(row, k)) | TYPE(a_at(row, k + 1)) << 16;
}
for (int i = 0; i < 2; ++i) {
    const int k = q * 2 + i * 8;
    b[i] = TYPE(b_at(k, g)) | TYPE(b_at(k + 1, g)) << 16;
}
"""
WORD = """
const int g = t / 4, q = t % 4;
unsigned a[4], b[2];
for (int i = 0; i < 4; ++i) a[i] = __float_as_uint(a_at(g + i % 2 * 8, q + i / 2 * 4));
for (int i = 0; i < 2; ++i) b[i] = __float_as_uint(b_at(q + i * 4, g));
"""
BYTES = """
const int g = t / 4, q = t % 4;
unsigned a[4] = {}, b[2] = {};
for (int i = 0; i < 16; ++i) {
    const int row = g + i / 4 % 2 * 8, k = q * 4 + i / 8 * 16 + i % 4;
    a[i / 4] |= (unsigned)((int)a_at(row, k) & 255) << i % 4 * 8;
}
for (int i = 0; i < 8; ++i) {
    const int k = q * 4 + i / 4 * 16 + i % 4;
    b[i / 4] |= (unsigned)((int)b_at(k, g) & 255) << i % 4 * 8;
}
"""
CHECK = """
float d[4] = {1.0f, 2.0f, 3.0f, 4.0f};
MMA(d, a, b);
bool good = true;
for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = q * 2 + i % 2;
    float sum = (float)(i + 1);
    for (int k = 0; k < DEPTH; ++k) sum += a_at(row, k) * b_at(k, column);
    good = good && d[i] == sum;
}
if (!good) atomicAdd(workspace, 1.0f);
__syncthreads();
if (t == 0) C[0] = A[0] * B[0] + 100 * workspace[0];
"""
# Beyond what FP32 holds.
INTEGERS = CHECK.replace("float d[4] = {1.0f, 2.0f, 3.0f, 4.0f};", "int d[4];").replace(
    "MMA", "for (int i = 0; i < 4; ++i) d[i] = i + (1 << 30);\nMMA"
)
INTEGERS = INTEGERS.replace("float sum = (float)(i + 1)", "int sum = i + (1 << 30)")
INTEGERS = INTEGERS.replace("sum += a_at", "sum += (int)a_at").replace("* b_at", "* (int)b_at")
INSTRUCTIONS = {
    "mma_bf16_k16": SHORT.replace("TYPE", "bf16") + CHECK.replace("DEPTH", "16"),
    "mma_f16_k16": SHORT.replace("TYPE", "f16") + CHECK.replace("DEPTH", "16"),
    "mma_f16_k8_twice": SHORT.replace("TYPE", "f16") + CHECK.replace("DEPTH", "16"),
    "mma_i8_k32": BYTES + INTEGERS.replace("DEPTH", "32"),
    "mma_tf32_k8": WORD + CHECK.replace("DEPTH", "8"),
}
BEGIN = "if (t == 0) workspace[0] = 0; __syncthreads();\n"


def tiny(body: str, smem_bytes: int = 4096) -> Tiny:
    return Tiny(BEGIN + body, smem_bytes=smem_bytes, workspace_bytes=4, prelude=PRELUDE)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_each_lane_has_its_elements(emulator: Emulator, name: str) -> None:
    kernel = tiny(INSTRUCTIONS[name].replace("MMA", name))
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert report.ok, report.message


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("mma_bf16_k16", "q * 2 + i / 2 * 8", "q * 2 + i % 2 * 8"),
        ("mma_f16_k16", "b_at(k, g)", "b_at(k + 1, g)"),
        ("mma_i8_k32", "i / 8 * 16 + i % 4", "i / 8 * 16 + i % 2"),
        ("mma_i8_k32", "g + i / 4 % 2 * 8", "g + i / 8 * 8"),
        ("mma_tf32_k8", "b_at(q + i * 4, g)", "b_at(q + i * 4, t % 8)"),
        ("mma_tf32_k8", "g + i % 2 * 8", "g + i / 2 * 8"),
    ],
)
def test_swapped_lanes_show(emulator: Emulator, name: str, old: str, new: str) -> None:
    body = INSTRUCTIONS[name].replace("MMA", name)
    assert old in body
    kernel = tiny(body.replace(old, new, 1))
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert FindingKind.WRONG_VALUE in {finding.kind for finding in report.findings}


MATRICES = """
// Words: in an FP32 problem two threads may not store halves of one.
unsigned* const m = reinterpret_cast<unsigned*>(smem);
for (int i = t; i < 128; i += 32) m[i] = 2 * i | (2 * i + 1) << 16;
__syncthreads();
unsigned r[4];
LOAD(r, m + t * 4);
bool good = true;
for (int i = 0; i < 4; ++i) {
    const int first = i * 64 + (PLACE), step = STEP;
    good = good && r[i] == (unsigned)(first | (first + step) << 16);
}
if (!good) atomicAdd(workspace, 1.0f);
__syncthreads();
"""
LOADS = {
    "load_matrices": ("t / 4 * 8 + t % 4 * 2", "1"),
    "load_transposed": ("t % 4 * 16 + t / 4", "8"),
}


def loading(name: str, place: str, step: str) -> Tiny:
    body = MATRICES.replace("LOAD", name).replace("PLACE", place).replace("STEP", step)
    return tiny(body + "if (t == 0) C[0] = A[0] * B[0] + 100 * workspace[0];")


@pytest.mark.parametrize("name", LOADS)
def test_matrices_are_loaded_lane_by_lane(emulator: Emulator, name: str) -> None:
    kernel = loading(name, *LOADS[name])
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert report.ok, report.message
    other = next(wrong for wrong in LOADS if wrong != name)
    wrong = loading(name, *LOADS[other])
    assert not emulator.run(wrong.source, wrong.plan, wrong.problem).ok


# Lane i has the address of row i % 8 of matrix i / 8.
STORED = """
unsigned* const m = reinterpret_cast<unsigned*>(smem);
unsigned r[4];
for (int i = 0; i < 4; ++i) {
    const int first = i * 64 + t / 4 * 8 + t % 4 * 2;
    r[i] = first | (first + 1) << 16;
}
store_matrices(m + t * 4, r);
__syncwarp();
bool good = true;
for (int i = t; i < 128; i += 32) good = good && m[i] == (unsigned)(2 * i | (2 * i + 1) << 16);
if (!good) atomicAdd(workspace, 1.0f);
__syncthreads();
if (t == 0) C[0] = A[0] * B[0] + 100 * workspace[0];
"""


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("", "", None),
        ("m + t * 4", "m + (t ^ 1) * 4", FindingKind.WRONG_VALUE),
        ("t / 4 * 8 + t % 4 * 2", "t % 4 * 16 + t / 4", FindingKind.WRONG_VALUE),
        ("__syncwarp();", "", FindingKind.RACE),
        ("m + t * 4", "m + t * 4 + 1", FindingKind.MISALIGNED),
        ("store_matrices(m", "if (t < 16) store_matrices(m", FindingKind.WARP_DIVERGENCE),
    ],
)
def test_matrices_are_stored_row_by_row(
    emulator: Emulator, old: str, new: str, kind: FindingKind | None
) -> None:
    assert old in STORED
    kernel = tiny(STORED.replace(old, new, 1) if old else STORED)
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert report.ok == (kind is None)
    assert report.ok or kind in {one.kind for one in report.findings}


# Two neighbours of a lane go below each other.
TURNED = (
    STORED.replace("t / 4 * 8 + t % 4 * 2", "t % 4 * 16 + t / 4")
    .replace("first + 1", "first + 8")
    .replace("store_matrices(", "store_matrices_transposed(")
)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("", "", None),
        ("store_matrices_transposed(", "store_matrices(", FindingKind.WRONG_VALUE),
        ("m + t * 4", "m + (t ^ 8) * 4", FindingKind.WRONG_VALUE),
        ("__syncwarp();", "", FindingKind.RACE),
    ],
)
def test_matrices_are_stored_column_by_column(
    emulator: Emulator, old: str, new: str, kind: FindingKind | None
) -> None:
    assert old in TURNED
    kernel = tiny(TURNED.replace(old, new, 1) if old else TURNED)
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert report.ok == (kind is None)
    assert report.ok or kind in {one.kind for one in report.findings}


# One product of tf32, with what is in the accumulator: to the last bit.
ROUNDING = """
unsigned a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
if (t == 0) {
    a[0] = __float_as_uint(X);
    b[0] = __float_as_uint(Y);
}
float d[4] = {Z, 0, 0, 0};
mma_tf32_k8(d, a, b);
if (t == 0) C[0] = d[0] == (RESULT) ? A[0] * B[0] : 100.0f;
"""


@pytest.mark.parametrize(
    ("x", "y", "z", "result"),
    [
        # 1 + 3/4 of the last bit is 1: cut off, not rounded; the same below zero.
        ("0x1.8p-24f", "1.0f", "1.0f", "1.0f"),
        ("-0x1.8p-24f", "1.0f", "-1.0f", "-1.0f"),
        # A product of 22 bits is exact.
        ("0x1.ffcp0f", "0x1.ffcp0f", "0.0f", "0x1.ffcp0f * 0x1.ffcp0f"),
        # Bits that TF32 does not have are not read.
        ("0x1.fffffep0f", "1.0f", "0.0f", "0x1.ffcp0f"),
        ("0x1p127f", "4.0f", "0.0f", "__uint_as_float(0x7f800000u)"),
        ("0x1p-140f", "1.0f", "0.0f", "0.0f"),
        ("0x1p-130f", "2.0f", "0.0f", "0x1p-129f"),
    ],
)
def test_products_are_exact_and_sums_are_cut_off(
    emulator: Emulator, x: str, y: str, z: str, result: str
) -> None:
    body = ROUNDING
    for name, text in (("RESULT", result), ("X", x), ("Y", y), ("Z", z)):
        body = body.replace(name, text)
    kernel = tiny(body)
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert report.ok, report.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("unsigned r[4]; load_matrices(r, smem + t * 4 + 1);", FindingKind.MISALIGNED),
        ("unsigned r[4]; load_matrices(r, A);", FindingKind.OUT_OF_BOUNDS),
        ("unsigned r[4]; load_matrices(r, smem + t * 4);", FindingKind.UNINITIALISED),
        (
            "if (t == 3) return;\nunsigned a[4] = {}, b[2] = {};\n"
            "float d[4] = {}; mma_tf32_k8(d, a, b);",
            FindingKind.WARP_DIVERGENCE,
        ),
    ],
    ids=lambda value: value.value if isinstance(value, FindingKind) else "",
)
def test_misuse_is_found(emulator: Emulator, body: str, kind: FindingKind) -> None:
    kernel = tiny(f"{body}\n{RIGHT}", smem_bytes=512)
    report = emulator.run(kernel.source, kernel.plan, kernel.problem)
    assert report.findings[0].kind is kind

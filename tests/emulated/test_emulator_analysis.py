"""Wavefronts and sectors of access patterns, against what an H100 needed in cycles."""

import pytest
from handwritten import RIGHT, Tiny

from autogemm.emulator import AccessLine, Emulator

pytestmark = pytest.mark.emulated


def access(emulator: Emulator, body: str, memory: str, operation: str) -> AccessLine:
    """The one line of the body that does this, executed by one warp."""
    fill = "for (int i = t; i < 4096; i += 32) smem[i] = i;\n__syncthreads();\n"
    tiny = Tiny(f"{fill}{body}\n__syncthreads();\n{RIGHT}", 32, 1, 16384, 16384)
    lines = emulator.analyse(tiny.source, tiny.plan, tiny.problem)
    (found,) = [a for a in lines if (a.memory, a.operation, a.line) == (memory, operation, 4)]
    return found


FLOAT4 = "float4 v = reinterpret_cast<const float4*>(smem)[{}]; if (v.x < 0) workspace[0] = 1;"
FLOAT2 = "float2 v = reinterpret_cast<const float2*>(smem)[{}]; if (v.x < 0) workspace[0] = 1;"
FLOAT = "if (smem[{}] < 0) workspace[0] = 1;"


@pytest.mark.parametrize(
    ("body", "cost", "ideal"),
    [
        (FLOAT.format("t"), 1, 1),
        (FLOAT.format("2 * t"), 2, 1),
        (FLOAT.format("32 * t"), 32, 1),
        (FLOAT.format("33 * t"), 1, 1),
        (FLOAT.format("5"), 1, 1),
        (FLOAT2.format("t"), 2, 2),
        (FLOAT2.format("16 * t"), 32, 2),
        (FLOAT4.format("t"), 4, 4),
        (FLOAT4.format("t / 8"), 2, 2),
        (FLOAT4.format("t % 8"), 4, 2),
        (FLOAT4.format("0"), 2, 2),
        # Z-order: neighbours of two rows and two columns, eight of each.
        (FLOAT4.format("t / 8 * 2 + t / 2 % 2"), 2, 2),
        (FLOAT4.format("t / 4 % 2 * 2 + t % 2"), 2, 2),
        (FLOAT4.format("8 * t"), 32, 4),
    ],
)
def test_wavefronts_of_shared_loads(
    emulator: Emulator, body: str, cost: float, ideal: float
) -> None:
    found = access(emulator, body, "shared", "load")
    assert (found.requests, found.cost, found.ideal) == (1, cost, ideal)


@pytest.mark.parametrize(
    ("body", "cost", "ideal"),
    [
        ("workspace[t] = 0;", 4, 4),
        ("workspace[t + 1] = 0;", 5, 4),
        ("workspace[8 * t] = 0;", 32, 4),
        ("reinterpret_cast<float4*>(workspace)[t] = make_float4(0, 0, 0, 0);", 16, 16),
        ("if (t < 8) workspace[t] = 0;", 1, 1),
    ],
)
def test_sectors_of_global_stores(emulator: Emulator, body: str, cost: float, ideal: float) -> None:
    found = access(emulator, body, "global", "store")
    assert (found.requests, found.cost, found.ideal) == (1, cost, ideal)


def test_asynchronous_copies_load_and_store(emulator: Emulator) -> None:
    body = "copy_async_4(smem + 33 * (t % 4) + t / 4, A); commit_copies(); wait_for_copies(0);"
    assert access(emulator, body, "global", "load").cost == 1
    assert access(emulator, body, "shared", "store").cost > 1


@pytest.mark.parametrize(("row_floats", "cost"), [(8, 1), (32, 4), (16, 2)])
def test_an_asynchronous_copy_costs_a_wavefront_for_each_line_it_comes_from(
    emulator: Emulator, row_floats: int, cost: float
) -> None:
    # 4 rows of 8 floats to 32 different banks: only the lines of global memory differ.
    source = f"workspace + t / 8 * {row_floats} + t % 8"
    body = f"copy_async_4(smem + t, {source}); commit_copies(); wait_for_copies(0);"
    found = access(emulator, body, "shared", "store")
    assert (found.requests, found.cost, found.ideal) == (1, cost, 1)


def test_each_turn_of_a_loop_is_a_request(emulator: Emulator) -> None:
    body = "for (int i = 0; i < 5; ++i) workspace[32 * i + t] = 0;"
    found = access(emulator, body, "global", "store")
    assert (found.requests, found.cost) == (5, 4)

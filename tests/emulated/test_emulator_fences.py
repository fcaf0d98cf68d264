"""Blocks that hand over data through global memory: fences and atomics order, or the lack shows."""

import pytest
from handover.split_k import SPLIT_K
from handwritten import RIGHT as PRODUCT
from handwritten import Tiny

from autogemm.targets.emulator import Emulator, FindingKind, Mode, RunOptions

pytestmark = pytest.mark.emulated


@pytest.mark.parametrize("name", ["counter not reset", "counter reset to one", "parts overlap"])
def test_fast_mode_runs_twice_on_one_workspace_too(emulator: Emulator, name: str) -> None:
    plan, problem = SPLIT_K.plan, SPLIT_K.problem
    assert emulator.verify(SPLIT_K.edited(), plan, problem, Mode.FAST).ok
    assert not emulator.verify(SPLIT_K.edited(name), plan, problem, Mode.FAST).ok


@pytest.mark.parametrize("seed", range(4))
def test_any_block_may_be_the_last(emulator: Emulator, seed: int) -> None:
    options = RunOptions(seed=seed)
    plan, problem = SPLIT_K.plan, SPLIT_K.problem
    report = emulator.run(SPLIT_K.edited(), plan, problem, options)
    assert report.ok, report.message
    fixed = SPLIT_K.edited("nobody waits to be last")
    assert not emulator.run(fixed, plan, problem, options).ok


FLAG = (
    "volatile int* flag = reinterpret_cast<volatile int*>(workspace);\n"
    "if (t == 0 && blockIdx.x == 0) {{ workspace[1] = 7; {publish} *flag = 1; }}\n"
    "if (t == 0 && blockIdx.x == 1) {{ const int seen = *flag; {receive}\n"
    "if (seen == 1 && workspace[1] == 8) C[0] = 1; *flag = 0; }}\n"
)


@pytest.mark.parametrize("publish", ["", "__threadfence();"])
@pytest.mark.parametrize("receive", ["", "__threadfence();"])
def test_a_volatile_flag_orders_with_both_fences(
    emulator: Emulator, publish: str, receive: str
) -> None:
    # As one block runs after the other, block 1 finds the flag set; on a card it would wait for it.
    body = FLAG.format(publish=publish, receive=receive) + PRODUCT
    tiny = Tiny(body, 32, grid=2, workspace_bytes=8)
    report = emulator.run(tiny.source, tiny.plan, tiny.problem)
    assert report.ok == (publish != "" and receive != ""), report.message


@pytest.mark.parametrize("flag", ["store_release(flag, 1u)", "*(volatile unsigned*)flag = 1u"])
@pytest.mark.parametrize("seen", ["load_acquire(flag)", "*(volatile unsigned*)flag"])
def test_a_released_flag_orders_who_acquires_it(emulator: Emulator, flag: str, seen: str) -> None:
    body = (
        "unsigned* flag = reinterpret_cast<unsigned*>(workspace);\n"
        f"if (t == 0 && blockIdx.x == 0) {{ workspace[1] = 7; {flag}; }}\n"
        f"if (t == 0 && blockIdx.x == 1) {{ const unsigned seen = {seen};\n"
        "if (seen == 1 && workspace[1] == 8) C[0] = 1; store_release(flag, 0u); }\n"
    )
    tiny = Tiny(body + PRODUCT, 32, grid=2, workspace_bytes=8)
    report = emulator.run(tiny.source, tiny.plan, tiny.problem)
    assert report.ok == ("volatile" not in flag + seen), report.message


def test_fences_order_nothing_without_an_atomic_between(emulator: Emulator) -> None:
    body = (
        "if (t == 0 && blockIdx.x == 0) { workspace[1] = 7; __threadfence(); }\n"
        "if (t == 0 && blockIdx.x == 1) { __threadfence();\nif (workspace[1] == 8) C[0] = 1; }\n"
    )
    tiny = Tiny(body + PRODUCT, 32, grid=2, workspace_bytes=8)
    finding = emulator.run(tiny.source, tiny.plan, tiny.problem).findings[0]
    assert (finding.kind, finding.line) == (FindingKind.RACE, 4)


def test_another_counter_orders_nothing(emulator: Emulator) -> None:
    body = (
        "int* counter = reinterpret_cast<int*>(workspace);\n"
        "if (t == 0 && blockIdx.x == 0) { workspace[2] = 7; __threadfence(); "
        "atomicAdd(counter, 1); }\n"
        "if (t == 0 && blockIdx.x == 1) { atomicAdd(counter + INDEX, 1); __threadfence();\n"
        "if (workspace[2] == 8) C[0] = 1; }\n"
    )
    for index, kinds in ((0, []), (1, [FindingKind.RACE])):
        text = body.replace("INDEX", str(index)) + PRODUCT
        tiny = Tiny(text, 32, grid=2, workspace_bytes=12)
        report = emulator.run(tiny.source, tiny.plan, tiny.problem)
        assert [finding.kind for finding in report.findings] == kinds


def test_what_one_block_received_it_hands_on(emulator: Emulator) -> None:
    """Block 0 to block 1 by one counter, block 1 to block 2 by another."""
    body = (
        "int* counter = reinterpret_cast<int*>(workspace);\n"
        "if (t == 0 && blockIdx.x == 0) { workspace[2] = 7; __threadfence(); "
        "atomicAdd(counter, 1); }\n"
        "if (t == 0 && blockIdx.x == 1) { atomicAdd(counter, 1); __threadfence(); "
        "atomicAdd(counter + 1, 1); }\n"
        "if (t == 0 && blockIdx.x == 2) { atomicAdd(counter + 1, 1); __threadfence();\n"
        "if (workspace[2] == 8) C[0] = 1; }\n"
    )
    tiny = Tiny(body + PRODUCT, 32, grid=3, workspace_bytes=12)
    assert emulator.run(tiny.source, tiny.plan, tiny.problem).ok
    broken = Tiny(
        body.replace("__threadfence(); atomicAdd(counter + 1", "atomicAdd(counter + 1") + PRODUCT,
        32,
        grid=3,
        workspace_bytes=12,
    )
    assert not emulator.run(broken.source, broken.plan, broken.problem).ok


def test_only_counters_may_rely_on_a_zero_workspace(emulator: Emulator) -> None:
    counts = Tiny(
        f"if (t == 0) atomicExch((int*)workspace, atomicAdd((int*)workspace, 0));\n{PRODUCT}",
        workspace_bytes=4,
    )
    assert emulator.run(counts.source, counts.plan, counts.problem).ok
    sums = Tiny(f"if (t == 0 && workspace[0] != 0) C[0] = 1;\n{PRODUCT}", workspace_bytes=4)
    (finding,) = emulator.run(sums.source, sums.plan, sums.problem).findings
    assert finding.kind is FindingKind.UNINITIALISED

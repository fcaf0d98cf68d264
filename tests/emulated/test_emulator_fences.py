"""Blocks that hand over data through global memory: fences and atomics order, or the lack shows."""

import pytest
from handover.split_k import SPLIT_K
from handwritten import RIGHT as PRODUCT
from handwritten import Tiny

from autogemm.emulator import Emulator, FindingKind, Mode, RunOptions
from autogemm.model.problem import Problem

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
    fixed = SPLIT_K.edited("nothing waits to be last")
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
    # As one block runs after the other, block 1 finds the flag set; on a GPU it would wait for it.
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


WAITS_FOR_THE_NEXT = (
    "unsigned* flags = reinterpret_cast<unsigned*>(workspace);\n"
    "float* sums = workspace + 8;\n"
    "if (t == 0) {\n"
    "float sum = A[blockIdx.x] * B[blockIdx.x];\n"
    "if (blockIdx.x + 1 < gridDim.x) {\n"
    "while (load_acquire(flags + blockIdx.x + 1) == 0) {}\n"
    "sum += sums[blockIdx.x + 1];\n"
    "store_release(flags + blockIdx.x + 1, 0u);\n"
    "}\n"
    "if (blockIdx.x == 0) C[0] = sum;\n"
    "else { sums[blockIdx.x] = sum; store_release(flags + blockIdx.x, 1u); }\n"
    "}"
)


@pytest.mark.parametrize("mode", Mode)
def test_blocks_that_run_by_turns_may_wait_for_each_other(emulator: Emulator, mode: Mode) -> None:
    tiny = Tiny(WAITS_FOR_THE_NEXT, 32, 6, workspace_bytes=64, problem=Problem(1, 1, 6))
    for seed in range(3):
        options = RunOptions(mode=mode, seed=seed, resident_blocks=6)
        report = emulator.run(tiny.source, tiny.plan, tiny.problem, options)
        assert report.ok, report.message
    by_one = emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(mode=mode, deadline_s=1))
    assert by_one.findings[0].kind is FindingKind.TIMED_OUT


def test_who_waits_for_a_lower_index_gets_on(emulator: Emulator) -> None:
    """However few run by turns; one after the other too."""
    body = (
        "unsigned* flags = reinterpret_cast<unsigned*>(workspace);\n"
        "if (t == 0) {\n"
        "if (blockIdx.x > 0) {\n"
        "while (load_acquire(flags + blockIdx.x - 1) == 0) {}\n"
        "store_release(flags + blockIdx.x - 1, 0u);\n"
        "}\n"
        "if (blockIdx.x == 11) C[0] = A[0] * B[0];\n"
        "else store_release(flags + blockIdx.x, 1u);\n"
        "}"
    )
    tiny = Tiny(body, 32, grid=12, workspace_bytes=64)
    for seed, resident_blocks in ((0, 1), (1, 2), (2, 5), (3, 5), (4, 12)):
        options = RunOptions(seed=seed, resident_blocks=resident_blocks, deadline_s=5)
        report = emulator.run(tiny.source, tiny.plan, tiny.problem, options)
        assert report.ok, report.message


def test_what_is_awaited_must_be_released(emulator: Emulator) -> None:
    body = WAITS_FOR_THE_NEXT.replace(
        "store_release(flags + blockIdx.x, 1u)", "atomicExch(flags + blockIdx.x, 1u)"
    )
    tiny = Tiny(body, 32, 6, workspace_bytes=64, problem=Problem(1, 1, 6))
    report = emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(resident_blocks=6))
    assert FindingKind.RACE in {finding.kind for finding in report.findings}


def test_a_decision_between_two_atomics_is_taken_by_turns(emulator: Emulator) -> None:
    """Each block raises its flag, then looks whether all are up: two may find it so."""
    body = (
        "unsigned* flags = reinterpret_cast<unsigned*>(workspace);\n"
        "if (t == 0) {\n"
        "atomicExch(flags + blockIdx.x, 1u);\n"
        "unsigned up = 0;\n"
        "for (int i = 0; i < gridDim.x; ++i) up += atomicAdd(flags + i, 0u);\n"
        "if (up == gridDim.x) { C[0] = A[0] * B[0]; for (int i = 0; i < gridDim.x; ++i) "
        "atomicExch(flags + i, 0u); }\n}"
    )
    tiny = Tiny(body, 32, 4, workspace_bytes=64)
    assert emulator.run(tiny.source, tiny.plan, tiny.problem).ok
    assert not emulator.verify(tiny.source, tiny.plan, tiny.problem).ok

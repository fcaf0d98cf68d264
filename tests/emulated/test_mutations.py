"""Planted bugs are caught, and every kernel without one passes."""

from collections.abc import Iterator

import pytest
from mutations import BASES, MUTATIONS, Mutation
from mutations_batches import BATCH_BASES, BATCH_MUTATIONS
from mutations_chains import CHAIN_BASES, CHAIN_MUTATIONS
from mutations_direct import DIRECT_BASES, DIRECT_MUTATIONS
from mutations_divided import DIVIDED_BASES, DIVIDED_MUTATIONS
from mutations_edges import EDGE_BASES, EDGE_MUTATIONS
from mutations_groups import GROUP_BASES, GROUP_MUTATIONS
from mutations_masked import MASKED_BASES, MASKED_MUTATIONS
from mutations_packing import PACKING_BASES, PACKING_MUTATIONS
from mutations_shared import SHARED_BASES, SHARED_MUTATIONS
from mutations_skinny import SKINNY_BASES, SKINNY_MUTATIONS
from mutations_split import SPLIT_BASES, SPLIT_MUTATIONS
from mutations_tensor import TENSOR_BASES, TENSOR_MUTATIONS
from mutations_wgmma import WGMMA_BASES, WGMMA_MUTATIONS
from sampling import one_in

from autogemm.codegen import render
from autogemm.emulator import Emulator, EmulatorReport, FindingKind

pytestmark = pytest.mark.emulated

ALL_BASES = BASES | EDGE_BASES | SHARED_BASES | SKINNY_BASES | SPLIT_BASES
ALL_BASES |= TENSOR_BASES | WGMMA_BASES | CHAIN_BASES | DIRECT_BASES
ALL_BASES |= PACKING_BASES | BATCH_BASES | GROUP_BASES | MASKED_BASES
ALL_BASES |= DIVIDED_BASES
ALL_MUTATIONS = (
    *(*MUTATIONS, *EDGE_MUTATIONS, *SHARED_MUTATIONS, *SKINNY_MUTATIONS),
    *(*SPLIT_MUTATIONS, *TENSOR_MUTATIONS, *WGMMA_MUTATIONS),
    *(*CHAIN_MUTATIONS, *DIRECT_MUTATIONS, *PACKING_MUTATIONS),
    *(*BATCH_MUTATIONS, *GROUP_MUTATIONS, *MASKED_MUTATIONS, *DIVIDED_MUTATIONS),
)


def reports(
    emulator: Emulator, base_name: str, mutation: Mutation | None
) -> Iterator[EmulatorReport]:
    base = ALL_BASES[base_name]
    for problem in base.problems:
        source = render(base.family, base.config, problem)
        mutant = mutation.apply(source) if mutation else source
        yield emulator.verify(mutant, base.plan(problem), problem)


@pytest.mark.parametrize("base", ALL_BASES)
def test_an_unedited_kernel_passes(emulator: Emulator, base: str) -> None:
    for report in reports(emulator, base, None):
        assert report.ok, report.message


@pytest.mark.parametrize(
    "mutation", one_in(16, ALL_MUTATIONS, lambda one: one.base), ids=lambda m: f"{m.base}: {m.name}"
)
def test_a_planted_bug_is_caught(emulator: Emulator, mutation: Mutation) -> None:
    if mutation.hangs:
        # Seconds of a processor, of which a right kernel takes one or two.
        emulator = Emulator(deadline_s=10)
    found = reports(emulator, mutation.base, mutation)
    caught = next((report for report in found if not report.ok), None)
    assert caught is not None
    if mutation.hangs:
        assert {one.kind for one in caught.findings} == {FindingKind.TIMED_OUT}

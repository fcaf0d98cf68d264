"""Every planted bug is caught, and every kernel without one passes."""

from collections.abc import Iterator

import pytest
from mutations import BASES, MUTATIONS, Mutation

from autogemm.codegen import render
from autogemm.space import Family, load_family
from autogemm.targets.emulator import Emulator, EmulatorReport

pytestmark = pytest.mark.emulated


@pytest.fixture(scope="module")
def family() -> Family:
    return load_family("sgemm_simt")


def reports(
    emulator: Emulator, family: Family, base_name: str, mutation: Mutation | None
) -> Iterator[EmulatorReport]:
    base = BASES[base_name]
    for problem in base.problems:
        source = render(family, base.config(family), problem)
        mutant = mutation.apply(source) if mutation else source
        yield emulator.verify(mutant, base.plan(family, problem), problem)


@pytest.mark.parametrize("base", BASES)
def test_an_unedited_kernel_passes(emulator: Emulator, family: Family, base: str) -> None:
    for report in reports(emulator, family, base, None):
        assert report.ok, report.message


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.base}: {m.name}")
def test_a_planted_bug_is_caught(emulator: Emulator, family: Family, mutation: Mutation) -> None:
    assert any(not report.ok for report in reports(emulator, family, mutation.base, mutation))

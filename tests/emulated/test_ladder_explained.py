"""`explain` shows why the rungs that are slow on purpose are slow, and what it says is what an H100
counted (tests/pages).
"""

from pathlib import Path

import pytest

from autogemm.bench.kernels import named_kernels, render_named
from autogemm.catalogue.gpus import find_device
from autogemm.emulator import Emulator
from autogemm.insight.explain.accesses import Accesses, accesses
from autogemm.insight.profiling import counters as names
from autogemm.insight.profiling import parse_page
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family, tile_of
from autogemm.verify import reduced

pytestmark = pytest.mark.emulated

PAGES = Path(__file__).parents[1] / "pages"
DEVICE = find_device("h100")


def explained(emulator: Emulator, rung: str) -> Accesses:
    (kernel,) = named_kernels((rung,))
    config = render_named(kernel, Problem.of_size("1024"), DEVICE, None).source.config
    family = load_family(config.family)
    problem = Problem.of_size("1024")
    small = reduced(problem, tile_of(family, config, DEVICE, problem.dtype))
    ready = render_named(kernel, small, DEVICE, None)
    found = accesses(emulator, ready.source, ready.plan, small, None)
    assert isinstance(found, Accesses)
    return found


def sectors_per_request(found: Accesses, operation: str) -> float:
    lines = [one for one in found.lines if (one.memory, one.operation) == ("global", operation)]
    return sum(one.requests * one.per_request for one in lines) / sum(one.requests for one in lines)


@pytest.mark.parametrize(
    ("rung", "loads", "stores"),
    [
        ("naive", 2.5, 4.0),
        ("naive_uncoalesced", 16.5, 32.0),
        ("coarsened", 6.8, 16.0),
        ("register_blocked", 4.0, 16.0),
        ("register_blocked_uncoalesced", 16.0, 16.0),
    ],
)
def test_sectors_of_a_request(emulator: Emulator, rung: str, loads: float, stores: float) -> None:
    found = explained(emulator, rung)
    assert sectors_per_request(found, "load") == pytest.approx(loads)
    assert sectors_per_request(found, "store") == pytest.approx(stores)
    page = PAGES / f"{rung}_1024.csv"
    if page.exists():
        counted = parse_page(page.read_text())
        hardware = counted[names.LOAD_SECTORS] / counted[names.GLOBAL_LOADS]
        assert loads == pytest.approx(hardware, rel=0.01)
        hardware = counted[names.STORE_SECTORS] / counted[names.GLOBAL_STORES]
        assert stores == pytest.approx(hardware, rel=0.01)


@pytest.mark.parametrize(("rung", "times_ideal"), [("tiled", 32), ("padded_prefetch", 1)])
def test_padding_takes_the_bank_conflicts_of_a_transposed_operand(
    emulator: Emulator, rung: str, times_ideal: float
) -> None:
    # Stored [N,K], B's tile is read down a column: without padding 32 lanes meet in one bank.
    (kernel,) = named_kernels((rung,))
    problem = Problem(128, 128, 128, layout=Layout.NT)
    ready = render_named(kernel, problem, DEVICE, None)
    found = accesses(emulator, ready.source, ready.plan, problem, None)
    assert isinstance(found, Accesses)
    shared = [one.times_ideal for one in found.lines if one.memory == "shared"]
    assert max(shared) == times_ideal

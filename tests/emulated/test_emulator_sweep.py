"""A seeded random sweep: legal configs of every family over the first edge cases of each."""

import random
from dataclasses import replace
from itertools import islice

import pytest
from sampling import one_in

from autogemm.catalogue.gpus import find_device
from autogemm.emulator import Emulator, Mode
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, broken_constraints, list_families, load_family
from autogemm.space.family import Searched
from autogemm.verify.cases import (
    Case,
    cases_of,
    legal_case,
    on_cpu,
    planned_cases,
    run_cases,
    sample_configs,
)

pytestmark = pytest.mark.emulated

SEED = 20
FEW_SMS = 4
# In cases of seeds. A few larger ones took half of the time.
MOST_FLOPS = 1.5e8
# Configs for each family, by when it is searched: fewer where it is only there to teach.
CONFIGS = {Searched.ALWAYS: 2, Searched.WITH_EMULATION: 1, Searched.BY_NAME: 1}
# Cases for all seeds of a family together.
SEED_CASES = {Searched.ALWAYS: 30, Searched.WITH_EMULATION: 6, Searched.BY_NAME: 6}
# A product of whole tiles, for which most configs are legal.
WHOLE_TILES = (3072, 3072, 3072)
# 32 lanes take their time to multiply together.
TENSOR_FAMILIES = (
    *("gemm_mma", "gemm_skinny", "gemm_wgmma"),
    *("sgemm_emulated", "sgemm_emulated_wgmma"),
)
SMALL_TILES: dict[str, dict[str, tuple[Value, ...]]] = {
    "gemm_mma": {"BM": (32, 64), "BN": (32, 64), "BK": (16, 32)},
    "gemm_skinny": {"BM": (8, 16), "BK": (64, 128, 256)},
    "gemm_wgmma": {"BM": (64, 128), "BN": (64, 128), "SPLIT_K": (1,)},
    "sgemm_emulated": {"BM": (32, 64), "BN": (32, 64), "BK": (16, 32)},
    "sgemm_emulated_wgmma": {"BN": (64,)},
    # Stream-K in both.
    "sgemm_simt": {"STREAM_BLOCKS": (FEW_SMS, 2 * FEW_SMS)},
}
# TMA wants aligned rows, and with gemm_wgmma TF32 along k: fewer of the edge cases are its own.
LEAST_CASES = {"gemm_wgmma": 10}
FIRST_CASES = {Searched.ALWAYS: 6, Searched.WITH_EMULATION: 4, Searched.BY_NAME: 6}
RANDOM_CONFIGS = [
    (name, index)
    for name in list_families()
    for index in range(1 if name in TENSOR_FAMILIES else CONFIGS[load_family(name).searched])
]
SCALES = Epilogue.parse("acc * sa[k / 128, m] * sb[n / 128, k / 128]")
# A test of a few takes seconds; one of all would take minutes on a busy machine.
PARTS = 12
SEEDS = [
    (name, part)
    for name in list_families()
    for part in range(min(PARTS, len(load_family(name).seeds)))
]


@pytest.fixture(scope="module")
def device() -> Device:
    return find_device("h100")


@pytest.fixture(scope="module")
def few_sms(device: Device) -> Device:
    """A GPU of so few SMs that small problems already have several waves, and stream-K too."""
    return replace(device, num_sms=FEW_SMS)


def failures(emulator: Emulator, family: Family, cases: tuple[Case, ...]) -> list[str]:
    results = run_cases(on_cpu(family, emulator, Mode.CHECK), cases, threads=2)
    return [
        f"{result.case.problem.label} | {result.case.config.label} | {result.message}"
        for result in results
        if not result.ok
    ]


def is_legal(family: Family, config: Config, dtype: DType, device: Device) -> bool:
    config = family.completed(config)
    problems = [Problem(*WHOLE_TILES, layout, dtype) for layout in Layout]
    return not all(broken_constraints(family, config, problem, device) for problem in problems)


def takes_scales_alone(family: Family, config: Config, device: Device) -> bool:
    """Whether a config is legal with scales of blocks, and without them for no element type."""
    fitting = [dtype for dtype in DType if family.fits(dtype)]
    if family.name != "gemm_wgmma" or any(is_legal(family, config, it, device) for it in fitting):
        return False
    scaled = Problem(*WHOLE_TILES, Layout.NT, DType.E4M3, epilogue=SCALES)
    return not broken_constraints(family, family.completed(config), scaled, device)


def drawn_cases(
    family: Family,
    config: Config,
    dtype: DType,
    device: Device,
    rng: random.Random,
    *,
    epilogue: Epilogue,
) -> list[Case]:
    """The edge cases of a config in random order; of tensor cores the first third.

    Those that fill many SMs more than once are left to the random configs, which need few.
    """
    planned = planned_cases(family, config, device, dtype, epilogue=epilogue)
    count = len(planned) // 3 if family.name in TENSOR_FAMILIES else len(planned)
    drawn = rng.sample(planned[:count], count)
    return [case for case in drawn if case.problem.flops <= MOST_FLOPS]


@pytest.mark.parametrize(("name", "index"), one_in(5, RANDOM_CONFIGS, lambda one: one[0]))
def test_random_configs_pass_on_the_first_edge_cases(
    emulator: Emulator, few_sms: Device, name: str, index: int
) -> None:
    family = load_family(name)
    fitting = [dtype for dtype in DType if family.fits(dtype)]
    dtype = fitting[index % len(fitting)]
    fix = SMALL_TILES.get(name)
    config = sample_configs(family, few_sms, CONFIGS[family.searched], SEED, fix, dtype)[index]
    found = cases_of(family, config, few_sms, dtype=dtype)
    # Slices of k's are padded: with many stages they may not fit in half of the layouts.
    assert len(found.cases) >= LEAST_CASES.get(name, 20), "the sweep must not shrink unseen"
    # The order follows what cases reach: the later ones mostly repeat the first.
    cases = found.cases[: FIRST_CASES[family.searched]]
    assert failures(emulator, family, cases) == []


@pytest.mark.parametrize(("name", "part"), one_in(PARTS, SEEDS, lambda seeds: seeds[0]))
def test_seeds_pass_on_some_edge_cases(
    emulator: Emulator, device: Device, name: str, part: int
) -> None:
    family = load_family(name)
    fitting = [dtype for dtype in DType if family.fits(dtype)]
    rng = random.Random(SEED + part)
    each = max(1, SEED_CASES[family.searched] // len(family.seeds))
    cases: list[Case] = []
    seeds = list(enumerate(family.seeds))[part::PARTS]
    for number, config in seeds:
        # In turn, of those that the seed is legal with, which are looked for first.
        first = number % len(fitting)
        dtypes = sorted(
            fitting[first:] + fitting[:first],
            key=lambda dtype, config=config: not is_legal(family, config, dtype, device),
        )
        epilogue = PLAIN
        if takes_scales_alone(family, config, device):
            dtypes, epilogue = [DType.E4M3], SCALES
        drawn = (
            case
            for dtype in dtypes
            for case in drawn_cases(family, config, dtype, device, rng, epilogue=epilogue)
        )
        legal = filter(None, (legal_case(family, device, case) for case in drawn))
        cases += islice(legal, 1 if name in TENSOR_FAMILIES else each)
    assert len(cases) >= len(seeds), "a seed is legal for no case"
    assert failures(emulator, family, tuple(cases)) == []

"""Kernels of warpgroups and tensor maps: NVRTC takes them for sm_90a, and products overlap.

Where ptxas cannot see that products may go on beside each other it makes each wait for the one
before, and says so in a note with a number from C7508 on; the kernel is right, and slow.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hopper import PROBLEMS, tiny_wgmma
from sampling import one_in

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.kernel import CompiledKernel
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, load_family

pytestmark = pytest.mark.compile

WGMMA = load_family("gemm_wgmma")
EMULATED = load_family("sgemm_emulated_wgmma")
TYPES = (*product((DType.BF16, DType.TF32, DType.F16), Layout), (DType.E4M3, Layout.NT))
SCALES = Epilogue.parse("acc * sa[k / 128, m] * sb[n / 128, k / 128]")
SCALED = Problem(4096, 4096, 4096, Layout.NT, DType.E4M3, epilogue=SCALES)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    one = Compiler(cache_dir=tmp_path_factory.mktemp("cubins"))
    yield one
    one.close()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_it_compiles_for_sm_90a(tmp_path: Path, problem: Problem) -> None:
    family = tiny_wgmma()
    compiler = Compiler(cache_dir=tmp_path)
    for config in family.seeds:
        compiled = compiler.compile(render(family, config, problem), "sm_90")
        (resources,) = compiled.resources
        columns = config["BN"]
        assert isinstance(columns, int)
        assert compiled.arch == "sm_90a"
        # Half of them are accumulators.
        assert resources.registers >= columns // 2
        assert resources.spill_store_bytes == 0
    compiler.close()


def problem_for(config: Config, first: int) -> Problem:
    """A large one, of types and layout that the config is legal for: others for each seed; of those
    for a batch alone a batch.
    """
    for turn in range(2 * len(TYPES)):
        dtype, layout = TYPES[(5 * first + turn) % len(TYPES)]
        batch = Batch(1 if turn < len(TYPES) else 64)
        problem = Problem(4096, 4096, 4096, layout, dtype, batch=batch)
        if not broken_constraints(WGMMA, config, problem, find_device("h100")):
            return problem
    # One that keeps only the sums of a row tile twice, which takes scales of blocks.
    assert not broken_constraints(WGMMA, config, SCALED, find_device("h100")), "legal for nothing"
    return SCALED


# What shapes the loop over K; the first seed of each shape is the sample.
SHAPING = ("BM", "BN", "WM", "WN", "SCHEDULE", "EPILOGUE", "SWAP_AB", "PROMOTE", "PROMOTION")
SEEDS = [
    (number, config)
    for number, config in enumerate(WGMMA.seeds)
    # Those in clusters are the same tiles.
    if config["CLUSTER_M"] == config["CLUSTER_N"] == 1
]


def shape_of(seed: tuple[int, Config]) -> tuple[Value, ...]:
    return tuple(seed[1][name] for name in SHAPING)


def waits_for_nothing(compiled: CompiledKernel) -> None:
    assert "(C75" not in compiled.log
    assert not any(one.spill_store_bytes for one in compiled.resources)


@pytest.mark.parametrize(("number", "config"), one_in(len(SEEDS), SEEDS, shape_of))
def test_products_of_a_seed_wait_for_nothing(
    compiler: Compiler, number: int, config: Config
) -> None:
    source = render(WGMMA, config, problem_for(config, number))
    waits_for_nothing(compiler.compile(source, "sm_90"))


def test_products_of_split_numbers_wait_for_nothing(compiler: Compiler) -> None:
    source = render(EMULATED, EMULATED.seeds[0], Problem(4096, 4096, 4096))
    waits_for_nothing(compiler.compile(source, "sm_90"))


def test_products_of_groups_of_k_wait_for_nothing(compiler: Compiler) -> None:
    """Rows are cleared while products with the k tile before are under way."""
    groups = Groups.parse("128 uniform")
    problem = Problem(1536, 2048, 16384, Layout.TN, DType.BF16, groups=groups)
    names = ("BM", "BN", "WM", "WN", "SCHEDULE", "EPILOGUE")
    shaping = {
        tuple(config[name] for name in names): config
        for config in WGMMA.seeds
        if config["CLUSTER_M"] == config["CLUSTER_N"] == 1
        and not broken_constraints(WGMMA, config, problem, find_device("h100"))
    }
    assert len(shaping) >= 10
    sources = [render(WGMMA, config, problem) for config in shaping.values()]
    for source, pending in [(it, compiler.submit(it, "sm_90")) for it in sources]:
        compiled = pending.result()
        assert "(C75" not in compiled.log, (source.config, compiled.log)
        assert not any(one.spill_store_bytes for one in compiled.resources), source.config


def test_ptxas_says_where_they_do(compiler: Compiler) -> None:
    source = render(WGMMA, WGMMA.seeds[0], Problem(4096, 4096, 4096, dtype=DType.BF16))
    commit = "        wgmma_commit();\n"
    assert commit in source.text
    early = source.text.replace(commit, f"{commit}        accum[0][0] += 1.0f;\n")
    assert "(C75" in compiler.compile(replace(source, text=early), "sm_90").log

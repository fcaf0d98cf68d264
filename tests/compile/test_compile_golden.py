"""Golden sources and a random sample of legal configs compile, for every architecture together."""

from contextlib import suppress

import numpy as np
import pytest
from golden_cases import GOLDEN_CASES, GoldenCase
from sampling import one_in

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.compile import Compiler, nvrtc
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import MAIN_KERNEL
from autogemm.model.problem import Layout, Problem
from autogemm.space import (
    Family,
    build_space,
    derive_values,
    launch_plan,
    list_families,
    load_family,
)
from autogemm.space.family import Searched
from autogemm.support.errors import EmptySpaceError

pytestmark = pytest.mark.compile

# For every golden; every third is compiled for one of the others too, in turn.
ARCH = "sm_90"
OTHER_ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120")
# One GPU per architecture whose limits differ: the legal space is that GPU's own.
GPUS = ("t4", "a100", "rtx3090", "l40s", "h100", "b200")
# The plain CUDA of families that are there to teach is the same everywhere.
TEACHING_ARCHS = ("sm_75",)
TEACHING_GPUS = ("h100",)


def is_teaching(name: str) -> bool:
    return load_family(name).searched is Searched.BY_NAME


GOLDENS = [
    (case, arch)
    for number, case in enumerate(GOLDEN_CASES)
    for arch in (
        TEACHING_ARCHS
        if is_teaching(case.family)
        else (ARCH, OTHER_ARCHS[number // 3 % len(OTHER_ARCHS)])[: 1 if number % 3 else 2]
    )
]
SAMPLES = [
    (name, gpu)
    for name in list_families()
    for gpu in (TEACHING_GPUS if is_teaching(name) else GPUS)
]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize(("case", "arch"), one_in(8, GOLDENS, lambda one: one[0].family), ids=str)
def test_golden_compiles(compiler: Compiler, case: GoldenCase, arch: str) -> None:
    if arch not in nvrtc.supported_archs():
        pytest.skip(f"{compiler.version} does not know {arch}")
    if int(arch.removeprefix("sm_")) < case.least_arch:
        pytest.skip("this GPU lacks an instruction of the kernel")
    family = load_family(case.family)
    if family.needs_sm_90a and arch != "sm_90":
        pytest.skip("this kernel is for Hopper alone")
    compiled = compiler.compile(render(family, case.config, case.problem), arch)
    kernels = {one.kernel: one for one in compiled.resources}
    plan = launch_plan(family, case.config, case.problem)
    assert kernels.keys() == {launch.kernel for launch in plan.launches}
    resources = kernels[MAIN_KERNEL]
    derived = derive_values(family, case.config, case.problem)
    accumulators = int(derived.get("accumulators", 1))
    # Warps that multiply may take more than the kernel starts with.
    assert int(derived.get("consumer_registers", resources.registers)) >= accumulators
    # Some compilers keep a few outside where registers are scarce, of batches a few addresses more;
    # half of the accumulators would be a fault.
    few_bytes = 80 if case.problem.batch.is_one else 128
    assert resources.spill_store_bytes <= max(few_bytes, 4 * accumulators // 2)


SAMPLED_PROBLEMS = {
    "sgemm_simt": (Problem(1023, 1000, 77, layout=Layout.TT), Problem(1024, 1024, 1024)),
    "sgemm_emulated": (Problem(1023, 1000, 77, layout=Layout.TT), Problem(1024, 1024, 1024)),
    "gemm_mma": (
        Problem(1023, 1000, 77, Layout.TT, DType.F16),
        Problem(1024, 1024, 1024, dtype=DType.F16_F32),
    ),
    "gemm_wgmma": (
        Problem(1000, 1000, 72, Layout.TT, DType.F16),
        Problem(1024, 1024, 1024, dtype=DType.TF32),
    ),
    "gemm_skinny": (
        Problem(15, 1000, 777, Layout.TT, DType.F16),
        Problem(64, 1024, 1024, Layout.NT, DType.BF16_F32),
    ),
    "sgemm_skinny": (Problem(15, 1000, 777, layout=Layout.TT), Problem(64, 1024, 1024)),
}
ANY_PROBLEM = (Problem(1023, 1000, 77, layout=Layout.TN), Problem(1024, 1024, 1024))
# These keep their tiles in arrays, the others in dynamic shared memory.
STATIC_SMEM_FAMILIES = ("tiled", "register_blocked", "block_tiled")


def legal_config(
    family: Family, problem: Problem, device: Device, rng: np.random.Generator
) -> Config:
    """A random legal config with random tiles, because listing all takes seconds.

    Raises EmptySpaceError where the family has none.
    """
    tiles = {one.name: one.values for one in family.parameters if one.name in ("BM", "BN", "BK")}
    for _ in range(10):
        fix = {name: (rng.choice(values).item(),) for name, values in tiles.items()}
        with suppress(EmptySpaceError):
            space = build_space(family, problem, device, fix)
            return space.config(int(rng.integers(len(space))))
    space = build_space(family, problem, device)
    return space.config(int(rng.integers(len(space))))


@pytest.mark.parametrize(("name", "gpu"), one_in(5, SAMPLES))
def test_sampled_legal_configs_compile(compiler: Compiler, name: str, gpu: str) -> None:
    device = find_device(gpu)
    if device.sm not in nvrtc.supported_archs():
        pytest.skip(f"{compiler.version} does not know {device.sm}")
    family = load_family(name)
    rng = np.random.default_rng(device.arch)
    futures = []
    for problem in SAMPLED_PROBLEMS.get(name, ANY_PROBLEM):
        try:
            config = legal_config(family, problem, device, rng)
        except EmptySpaceError:
            pytest.skip(f"{name} has no kernel for {device.name}")
        source = render(family, config, problem)
        futures.append(compiler.submit(source, device.sm))
    for future in futures:
        (resources,) = (one for one in future.result().resources if one.kernel == MAIN_KERNEL)
        assert resources.registers <= 255
        # At most the flag of the block that arrives last.
        assert resources.static_smem_bytes <= (48 * 1024 if name in STATIC_SMEM_FAMILIES else 16)

"""The kernels behind `gpus --measure` do the reads that their rates count."""

import re

import pytest

from autogemm.compile import Compiler
from autogemm.compile.disassembly import disassemble, find_nvdisasm
from autogemm.targets.cuda.ceilings import ceilings_source

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed"),
]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize(("kernel", "load"), [("l2_kernel", "LDG"), ("smem_kernel", "LDS")])
def test_every_vector_is_read_before_it_is_added(
    compiler: Compiler, arch: str, kernel: str, load: str
) -> None:
    listing = disassemble(compiler.compile(ceilings_source(), arch).cubin)
    code = listing.split(f".text.{kernel}:")[1].split(".section")[0]
    loads = len(re.findall(rf"\b{load}\S*\.128", code))
    additions = code.count("IADD3 ")
    # Four words are two additions of three each. Loads that the compiler took for one it had done
    # before would leave many more.
    assert loads >= 4
    assert additions <= 4 * loads


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize(
    "kernel", ["l1_latency_kernel", "l2_latency_kernel", "smem_latency_kernel"]
)
def test_a_latency_is_that_of_loads_alone(compiler: Compiler, arch: str, kernel: str) -> None:
    """Between the clocks each load's address is what the load before it gave, and nothing else."""
    listing = disassemble(compiler.compile(ceilings_source(), arch).cubin)
    code = listing.split(f".text.{kernel}:")[1].split(".section")[0]
    loads = re.findall(r"\b(?:LDG|LDS)\S* (R\d+), (?:desc\[\w+\])?\[(R\d+)", code)
    pairs = [(loads[i][0], loads[i + 1][1]) for i in range(len(loads) - 1)]
    assert sum(given == used for given, used in pairs) >= 7


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(cache_dir=tmp_path_factory.mktemp("cache"))

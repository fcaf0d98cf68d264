"""Kernels of warpgroups and tensor maps: NVRTC takes them for sm_90a."""

from pathlib import Path

import pytest
from hopper import PROBLEMS, tiny_wgmma

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.problem import Problem

pytestmark = pytest.mark.compile


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
        # Half of them are sums.
        assert resources.registers >= columns // 2
        assert resources.spill_store_bytes == 0
    compiler.close()

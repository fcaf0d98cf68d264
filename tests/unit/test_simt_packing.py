"""Which operands of FP32 kernels are worth packing where vectors do not divide the rows."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import Space, build_space, load_family

# Parameters that have no say in it; all configs of the others are looked at.
OTHERS = {"BM": [64, 128], "BN": [128], "BK": [8], "SLICE_K": [1], "SPLIT_K": [1], "STAGES": [2]}


def space_of(problem: Problem) -> Space:
    return build_space(load_family("sgemm_simt"), problem, find_device("H200"), OTHERS)


@pytest.mark.parametrize(
    ("layout", "inwards"),
    [
        (Layout.NN, {"guarded", "inward_n"}),  # A would be transposed, B is read as it lies.
        (Layout.TT, {"guarded", "inward_m"}),
        (Layout.NT, {"guarded"}),  # Both would be.
        (Layout.TN, {"guarded"}),  # Neither; both or none are packed.
    ],
)
def test_one_operand_is_packed_if_it_alone_would_be_transposed(
    layout: Layout, inwards: set[str]
) -> None:
    space = space_of(Problem(1023, 1023, 1023, layout, DType.F32))
    edges = {True: set[str](), False: set[str]()}
    for config in map(space.config, range(len(space))):
        edges[config["PACK"] == 1].add(str(config["EDGES"]))
    assert edges[True] == inwards
    assert edges[False] == {"inward"}  # Tiles of 64x128 reach past 1023.


def test_aligned_operands_are_not_packed() -> None:
    space = space_of(Problem(1024, 1000, 1024, Layout.TT, DType.F32))
    assert len(space) > 100
    for config in map(space.config, range(len(space))):
        assert config["PACK"] == 0
        assert config["EDGES"] in ("guarded", "inward")

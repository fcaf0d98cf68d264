"""Which operands of FP32 kernels are worth packing where vectors do not divide the rows."""

import numpy as np
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import build_space, load_family

H200 = find_device("H200")


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
    space = build_space(
        load_family("sgemm_simt"), Problem(1023, 1023, 1023, layout, DType.F32), H200
    )
    edges = {True: set[str](), False: set[str]()}
    for index in np.random.default_rng(0).choice(len(space), 4000, replace=False):
        config = space.config(int(index))
        edges[config["PACK"] == 1].add(str(config["EDGES"]))
    assert edges[True] == inwards
    assert edges[False] <= {"guarded", "inward"}


def test_aligned_operands_are_not_packed() -> None:
    space = build_space(
        load_family("sgemm_simt"), Problem(1024, 1000, 1024, Layout.TT, DType.F32), H200
    )
    for index in np.random.default_rng(0).choice(len(space), 2000, replace=False):
        config = space.config(int(index))
        assert config["PACK"] == 0
        assert config["EDGES"] in ("guarded", "inward")

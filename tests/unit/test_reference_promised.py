"""Errors against what sums of 8-bit floats promise together."""

from dataclasses import replace

import numpy as np

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.reference import Data, compare, make_inputs
from autogemm.space import launch_plan, load_family


def test_a_product_of_which_nothing_is_left_has_no_error_to_be_compared() -> None:
    family = load_family("gemm_skinny")
    problem = Problem(64, 64, 1024, Layout.NT, DType.E4M3_F32, alpha=0.0, beta=1.0)
    plan = launch_plan(family, family.completed(family.seeds[0]), problem)
    inputs = make_inputs(problem, plan, Data.REALS, 1)
    assert inputs.promised is not None
    nothing = np.zeros_like(inputs.promised)
    inputs = replace(inputs, promised=nothing, bound=np.ones_like(inputs.bound))
    # C is what it was.
    assert compare(problem, inputs, inputs.c).complaint == ""
    changed = inputs.c.copy()
    changed.reshape(-1)[0] += 0.5
    assert "errors are inf times" in compare(problem, inputs, changed).complaint

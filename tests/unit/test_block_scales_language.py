"""Scales of blocks in epilogues: what is read, shapes, and what is refused in one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from store_samples import SPEC, new_store, ok, source

from autogemm.catalogue.gpus import find_device
from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType, Element
from autogemm.model.epilogue import Epilogue
from autogemm.model.formula import Read
from autogemm.model.fusion import fusion_of
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import launch_plan, load_family
from autogemm.store import BestQuery, RunCopy
from autogemm.support.errors import UsageError
from autogemm.targets.cuda.worker.problem.reference import rounding_allowance
from autogemm.verify.cases import planned_cases

TEXT = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
OF_GROUPS = "acc * sa[k / 128, m] * sb[g, n / 128, k / 128]"
PROBLEM = Problem(300, 200, 400, Layout.NT, DType.E4M3, epilogue=Epilogue(TEXT))


def test_scales_are_read_once_and_leave_the_sum() -> None:
    epilogue = Epilogue("relu((acc*sa[k/128,m])*sb[n/128,k/128] + bias[n])")
    assert str(epilogue) == f"relu({TEXT} + bias[n])"
    assert [one.name for one in epilogue.scales] == ["sa", "sb"]
    assert not epilogue.is_scaled_product and Epilogue(TEXT).is_scaled_product
    assert Epilogue(TEXT).root == Read("acc")
    of_a, of_b, bias = epilogue.inputs
    assert of_a.shape(300, 200, 400) == (4, 300) and of_b.shape(300, 200, 400) == (2, 4)
    types = [one.element(DType.E4M3) for one in (of_a, of_b, bias)]
    assert types == [Element.F32, Element.F32, Element.BF16]
    assert Epilogue(f"{TEXT}; sa: f32").in_dtype(DType.E4M3) == Epilogue(TEXT)
    assert fusion_of(Epilogue(TEXT), DType.E4M3_F32) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("alpha * acc * sa[k / 128, m] * sb[n / 128, k / 128]", "both at once"),
        ("acc * sb[n / 128, k / 128] * sa[k / 128, m]", "both at once"),
        ("acc * sa[k / 128, m]", "both at once"),
        ("acc + sa[k / 128, m]", "both at once"),
        (f"{TEXT} + acc", "acc is read once"),
        (f"{TEXT} * sa[k / 128, m]", "both at once"),
        (f"{TEXT}; sb: bf16", "sb is scales of blocks, which is f32"),
        ("acc * sa[k / 64, m]", r"an index is \[m\], \[n\] or \[m, n\]"),
        ("acc[n] * sa[k / 128, m] * acc[n + N]", "both at once"),
    ],
)
def test_other_texts_are_refused(text: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        Epilogue(text)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"dtype": DType.BF16}, "for 8-bit floats, got bf16"),
        ({"dtype": DType.I8_F32}, "for 8-bit floats, got i8-f32"),
        ({"batch": Batch.parse("4")}, "leave out the batch of 4"),
        ({"groups": Groups.parse("3")}, r"write sb\[g, n / 128, k / 128\] for sb\["),
        (
            {"groups": Groups.parse("3"), "layout": Layout.TN, "lda": 0, "ldb": 0},
            "leave out groups along K",
        ),
        ({"epilogue": Epilogue(OF_GROUPS)}, "has the group of a row as its index: give groups"),
    ],
)
def test_other_problems_are_refused(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        replace(PROBLEM, **changes)  # type: ignore[arg-type]


def test_each_group_has_scales_of_its_own() -> None:
    problem = replace(PROBLEM, epilogue=Epilogue(OF_GROUPS), groups=Groups.parse("3"))
    of_a, of_b = problem.epilogue.scales
    assert (of_a.label, of_b.label) == ("sa[k / 128, m]", "sb[g, n / 128, k / 128]")
    assert of_b.shape(300, 200, 500, 3) == (3, 2, 4)
    moved = problem.moved_bytes - replace(problem, epilogue=Epilogue()).moved_bytes
    assert moved == 4 * (1200 + 3 * 8)
    # What cuBLASLt is asked for: one group's product, which has no group in its scales.
    one = problem.product_of_group(5)
    assert (one.m, one.groups.is_none, one.epilogue.is_scaled_product) == (5, True, True)
    assert [scale.axes for scale in one.epilogue.scales] == ["k / 128, m", "n / 128, k / 128"]


def test_arrays_have_the_shapes_that_the_text_says() -> None:
    family = load_family("gemm_wgmma")
    seed = next(one for one in family.seeds if one.as_dict().get("PROMOTE") == 128)
    plan = launch_plan(family, family.completed(seed), PROBLEM)
    assert [one.count for one in plan.arrays] == [4 * 300, 2 * 4]
    moved = PROBLEM.moved_bytes - replace(PROBLEM, epilogue=Epilogue()).moved_bytes
    assert moved == 4 * (1200 + 8)


def test_edge_cases_have_neither_batches_nor_groups() -> None:
    family = load_family("gemm_wgmma")
    seed = next(one for one in family.seeds if one.as_dict().get("PROMOTE") == 128)
    cases = planned_cases(family, seed, find_device("h100"), DType.E4M3, epilogue=Epilogue(TEXT))
    assert cases
    assert all(case.problem.batch.is_one and case.problem.groups.is_none for case in cases)


@pytest.mark.parametrize("k", [128, 1024, 16384])
def test_the_bound_is_that_of_blocks(k: int) -> None:
    """Errors of sums of 128 products, cut off as in the model, keep the bound; a block that is left
    out does not.
    """
    problem = Problem(64, 64, k, Layout.NT, DType.E4M3_F32, epilogue=Epilogue(TEXT))
    plain = replace(problem, epilogue=Epilogue())
    allowed = rounding_allowance(problem)
    assert allowed < 0.13 and (k == 128 or allowed < rounding_allowance(plain))
    rng = np.random.default_rng(k)
    products = rng.standard_normal((500, k // 128, 128))
    scales = rng.standard_normal((500, k // 128, 1))
    width = 2.0 ** (np.floor(np.log2(np.abs(products).max(-1, keepdims=True))) - 13)
    cut = (np.trunc(products / width) * width).sum(-1, keepdims=True)
    error = np.abs(((cut - products.sum(-1, keepdims=True)) * scales).sum((1, 2)))
    norm = np.sqrt(((products * scales) ** 2).sum((1, 2)))
    assert 0.001 * allowed < (error / norm).max() < allowed
    left_out = np.abs((products[:, 0] * scales[:, 0]).sum(-1))
    assert (left_out / norm).max() > allowed


def test_the_database_keeps_and_finds_them(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        for text in ("", TEXT, f"relu({TEXT})"):
            problem = replace(PROBLEM, epilogue=Epilogue(text))
            run = store.begin_run(replace(SPEC, problem=problem))
            store.record_trial(run, 0, ok(64, 2800.0), source(64))

        def found(query: BestQuery) -> list[str]:
            runs = (one for one in store.copies(query) if isinstance(one, RunCopy))
            return [str(one.spec.problem.epilogue) for one in runs]

        assert found(BestQuery()) == ["", TEXT, f"relu({TEXT})"]
        assert found(BestQuery(epilogue=TEXT.replace(" ", ""))) == [TEXT]

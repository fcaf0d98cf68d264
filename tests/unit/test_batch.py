"""Batches: their text, what they make of a problem, and the problem that arrays are."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.batch import ONE, Batch
from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.model.signature import gemm_signature
from autogemm.runtime.operands import Strided, call_for
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.store import BestQuery
from autogemm.support.errors import UsageError


def contiguous(name: str, *shape: int) -> Strided:
    strides = [1]
    for extent in shape[:0:-1]:
        strides.insert(0, strides[0] * extent)
    return Strided(name, shape, tuple(strides))


@pytest.mark.parametrize("text", ["", "64", "64 rows_a=0", "3 rows_b=9 rows_c=130"])
def test_a_text_is_read_as_it_was_written(text: str) -> None:
    assert str(Batch.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0", "1 to 2147483647 products"),
        ("-3", "a batch is a number of products"),
        ("64 rows_d=1", "a batch is a number of products"),
        ("64 rows_a=1 rows_a=2", "a batch is a number of products"),
        ("rows_a=0", "a batch is a number of products"),
    ],
)
def test_other_texts_are_refused(text: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        Batch.parse(text)


def test_one_product_is_the_plain_problem() -> None:
    plain = Problem(64, 32, 16)
    assert Problem(64, 32, 16, batch=Batch(1, rows_a=100)) == plain
    assert plain.batch == ONE and "batch" not in plain.label
    assert gemm_signature().names == gemm_signature(batched=False).names


def test_what_is_not_given_follows_without_a_gap() -> None:
    packed = Problem(64, 32, 16, batch=Batch(3, rows_a=64))
    assert packed == Problem(64, 32, 16, batch=Batch(3))
    assert packed.label == "64x32x16 nn f32 batch=3"
    gaps = Problem(64, 32, 16, batch=Batch(3, 70, 0, None))
    assert (gaps.batch_rows, gaps.stacked_rows) == ((70, 0, 64), (204, 16, 192))
    assert gaps.flops == 3 * Problem(64, 32, 16).flops
    # One B is read for all.
    assert gaps.moved_bytes == 4 * (3 * 64 * 16 + 16 * 32 + 3 * 64 * 32)


@pytest.mark.parametrize("batch", [Batch(2, 63), Batch(2, None, 15), Batch(2, None, None, 0)])
def test_matrices_that_overlap_are_refused(batch: Batch) -> None:
    with pytest.raises(UsageError, match="must be at least the"):
        Problem(64, 32, 16, batch=batch)


def test_arrays_whole_rows_apart_are_one_launch() -> None:
    a, b, c = (contiguous("abc"[i], 5, *shape) for i, shape in enumerate(((8, 6), (6, 4), (8, 4))))
    call = call_for(a, b, c, DType.F32)
    assert (call.problem.batch, call.offsets) == (Batch(5), ((0, 0, 0),))
    # Every other matrix of a, and one b for all: c does not follow, or a would be more rows.
    every_other = Strided("a", (5, 8, 6), (96, 6, 1))
    shared = Strided("b", (5, 6, 4), (0, 4, 1))
    call = call_for(every_other, shared, c, DType.F32)
    assert call.problem.batch == Batch(5, 16, 0)


def test_arrays_that_lie_otherwise_are_a_launch_each() -> None:
    b, c = contiguous("b", 5, 6, 4), contiguous("c", 5, 8, 4)
    interleaved = Strided("a", (5, 8, 6), (6, 30, 1))
    call = call_for(interleaved, b, c, DType.F32)
    assert call.problem.batch == ONE and len(call.offsets) == 5


def test_a_family_that_counts_no_products_is_refused_in_one_line() -> None:
    family = load_family("naive")
    one = [rule.grid[:1] for rule in family.launch]
    assert family.takes_batches and len(one) == 1
    device = find_device("h100")
    problem = Problem(64, 64, 64, batch=Batch(70000))
    (broken,) = broken_constraints(family, family.seeds[0], problem, device)
    assert "a grid has so many blocks in z at most" in broken
    plan = launch_plan(family, family.seeds[0], Problem(64, 64, 64, batch=Batch(7)))
    assert plan.batched and plan.launches[0].grid[2] == 7


def test_a_filter_by_the_number_finds_all_strides() -> None:
    assert BestQuery(batch="64").is_of_batch("64 rows_a=0")
    assert BestQuery(batch="1").is_of_batch("") and not BestQuery(batch="1").is_of_batch("64")
    assert not BestQuery(batch="64 rows_a=0").is_of_batch("64")

"""``autogemm.patch(model, calls=True)`` on the CPU: products that modules call themselves.

The database has rows of an H100; torch multiplies in place of the kernels (torch_stand_in).
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import store_samples

torch = pytest.importorskip("torch", reason="patches models of torch")

from torch_stand_in import StandIn, driver, products  # noqa: E402

import autogemm  # noqa: E402
from autogemm.catalogue.winners import TimedKernel, Winner, write_winners  # noqa: E402
from autogemm.model.batch import Batch  # noqa: E402
from autogemm.model.epilogue import Epilogue  # noqa: E402
from autogemm.model.problem import Layout, Problem  # noqa: E402
from autogemm.model.results.stored import TimedText  # noqa: E402
from autogemm.programs import patching  # noqa: E402
from autogemm.programs.calls import calls_products  # noqa: E402
from autogemm.space import load_family  # noqa: E402
from autogemm.store import RunState  # noqa: E402

__all__ = ["driver", "products"]

BIAS = "acc + bias[n]"
FAST, SLOW = 1.5, 0.9
# Problem and cuBLAS time / kernel time.
RESULTS = (
    (Problem(6, 16, 8), FAST),
    (Problem(6, 16, 8, batch=Batch(4)), FAST),
    (Problem(6, 6, 16, Layout.NT, batch=Batch(4)), SLOW),
    (Problem(6, 8, 16, epilogue=Epilogue(BIAS)), FAST),
    # Faster alone, as a batch not known: not to be taken for each other.
    (Problem(5, 16, 8), FAST),
    # A bias or a matrix that is added, and the products of gradients.
    (Problem(6, 8, 16, beta=1.0), FAST),
    (Problem(6, 16, 8, Layout.NT), FAST),
    (Problem(16, 8, 6, Layout.TN), FAST),
    (Problem(6, 16, 8, beta=0.5, batch=Batch(4)), FAST),
    (Problem(6, 8, 16, Layout.NT, batch=Batch(4)), FAST),
    (Problem(8, 16, 6, Layout.TN, batch=Batch(4)), SLOW),
)


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_samples.new_store(tmp_path) as store:
        for one, ratio in RESULTS:
            run = store.begin_run(replace(store_samples.SPEC, problem=one))
            store.record_trial(run, 0, store_samples.ok(64, 10.0), store_samples.source(64))
            entry = store_samples.entry(64, 10.0, 10.0, 10.0, ratio=ratio)
            store.record_finals(run, store_samples.finals(entry), {})
            store.finish_run(run, RunState.FINISHED)
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))


def helper(a: Any, b: Any) -> Any:
    return torch.bmm(a, b)


class Inner(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, y: Any = None) -> Any:
        return self.scores(x, x if y is None else y)

    def scores(self, x: Any, y: Any) -> Any:
        return torch.matmul(x, y.transpose(1, 2))


class Outer(torch.nn.Module):  # type: ignore[misc]
    """Calls a product in each way, in a helper, and in a module within."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.randn(8, 16, generator=generator))
        self.back = torch.nn.Parameter(torch.randn(16, 8, generator=generator))
        self.bias = torch.nn.Parameter(torch.randn(8, generator=generator))
        self.inner = Inner()
        self.activation = torch.nn.ReLU()

    def forward(self, x: Any) -> Any:
        batch = helper(x, self.weight.expand(4, 8, 16).contiguous())
        scores = self.inner(batch)
        first = self.activation(x[0] @ self.weight)
        return torch.addmm(self.bias, first, self.back), scores, x.matmul(self.weight)


def inputs(rows: int = 6) -> Any:
    return torch.randn(4, rows, 8, generator=torch.Generator().manual_seed(2))


def run(model: Any, rows: int = 6) -> tuple[Any, ...]:
    with torch.no_grad():
        found: tuple[Any, ...] = model(inputs(rows))
        return found


def assert_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_only_products_that_are_shown_to_be_faster_run_kernels(products: StandIn) -> None:
    model = Outer()
    before = run(model)
    summary = autogemm.patch(model, gpu="h100", calls=True)
    assert summary.modules == ("the model", "inner")
    assert summary.calls == {}
    assert_same(run(model), before)
    assert products.problems == [
        "6x16x8 nn f32 batch=4 x1",
        "6x16x8 nn f32 x1",
        f"6x8x16 nn f32 epilogue={BIAS} x1",
    ]
    run(model)
    assert {(one.name, one.function, one.why[:9]): n for one, n in summary.calls.items()} == {
        ("the model", "bmm", ""): 2,
        ("inner", "matmul", "no result"): 2,
        ("the model", "matmul", ""): 2,
        ("the model", "addmm", ""): 2,
        # Rows of all batches: 24, which nobody tuned.
        ("the model", "matmul", "no result"): 2,
    }
    text = str(summary)
    assert "calls of products are seen in 2 modules" in text
    assert "the model: bmm 6x16x8 nn f32 batch=4  2 times by a kernel" in text
    assert "no result is faster than its baseline on h100" in text
    autogemm.unpatch(model)
    products.made.clear()
    assert_same(run(model), before)
    assert products.made == []
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_batch_is_not_taken_for_one_product(products: StandIn) -> None:
    model = Outer()
    summary = autogemm.patch(model, gpu="h100", calls=True)
    run(model, 5)
    assert products.problems == ["5x16x8 nn f32 x1"]
    assert [one.why != "" for one in summary.calls if one.function == "bmm"] == [True]


def test_without_being_asked_no_call_is_seen(products: StandIn) -> None:
    model = Outer()
    summary = autogemm.patch(model, gpu="h100")
    run(model)
    assert products.made == [] and summary.calls == {} and "calls" not in str(summary)


def test_calls_that_are_left_say_why(products: StandIn) -> None:
    class Left(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any) -> Any:
            torch.mm(a, b.detach(), out=torch.empty(6, 16))
            torch.addmm(torch.zeros(6, 16), a, b)
            torch.addmm(torch.zeros(16), a, b, beta=0.5)
            torch.matmul(a, b[:, 0])
            torch.mm(a.double(), b.double())
            torch.mm(a[:, ::2], b[::2])
            return a @ b

    model = Left()
    summary = autogemm.patch(model, gpu="h100", calls=True)
    a, b = inputs()[0], torch.randn(8, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(a, b)
    with torch.no_grad():
        model(a, b)
    mixed = Inner()
    mixed_summary = autogemm.patch(mixed, gpu="h100", calls=True)
    with pytest.raises(RuntimeError, match="scalar type"):
        mixed(inputs(), inputs().double())
    assert [one.why for one in mixed_summary.calls] == [
        "its tensors are of several types or devices"
    ]
    reasons = {one.why for one in summary.calls}
    assert reasons == {
        "",
        "it has other arguments than its matrices and factors",
        "no result is faster than its baseline on h100",
        "vectors, or batches that are broadcast",
        "there are no kernels for it",
        "autocast is on",
    }
    assert products.problems == ["6x16x8 nn f32 x1"]


class Added(torch.nn.Module):  # type: ignore[misc]
    def forward(self, *given: Any) -> Any:
        bias, a, b, c, x, w = given
        return torch.addmm(bias, a, b), torch.baddbmm(c, x, w, beta=0.5)


def added_inputs(*needed: bool) -> list[Any]:
    shapes = ((1, 8), (6, 16), (16, 8), (4, 1, 16), (4, 6, 8), (4, 8, 16))
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(shape, generator=generator).requires_grad_(one)
        for shape, one in zip(shapes, needed, strict=True)
    ]


BATCH = "6x16x8 nn f32 batch=4 x1"


@pytest.mark.parametrize(
    ("needed", "made", "left"),
    [
        # The bias is the epilogue's where nothing is differentiated, and a matrix otherwise.
        ([False] * 6, [f"6x8x16 nn f32 epilogue={BIAS} x1", BATCH], ""),
        (
            [True] * 5 + [False],
            [
                *("6x8x16 nn f32 x1", BATCH),
                *("6x8x16 nt f32 batch=4 x1", "6x16x8 nt f32 x1", "16x8x6 tn f32 x1"),
            ],
            "",
        ),
        (
            [False] * 5 + [True],
            [f"6x8x16 nn f32 epilogue={BIAS} x1"],
            "its gradient, 8x16x6 tn f32 batch=4, has no result that is faster than its baseline",
        ),
    ],
)
def test_what_is_added_and_gradients(
    products: StandIn, needed: list[bool], made: list[str], left: str
) -> None:
    model = Added()
    before, after = added_inputs(*needed), added_inputs(*needed)
    expected = model(*before)
    summary = autogemm.patch(model, gpu="h100", calls=True)
    found = model(*after)
    assert_same(found, expected)
    for results in (expected, found):
        for one in results:
            if one.requires_grad:
                one.sin().sum().backward()
    for one, other in zip(after, before, strict=True):
        assert (one.grad is not None) == (other.grad is not None) == one.requires_grad
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)
    assert sorted(products.problems) == sorted(made)
    assert [call.why for call in summary.calls] == ["", left]


def test_which_modules_name_a_product() -> None:
    class Clean(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.relu(x) + len([one + 1 for one in range(3)])

    class InPlace(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            x @= x
            return x

    assert calls_products(Outer()) and calls_products(Inner()) and calls_products(InPlace())
    assert not calls_products(Clean()) and not calls_products(torch.nn.Linear(2, 2))
    model = Outer()
    model.inner.forward = model.inner.scores
    assert autogemm.patch(model, gpu="h100", calls=True).modules == ("the model",)


def test_copies_and_compiled_models(products: StandIn) -> None:
    model = Outer()
    before = run(model)
    summary = autogemm.patch(model, gpu="h100", calls=True)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.weight.zero_()
    assert not bool(run(copied)[2].any())
    assert_same(run(model), before)
    made = len(products.made)
    # Compiled modules are left to the compiler.
    with torch.no_grad():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert_same(compiled(inputs()), before)
    assert len(products.made) == made
    assert_same(run(model), before)
    assert len(products.made) == made + 3
    assert summary.calls


def test_the_catalogue_counts_if_it_is_asked_for_and_of_this_text(
    products: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ships(problem: Problem, text: TimedText, ratio: float = 1.25) -> Winner:
        kernel = TimedKernel(
            load_family("sgemm_simt").seeds[0], 8.0, ratio, ratio - 0.01, ratio + 0.01
        )
        words = dict.fromkeys(("compiler", "cublas", "driver", "commit", "source", "command"), "x")
        return Winner(
            gpu=store_samples.H100.name,
            problem=problem,
            kernels=(kernel,),
            kernel_sha256="",
            text=text,
            baseline="cuBLAS",
            baseline_us=8.0 * ratio,
            date="2026-11-20",
            **words,
        )

    path = tmp_path / "winners.jsonl.gz"
    this, earlier = TimedText.THIS, TimedText.EARLIER
    write_winners(
        path,
        [
            ships(Problem(24, 16, 8), this),
            ships(Problem(7, 16, 8), earlier),
            ships(Problem(6, 6, 16, Layout.NT, batch=Batch(4)), this),
        ],
    )
    monkeypatch.setenv("AUTOGEMM_CATALOGUE", str(path))
    results = patching.results_on("h100", None, catalogue=True)
    assert results.is_faster(Problem(24, 16, 8))
    assert not results.is_faster(Problem(7, 16, 8))
    # Measured as slower here: the catalogue does not say otherwise.
    assert not results.is_faster(Problem(6, 6, 16, Layout.NT, batch=Batch(4)))
    assert not patching.results_on("h100", None).is_faster(Problem(24, 16, 8))
    model = Outer()
    autogemm.patch(model, gpu="h100", calls=True, catalogue=True)
    run(model)
    assert "24x16x8 nn f32 x1" in products.problems

"""``autogemm.patch`` on the CPU: what is replaced, what is left, and what reports say of it.

The database has rows of an H100; torch multiplies in place of the kernels (torch_stand_in).
"""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import store_samples
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="patches models of torch")

from torch_stand_in import StandIn, driver, products  # noqa: E402

import autogemm  # noqa: E402
from autogemm.cli import main  # noqa: E402
from autogemm.model.called import CalledGemm, Recorded, called_text  # noqa: E402
from autogemm.model.config import Config  # noqa: E402
from autogemm.model.epilogue import Epilogue  # noqa: E402
from autogemm.model.problem import Layout, Problem  # noqa: E402
from autogemm.runtime.operands import Products  # noqa: E402
from autogemm.store import RunState, open_store  # noqa: E402
from autogemm.support.errors import UsageError  # noqa: E402

__all__ = ["driver", "products"]

GELU, BIAS = "gelu(acc + bias[n])", "acc + bias[n]"
SWIGLU = "silu(acc[n]) * acc[n + N]"


def problem(m: int, n: int, k: int, epilogue: str = "", layout: str = "nt") -> Problem:
    return Problem(m, n, k, Layout(layout), epilogue=Epilogue(epilogue))


# Problem and cuBLAS time / kernel time, whose interval is 0.01 to either side.
RESULTS = (
    (problem(6, 32, 8, GELU), 1.5),
    (problem(6, 32, 8, BIAS), 1.25),
    (problem(9, 32, 8, BIAS), 0.9),
    (problem(4, 8, 32, BIAS), 1.005),
    (problem(6, 16, 8), 2.0),
    (problem(7, 16, 8), 2.0),
    (problem(7, 8, 16, layout="nn"), 2.0),
    (problem(16, 8, 7, layout="tn"), 2.0),
    (problem(8, 16, 7, layout="tn"), 2.0),
    (problem(5, 24, 8, SWIGLU), 1.1),
    (problem(7, 24, 8, SWIGLU), 0.9),
    (problem(7, 24, 8), 2.0),
)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with store_samples.new_store(tmp_path) as store:
        for one, ratio in RESULTS:
            run = store.begin_run(replace(store_samples.SPEC, problem=one))
            store.record_trial(run, 0, store_samples.ok(64, 10.0), store_samples.source(64))
            entry = store_samples.entry(64, 10.0, 10.0, 10.0, ratio=ratio)
            store.record_finals(run, store_samples.finals(entry), {})
            store.finish_run(run, RunState.FINISHED)
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    return tmp_path / "a.db"


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.mlp = torch.nn.Sequential(linear(8, 32), torch.nn.GELU(), linear(32, 8))
        self.bare = linear(8, 16, bias=False)
        self.wide = linear(8, 16, bias=False, dtype=torch.float64)

    def forward(self, x: Any) -> Any:
        return self.bare(self.mlp(x))


def outputs(model: Any, rows: Sequence[int]) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [model(torch.randn(one, 8, generator=generator)) for one in rows]


def test_only_what_is_shown_to_be_faster_is_replaced(database: Path, products: StandIn) -> None:
    model = Model()
    keys, before = list(model.state_dict()), outputs(model, (6, 9, 4))
    summary = autogemm.patch(model, gpu="h100")
    assert {one.name: (one.epilogue, one.rows) for one in summary.layers} == {
        "mlp.0": (GELU, (6,)),
        "mlp.2": ("", ()),
        "bare": ("", (6, 7)),
        "wide": ("", ()),
    }
    assert str(summary).splitlines()[0] == "2 of 4 linear layers replaced on h100"
    assert f"left: no result for {BIAS} in layout nt is faster" in str(summary)
    assert "left: there are no kernels for torch.float64" in str(summary)
    with torch.no_grad():
        for found, expected in zip(outputs(model, (6, 9, 4)), before, strict=True):
            torch.testing.assert_close(found, expected)
    # 9 rows are slower, of 4 rows a tie.
    assert products.problems == [
        f"6x32x8 nt f32 epilogue={GELU} x1",
        "6x16x8 nt f32 x1",
    ]
    assert list(model.state_dict()) == keys
    with pytest.raises(UsageError, match="patched already"):
        autogemm.patch(model, gpu="h100")
    autogemm.unpatch(model)
    autogemm.unpatch(model)
    products.made.clear()
    with torch.no_grad():
        outputs(model, (6,))
    assert products.made == []
    assert "forward" not in vars(model.mlp) and "forward" not in vars(model.bare)


def test_batches_compilers_and_layers_outside_of_their_sequential(
    database: Path, products: StandIn
) -> None:
    model = Model()
    autogemm.patch(model, gpu="h100")
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        torch.testing.assert_close(
            model.mlp[0](x), torch.nn.functional.linear(x, model.mlp[0].weight, model.mlp[0].bias)
        )
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), model(x))
    assert products.problems[0] == f"6x32x8 nt f32 epilogue={BIAS} x1"
    assert len(products.made) == 5


def test_in_training_gradients_must_be_faster_too(database: Path, products: StandIn) -> None:
    model = Model()
    autogemm.patch(model, gpu="h100")
    outputs(model, (6,))[0].sum().backward()
    assert products.made == []
    model.bare(torch.randn(7, 8, requires_grad=True)).square().sum().backward()
    assert products.problems == ["7x16x8 nt f32 x1", "7x8x16 nn f32 x1", "8x16x7 tn f32 x1"]


def test_a_winner_of_emulation_counts_where_that_is_allowed(
    database: Path, products: StandIn
) -> None:
    emulated = problem(5, 16, 8)
    with open_store(str(database)) as store:
        run = store.begin_run(replace(store_samples.SPEC, problem=emulated))
        config = Config.of("sgemm_emulated_wgmma", {"BM": 64})
        outcome = replace(store_samples.ok(64, 10.0), config=config)
        store.record_trial(run, 0, outcome, replace(store_samples.source(64), config=config))
        entry = replace(store_samples.entry(64, 10.0, 10.0, 10.0, ratio=3.0), config=config)
        store.record_finals(run, store_samples.finals(entry), {})
        store.finish_run(run, RunState.FINISHED)

    def replaced_rows(**options: bool) -> tuple[int, ...]:
        model = Model()
        summary = autogemm.patch(model, gpu="h100", **options)
        with torch.no_grad():
            model.bare(torch.randn(5, 8))
        return next(one.rows for one in summary.layers if one.name == "bare")

    assert replaced_rows() == (6, 7)
    assert products.made == []
    assert replaced_rows(allow_emulation=True) == (5, 6, 7)
    (made,) = products.made
    assert (made.problem, made.products) == ("5x16x8 nt f32 x1", Products.EMULATED)


class Gated(torch.nn.Module):  # type: ignore[misc]
    """As Llama's feed-forward layer, with another name for each part of it."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.w1 = torch.nn.Linear(8, 24, bias=bias)
        self.w2 = torch.nn.Linear(24, 8, bias=False)
        self.w3 = torch.nn.Linear(8, 24, bias=False)

    def forward(self, x: Any) -> Any:
        return self.w2(self.w3(x) * torch.nn.functional.silu(self.w1(x)))


def test_both_products_of_a_gated_layer_are_one(database: Path, products: StandIn) -> None:
    model = torch.nn.Sequential(Gated(), torch.nn.ReLU())
    keys, before = list(model.state_dict()), outputs(model, (5, 7, 3))
    parameters = list(model.parameters())
    summary = autogemm.patch(model, gpu="h100")
    assert {one.name: (one.epilogue, one.rows) for one in summary.layers} == {
        "0.w1": (SWIGLU, (5, 7)),
        "0.w2": ("", ()),
        "0.w3": (SWIGLU, (5, 7)),
    }
    with torch.no_grad():
        for found, expected in zip(outputs(model, (5, 7, 3)), before, strict=True):
            torch.testing.assert_close(found, expected)
    assert products.problems == [
        f"5x24x8 nt f32 epilogue={SWIGLU} x1",
        "7x24x8 nt f32 x1",
        "7x24x8 nt f32 x1",
    ]
    # Gradients would need both products.
    products.made.clear()
    outputs(model, (5,))[0].sum().backward()
    assert products.made == []
    # Loading a state is seen; other memory is, too, and torch multiplies.
    state = {name: 2 * one for name, one in model.state_dict().items()}
    model.load_state_dict(state)
    with torch.no_grad():
        (expected,) = outputs(model, (5,))
        assert len(products.made) == 1
        copied = copy.deepcopy(model)
        model[0].w3.weight.data = model[0].w3.weight.data.clone()
        torch.testing.assert_close(outputs(model, (5,))[0], expected)
        # A copy has memory of its own: what is loaded into it is what it multiplies.
        larger = {name: 2 * one for name, one in state.items()}
        copied.load_state_dict(larger)
        model.load_state_dict(larger)
        torch.testing.assert_close(outputs(copied, (5,))[0], outputs(model, (5,))[0])
        assert len(products.made) == 1
    autogemm.unpatch(copied)
    autogemm.unpatch(model)
    assert list(model.state_dict()) == keys
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    assert len({one.untyped_storage().data_ptr() for one in parameters}) == 3
    torch.testing.assert_close(outputs(model, (5,))[0], outputs(copied, (5,))[0])


@pytest.mark.parametrize(("half_us", "is_one"), [(9.0, True), (4.0, False)])
def test_two_launches_of_a_faster_half_are_preferred(
    database: Path, products: StandIn, half_us: float, is_one: bool
) -> None:
    with open_store(str(database)) as store:
        run = store.begin_run(replace(store_samples.SPEC, problem=problem(5, 24, 8)))
        outcome = store_samples.ok(64, half_us)
        store.record_trial(run, 0, outcome, store_samples.source(64))
        entry = store_samples.entry(64, half_us, half_us, half_us, ratio=1.5)
        store.record_finals(run, store_samples.finals(entry), {})
        store.finish_run(run, RunState.FINISHED)
    model = Gated()
    autogemm.patch(model, gpu="h100")
    with torch.no_grad():
        outputs(model, (5,))
    half = "5x24x8 nt f32 x1"
    assert products.problems == (
        [f"5x24x8 nt f32 epilogue={SWIGLU} x1"] if is_one else [half, half]
    )


def test_a_gated_layer_is_compiled(database: Path, products: StandIn) -> None:
    model = Gated()
    autogemm.patch(model, gpu="h100")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.randn(5, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        assert len(products.made) == 2
        state = {name: 2 * one for name, one in model.state_dict().items()}
        copied = copy.deepcopy(model)
        copied.load_state_dict(state)
        again = torch.compile(copied, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(again(x), Gated.forward(copied, x))
        model.load_state_dict(state, assign=True)
        expected = Gated.forward(model, x)
        torch.testing.assert_close(compiled(x), expected)
        torch.testing.assert_close(model(x), expected)
    assert len(products.made) == 2


class Clamped(Gated):
    def forward(self, x: Any) -> Any:
        return self.w2(self.w3(x) * torch.nn.functional.silu(self.w1(x)).clamp(max=1))


class TwoInputs(Gated):
    def forward(self, x: Any, y: Any = None) -> Any:
        return self.w2(self.w3(x if y is None else y) * torch.nn.functional.silu(self.w1(x)))


class Remembered(Gated):
    def forward(self, x: Any) -> Any:
        self.last = x
        return super().forward(x)


class Conditional(Gated):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 1e9 else super().forward(x)


def tied() -> Any:
    model = Gated()
    model.w3.weight = model.w1.weight
    return model


def in_one_memory() -> Any:
    model = Gated()
    model.w1.weight.data = torch.randn(30, 8)[:24]
    return model


def hooked() -> Any:
    model = Gated()
    model.w1.register_forward_hook(lambda module, args, result: 2 * result)
    return model


@pytest.mark.parametrize(
    "make",
    [
        *(Clamped, TwoInputs, Remembered, Conditional, tied, in_one_memory, hooked),
        lambda: Gated(bias=True),
        lambda: Gated().double(),
    ],
)
def test_what_is_more_than_a_gated_layer_stays_as_it_is(
    database: Path, products: StandIn, make: Callable[[], Any]
) -> None:
    model = make()
    x = torch.randn(5, 8, dtype=model.w1.weight.dtype)
    before = model(x)
    summary = autogemm.patch(model, gpu="h100")
    assert SWIGLU not in {one.epilogue for one in summary.layers}
    with torch.no_grad():
        torch.testing.assert_close(model(x), before)
    assert products.made == []
    assert not isinstance(getattr(model, "last", x), torch.fx.Proxy)


def test_what_cannot_be_patched_is_one_line(database: Path) -> None:
    with pytest.raises(UsageError, match=r"takes a torch\.nn\.Module, got str"):
        autogemm.patch("model")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="torch sees no GPU"):
            autogemm.patch(Model())
    assert autogemm.patch(Model(), gpu="a100").num_replaced == 0


def test_a_report_says_what_results_are_worth(database: Path, tmp_path: Path) -> None:
    def called(one: Problem | None, calls: int, time_us: float) -> CalledGemm:
        return CalledGemm(one, one.label if one else "8x8x8 float64", 1, "aten.mm", calls, time_us)

    gemms = (
        called(problem(6, 16, 8), 3, 400.0),
        called(problem(9, 32, 8, BIAS), 1, 300.0),
        called(problem(6, 16, 9), 1, 200.0),
        called(None, 1, 100.0),
    )
    place = tmp_path / "shapes.jsonl"
    place.write_text(called_text(Recorded("cuda", store_samples.H100.name, 1200.0, gemms)))
    command = ["record", "--report", str(place)]
    rows = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    # Half of 400 us of 1200 us.
    assert [(row["verdict"], row["saved_us"]) for row in rows] == [
        ("faster", 200.0),
        ("slower", 0.0),
        ("not tuned", 0.0),
        ("no kernels", 0.0),
    ]
    shown = CliRunner().invoke(main, command).stdout
    assert "200 of 1000 us in products saved" in shown
    assert "expected for the whole program: 1.200 times the speed" in shown
    place.write_text(called_text(Recorded("cpu", "", 1200.0, gemms)))
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2 and "name the GPU" in refused.stderr
    # Three calls of 20 us by cuBLAS, 10 us by the kernel.
    rows = json.loads(CliRunner().invoke(main, [*command, "--gpu", "h100", "--json"]).stdout)
    assert [(row["time_us"], row["saved_us"]) for row in rows[:1]] == [(60.0, 30.0)]
    assert "record on the GPU" in CliRunner().invoke(main, [*command, "--gpu", "h100"]).stdout

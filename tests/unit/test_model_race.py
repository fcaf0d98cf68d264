"""benchmarks/model_race.py on the CPU: its models, what a row says, and outputs that are wrong.

torch multiplies in place of the kernels (torch_stand_in), and the times are invented.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import store_samples

torch = pytest.importorskip("torch", reason="runs models of torch")

from torch_stand_in import StandIn, driver, products  # noqa: E402

import autogemm  # noqa: E402
from autogemm.model.called import parsed_called  # noqa: E402
from autogemm.runtime import torch_operator, torch_products  # noqa: E402
from autogemm.store import RunState  # noqa: E402
from autogemm.support.errors import AutogemmError  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import llama  # noqa: E402
import model_race  # noqa: E402
from model_race import OURS, Phase  # noqa: E402

__all__ = ["driver", "products"]

TINY = llama.Sizes(layers=2, width=64, heads=4, kv_heads=2, hidden=96, vocabulary=101)
PREFILL, DECODE = Phase("prefill", "prefill", 8), Phase("decode", "decode", 3)
TRAIN, BLOCKS = Phase("train", "train", 8), Phase("blocks", "blocks", 8)
TIMES_US = {"torch.compile eager": 30.0, "torch.compile other": 24.0, OURS: 20.0}


def in_turn(
    calls: Mapping[str, Callable[[], Any]], rounds: int, *, captured: bool = True
) -> dict[str, list[float]]:
    for call in calls.values():
        call()
    return {name: [TIMES_US[name]] * rounds for name in calls}


@pytest.fixture
def raced(
    tmp_path: Path, products: StandIn, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Phase], dict[str, Any]]:
    """A race in which all products that were recorded have a faster kernel."""
    monkeypatch.setattr(model_race, "interleaved", in_turn)
    monkeypatch.setattr(model_race, "CONTEXT", 16)
    monkeypatch.setattr(model_race, "compiled", lambda model, mode: model)
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))

    def go(phase: Phase) -> dict[str, Any]:
        work = model_race.work_of(phase, TINY, "cpu")
        place = tmp_path / "shapes.jsonl"
        with autogemm.record(str(place)):
            work.run(work.model)
        with store_samples.new_store(tmp_path) as store:
            for problem in parsed_called(place.read_text(), "shapes.jsonl").weights:
                run = store.begin_run(replace(store_samples.SPEC, problem=problem))
                store.record_trial(run, 0, store_samples.ok(64, 10.0), store_samples.source(64))
                entry = store_samples.entry(64, 10.0, 10.0, 10.0, ratio=1.5)
                store.record_finals(run, store_samples.finals(entry), {})
                store.finish_run(run, RunState.FINISHED)
        products.made.clear()
        modes = ("eager", "other")
        return model_race.race(phase, TINY, modes, 6, device="cpu", gpu="h100")

    return go


def test_a_token_decoded_is_the_last_of_a_prompt() -> None:
    model = llama.random_llama(TINY, torch.float64, "cpu")
    tokens = torch.randint(TINY.vocabulary, (2, 9))
    kept: list[Any] = []

    def keep(module: Any, args: Any, projected: Any) -> None:
        kept.append(projected.view(2, 9, TINY.kv_heads, TINY.head_width).transpose(1, 2))

    for layer in model.layers:
        layer.attention.k_proj.register_forward_hook(keep)
        layer.attention.v_proj.register_forward_hook(keep)
    whole = model(tokens)
    angles = llama.angles_of(TINY.head_width, 0, 9, tokens)
    caches = [
        (llama.rotated(k, angles).detach(), v.detach())
        for k, v in zip(kept[::2], kept[1::2], strict=True)
    ]
    for k, v in caches:
        k[:, :, -1] = v[:, :, -1] = 0.0
    kept.clear()
    for layer in model.layers:
        layer.attention.k_proj._forward_hooks.clear()
        layer.attention.v_proj._forward_hooks.clear()
    with torch.no_grad():
        one = model(tokens[:, -1:], caches)
    torch.testing.assert_close(one, whole[:, -1:].detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model(tokens, only_last=True), whole[:, -1:])


@pytest.mark.parametrize("phase", [PREFILL, DECODE, TRAIN, BLOCKS], ids=lambda one: one.name)
def test_every_layer_runs_a_kernel_and_the_ratio_is_to_the_faster_mode(
    raced: Callable[[Phase], dict[str, Any]], products: StandIn, phase: Phase
) -> None:
    row = raced(phase)
    # Gradients of layers with a bias are torch's.
    assert (row["num_replaced"], row["left"]) == (row["num_layers"], [])
    assert len(products.made) >= 2 * row["num_layers"]
    assert row["baseline"] == "torch.compile other"
    assert row["ratio"] == pytest.approx(1.2)
    assert 0 < row["errors"]["torch.compile eager"] < 0.05
    row = {**row, "kernels": "tuned", "command": "c"}
    head = {"gpu": "H100", "date": "2026-11-24", "commit": "1", "torch": "2.13"}
    text = model_race.table({**head, "rows": [row], "failed": {}})
    assert f"{phase.name:<20} tuned      1.200" in text


@pytest.mark.parametrize("phase", [PREFILL, DECODE, TRAIN, BLOCKS], ids=lambda one: one.name)
def test_a_wrong_product_is_found(
    raced: Callable[[Phase], dict[str, Any]], monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    right = StandIn()

    def wrong(*args: Any, **kwargs: Any) -> Any:
        out = right(*args, **kwargs)
        out[..., -4:] *= 1.1
        return out

    monkeypatch.setattr(torch_operator, "multiply", wrong)
    monkeypatch.setattr(torch_products, "multiply", wrong)
    with pytest.raises(AutogemmError, match="the error is"):
        raced(phase)


def test_nan_is_the_largest_error() -> None:
    exact = [torch.ones(2), torch.ones(2), torch.ones(2)]
    found = [torch.ones(2), torch.tensor([1.0, torch.nan]), 2 * torch.ones(2)]
    assert model_race.error_of(found[::2], exact[::2]) == pytest.approx(1.0)
    assert model_race.error_of(found, exact) != model_race.error_of(found, exact)


def test_outputs_that_differ_from_call_to_call_are_found(
    raced: Callable[[Phase], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = StandIn()

    def unsteady(*args: Any, **kwargs: Any) -> Any:
        out = right(*args, **kwargs)
        return out + 1e-3 * torch.randn_like(out)

    monkeypatch.setattr(torch_operator, "multiply", unsteady)
    monkeypatch.setattr(torch_products, "multiply", unsteady)
    with pytest.raises(AutogemmError, match="outputs differ from those of a second call"):
        raced(PREFILL)


def test_a_model_that_differs_from_call_to_call_as_torch_does_is_raced(
    raced: Callable[[Phase], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_race, "has_repeated", lambda work, model: False)
    assert set(raced(PREFILL)["repeats"].values()) == {False}

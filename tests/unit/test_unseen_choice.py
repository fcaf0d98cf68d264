"""What the choice for a size that nobody tuned loses: benchmarks/unseen_choice.py."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_target import FakeCompiler, FakeTarget, tiny_family
from sized_target import SizedTarget, requests_for

import autogemm.tuning.opening
from autogemm.dispatch import Chooser
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout
from autogemm.store import Store, open_store
from autogemm.targets import Chosen

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
unseen_choice: Any = importlib.import_module("unseen_choice")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "unseen.db")) as opened:
        yield opened


def row_of(tmp_path: Path, store: Store, size: int) -> dict[str, Any]:
    (request,) = requests_for(tmp_path, [size])
    target: Any = SizedTarget()
    chooser = Chooser((), request.families, target.device)
    row: dict[str, Any] = unseen_choice.measured(request, chooser, target, FakeCompiler(), store)
    return row


def test_the_loss_is_that_of_the_choice_beside_the_winner_of_a_search(
    tmp_path: Path, store: Store
) -> None:
    # Without results a seed is chosen, with BM = 32, which is the best for the first size only.
    near, far = (row_of(tmp_path, store, size) for size in (500, 3000))
    for row in (near, far):
        assert row["config"]["BM"] == 32
        assert row["why"] == "nothing tuned: a seed of the family"
    assert near["loss"] == pytest.approx(near["loss_of_medians"], abs=1e-9)
    assert near["winner_config"]["BM"] == 32
    assert far["winner_config"]["BM"] == 64
    assert far["loss"] > near["loss"] >= 0
    assert far["loss"] == pytest.approx(far["ratio_of_winner"] / far["ratio"] - 1)


def test_the_table_has_the_mean_of_each_type(tmp_path: Path, store: Store) -> None:
    rows = [row_of(tmp_path, store, size) for size in (500, 3000)]
    rows[0]["loss"], rows[1]["loss"] = -0.01, 0.05
    head = dict.fromkeys(("gpu", "date", "commit", "command", "law"), "x")
    text = unseen_choice.table({**head, "rows": rows, "failed": {"a": "why"}})
    # A choice that is faster than the winner loses nothing.
    assert "f32: 2 sizes, mean loss 2.5 %, worst 5.0 %" in text
    assert text.endswith("failed: a: why\n")


def test_each_shape_comes_in_one_layout_and_all_types() -> None:
    drawn = unseen_choice.problems(5, 7, [DType.F32, DType.BF16])
    assert len(drawn) == len(set(drawn)) == 10
    assert [one.layout for one in drawn[::2]] == [*Layout, Layout.NN]
    assert {one.size_label for one in drawn[:2]} == {drawn[0].size_label}


def test_a_call_goes_on_with_the_rows_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_family(tmp_path / "tiny")
    targets: list[FakeTarget] = []

    def chosen(*_: object) -> Chosen:
        targets.append(FakeTarget())
        return Chosen(targets[-1])

    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", chosen)
    monkeypatch.setattr(unseen_choice, "unseen_shapes", lambda count, seed: ("512", "64x640x128"))
    words = ["--types", "f32", "--count", "2", "--budget", "0.5", "--family"]
    words += [str(tmp_path / "tiny"), "--out", str(tmp_path / "out")]
    for arguments, count in ((["--limit", "0"], 0), ([], 2), ([], 2)):
        done = CliRunner().invoke(unseen_choice.main, [*words, *arguments])
        assert done.exit_code == 0, done.output
        assert done.output.count("tiny, ") == count
    rows = json.loads((tmp_path / "out" / "left_out_h100.json").read_text())["rows"]
    assert [(row["shape"], row["layout"]) for row in rows] == [("512", "nn"), ("64x640x128", "nt")]
    assert not targets[-1].measured, "nothing is measured twice"

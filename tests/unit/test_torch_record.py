"""``autogemm record``: what is seen of programs of torch, on the CPU."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="records what torch calls")

import autogemm  # noqa: E402
from autogemm.cli import main  # noqa: E402
from autogemm.model.called import CalledGemm  # noqa: E402
from autogemm.programs.recording import Recorder  # noqa: E402


def seen(call: Callable[[], Any]) -> dict[str, CalledGemm]:
    with Recorder() as recorder:
        call()
    return {one.label: one for one in recorder.recorded().gemms}


def labels(call: Callable[[], Any]) -> list[str]:
    return sorted(seen(call))


X, W, BIAS = torch.randn(16, 8), torch.randn(24, 8), torch.randn(24)
BOTH = "16x24x8 nt f32 epilogue=acc + bias[n]"


def test_sizes_layouts_types_and_counts() -> None:
    def program() -> None:
        for _ in range(3):
            X @ W.T
        W @ X.T
        X.T @ X
        X.bfloat16() @ W.T.bfloat16()
        X.double() @ W.T.double()
        torch.randn(4, 16, 8) @ torch.randn(4, 8, 24)
        X[:, ::2] @ torch.randn(4, 8)
        torch.addmm(torch.zeros(16, 24), X, W.T, beta=0.5, alpha=2.0)

    found = seen(program)
    assert {label: (one.calls, one.batch) for label, one in found.items()} == {
        "16x24x8 nt f32": (3, 1),
        "24x16x8 nt f32": (1, 1),
        "8x8x16 tn f32": (1, 1),
        "16x24x8 nt bf16": (1, 1),
        "16x24x8 float64": (1, 1),
        "16x24x8 nn f32 batch=4": (1, 1),
        next(label for label in found if "pass a contiguous copy" in label): (1, 1),
        "16x24x8 nt f32 alpha=2 beta=0.5": (1, 1),
    }
    assert found["16x24x8 float64"].problem is None
    assert all(one.time_us > 0 for one in found.values())


def test_what_alone_reads_a_product_counts_to_it() -> None:
    linear = torch.nn.Linear(8, 24)
    functional, tanh = torch.nn.functional, {"approximate": "tanh"}
    with torch.no_grad():
        assert labels(lambda: functional.relu(linear(X))) == [
            "16x24x8 nt f32 epilogue=relu(acc + bias[n])"
        ]
        # Through views, in place, of three dimensions.
        assert labels(lambda: functional.gelu(linear(X.view(2, 8, 8)), **tanh)) == [
            "16x24x8 nt f32 epilogue=gelu_tanh(acc + bias[n])"
        ]
        assert labels(lambda: torch.relu_(X @ W.T + BIAS)) == [BOTH]
        # Half of it; another reader behind; twice.
        assert labels(lambda: functional.silu(linear(X)[:, :12])) == [BOTH]

        def shared() -> Any:
            y = linear(X)
            return functional.relu(y) + y

        assert labels(shared) == [BOTH]
        assert labels(lambda: torch.tanh(torch.relu(X @ W.T))) == [
            "16x24x8 nt f32 epilogue=relu(acc)"
        ]
        assert labels(lambda: (X @ W.T) + torch.zeros(16, 1)) == ["16x24x8 nt f32"]
    # Backward reads what gelu was given; and has products of its own.
    x = X.clone().requires_grad_()
    assert labels(lambda: functional.gelu(linear(x)).sum().backward()) == sorted(
        (BOTH, "16x8x24 nn f32", "24x8x16 tn f32")
    )


def test_two_products_of_a_gated_layer_are_one() -> None:
    up = torch.randn(24, 8)
    functional = torch.nn.functional
    gated = "16x24x8 nt f32 epilogue=silu(acc[n]) * acc[n + N]"
    activated, plain = "16x24x8 nt f32 epilogue=silu(acc)", "16x24x8 nt f32"

    def layer(x: Any = X, other: Any = X) -> Any:
        return functional.silu(x @ W.T) * (other @ up.T)

    found = seen(layer)
    assert list(found) == [gated]
    assert (found[gated].calls, found[gated].ops) == (1, "aten.mm aten.silu aten.mm aten.mul")
    assert labels(lambda: (X @ up.T) * functional.silu(X @ W.T)) == [gated]
    # Another x; a reader more of either; no activation; both behind one.
    assert labels(lambda: layer(other=X.clone())) == sorted((activated, plain))

    def read_again() -> Any:
        one, other = functional.silu(X @ W.T), X @ up.T
        return one * other + one

    def other_again() -> Any:
        one, other = functional.silu(X @ W.T), X @ up.T
        return one * other + other

    assert labels(read_again) == labels(other_again) == sorted((activated, plain))
    assert labels(lambda: (X @ W.T) * (X @ up.T)) == [plain]
    assert labels(lambda: functional.silu(X @ W.T) * functional.silu(X @ up.T)) == [activated]
    assert labels(lambda: functional.silu(X @ W.T) * (X @ up.T)[:1]) == sorted((activated, plain))


def test_inference_mode_and_compiled_programs() -> None:
    linear = torch.nn.Linear(8, 24)
    compiled = torch.compile(lambda x: torch.relu(linear(x)), backend="aot_eager")
    with torch.no_grad():
        assert labels(lambda: compiled(X)) == ["16x24x8 nt f32 epilogue=relu(acc + bias[n])"]
    with torch.inference_mode():
        assert labels(lambda: linear(X)) == [BOTH]


def test_memory_that_is_used_again_is_no_result() -> None:
    def program() -> None:
        for _ in range(50):
            X @ W.T
            torch.relu(torch.empty(16, 24))

    assert labels(program) == ["16x24x8 nt f32"]


PROGRAM = """
import sys
import torch
linear = torch.nn.Linear(8, 24)
with torch.no_grad():
    for _ in range(4):
        torch.relu(linear(torch.randn(16, 8)))
sys.exit(len(sys.argv) - 1)
"""


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "autogemm", "record", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_is_recorded_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, out = tmp_path / "serve.py", tmp_path / "shapes.jsonl"
    program.write_text(PROGRAM)
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.stderr.write('its own\\n')")
    monkeypatch.setenv("PYTHONPATH", str(own))
    done = run("-o", out, "--", sys.executable, program, "fails")
    assert (done.returncode, "its own" in done.stderr) == (1, True), done.stderr
    assert "16x24x8 nt f32 epilogue=relu(acc + bias[n])" in done.stdout
    assert "only weight the problems" in done.stdout
    head, line = map(json.loads, out.read_text().splitlines())
    assert (head["clock"], line["calls"], line["ops"]) == ("cpu", 4, "aten.addmm aten.relu")


def test_what_cannot_be_recorded_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "shapes.jsonl"
    for words, arguments in {
        "name a program": ["-o", out],
        "there is no program 'no-such'": ["-o", out, "--", "no-such"],
        "there is no folder": ["-o", tmp_path / "none" / "x", "--", "true"],
        "leave the program out": ["--report", out, "--", "true"],
        "called no PyTorch product": ["-o", out, "--", "true"],
    }.items():
        done = CliRunner().invoke(main, ["record", *map(str, arguments)])
        expected = 1 if "called" in words else 2
        assert (done.exit_code, words in done.stderr) == (expected, True), done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not out.exists()


def test_record_in_a_program_writes_also_where_it_fails(tmp_path: Path) -> None:
    place = tmp_path / "shapes.jsonl"
    with pytest.raises(ZeroDivisionError), autogemm.record(place):
        X @ W.T
        raise ZeroDivisionError
    assert len(place.read_text().splitlines()) == 2

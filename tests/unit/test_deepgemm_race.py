"""benchmarks/deepgemm_race.py and the harness of grouped_race.py, with libraries that are none."""

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import autogemm
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import AutogemmError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import deepgemm_race
import grouped_race
import torch_timing
from suite_shapes import GROUPED_K_SHAPES, GROUPED_SCALED_SHAPES, SCALED_SHAPES, problem_of

US = {"autogemm": [8.0, 10.0, 12.0], "DeepGEMM": [10.0, 15.0, 12.0]}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose searches end with 1.25 x cuBLAS, where both libraries are always right."""
    cuda = {"is_available": lambda: True, "get_device_name": lambda: "NVIDIA H200"}
    # SciPy asks a torch that is imported for its type of tensors.
    torch = SimpleNamespace(
        __version__="2.0", Tensor=OnCpu, cuda=SimpleNamespace(**cuda, empty_cache=lambda: None)
    )
    winner = SimpleNamespace(ratio=1.25, config=Config.of("gemm_wgmma", {"BM": 64}))
    finals = SimpleNamespace(winner=winner, baseline=SimpleNamespace(name="Lt 3"))

    def tune(problem: Problem, **_: Any) -> Any:
        if problem.m == 77:
            raise AutogemmError("no room\nfor it")
        return SimpleNamespace(finals=None if problem.m == 78 else finals, outcomes=(1, 2, 3))

    def calls_of(problem: Problem) -> Any:
        errors = {"autogemm": 0.001, "DeepGEMM": math.nan if problem.m == 79 else 0.002}
        return {name: lambda: None for name in errors}, lambda name, _: errors[name]

    monkeypatch.setattr(autogemm, "tune", tune)
    monkeypatch.setattr(grouped_race, "interleaved", lambda calls, rounds: US)
    for name in ("scaled_calls", "grouped_calls", "scaled_group_calls"):
        monkeypatch.setattr(deepgemm_race, name, calls_of)
    monkeypatch.setattr(deepgemm_race, "baseline", lambda: "some-fork 1.2")
    # The race has a database of its own, and leaves no trace of it.
    monkeypatch.setenv("AUTOGEMM_DB", "none.db")
    monkeypatch.setattr(autogemm, "forget", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", torch)


def raced(out: Path, *arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The JSON and the output of a race; both files say the same."""
    done = CliRunner().invoke(deepgemm_race.main, ["--out", str(out), *arguments])
    assert done.exit_code == code, done.output
    (path,) = out.glob("*.json")
    assert path.with_suffix(".txt").read_text().strip() == done.output.strip()
    return json.loads(path.read_text()), done.output


@pytest.mark.usefixtures("gpu")
def test_rows_pair_the_rounds_and_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["race", "--out", str(tmp_path), "--commit", "abc"])
    found, shown = raced(tmp_path, "--commit", "abc")
    assert (tmp_path / "deepgemm_race_block_scales_h200.json").exists()
    assert [row["shape"] for row in found["rows"]] == list(SCALED_SHAPES)
    row = found["rows"][0]
    # Ratios of rounds are 1.25, 1.5 and 1; medians are 10 and 12.
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == (1.25, 1.0, 1.5)
    assert row["ratio_of_medians"] == 1.2
    assert (row["time_us"], row["DeepGEMM_us"]) == (10.0, 12.0)
    assert (row["layout"], row["dtype"], row["baseline"]) == ("nt", "e4m3", "some-fork 1.2")
    assert row["tflops"] == pytest.approx(2 * 64 * 7168 * 2048 / 10e6)
    assert row["samples_us"] == US
    assert (row["cublas_ratio"], row["cublas"]) == (1.25, "Lt 3")
    assert (row["tried"], row["winner"]) == (3, "gemm_wgmma BM=64")
    assert found["commit"] == "abc"
    assert found["command"] == "benchmarks/deepgemm_race.py --out OUT --commit abc"
    assert "geometric mean of 8 ratios: 1.250" in shown
    assert "some-fork 1.2" in shown


@pytest.mark.usefixtures("gpu")
def test_the_faster_of_both_baselines_has_a_mean_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tuned(problem: Problem, *_: float) -> dict[str, Any]:
        ratio = 0.8 if problem.m == 256 else 5.0
        return {"cublas_ratio": ratio, "cublas": "Lt 3", "tried": 1, "winner": ""}

    monkeypatch.setattr(grouped_race, "tuned", tuned)
    _, shown = raced(tmp_path, "--shapes", "256;512")
    assert "to the faster of DeepGEMM and cuBLAS: 2 ratios: 1.000" in shown


@pytest.mark.usefixtures("gpu")
def test_what_fails_is_a_line_and_an_exit_code(tmp_path: Path) -> None:
    found, shown = raced(tmp_path, "--shapes", "77;78;79;128", code=1)
    assert [row["shape"] for row in found["rows"]] == ["128"]
    assert found["failed"]["77"] == "no room for it"
    assert found["failed"]["78"] == "no candidate ran correctly"
    assert "DeepGEMM wrong" in found["failed"]["79"]
    assert "failed: 79: " in shown


@pytest.mark.usefixtures("gpu")
def test_groups_are_a_suite_of_their_own(tmp_path: Path) -> None:
    shape = "512x64x64 groups=4 masked=200"
    found, _ = raced(tmp_path, "--suite", "grouped", "--shapes", shape)
    assert [row["shape"] for row in found["rows"]] == [shape]
    assert found["rows"][0]["dtype"] == "bf16"
    assert (tmp_path / "deepgemm_race_grouped_h200.json").exists()


@pytest.mark.usefixtures("gpu")
def test_groups_have_scales_of_blocks(tmp_path: Path) -> None:
    found, _ = raced(tmp_path, "--suite", "grouped-block-scales")
    assert [row["shape"] for row in found["rows"]] == list(GROUPED_SCALED_SHAPES)
    assert found["rows"][0]["dtype"] == "e4m3"
    assert (tmp_path / "deepgemm_race_grouped_block_scales_h200.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shapes", "12x"], "got '12x'"),
        (["--shapes", "64 groups=4 uniform"], "write sb[g, n / 128, k / 128]"),
        (["--suite", "grouped", "--shapes", "64"], "64: grouped needs groups"),
        (["--suite", "grouped", "--shapes", "64 batch=2"], "grouped needs groups"),
    ],
)
def test_a_wrong_shape_is_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(deepgemm_race.main, ["--out", str(tmp_path), *arguments])
    assert done.exit_code == 2
    assert said in done.output.splitlines()[-1]


def test_a_package_that_is_missing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepgemm_race, "find_spec", lambda _: None)
    done = CliRunner().invoke(deepgemm_race.main, ["--out", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        1,
        "Error: the Python package deep_gemm is not installed\n",
    )


def test_a_machine_without_a_gpu_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(deepgemm_race, "baseline", lambda: "some-fork 1.2")
    done = CliRunner().invoke(deepgemm_race.main, ["--out", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output == "Error: PyTorch sees no GPU: run this on a machine with one\n"


def test_the_baseline_is_the_package_and_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepgemm_race, "find_spec", lambda _: object())
    monkeypatch.setattr(
        deepgemm_race, "packages_distributions", lambda: {"deep_gemm": ["some-fork"]}
    )
    monkeypatch.setattr(deepgemm_race, "version", {"some-fork": "1.2"}.get)
    assert deepgemm_race.baseline() == "some-fork 1.2"
    monkeypatch.setattr(deepgemm_race, "packages_distributions", dict)
    assert deepgemm_race.baseline() == "deep_gemm of no known version"


class OnCpu:
    """Both libraries on the CPU: what they document, from the arrays that they are given.

    ``bug`` is planted into DeepGEMM's.
    """

    STEP = 128

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.bug: Callable[..., None] = lambda *_: None
        self.expected: list[int] = []

    def gemm(self, x: Any, w: Any, out: Any, *, epilogue: str, sa: Any, sb: Any) -> Any:
        assert epilogue == deepgemm_race.SCALED
        total = self.torch.zeros(out.shape)
        for block, first in enumerate(range(0, x.shape[1], 128)):
            part = x[:, first : first + 128].float() @ w[first : first + 128].float()
            columns = sb[:, block].repeat_interleave(128)[: out.shape[1]]
            total += part * sa[block][:, None] * columns
        return out.copy_(total)

    def grouped_gemm(
        self, x: Any, w: Any, offsets: Any = None, out: Any = None, counts: Any = None
    ) -> Any:
        for group in range(w.shape[0]):
            if counts is not None:
                rows = (group, slice(int(counts[group])))
            else:
                rows = slice(int(offsets[group]), int(offsets[group + 1]))
            out[rows] = x[rows] @ w[group]
        return out

    def get_mn_major_tma_aligned_tensor(self, scales: Any) -> Any:
        rows, columns = scales.shape
        apart = -(-rows // 4) * 4
        if scales.stride() == (1, apart):
            return scales
        made = self.torch.empty_strided((rows, columns), (1, apart))
        return made.copy_(scales)

    def fp8_gemm_nt(self, a: Any, b: Any, d: Any, compiled_dims: str = "") -> None:
        (x, sa), (w, sb) = a, b
        assert compiled_dims == "nk"
        assert sa.stride(0) == 1
        self.gemm(x, w.T, d, epilogue=deepgemm_race.SCALED, sa=sa.T, sb=sb)
        self.bug(d)

    def get_mk_alignment_for_contiguous_layout(self) -> int:
        return self.STEP

    def m_grouped_bf16_gemm_nt_contiguous(self, a: Any, b: Any, d: Any, group_of: Any) -> None:
        assert len(a) % self.STEP == 0
        for first in range(0, len(a), self.STEP):
            rows = slice(first, first + self.STEP)
            # A tile has the group of its first row, and no row of another.
            group = int(group_of[first])
            assert {group} <= set(group_of[rows].tolist()) <= {group, -1}
            d[rows] = a[rows] @ b[group].T
        self.bug(d)

    def m_grouped_bf16_gemm_nt_masked(
        self, a: Any, b: Any, d: Any, counts: Any, expected: int
    ) -> None:
        self.expected.append(expected)
        for group, count in enumerate(counts.tolist()):
            d[group, :count] = a[group, :count] @ b[group].T
        self.bug(d)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    torch = pytest.importorskip("torch", reason="its tensors are multiplied")
    made = OnCpu(torch)
    module = ModuleType("deep_gemm")
    for name in dir(made):
        if not name.startswith("_"):
            setattr(module, name, getattr(made, name))
    monkeypatch.setitem(sys.modules, "deep_gemm", module)
    for script in (grouped_race, deepgemm_race):
        monkeypatch.setattr(script, "DEVICE", "cpu")
    monkeypatch.setattr(autogemm, "gemm", made.gemm)
    monkeypatch.setattr(autogemm, "grouped_gemm", made.grouped_gemm)
    monkeypatch.setattr(grouped_race, "interleaved", lambda calls, rounds: US)
    return made


SCALED = "130x200x384"
CONTIGUOUS = "300x72x40 groups=5 zipf=1.1 seed=1"
EMPTY = "300x72x40 groups=0,130,0,128,42"
MASKED = "320x72x40 groups=5 zipf=1.1 seed=1 masked=100"


def row_of(shape: str) -> dict[str, Any]:
    suite = "grouped" if "groups" in shape else "block-scales"
    calls_of = deepgemm_race.grouped_calls if suite == "grouped" else deepgemm_race.scaled_calls
    race = grouped_race.Race("", "", "DeepGEMM", "", calls_of)
    return race.row(deepgemm_race.problems_of(suite, shape)[shape], 3)


@pytest.mark.parametrize("shape", [SCALED, "128x128x512", CONTIGUOUS, EMPTY, MASKED])
def test_both_get_the_same_product(on_cpu: OnCpu, shape: str) -> None:
    row = row_of(shape)
    assert 0 < row["error"] < 2**-8
    assert 0 < row["DeepGEMM_error"] < 2**-8
    assert on_cpu.expected == ([20] if shape == MASKED else [])


def products_of_groups(x: Any, y: Any, offsets: Any, out: Any) -> Any:
    for group in range(len(out)):
        rows = slice(int(offsets[group]), int(offsets[group + 1]))
        out[group] = x[rows].T @ y[rows]
    return out


DIVIDED = "24x40x160 groups=70,0,1,89"


def test_groups_that_divide_k_race_with_pytorchs(
    on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autogemm, "grouped_gemm_tn", products_of_groups)
    calls, error_of = grouped_race.divided_calls(problem_of(DIVIDED, Layout.TN, DType.BF16))
    results = {name: call() for name, call in calls.items()}
    for name, result in results.items():
        assert 0 < error_of(name, result) < 2**-8
    for group, wrong in ((0, math.nan), (1, 1.0), (3, 9.0)):
        spoilt = results["autogemm"].clone()
        spoilt[group, 5, 7] += wrong
        assert not error_of("autogemm", spoilt) <= grouped_race.TOLERANCE


@pytest.mark.usefixtures("gpu")
def test_gradients_are_a_suite_of_grouped_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced_ones = []

    def calls_of(problem: Problem) -> Any:
        raced_ones.append(problem)
        errors = dict.fromkeys(("autogemm", "torch"), 0.001)
        return {name: lambda: None for name in errors}, lambda name, _: errors[name]

    monkeypatch.setattr(grouped_race, "divided_calls", calls_of)
    times = {"autogemm": US["autogemm"], "torch": US["DeepGEMM"]}
    monkeypatch.setattr(grouped_race, "interleaved", lambda calls, rounds: times)
    arguments = ["--suite", "grouped-k", "--out", str(tmp_path)]
    done = CliRunner().invoke(grouped_race.main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "grouped_k_race_h200.json").read_text())
    assert [row["shape"] for row in found["rows"]] == list(GROUPED_K_SHAPES)
    assert all(problem.divides_k for problem in raced_ones)


def forgets_a_row(out: Any) -> None:
    out[..., 1, :] = math.nan


def swaps_columns(out: Any) -> None:
    out[..., :2] = out[..., :2].flip(-1)


def is_off_in_an_element(out: Any) -> None:
    out.view(-1)[5] += out[:4].nan_to_num().abs().max() / 50


@pytest.mark.parametrize("bug", [forgets_a_row, swaps_columns, is_off_in_an_element])
@pytest.mark.parametrize("shape", [SCALED, CONTIGUOUS, MASKED])
def test_a_wrong_result_is_refused(on_cpu: OnCpu, shape: str, bug: Callable[..., None]) -> None:
    on_cpu.bug = bug
    with pytest.raises(AutogemmError, match=r"DeepGEMM wrong: \{'autogemm'"):
        row_of(shape)


def test_an_element_near_0_that_is_not_written_is_refused(
    on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves_one_out(a: Any, b: Any, d: Any, **options: Any) -> None:
        before = d.clone()
        on_cpu.fp8_gemm_nt(a, b, d, **options)
        smallest = int(d.abs().argmin())
        d.view(-1)[smallest] = before.view(-1)[smallest]

    monkeypatch.setattr(sys.modules["deep_gemm"], "fp8_gemm_nt", leaves_one_out)
    with pytest.raises(AutogemmError, match=r"DeepGEMM wrong: .*nan"):
        row_of(SCALED)


def test_a_scale_of_another_block_is_refused(
    on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rolled(x: Any, w: Any, out: Any, *, sa: Any, **others: Any) -> Any:
        return on_cpu.gemm(x, w, out, sa=sa.roll(1, 0), **others)

    monkeypatch.setattr(autogemm, "gemm", rolled)
    with pytest.raises(AutogemmError, match="autogemm wrong"):
        row_of(SCALED)


def test_scales_that_each_call_would_convert_are_refused(
    on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["deep_gemm"]
    monkeypatch.setattr(module, "get_mn_major_tma_aligned_tensor", lambda scales: scales.clone())
    with pytest.raises(AutogemmError, match="would convert the scales in each call"):
        row_of(SCALED)


def test_calls_that_a_graph_does_not_see_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def __init__(self, **_: Any) -> None: ...

        record = synchronize = lambda self: None
        elapsed_time = lambda self, _: 1.0  # noqa: E731

    @contextmanager
    def graph(_: object) -> Iterator[None]:
        before = len(launched)
        yield
        if len(launched) == before:
            warnings.warn("The CUDA Graph is empty. This usually means", stacklevel=1)

    cuda = {
        "Event": Event,
        "graph": graph,
        "CUDAGraph": lambda: SimpleNamespace(replay=None),
        "synchronize": lambda: None,
    }
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(**cuda)))
    launched: list[int] = []
    assert torch_timing.graph_of(lambda: launched.append(1))[1] == 4
    with pytest.raises(RuntimeError, match="Graph is empty"):
        torch_timing.graph_of(lambda: None)

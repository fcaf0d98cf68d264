"""Tests of the rules for results and times: bounds, rechecks, the baseline."""

import ctypes
import itertools
import math
import os
from types import SimpleNamespace
from typing import Any

import pytest

from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Telemetry
from autogemm.targets.cuda.messages import Start
from autogemm.targets.cuda.worker import backend
from autogemm.targets.cuda.worker.finals import Finalist, Rechecks, conclude
from autogemm.targets.cuda.worker.gpu import cublas
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, forget_overrides
from autogemm.targets.cuda.worker.gpu.telemetry import is_throttled
from autogemm.targets.cuda.worker.problem.reference import rounding_allowance

U = 2.0**-24


def test_the_bound_of_fp32_is_that_of_higham_and_mary() -> None:
    """A failure anywhere in C has probability 1e-6."""
    lambda_squared = 2 * math.log(2 * 64 * 32 * 1000 / 1e-6)
    assert rounding_allowance(Problem(64, 32, 1000)) == pytest.approx(
        lambda_squared * U * math.sqrt(1000), rel=1e-12
    )


TENSOR_FLOATS = [one for one in DType if not one.has_fp32_products and not one.ab.is_integer]


@pytest.mark.parametrize("dtype", TENSOR_FLOATS, ids=str)
def test_the_bound_of_tensor_cores_cuts_off_some_products_at_a_time(dtype: DType) -> None:
    # Sums of 8-bit floats take more products a step and keep fewer bits.
    per_step, lost = (32, 2.0**-13) if dtype.ab.size_bytes == 1 else (4, 2 * U)
    lambda_squared = 2 * math.log(2 * 64 * 32 * 1000 / 1e-6)
    steps = 1000 / per_step + math.sqrt(lambda_squared * (1 + 1 / per_step) * 1000)
    assert rounding_allowance(Problem(64, 32, 1000, dtype=dtype)) == pytest.approx(
        lost * math.sqrt(lambda_squared) * steps, rel=1e-12
    )


def test_sums_of_integers_are_exact_and_in_floats_rounded_once() -> None:
    assert rounding_allowance(Problem(64, 32, 1024, dtype=DType.I8)) == 0.0
    assert rounding_allowance(Problem(64, 32, 1024, dtype=DType.I8_BF16)) == U * 32


@pytest.mark.parametrize(
    ("reason", "throttled"),
    [
        (None, False),
        (0x0, False),
        (0x1, False),  # idle
        (0x2, False),  # clocks that the user set
        (0x4, False),  # the power limit, which a kernel reaches wherever it runs
        (0x8, True),  # hardware slowdown
        (0x20, True),  # heat, by software
        (0x40, True),  # heat, by hardware
        (0x80, True),  # the power supply's brake
        (0x84, True),
    ],
)
def test_slowed_down_from_outside_is_throttled(reason: int | None, throttled: bool) -> None:
    assert is_throttled(Telemetry(throttle_reasons=reason)) is throttled


def test_variables_of_the_shell_do_not_change_what_cublas_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setenv("CUBLAS_EMULATE_SINGLE_PRECISION", "1")
    forget_overrides()
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ
    assert os.environ["CUBLAS_EMULATE_SINGLE_PRECISION"] == "0"


def test_a_worker_forgets_them_before_it_loads_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class LoadedError(Exception):
        pass

    def load(device_index: int) -> None:
        assert "NVIDIA_TF32_OVERRIDE" not in os.environ
        assert os.environ["CUBLAS_EMULATE_SINGLE_PRECISION"] == "0"
        raise LoadedError(device_index)

    monkeypatch.setattr(backend, "Gpu", load)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setenv("CUBLAS_EMULATE_SINGLE_PRECISION", "1")
    with pytest.raises(LoadedError, match="3"):
        backend.CudaBackend().start(Start(3))


def test_the_baseline_computes_in_the_default_math_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0 (cublas_api.h): 3 would be TF32, 4 FP32 emulated by BF16."""
    modes = []

    class Library:
        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> int:
                if name == "cublasSetMathMode":
                    modes.append(arguments[1].value)
                return 0

            return call

    monkeypatch.setattr(cublas, "load_library", Library)
    buffer = SimpleNamespace(ptr=0)
    gpu = SimpleNamespace(allocate=lambda size: buffer, stream=SimpleNamespace(ptr=0))
    Cublas(gpu)  # type: ignore[arg-type]
    assert modes == [0]
    assert ctypes.c_int(cublas.DEFAULT_MATH).value == 0


class Prepared:
    """A prepared problem whose checks are noted; contestants in ``wrong`` fail them."""

    def __init__(self, wrong: dict[str, str]) -> None:
        self.wrong = wrong
        self.checked: list[str] = []
        self.once: list[tuple[str, bool]] = []
        self.result = SimpleNamespace(reset=lambda matrix: None)
        self.timed = [None]

    def check(self, contestant: Any) -> Any:
        self.checked.append(contestant)
        return SimpleNamespace(complaint=self.wrong.get(contestant, ""), verification=None)

    def complaint_once(self, contestant: Any, *, integers: bool) -> str:
        self.once.append((contestant, integers))
        kind = "integer" if integers else "real"
        return f"wrong on {kind}s" if self.wrong.get(contestant) == kind else ""


@pytest.mark.parametrize("rounds", [1, 7, 30])
def test_rechecks_take_both_inputs_in_turn(rounds: int) -> None:
    prepared = Prepared({})
    rechecks = Rechecks(prepared, ["x"], rounds)  # type: ignore[arg-type]
    for _ in range(rounds):
        rechecks.after_round()
    kinds = [integers for _, integers in prepared.once]
    assert len(kinds) == rechecks.num_checks >= 44
    assert all(one != other for one, other in itertools.pairwise(kinds))


@pytest.mark.parametrize("kind", ["integer", "real"])
def test_a_kernel_that_is_wrong_on_one_kind_of_input_is_found_between_rounds(kind: str) -> None:
    prepared = Prepared({"bad": kind})
    rechecks = Rechecks(prepared, ["good", "bad"], 2)  # type: ignore[arg-type]
    rechecks.after_round()
    assert set(rechecks.complaints) == {1}
    assert f"wrong on {kind}s" in rechecks.complaints[1]


def test_calls_of_cublas_are_compared_once_more_after_the_rounds() -> None:
    prepared = Prepared({"cuBLAS": "it became wrong"})
    call, lt, *kernels = finalists = [
        Finalist(name, None, "", name, 1.0)  # type: ignore[arg-type]
        for name in ("cuBLAS", "Lt", "x", "y")
    ]
    rechecks = Rechecks(prepared, ["x", "y"], 3)  # type: ignore[arg-type]
    rechecks.complaints[1] = "wrong in check 3"
    conclude(prepared, [call, lt], kernels, rechecks)  # type: ignore[arg-type]
    assert prepared.checked == ["cuBLAS", "Lt", "x", "y"]
    complaints = [one.complaint for one in finalists]
    assert complaints == ["it became wrong", "", "", "wrong in check 3"]

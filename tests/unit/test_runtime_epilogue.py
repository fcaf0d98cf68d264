"""``autogemm.gemm`` with an epilogue: kernels are real text, the GPU is NumPy."""

import ctypes
import re
from typing import Any

import numpy as np
import pytest
import runtime_fakes
from runtime_fakes import FakeDriver, HostArray, driver
from test_runtime_gemm import empty, random

import autogemm
from autogemm.runtime import plans
from autogemm.support.errors import UsageError

__all__ = ["driver"]

TEXT = "relu(acc + bias[n]) * s + rest[m, n]"


@pytest.fixture
def fused(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Computes TEXT from what the launch was given."""
    plain = runtime_fakes._compute

    def launch(*call: Any) -> int:
        function, *_, arguments = call
        text = driver.texts[function]
        assert f"// C[m][n] = {TEXT}\n" in text
        names = re.findall(
            r"(\w+)[,)]", text[text.index("gemm_kernel(") :].partition(") {")[0] + ")"
        )
        pointers = (ctypes.c_void_p * len(names)).from_address(arguments)

        def value(name: str, kind: Any) -> Any:
            return kind.from_address(pointers[names.index(name)]).value

        assert driver_launch(*call) == 0
        m, n = (value(name, ctypes.c_int) for name in "MN")
        c = runtime_fakes._matrix(value("C", ctypes.c_void_p), m, n, value("ldc", ctypes.c_int))
        bias = runtime_fakes._matrix(value("epilogue_bias", ctypes.c_void_p), 1, n, n)
        rest = runtime_fakes._matrix(value("epilogue_rest", ctypes.c_void_p), m, n, n)
        c[...] = np.maximum(c + bias, 0) * value("epilogue_s", ctypes.c_float) + rest
        return 0

    driver_launch = driver.launch
    assert plain
    monkeypatch.setattr(driver, "launch", launch)
    return driver


def test_inputs_are_given_by_name(fused: FakeDriver) -> None:
    a, b, out = random(16, 8), random(8, 24), empty(16, 24)
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        bias = HostArray(rng.normal(size=24).astype(np.float32))
        rest = HostArray(rng.normal(size=(16, 24)).astype(np.float32))
        assert autogemm.gemm(a, b, out, epilogue=TEXT, bias=bias, rest=rest, s=1.5 + seed) is out
        expected = np.maximum(a.data @ b.data + bias.data, 0) * (1.5 + seed) + rest.data
        np.testing.assert_allclose(out.data, expected, rtol=1e-4, atol=1e-4)
    # The second call takes the kernel of the first, and checks what it is given as the first did.
    assert len(fused.texts) == 1
    for message, given in {
        r"bias\[n\] has the shape \[24\], got \[16\]": {"bias": random(16), "rest": rest},
        "rest is out": {"bias": bias, "rest": out},
    }.items():
        with pytest.raises(UsageError, match=message):
            autogemm.gemm(a, b, out, epilogue=TEXT, **given, s=1.5)
    autogemm.gemm(a, b, out, epilogue=TEXT, bias=bias, rest=rest, s=4.5)
    np.testing.assert_allclose(
        out.data, np.maximum(a.data @ b.data + bias.data, 0) * 4.5 + rest.data, rtol=1e-4, atol=1e-4
    )


def test_matrices_that_begin_anywhere_keep_their_leading_dimensions(fused: FakeDriver) -> None:
    a, b, out = HostArray(random(16, 40).data[:, 1:25]), random(24, 24), empty(16, 24)
    bias, rest = random(24), random(16, 24)
    autogemm.gemm(a, b, out, epilogue=TEXT, bias=bias, rest=rest, s=1.5)
    expected = np.maximum(a.data @ b.data + bias.data, 0) * 1.5 + rest.data
    np.testing.assert_allclose(out.data, expected, rtol=1e-4, atol=1e-4)


def test_a_gated_one_makes_half_as_many_columns(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, int]] = []

    def launch(*call: Any) -> int:
        function, *_, arguments = call
        names = ("M", "N", "K")
        pointers = (ctypes.c_void_p * len(names)).from_address(arguments)
        given.append(
            {name: ctypes.c_int.from_address(pointers[at]).value for at, name in enumerate(names)}
        )
        assert "// C[m][n] = silu(acc[n]) * acc[n + N]\n" in driver.texts[function]
        return 0

    monkeypatch.setattr(driver, "launch", launch)
    monkeypatch.setattr(plans, "encode", lambda *_: None)
    # Weights as a layer has them, [2 * 128, 64].
    x, weight, out = (
        HostArray(np.zeros(shape, np.float16)) for shape in ((64, 64), (256, 64), (64, 128))
    )
    text = "silu(acc[n]) * acc[n + N]"
    autogemm.gemm(x, HostArray(weight.data.T), out, epilogue=text)
    assert given == [{"M": 64, "N": 128, "K": 64}]
    for message, matrix, result in (
        (r"out has \[64, 256\]", weight.data.T, np.zeros((64, 256), np.float16)),
        ("takes two columns of a @ b for each, and b has 255", weight.data[:255].T, out.data),
    ):
        with pytest.raises(UsageError, match=message):
            autogemm.gemm(x, HostArray(matrix), HostArray(result), epilogue=text)


def test_a_second_output_is_written_to_an_array_of_the_callers(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def launch(*call: Any) -> int:
        function, *_, arguments = call
        text = driver.texts[function]
        head = text[text.index("gemm_kernel(") :].partition(") {")[0] + ")"
        names = re.findall(r"(\w+)[,)]", head)
        pointers = (ctypes.c_void_p * len(names)).from_address(arguments)
        at = names.index("epilogue_aux")
        given.append(ctypes.c_void_p.from_address(pointers[at]).value or 0)
        return 0

    monkeypatch.setattr(driver, "launch", launch)
    a, b, out, bias = random(16, 8), random(8, 24), empty(16, 24), random(24)
    text = "aux[m, n] = acc + bias[n]; relu(aux)"
    for aux in (empty(16, 24), empty(16, 24)):
        assert autogemm.gemm(a, b, out, epilogue=text, bias=bias, aux=aux) is out
        assert given.pop() == aux.data.ctypes.data
    assert len(driver.texts) == 1
    for message, wrong in {
        r"writes aux: give it, aux=": {},
        r"aux\[m, n\] has the shape \[16, 24\], got \[24, 16\]": {"aux": empty(24, 16)},
        "aux is out: give it separate memory": {"aux": out},
    }.items():
        # The fast path of the second call checks as the first did.
        with pytest.raises(UsageError, match=message):
            autogemm.gemm(a, b, out, epilogue=text, bias=bias, **wrong)
    square, text = random(16, 16), "aux[m, n] = acc + rest[m, n]; relu(aux)"
    autogemm.gemm(
        square, square, rest=random(16, 16), aux=empty(16, 16), epilogue=text, out=empty(16, 16)
    )
    rest = random(16, 16)
    for name, aux in {"a": square, "rest": rest}.items():
        with pytest.raises(UsageError, match=f"aux is {name}: give it separate memory"):
            autogemm.gemm(square, random(16, 16), empty(16, 16), epilogue=text, rest=rest, aux=aux)
    batched = random(2, 16, 8), random(2, 8, 24), empty(2, 16, 24)
    with pytest.raises(UsageError, match="all products of a batch would write the same aux"):
        text = "aux[m, n] = acc; relu(aux)"
        autogemm.gemm(*batched, epilogue=text, aux=empty(16, 24))
    assert len(given) == 1


def test_what_does_not_fit_is_one_line(driver: FakeDriver) -> None:
    a, b, out = random(16, 8), random(8, 24), empty(16, 24)
    bias = random(24)
    for message, given in {
        "reads bias: give it": {},
        "unexpected argument 'other'": {"bias": bias, "other": 1},
        r"bias\[n\] has the shape \[24\], got \[16\]": {"bias": random(16)},
        "give it as out, and leave out c": {"bias": bias, "c": out},
        "alpha=2 has no effect": {"bias": bias, "alpha": 2.0},
    }.items():
        with pytest.raises(UsageError, match=message):
            autogemm.gemm(a, b, out, epilogue="relu(acc + bias[n])", **given)
    with pytest.raises(UsageError, match="unexpected argument 'bias': there is no epilogue"):
        autogemm.gemm(a, b, out, bias=bias)
    with pytest.raises(UsageError, match=r"rest is out: read it as c\[m, n\]"):
        autogemm.gemm(a, b, out, epilogue="acc + rest[m, n]", rest=out)
    with pytest.raises(UsageError, match=r"expected a value"):
        autogemm.gemm(a, b, out, epilogue="relu(")
    assert driver.launches == []

"""Every function of the language as operations of torch: against NumPy, from the same tree."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="its operations are compared")

from autogemm.model.bounded import SECOND, exactly  # noqa: E402
from autogemm.model.bounded import output_of as output_in_numpy  # noqa: E402
from autogemm.model.bounded import result_of as result_in_numpy  # noqa: E402
from autogemm.model.epilogue import Epilogue, Gate  # noqa: E402
from autogemm.model.formula import FUNCTIONS  # noqa: E402
from autogemm.runtime.torch_epilogue import results_of  # noqa: E402

M, N = 12, 40
TEXTS = {
    "min": "min(acc, bias[n])",
    "max": "max(acc * 2, 1)",
    "clamp": "clamp(acc, -s, rest[m, n])",
}
OTHERS = (
    "acc + bias[n] - scale[m] * -rest[m, n] / 3",
    "silu(acc[n]) * acc[n + N] + bias[n]",
    "gelu(acc[2 * n]) * acc[2 * n + 1]",
    "up[m, n] = acc + bias[n]; gelu_tanh(up) * s; up: f32",
)


@pytest.mark.parametrize(
    "text", [*(TEXTS.get(name, f"{name}(acc)") for name in sorted(FUNCTIONS)), *OTHERS]
)
def test_torch_computes_what_numpy_computes(text: str) -> None:
    epilogue, random = Epilogue(text), np.random.default_rng(1)
    acc = 3.0 * random.standard_normal((M, epilogue.num_columns * N))
    arrays = [random.standard_normal(one.shape(M, N, 1)) for one in epilogue.inputs if one.axes]
    numbers = [0.75 for one in epilogue.inputs if not one.axes]
    left, values = iter(arrays), iter(numbers)
    views = {"m": (M, 1), "n": (1, N), "m, n": (M, N)}
    given = {
        one.name: exactly(next(left).reshape(views[one.axes]) if one.axes else next(values))
        for one in epilogue.inputs
    }
    halves = epilogue.gate is not Gate.INTERLEAVED
    first, second = (acc[:, :N], acc[:, -N:]) if halves else (acc[:, ::2], acc[:, 1::2])
    given |= {"acc": exactly(first), SECOND: exactly(second)}
    given |= (outputs := output_in_numpy(epilogue, given))
    expected = result_in_numpy(epilogue, given).value
    tensors = [torch.from_numpy(one) for one in arrays]
    found, output = results_of(epilogue, torch.from_numpy(acc), tensors, numbers, 1.0)
    assert found.shape == (M, N)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert (output is None) == (not outputs)
    for one in outputs.values():
        np.testing.assert_allclose(output.numpy(), one.value, rtol=1e-6)

"""``torch.ops.autogemm`` and ``autogemm.gemm`` on tensors: gradients, vmap, autocast, compilers.

There is no GPU: torch multiplies in place of the kernels (torch_stand_in).
"""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operator is torch's")

from runtime_fakes import FakeDriver  # noqa: E402
from torch_stand_in import StandIn, driver, on_gpu, products  # noqa: E402

import autogemm  # noqa: E402
from autogemm.model.epilogue import Epilogue  # noqa: E402
from autogemm.runtime import plans  # noqa: E402
from autogemm.runtime.torch_epilogue import result_of  # noqa: E402
from autogemm.support.errors import UsageError  # noqa: E402

__all__ = ["driver", "on_gpu", "products"]

GELU = "gelu(acc + bias[n]) * s"
# alpha, beta, tune, allow_emulation.
NEUTRAL = (1.0, 0.0, 0.0, False)


def random(*shape: int, **more: Any) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), **more)


def leaf(*shape: int) -> Any:
    return random(*shape).requires_grad_()


def assert_close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def assert_same_gradients(
    found: Callable[..., Any], expected: Callable[..., Any], *tensors: Any
) -> None:
    results = [function(*tensors) for function in (found, expected)]
    assert_close(*results)
    upstream = random(*results[0].shape)
    inputs = [one for one in tensors if one.requires_grad]
    assert_close(*(torch.autograd.grad(one, inputs, upstream) for one in results))


@pytest.mark.parametrize(
    "shapes",
    [
        ((16, 8), (8, 12), None),
        ((16, 8), (8, 12), (12,)),
        ((3, 16, 8), (8, 12), (3, 16, 12)),
        ((3, 1, 16, 8), (2, 8, 12), (1, 12)),
    ],
)
def test_gradients_are_those_of_matmul(products: StandIn, shapes: Any) -> None:
    tensors = [leaf(*shape) for shape in shapes if shape is not None]
    beta = 0.5 if len(tensors) > 2 else 0.0
    operator = torch.ops.autogemm.gemm.default
    assert_same_gradients(
        lambda a, b, c=None: operator(a, b, c, 2.0, beta),
        lambda a, b, c=None: 2.0 * (a @ b) + (beta * c if c is not None else 0.0),
        *tensors,
    )


def test_both_gradients_are_products_of_their_own_layouts(products: StandIn) -> None:
    x, weight = leaf(16, 8), leaf(12, 8)
    autogemm.gemm(x, weight.T, tune=3).backward(random(16, 12))
    assert products.problems == ["16x12x8 nt f32 x1", "16x8x12 nn f32 x1", "8x12x16 tn f32 x1"]
    assert {one.tune for one in products.made} == {3}


@pytest.mark.filterwarnings("ignore:Input #:UserWarning")
def test_gradcheck(products: StandIn) -> None:
    """Steps are large, as products are linear in each operand and FP32 has few digits."""
    rough = {"eps": 0.05, "atol": 0.05, "rtol": 0.05, "nondet_tol": 1e-5}
    a, b, c = leaf(4, 3), leaf(3, 5), leaf(5)
    operator = torch.ops.autogemm.gemm.default
    assert torch.autograd.gradcheck(lambda *t: operator(*t, 0.5, 2.0), (a, b, c), **rough)
    assert torch.autograd.gradgradcheck(lambda *t: operator(*t, None, 0.5), (a, b), **rough)
    fused = torch.ops.autogemm.fused.default
    assert torch.autograd.gradcheck(
        lambda a, b, c: fused(a, b, [c], [1.5], GELU, *NEUTRAL), (a, b, c), **rough
    )
    assert torch.autograd.gradgradcheck(
        lambda a, b, c: fused(a, b, [c], [1.5], GELU, *NEUTRAL), (a, b, c), **rough
    )


def test_opcheck(products: StandIn) -> None:
    a, b, c, out = leaf(6, 4), leaf(4, 5), leaf(5), torch.zeros(6, 5)
    ops = torch.ops.autogemm
    torch.library.opcheck(ops.gemm.default, (a, b, c, 2.0, 1.0))
    torch.library.opcheck(ops.fused.default, (a, b, [c], [1.5], GELU, *NEUTRAL))
    plain = (a.detach(), b.detach(), out)
    torch.library.opcheck(ops.gemm_out.default, (*plain, None, 1.0, 1.0))
    torch.library.opcheck(ops.fused_out.default, (*plain, [c.detach()], [1.5], GELU, *NEUTRAL))


# Each function of the language once, and each kind of index.
EXPRESSIONS = {
    "relu(acc) + abs(acc) - sigmoid(acc) / 2": None,
    "gelu_tanh(silu(acc)) * rest[m, n]": (6, 5),
    "max(acc, scale[m]) + min(tanh(acc), 0.25)": (6,),
    "clamp(-acc * alpha, -1, bias[n]) + exp(acc / 4)": (5,),
    GELU: (5,),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_gradients_of_epilogues(products: StandIn, text: str) -> None:
    a, b, shape = leaf(6, 4), leaf(4, 5), EXPRESSIONS[text]
    arrays = [] if shape is None else [leaf(*shape)]
    numbers = [1.5] if " s" in text else []
    alpha = 3.0 if "alpha" in text else 1.0
    assert_same_gradients(
        lambda a, b, *arrays: torch.ops.autogemm.fused(
            a, b, arrays, numbers, text, alpha, *NEUTRAL[1:]
        ),
        lambda a, b, *arrays: result_of(Epilogue.parse(text), a @ b, arrays, numbers, alpha),
        *(a, b, *arrays),
    )


def test_a_gated_expression_takes_both_columns_and_has_half_as_many() -> None:
    acc = torch.randn(5, 12)
    for text, gate, up in (
        ("silu(acc[n]) * acc[n + N]", *acc.chunk(2, -1)),
        ("silu(acc[2 * n]) * acc[2 * n + 1]", acc[:, ::2], acc[:, 1::2]),
    ):
        expected = torch.nn.functional.silu(gate) * up
        torch.testing.assert_close(result_of(Epilogue.parse(text), acc, [], [], 1.0), expected)
        shape = torch.ops.autogemm.fused(
            torch.empty(4, 8, device="meta"), torch.empty(8, 12, device="meta"), [], [], text,
            1.0, 0.0, 0.0, False,
        ).shape  # fmt: skip
        assert shape == (4, 6)


def test_an_expression_in_torch_is_what_python_makes_of_it() -> None:
    acc, bias = random(3, 4), random(4)
    text = "max(relu(acc + bias[n]), 0.1) * -s + clamp(acc, -1, 1)"
    found = result_of(Epilogue.parse(text), acc, [bias], [2.0], 1.0)
    expected = [
        [
            max(x + y, 0.0, 0.1) * -2.0 + min(max(x, -1.0), 1.0)
            for x, y in zip(row, bias.tolist(), strict=True)
        ]
        for row in acc.tolist()
    ]
    assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("dims", [(0, None), (None, 2), (1, 0), (0, 2)])
def test_vmap(products: StandIn, dims: tuple[Any, Any]) -> None:
    shape_a, shape_b, shape_c = [2, 6, 4], [4, 5], [6, 5]
    for shape, dim in zip((shape_a, shape_b), dims, strict=True):
        if dim is not None:
            shape.insert(dim, 3)
    a, b, c = random(*shape_a), random(*shape_b), random(*shape_c)

    def product(multiply: Callable[..., Any]) -> Any:
        return torch.vmap(multiply, in_dims=(*dims, None))(a, b, c)

    operator = torch.ops.autogemm.gemm.default
    assert_close(
        product(lambda a, b, c: operator(a, b, c, 1.0, 1.0)), product(lambda a, b, c: a @ b + c)
    )


def test_vmap_of_epilogues(products: StandIn) -> None:
    a, b, bias = random(3, 6, 4), random(4, 5), random(5)
    expected = 1.5 * torch.nn.functional.gelu(a @ b + bias)

    def fused(a: Any, b: Any, bias: Any) -> Any:
        return autogemm.gemm(a, b, epilogue=GELU, bias=bias, s=1.5)

    assert_close(torch.vmap(fused, in_dims=(0, None, None))(a, b, bias), expected)
    assert products.problems == [f"18x5x4 nn f32 epilogue={GELU} x1"]
    biases = torch.stack([bias, bias, bias + 1])
    each = torch.vmap(fused, in_dims=(0, None, 0))(a, b, biases)
    assert_close(each[:2], expected[:2])
    assert len(products.made) == 4


def test_autocast_casts_as_torch_does(products: StandIn) -> None:
    a, b, bias = leaf(6, 4), leaf(4, 5), leaf(5)
    with torch.autocast("cpu", torch.bfloat16):
        found = autogemm.gemm(a, b)
        fused = autogemm.gemm(a, b, epilogue="acc + bias[n]; bias: f32", bias=bias)
        expected = a @ b
    assert found.dtype is fused.dtype is expected.dtype is torch.bfloat16
    found.sum().backward()
    fused.sum().backward()
    assert a.grad.dtype is torch.float32
    assert [one.problem[:12] for one in products.made[:2]] == ["6x5x4 nn bf1"] * 2


def test_compilers_see_one_graph(products: StandIn) -> None:
    """Whole graphs, forward and backward; dynamic sizes; and an exported program."""
    weight, bias = torch.nn.Parameter(random(5, 4)), torch.nn.Parameter(random(5))

    def model(x: Any) -> Any:
        x = autogemm.gemm(x, weight.T, epilogue="relu(acc + bias[n])", bias=bias)
        return autogemm.gemm(x, weight, beta=0.5, c=x.new_ones(4))

    def plain(x: Any) -> Any:
        return torch.relu(x @ weight.T + bias) @ weight + 0.5

    counts = torch._dynamo.utils.counters["stats"]
    before = counts["unique_graphs"]
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (6, 7):
        assert_same_gradients(compiled, plain, leaf(rows, 4))
    assert counts["unique_graphs"] == before + 1
    with torch.no_grad():
        filled = torch.compile(
            lambda x, out: autogemm.gemm(x, weight.T, out), backend="aot_eager", fullgraph=True
        )
        out = torch.zeros(6, 5)
        assert filled(random(6, 4), out) is out
        assert_close(out, random(6, 4) @ weight.T)

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return autogemm.gemm(x, weight.T)

    exported = torch.export.export(Module(), (random(6, 4),))
    assert "torch.ops.autogemm.gemm.default" in exported.graph_module.code
    assert_close(exported.module()(random(6, 4)), random(6, 4) @ weight.T)


def test_how_float32_is_multiplied(products: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = random(4, 4), random(4, 4)
    half = a.bfloat16()
    autogemm.gemm(a, b)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        autogemm.gemm(a, b)
        torch.ops.autogemm.gemm(a, b)
        autogemm.gemm(a, b, allow_emulation=True)
        autogemm.gemm(half, half)
    finally:
        torch.set_float32_matmul_precision(before)
    expected = ["exact", "tf32", "tf32", "emulated", "exact"]
    assert [one.products for one in products.made] == expected
    assert products.problems[1] == "4 nn tf32 x1"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_calls_that_nothing_watches_go_past_the_dispatcher(
    products: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        names: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    weight = torch.nn.Parameter(random(4, 5))
    with torch.no_grad(), monkeypatch.context() as patch:
        patch.setattr("autogemm.runtime.torch_products.OPS", None)
        autogemm.gemm(random(6, 4), weight)
    with Seen() as seen:
        autogemm.gemm(random(6, 4), weight)
    assert "autogemm.gemm.default" in seen.names
    with (
        pytest.raises(UsageError, match="no forward-mode"),
        torch.autograd.forward_ad.dual_level(),
    ):
        dual = torch.autograd.forward_ad.make_dual(random(6, 4), random(6, 4))
        autogemm.gemm(dual, weight.detach())


def test_what_does_not_go_is_one_line() -> None:
    a, b = leaf(4, 4), random(4, 4)
    with pytest.raises(UsageError, match="on cpu, not on a GPU"):
        autogemm.gemm(a, b)
    with pytest.raises(UsageError, match="out records no gradients"):
        autogemm.gemm(a, b, torch.empty(4, 4))
    with pytest.raises(UsageError, match="the epilogue relu\\(acc \\+ bias\\[n\\]\\) reads bias"):
        autogemm.gemm(a, b, epilogue="relu(acc + bias[n])")
    with pytest.raises(UsageError, match="bias is not a tensor"):
        autogemm.gemm(a, b, epilogue="acc + bias[n]", bias=[1.0] * 4)


def test_kernels_on_tensors(on_gpu: FakeDriver) -> None:
    """The whole runtime below, with real kernels' text: layouts, gradients, a plan that is kept."""
    x, weight, bias = leaf(64, 32), leaf(48, 32), random(48)
    for _ in range(2):
        y = autogemm.gemm(x, weight.T, beta=1.0, c=bias)
        assert_close(y, x @ weight.T + bias)
        upstream = random(64, 48)
        found = torch.autograd.grad(y, (x, weight), upstream)
        assert_close(found, (upstream @ weight, upstream.T @ x))
    assert len(on_gpu.launches) == 6 and {stream for _, stream in on_gpu.launches} == {7}
    assert len(on_gpu.texts) == 3
    # A gradient that torch made by expanding one number is copied.
    autogemm.gemm(x, weight.T).sum().backward()
    assert_close(x.grad, weight.sum(0).expand(64, 32))


def test_emulated_products_have_kernels_of_their_own(
    on_gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for, a seed of an emulating family comes first; the same call without it has none."""
    allowed = []
    known = plans.default_families

    def families(*, emulation: bool = False) -> Any:
        allowed.append(emulation)
        return known(emulation=emulation)

    monkeypatch.setattr(plans, "default_families", families)
    a, b = random(64, 64), random(64, 64)
    for emulation in (False, True, False):
        assert_close(autogemm.gemm(a, b, allow_emulation=emulation), a @ b)
    assert allowed == [False, True]


def test_a_second_output_is_written_to_a_tensor_of_the_callers(products: StandIn) -> None:
    text = "aux[m, n] = acc + bias[n]; gelu(aux)"
    x, w, bias, aux = random(6, 8), random(8, 4), random(4), torch.zeros(6, 4)

    def call(x: Any, w: Any, bias: Any, aux: Any) -> Any:
        return autogemm.gemm(x, w, epilogue=text, bias=bias, aux=aux)

    def check(found: Any) -> None:
        assert_close(aux, x @ w + bias)
        assert_close(found, torch.nn.functional.gelu(x @ w + bias))
        aux.zero_()

    check(call(x, w, bias, aux))
    # Through the operator, which tells compilers that it writes both.
    check(torch.compile(call, backend="aot_eager", fullgraph=True)(x, w, bias, aux))
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        check(call(x.requires_grad_(), w, bias, aux))
    with pytest.raises(UsageError, match="gemm into aux records no gradients: leave out aux"):
        call(x, w, bias, aux)
    with pytest.raises(UsageError, match="writes aux: give it, aux="):
        autogemm.gemm(x, w, epilogue=text, bias=bias)

"""autogemm.gemm on a GPU: arrays of torch, of CuPy, and of protocols alone."""

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autogemm
from autogemm.support.errors import UsageError

pytestmark = pytest.mark.gpu

LIBRARIES = [name for name in ("torch", "cupy") if importlib.util.find_spec(name)]


@pytest.fixture(scope="module", autouse=True)
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOGEMM_DB", str(tmp_path_factory.mktemp("db") / "none.db"))
        autogemm.forget()
        yield
        autogemm.forget()


class Torch:
    """Arrays of torch, and the same operations as of `CuPy`."""

    def __init__(self) -> None:
        import torch

        self.module = torch

    def array(self, data: Any) -> Any:
        return self.module.as_tensor(data, device="cuda:0")

    def numpy(self, array: Any) -> Any:
        return array.cpu().numpy()

    def stream(self) -> Any:
        stream = self.module.cuda.Stream()
        stream.wait_stream(self.module.cuda.current_stream())
        return self.module.cuda.stream(stream)


class CuPy:
    def __init__(self) -> None:
        import cupy

        self.module = cupy

    def array(self, data: Any) -> Any:
        return self.module.asarray(data)

    def numpy(self, array: Any) -> Any:
        return self.module.asnumpy(array)

    def stream(self) -> Any:
        self.module.cuda.get_current_stream().synchronize()
        return self.module.cuda.Stream(non_blocking=True)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return {"torch": Torch, "cupy": CuPy}[request.param]()


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def assert_close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-4)


SIZES = [(512, 512, 512), (1023, 517, 129), (16, 4096, 512), (1, 1, 1), (32, 32, 8192), (7, 300, 5)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_products(library: Any, size: tuple[int, int, int], layout: str) -> None:
    m, n, k = size
    a, b = random(m, k), random(k, n)
    expected = a.astype(np.float64) @ b
    on_gpu_a = library.array(a) if layout[0] == "n" else library.array(a.T.copy()).T
    on_gpu_b = library.array(b) if layout[1] == "n" else library.array(b.T.copy()).T
    assert_close(library.numpy(autogemm.gemm(on_gpu_a, on_gpu_b)), expected)
    turned = library.array(np.zeros((n, m), np.float32)).T
    autogemm.gemm(on_gpu_a, on_gpu_b, turned, alpha=2.0)
    assert_close(library.numpy(turned), 2 * expected)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.skipif("torch" not in LIBRARIES, reason="torch is not installed")
def test_other_element_types(name: str, layout: str) -> None:
    import torch

    dtype = getattr(torch, name)
    a, b = torch.randn(300, 128, device="cuda"), torch.randn(128, 264, device="cuda")
    a, b = a.to(dtype), b.to(dtype)
    expected = a.double() @ b.double()
    a = a if layout[0] == "n" else a.T.contiguous().T
    b = b if layout[1] == "n" else b.T.contiguous().T
    close = {"rtol": 2e-2, "atol": 2e-1} if name == "bfloat16" else {"rtol": 2e-3, "atol": 2e-2}
    torch.testing.assert_close(autogemm.gemm(a, b).double(), expected, **close)
    wide = torch.empty(300, 264, device="cuda")
    autogemm.gemm(a, b, wide)
    torch.testing.assert_close(wide.double(), expected, rtol=1e-4, atol=1e-3)
    with pytest.raises(UsageError, match="no GEMM multiplies"):
        autogemm.gemm(a, b.float())


@pytest.mark.skipif("cupy" not in LIBRARIES, reason="CuPy is not installed")
def test_float16_of_cupy() -> None:
    import cupy

    a, b = (cupy.asarray(random(*shape)).astype(cupy.float16) for shape in ((300, 128), (128, 264)))
    expected = cupy.asnumpy(a).astype(np.float64) @ cupy.asnumpy(b)
    result = autogemm.gemm(a, b)
    assert result.dtype == cupy.float16
    np.testing.assert_allclose(cupy.asnumpy(result), expected, rtol=2e-3, atol=2e-2)


def test_added_and_batched(library: Any) -> None:
    a, b, c = random(3, 1, 65, 40), random(2, 40, 33), random(33)
    expected = a.astype(np.float64) @ b
    arrays = [library.array(one) for one in (a, b, c)]
    assert_close(library.numpy(autogemm.gemm(*arrays[:2])), expected)
    with_bias = autogemm.gemm(*arrays[:2], beta=0.5, c=arrays[2])
    assert_close(library.numpy(with_bias), expected + 0.5 * c)


def test_views_that_begin_anywhere(library: Any) -> None:
    whole = library.array(random(130, 131))
    a, b = whole[1:129, 1:65], whole[2:66, 3:131]
    expected = library.numpy(a).astype(np.float64) @ library.numpy(b)
    assert_close(library.numpy(autogemm.gemm(a, b)), expected)


def test_the_current_stream_is_used(library: Any) -> None:
    a, b = (library.array(random(2048, 2048)) for _ in range(2))
    first = autogemm.gemm(a, b)
    expected = library.numpy(first)
    with library.stream() as stream:
        # On another stream the second product would begin before the first has ended.
        result = autogemm.gemm(autogemm.gemm(a, b), b)
        again = library.numpy(result)
        del stream
    assert_close(again / 1e3, expected.astype(np.float64) @ library.numpy(b) / 1e3)


def test_several_threads(library: Any) -> None:
    a, b = library.array(random(256, 256)), library.array(random(256, 256))
    expected = library.numpy(autogemm.gemm(a, b))
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        for _ in range(100):
            results[number] = autogemm.gemm(a, b, alpha=float(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in results.items():
        assert_close(library.numpy(result), number * expected)


class Interface:
    """Nothing but the CUDA array interface."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class Capsule:
    """Nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("kind", [Interface, Capsule])
@pytest.mark.skipif("cupy" not in LIBRARIES, reason="CuPy is not installed")
def test_protocols(kind: Any) -> None:
    library = CuPy()
    a, b = (library.array(random(96, 96)) for _ in range(2))
    out = library.array(np.zeros((96, 96), np.float32))
    library.module.cuda.get_current_stream().synchronize()
    autogemm.gemm(kind(a), kind(b.T), kind(out))
    library.module.cuda.runtime.deviceSynchronize()
    assert_close(library.numpy(out), library.numpy(a).astype(np.float64) @ library.numpy(b).T)
    with pytest.raises(UsageError, match="give out"):
        autogemm.gemm(kind(a), kind(b))


@pytest.mark.skipif("torch" not in LIBRARIES, reason="torch is not installed")
# Raised by Inductor's own import.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
# Raised where Inductor begins its pool of graphs with one that is empty on purpose.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_torch_graphs_and_gradients() -> None:
    import torch

    a, b = (torch.randn(300, 300, device="cuda") for _ in range(2))
    out = torch.empty(300, 300, device="cuda")
    autogemm.gemm(a, b, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        autogemm.gemm(a, b, out)
    a.normal_()
    graph.replay()
    torch.cuda.synchronize()
    expected = (a.double() @ b.double()).cpu().numpy()
    assert_close(out.cpu().numpy(), expected)
    weight = torch.nn.Parameter(b)
    with pytest.raises(UsageError, match="no gradients"):
        autogemm.gemm(a, weight, out)
    autogemm.gemm(a, weight).backward(out)
    assert_close(weight.grad.cpu().numpy(), (a.double().T @ out.double()).cpu().numpy())
    compiled = torch.compile(autogemm.gemm, mode="reduce-overhead", fullgraph=True)
    for _ in range(3):
        with torch.no_grad():
            assert_close(compiled(a, weight).cpu().numpy(), expected)
    with torch.no_grad():
        assert_close(autogemm.gemm(a, weight).cpu().numpy(), expected)
    with pytest.raises(UsageError, match="not on a GPU"):
        autogemm.gemm(a.cpu(), b.cpu())


def test_tuning_in_place(library: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "mine.db"))
    autogemm.forget()
    a, b = library.array(random(384, 256)), library.array(random(256, 640))
    expected = library.numpy(a).astype(np.float64) @ library.numpy(b)
    assert_close(library.numpy(autogemm.gemm(a, b)), expected)
    assert_close(library.numpy(autogemm.gemm(a, b, tune=2.0)), expected)
    row = autogemm.best((384, 640, 256))
    assert (row.problem.m, row.problem.n, row.problem.k) == (384, 640, 256)
    assert row.time_us > 0
    autogemm.forget()


def test_the_examples_of_the_docs_run(tmp_path: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text(encoding="utf-8")
    blocks = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) >= 3
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block],
            env={**os.environ, "AUTOGEMM_DB": str(tmp_path / "docs.db")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

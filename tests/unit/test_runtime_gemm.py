"""autogemm.gemm on host memory: kernels are real text, the GPU is NumPy (runtime_fakes)."""

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime_fakes import FakeCompiler, FakeDriver, HostArray, OtherArray, driver

import autogemm
from autogemm.model.dtypes import DType, Element
from autogemm.model.problem import Problem
from autogemm.runtime import calling, plans, searching
from autogemm.runtime.arrays import LIBRARIES, Memory, library_of
from autogemm.support.errors import UsageError

__all__ = ["driver"]


def random(*shape: int) -> HostArray:
    return HostArray(np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32))


def empty(*shape: int) -> HostArray:
    """At an address as a GPU's memory has."""
    whole = np.full(int(np.prod(shape)) + 64, np.nan, np.float32)
    start = -(whole.ctypes.data // 4) % 64
    return HostArray(whole[start : start + int(np.prod(shape))].reshape(shape))


def view(array: HostArray, *where: Any) -> HostArray:
    return HostArray(array.data[where])


def assert_product(a: HostArray, b: HostArray, out: HostArray) -> None:
    np.testing.assert_allclose(out.data, a.data @ b.data, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "size", [(128, 128, 64), (100, 36, 52), (33, 65, 17), (1, 1, 1), (8, 512, 256)]
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_products_in_every_layout(driver: FakeDriver, size: tuple[int, ...], layout: str) -> None:
    m, n, k = size
    a = random(m, k) if layout[0] == "n" else HostArray(random(k, m).data.T)
    b = random(k, n) if layout[1] == "n" else HostArray(random(n, k).data.T)
    out = empty(m, n)
    assert autogemm.gemm(a, b, out) is out
    assert_product(a, b, out)
    by_column = HostArray(empty(n, m).data.T)
    autogemm.gemm(a, b, by_column)
    assert_product(a, b, by_column)


def test_factors_and_what_is_added(driver: FakeDriver) -> None:
    a, b, out, c = random(16, 8), random(8, 24), empty(16, 24), random(16, 24)
    autogemm.gemm(a, b, out, alpha=2.0)
    np.testing.assert_allclose(out.data, 2 * a.data @ b.data, rtol=1e-4)
    autogemm.gemm(a, b, out, beta=1.0)
    np.testing.assert_allclose(out.data, 3 * a.data @ b.data, rtol=1e-4)
    autogemm.gemm(a, b, out, alpha=0.5, beta=-1.0, c=c)
    np.testing.assert_allclose(out.data, 0.5 * a.data @ b.data - c.data, rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="needs c"):
        autogemm.gemm(a, b, beta=1.0)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"a": None}, {"b": 3}, {"out": "x"}, {"a": [[1.0]]}),
        *({"alpha": None}, {"alpha": "2"}, {"beta": "x"}, {"beta": 1j}, {"out": None, "beta": "x"}),
        *({"c": np.zeros(7), "beta": 1.0}, {"c": "x", "beta": 1.0}),
        *({"tune": "soon"}, {"epilogue": 5}, {"epilogue": "relu("}, {"nonsense": 1}),
    ],
    ids=str,
)
def test_a_wrong_argument_is_an_error_of_ours(driver: FakeDriver, wrong: dict[str, Any]) -> None:
    sound = {"a": random(16, 8), "b": random(8, 24), "out": empty(16, 24)}
    with pytest.raises(UsageError) as caught:
        autogemm.gemm(**sound | wrong)
    assert "\n" not in str(caught.value)


def test_batches_broadcast(driver: FakeDriver) -> None:
    a, b, out = random(3, 1, 16, 8), random(2, 8, 12), empty(3, 2, 16, 12)
    autogemm.gemm(a, b, out)
    assert_product(a, b, out)
    assert len(driver.launches) == 6
    rows, shared, more = random(4, 16, 8), random(8, 12), empty(4, 16, 12)
    autogemm.gemm(rows, shared, more)
    assert_product(rows, shared, more)
    assert len(driver.launches) == 7


def test_matrices_that_begin_anywhere(driver: FakeDriver) -> None:
    """Kernels with vector loads would be wrong here: the fake GPU checks what they require."""
    whole_a, whole_b, whole_c = random(64, 72), random(64, 72), empty(64, 72)
    for start in (1, 2, 3):
        a, b = (
            view(whole_a, ..., slice(start, 64 + start)),
            view(whole_b, slice(0, 64), slice(0, 64)),
        )
        out = view(whole_c, ..., slice(start, 64 + start))
        autogemm.gemm(a, b, out)
        assert_product(a, b, out)


def test_the_same_shape_once_aligned_and_once_not(driver: FakeDriver) -> None:
    whole_a, whole_b, whole_c = empty(64, 72), empty(64, 72), empty(64, 72)
    for start in (0, 1, 0, 2):
        for moved in range(3):
            starts = [start if moved == place else 0 for place in range(3)]
            a, b, out = (
                view(whole, ..., slice(begin, 64 + begin))
                for whole, begin in zip((whole_a, whole_b, whole_c), starts, strict=True)
            )
            a.data[...], b.data[...] = random(64, 64).data, random(64, 64).data
            autogemm.gemm(a, b, out)
            assert_product(a, b, out)


def test_where_a_begins_does_not_hide_where_b_does(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a new array: a lies 240 bytes further on, b first as vectors want it, then not."""
    library = replace(library_of(random(1, 1)), empty=lambda shape, like: empty(*shape))
    monkeypatch.setitem(LIBRARIES, HostArray, library)
    whole_a, whole_b = empty(64, 128), empty(64, 72)
    a = view(whole_a, ..., slice(60, 124))
    for start in (0, 1):
        b = view(whole_b, ..., slice(start, 64 + start))
        a.data[...], b.data[...] = random(64, 64).data, random(64, 64).data
        assert_product(a, b, autogemm.gemm(a, b))


def test_batches_that_begin_anywhere(driver: FakeDriver) -> None:
    """The first is aligned for vectors, the second is not."""
    whole = random(2, 64 * 64 + 1)
    a = HostArray(
        np.lib.stride_tricks.as_strided(whole.data, (2, 64, 64), (4 * (64 * 64 + 1), 4 * 64, 4))
    )
    b, out = random(64, 64), empty(2, 64, 64)
    autogemm.gemm(a, b, out)
    assert_product(a, b, out)
    assert len(driver.launches) == 2


def test_nothing_to_multiply(driver: FakeDriver) -> None:
    out = empty(4, 6)
    autogemm.gemm(random(4, 0), random(0, 6), out)
    assert (out.data == 0).all()
    out.data[...] = 3
    autogemm.gemm(random(4, 0), random(0, 6), out, beta=2.0)
    assert (out.data == 6).all()
    autogemm.gemm(random(0, 5), random(5, 6), empty(0, 6))
    assert driver.launches == []


def test_the_second_call_only_launches(driver: FakeDriver) -> None:
    a, b, out = random(64, 64), random(64, 64), empty(64, 64)
    autogemm.gemm(a, b, out)
    compiled, loaded = list(FakeCompiler.compiled), list(driver.texts)
    autogemm.gemm(a, b, out)
    autogemm.gemm(random(64, 64), b, out)
    assert (FakeCompiler.compiled, driver.texts) == (compiled, loaded)
    assert len(driver.launches) == 3
    # Another size may need the same kernel: it is loaded once.
    autogemm.gemm(random(64, 128), random(128, 64), empty(64, 64))
    assert len(set(FakeCompiler.compiled)) == len(FakeCompiler.compiled)


def test_the_stream_that_an_array_names(driver: FakeDriver) -> None:
    a, b, out = random(16, 16), random(16, 16), empty(16, 16)
    a.stream = 77
    autogemm.gemm(a, b, out)
    a.stream = None
    autogemm.gemm(a, b, out)
    assert [stream for _, stream in driver.launches] == [77, 0]


def test_a_thread_with_another_context(driver: FakeDriver) -> None:
    driver.refuses = True
    a, b, out = random(16, 16), random(16, 16), empty(16, 16)
    autogemm.gemm(a, b, out)
    assert driver.contexts == [100]
    assert_product(a, b, out)


def test_each_stream_has_a_workspace_and_forget_frees_it(driver: FakeDriver) -> None:
    # Deep and narrow: the best guess splits K and needs a workspace.
    a, b, out = random(32, 65536), random(65536, 32), empty(32, 32)
    for stream in (1, 2, 1):
        a.stream = stream
        autogemm.gemm(a, b, out)
    assert_product(a, b, out)
    assert len(driver.memory) == 2
    autogemm.forget()
    assert driver.memory == {}


def test_asking_for_tuning_again_and_again_keeps_one_workspace(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "tune_on", lambda *args, **more: None)
    a, b, out = random(32, 65536), random(65536, 32), empty(32, 32)
    for _ in range(3):
        autogemm.gemm(a, b, out, tune=True)
    assert len(driver.memory) == 1


def test_threads_do_not_share_arguments(driver: FakeDriver) -> None:
    a, b = random(32, 32), random(32, 32)
    outs = [empty(32, 32) for _ in range(8)]

    def run(out: HostArray, factor: float) -> None:
        for _ in range(50):
            autogemm.gemm(a, b, out, alpha=factor)

    threads = [
        threading.Thread(target=run, args=(out, factor + 1.0)) for factor, out in enumerate(outs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for factor, out in enumerate(outs):
        np.testing.assert_allclose(out.data, (factor + 1) * a.data @ b.data, rtol=1e-3, atol=1e-3)


def shaped(shape: tuple[int, ...], dtype: str = "float32") -> HostArray:
    return HostArray(np.zeros(shape, dtype))


@pytest.mark.parametrize(
    ("a", "b", "out", "words"),
    [
        (shaped((4, 4)), shaped((5, 4)), shaped((4, 4)), "4 columns and b 5 rows"),
        (shaped((4, 4)), shaped((4, 4)), shaped((4, 5)), r"shape \[4, 4\], out has \[4, 5\]"),
        (shaped((4, 4), "float64"), shaped((4, 4)), shaped((4, 4)), "no kernels for float64"),
        (shaped((4, 4), "uint32"), shaped((4, 4)), shaped((4, 4)), "no kernels for <u4"),
        (shaped((4, 4), "int32"), shaped((4, 4)), shaped((4, 4)), "no GEMM multiplies i32 by f32"),
        (
            shaped((4, 4)),
            OtherArray(np.zeros((4, 4), "float32")),
            shaped((4, 4)),
            "use one library",
        ),
        (shaped((4, 4)), shaped((4, 4)), None, r"give out, of the shape \[4, 4\]"),
        (np.zeros((4, 4)), np.zeros((4, 4)), None, "not on a GPU"),
        ([[1.0]], [[1.0]], None, "not an array on a GPU"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(
    driver: FakeDriver, a: Any, b: Any, out: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        autogemm.gemm(a, b, out)
    assert driver.launches == []


def test_integers_give_integers_or_floats(driver: FakeDriver) -> None:
    memory = {
        name: library_of(array).memory(array)
        for name in ("int8", "int32", "float32")
        for array in [shaped((4, 4), name)]
    }
    a = memory["int8"]
    assert calling.same_dtype(a, a, memory["int32"], (4, 4)) is DType.I8
    assert calling.same_dtype(a, a, memory["float32"], (4, 4)) is DType.I8_F32
    with pytest.raises(UsageError, match="gives i8: give an out of i32, bf16, f16, f32"):
        calling.same_dtype(a, a, a, (4, 4))
    with pytest.raises(UsageError, match=r"no GEMM multiplies i32 by i32 and gives i32$"):
        calling.same_dtype(*[memory["int32"]] * 3, (4, 4))
    with pytest.raises(UsageError, match="no kernels for int16"):
        library_of(shaped((4, 4))).memory(shaped((4, 4), "int16"))


def test_8_bit_floats_need_an_out() -> None:
    like = Memory((4, 4), (4, 1), Element.E4M3, 0, address=256)
    for dtype in (DType.E4M3, DType.E4M3_F32, DType.E4M3_E4M3):
        assert calling.same_dtype(like, like, replace(like, element=dtype.c), (4, 4)) is dtype
    calling.require_out("out", like, like)
    with pytest.raises(UsageError, match=r"give an out, whose type may be bf16, f16, f32, e4m3$"):
        calling.require_out(None, like, like)
    short = replace(like, element=Element.BF16)
    calling.require_out(None, short, short)


def test_8_bit_floats_of_two_types_are_multiplied() -> None:
    """A gradient in E5M2 by weights in E4M3, and what goes the other way."""
    e4m3 = Memory((4, 4), (4, 1), Element.E4M3, 0, address=256)
    e5m2, short = replace(e4m3, element=Element.E5M2), replace(e4m3, element=Element.BF16)
    assert calling.same_dtype(e5m2, e4m3, short, (4, 4)) is DType.E5M2_BY_E4M3
    assert calling.same_dtype(e4m3, e5m2, short, (4, 4)) is DType.E4M3_BY_E5M2
    assert calling.same_dtype(e5m2, e5m2, short, (4, 4)) is DType.E5M2
    with pytest.raises(UsageError, match=r"e5m2 by e4m3 and gives e4m3: give .* bf16, f16, f32$"):
        calling.same_dtype(e5m2, e4m3, e4m3, (4, 4))
    with pytest.raises(UsageError, match=r"give an out, whose type may be bf16, f16, f32$"):
        calling.require_out(None, e5m2, e4m3)


def test_out_must_have_memory_of_its_own(driver: FakeDriver) -> None:
    a = random(8, 8)
    with pytest.raises(UsageError, match="out is a or b"):
        autogemm.gemm(a, random(8, 8), a)


def test_tuning_in_place_happens_once(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    asked: list[tuple[int, str, float]] = []
    driver.gpu = "h200"  # that of the recording

    def tune_on(index: int, problem: Problem, budget_s: float, **more: bool) -> None:
        asked.append((index, problem.label, budget_s))
        autogemm.tune("1024", gpu="recorded", trials=3, db=str(tmp_path / "mine.db"))

    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "mine.db"))
    monkeypatch.setattr(searching, "tune_on", tune_on)
    autogemm.forget()
    a, b, out = random(1024, 1024), random(1024, 1024), empty(1024, 1024)
    autogemm.gemm(a, b, out)
    assert asked == []
    autogemm.gemm(a, b, out, tune=True)
    autogemm.gemm(a, b, out, tune=2.5)
    autogemm.gemm(a, b, out)
    assert asked == [(0, "1024 nn f32", 10.0)]
    with monkeypatch.context() as patch:
        # A loop that always asks for tuning chooses no kernel anew.
        patch.setattr(plans.Gpu, "kernel", None)
        autogemm.gemm(a, b, out, tune=True)
    autogemm.gemm(a, random(1024, 64), empty(1024, 64), tune=2.5)
    assert asked[1:] == [(0, "1024x64x1024 nn f32", 2.5)]


@pytest.mark.parametrize(
    ("used", "heavy"),
    [
        ("autogemm", {"numpy", "sqlalchemy", "optuna", "scipy", "cupy", "torch"}),
        # The tuner is for tune= alone.
        ("autogemm.gemm", {"optuna", "scipy", "cupy", "torch"}),
    ],
)
def test_what_is_not_used_is_not_imported(used: str, heavy: set[str]) -> None:
    program = f"import sys, autogemm; {used}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not heavy & set(done.stdout.split())
    assert {"gemm", "tune", "best", "forget"} <= set(autogemm.__all__)
    for name in autogemm.__all__:
        try:
            assert getattr(autogemm, name) is not None
        except ModuleNotFoundError as error:
            # It is an extra.
            assert error.name == "torch"
    assert issubclass(autogemm.NotFoundError, autogemm.UsageError)
    assert issubclass(autogemm.StoreError, autogemm.AutogemmError)
    assert dir(autogemm) == sorted(autogemm.__all__)

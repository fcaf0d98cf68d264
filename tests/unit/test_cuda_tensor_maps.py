"""The driver's description of a tensor map, and the values of a kernel's arguments."""

import ctypes
from typing import Any

import pytest

from autogemm.model.dtypes import DType, Element
from autogemm.model.kernel import Extra, LaunchPlan, TensorMap
from autogemm.model.problem import Layout, Problem
from autogemm.model.signature import Argument, ArgumentKind, ProblemType
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda import arguments
from autogemm.targets.cuda.arguments import argument_values, encode, pointers_to, room_for_map

BIAS = Argument("bias", ArgumentKind.EXTRA, "", ProblemType.C, is_array=True, is_const=True)


class Driver:
    """cuTensorMapEncodeTiled as cuda.h declares it; keeps what it was told."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.told: dict[str, Any] = {}

    def cuTensorMapEncodeTiled(self, into: Any, *call: Any) -> int:  # noqa: N802
        kind, rank, address, extent, strides, box, steps = call[:7]
        interleave, swizzle, promotion, fill = call[7:]
        self.told = {
            "into": into.value,
            "kind": kind,
            "rank": rank,
            "address": address.value,
            "extent": list(extent),
            "strides": list(strides),
            "box": list(box),
            "steps": list(steps),
            "others": (interleave, promotion, fill),
            "swizzle": swizzle,
        }
        assert isinstance(extent, ctypes.Array)
        assert isinstance(strides, ctypes.Array)
        assert (extent._type_, strides._type_, box._type_, steps._type_) == (
            *(ctypes.c_uint64, ctypes.c_uint64),
            *(ctypes.c_uint32, ctypes.c_uint32),
        )
        return self.status


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    one = Driver()
    monkeypatch.setattr(arguments, "_driver", lambda: one)
    return one


# Numbers of CUtensorMapSwizzle and CUtensorMapDataType in cuda.h.
@pytest.mark.parametrize(("swizzle_bytes", "swizzle"), [(0, 0), (32, 1), (64, 2), (128, 3)])
@pytest.mark.parametrize(
    ("element", "kind"), [(Element.F16, 6), (Element.F32, 7), (Element.BF16, 9)], ids=str
)
def test_the_driver_is_told_where_a_matrix_lies(
    driver: Driver, element: Element, kind: int, swizzle_bytes: int, swizzle: int
) -> None:
    room = room_for_map()
    one = TensorMap("map_a", "A", element, (300, 70), 320, (64, 16), swizzle_bytes)
    encode(one, 0x7F0000001000, room)
    assert driver.told == {
        "into": ctypes.addressof(room),
        "kind": kind,
        "rank": 2,
        "address": 0x7F0000001000,
        "extent": [300, 70],
        "strides": [1280 if element is Element.F32 else 640],
        "box": [64, 16],
        "steps": [1, 1],
        # Not interleaved, 256 bytes fetched into L2 at a time, zero outside.
        "others": (0, 3, 0),
        "swizzle": swizzle,
    }


@pytest.mark.parametrize(("ld", "promotion"), [(320, 3), (64, 3), (300, 2), (72, 2)])
def test_l2_fetches_one_line_of_rows_that_do_not_begin_on_lines(
    driver: Driver, ld: int, promotion: int
) -> None:
    one = TensorMap("map_a", "A", Element.BF16, (64, 70), ld, (64, 16), 128)
    encode(one, 512, room_for_map())
    assert driver.told["others"] == (0, promotion, 0)


def test_a_map_may_begin_behind_the_beginning(driver: Driver) -> None:
    one = TensorMap("map", "workspace", Element.F32, (8, 8), 8, (8, 8), 0, offset_bytes=4096)
    encode(one, 512, room_for_map())
    assert driver.told["address"] == 4608


def test_rows_of_groups_end_where_a_kernel_says(driver: Driver) -> None:
    """Each box's address is that of its row, modulo 2^64, and its rows end at the second extent."""
    one = TensorMap("map_a", "A", Element.BF16, (300, 70), 320, (64, 16), 128, divided=True)
    encode(one, 0x7F0000001000, room_for_map())
    # TMA reads at the map's begin for a box that is outside of it as a whole.
    assert driver.told["address"] == 0x7F0000001000
    assert (driver.told["rank"], driver.told["box"]) == (4, [64, 16, 1, 1])
    columns, last, ends, back = driver.told["extent"]
    assert (columns, ends) == (300, 71)
    assert max(driver.told["strides"]) < 2**40
    assert all(stride % 16 == 0 for stride in driver.told["strides"])
    for row, end in ((0, 1), (0, 70), (64, 70), (69, 70)):
        place = (last + row - end, end, back - 1)
        assert all(at < of for at, of in zip(place[1:], (ends, back), strict=True))
        steps = zip(place, driver.told["strides"], strict=True)
        assert sum(at * stride for at, stride in steps) % 2**64 == row * 640
        assert [last + r - end < last for r in (end - 1, end)] == [True, False]


def test_a_map_that_the_driver_refuses_is_described(driver: Driver) -> None:
    driver.status = 1
    one = TensorMap("map_b", "B", Element.BF16, (300, 70), 320, (64, 16), 128)
    with pytest.raises(DeviceError) as error:
        encode(one, 512, room_for_map())
    assert str(error.value) == (
        "the driver makes no tensor map of B (CUDA error 1): bf16 70x300, 640 bytes from row to "
        "row, box 16x64, swizzle 128"
    )


def test_a_map_has_128_bytes_at_a_multiple_of_64() -> None:
    rooms = [room_for_map() for _ in range(16)]
    assert all(ctypes.sizeof(room) == 128 for room in rooms)
    assert all(ctypes.addressof(room) % 64 == 0 for room in rooms)
    for room in rooms:
        room[:] = [0xFFFFFFFFFFFFFFFF] * 16
    assert len({ctypes.addressof(room) for room in rooms}) == 16


def test_values_are_those_of_the_problem_in_the_order_of_the_signature() -> None:
    problem = Problem(5, 6, 7, Layout.NT, DType.F32, lda=9, ldb=11, ldc=13, alpha=0.25, beta=-2.0)
    plan = LaunchPlan(
        (),
        64,
        (TensorMap("map_a", "A", Element.F32, (8, 8), 8, (8, 8), 0),),
        extras=(Extra(BIAS, 6, 0.0),),
    )
    values = argument_values(plan, problem)
    assert list(values) == [argument.name for argument in plan.signature]
    numbers = {name: one.value for name, one in values.items() if hasattr(one, "value")}
    assert {name: numbers[name] for name in ("M", "N", "K", "lda", "ldb", "ldc")} == {
        "M": 5,
        "N": 6,
        "K": 7,
        "lda": 9,
        "ldb": 11,
        "ldc": 13,
    }
    assert (numbers["alpha"], numbers["beta"]) == (0.25, -2.0)
    assert {name for name, value in numbers.items() if value is None} == {
        "A", "B", "C", "bias", "workspace",
    }  # fmt: skip
    kinds = {name: type(value) for name, value in values.items()}
    assert (kinds["M"], kinds["alpha"], kinds["A"]) == (
        ctypes.c_int,
        ctypes.c_float,
        ctypes.c_void_p,
    )
    assert ctypes.sizeof(values["map_a"]) == 128
    pointers = pointers_to(values)
    assert list(pointers) == [ctypes.addressof(one) for one in values.values()]


def test_without_a_driver_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(arguments.ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match=r"no NVIDIA driver is installed: libcuda.so.1"):
        arguments._driver.__wrapped__()

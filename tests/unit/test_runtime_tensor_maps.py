"""Tensor maps in ``autogemm.gemm``: encoded for where matrices lie, again only when they move."""

import ctypes
from typing import Any

import pytest
from runtime_fakes import FakeDriver

from autogemm.model.config import Config
from autogemm.model.dtypes import DType, Element
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import Launch, LaunchPlan, TensorMap
from autogemm.model.problem import Layout, Problem
from autogemm.runtime import plans
from autogemm.runtime.operands import Call
from autogemm.runtime.plans import Gpu, Kernel, Plan
from autogemm.space import launch_plan, load_family

MAPS = (
    TensorMap("map_a", "A", Element.F32, (64, 64), 64, (32, 64), 128),
    TensorMap("map_c", "C", Element.F32, (64, 64), 64, (32, 64), 128),
)


class Launches(FakeDriver):
    """Keeps the last arguments of each launch, from where the maps begin."""

    def launch(self, *call: Any) -> int:
        pointers = (ctypes.c_void_p * 14).from_address(call[-1])
        first = 12 if self.memory else 11
        addresses = pointers[first : first + len(MAPS)]
        self.seen = [ctypes.c_uint64.from_address(address or 0).value for address in addresses]
        return 0


@pytest.mark.parametrize("workspace_bytes", [0, 256])
def test_maps_follow_their_matrices(monkeypatch: pytest.MonkeyPatch, workspace_bytes: int) -> None:
    encoded: list[tuple[str, int]] = []

    def encode(tensor_map: TensorMap, address: int, into: Any) -> None:
        encoded.append((tensor_map.name, address))
        into[0] = address

    monkeypatch.setattr(plans, "encode", encode)
    driver = Launches()
    call = Call(Problem(64, 64, 64), False, ((0, 0, 0), (4096, 0, 4096)))
    launch = Launch("gemm_kernel", (1, 1, 1), (128, 1, 1), 0)
    kernel = Kernel(((0, launch),), LaunchPlan((), workspace_bytes, MAPS))
    plan = Plan(Gpu(driver, 0), call, kernel, (2, 64, 64), is_tuned=False)

    def run(a: int, c: int) -> list[tuple[str, int]]:
        encoded.clear()
        plan.run(a, 4096, c, 1.0, 0.0, 0)
        return list(encoded)

    step = 4 * 4096
    first = [("map_a", 1024), ("map_c", 2048), ("map_a", 1024 + step), ("map_c", 2048 + step)]
    assert run(1024, 2048) == first
    assert driver.seen == [1024 + step, 2048 + step]
    # The last batch lay elsewhere: the first one's maps are made anew.
    assert run(1024, 2048) == first
    single = Call(Problem(64, 64, 64), False, ((0, 0, 0),))
    plan = Plan(Gpu(driver, 0), single, kernel, (64, 64), is_tuned=False)
    assert run(1024, 2048) == first[:2]
    assert run(1024, 2048) == []
    assert run(1024, 8192) == [("map_c", 8192)]
    assert driver.seen == [1024, 8192]


def test_the_map_of_an_input_is_where_the_caller_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[tuple[str, int]] = []
    monkeypatch.setattr(plans, "encode", lambda one, at, _: encoded.append((one.matrix, at)))
    family = load_family("gemm_wgmma")
    problem = Problem(256, 256, 256, Layout.NT, DType.BF16, epilogue=Epilogue("acc + rest[m, n]"))
    ahead = Config.of("gemm_wgmma", family.seeds[0].as_dict() | {"INPUTS": "ahead"})
    launches = ((0, (1, 1, 1), (128, 1, 1), 0),)
    kernel = Kernel(launches, launch_plan(family, ahead, problem))
    plan = Plan(
        *(Gpu(Launches(), 0), Call(problem, False, ((0, 0, 0),)), kernel, (256, 256)),
        is_tuned=False,
    )
    for address in (16384, 32768):
        plan.give({"epilogue_rest": address})
        plan.run(1024, 2048, 4096, 1.0, 0.0, 0)
    assert encoded == [
        *(("A", 1024), ("B", 2048), ("C", 4096)),
        *(("epilogue_rest", 16384), ("epilogue_rest", 32768)),
    ]

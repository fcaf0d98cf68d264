"""The meaning of `--gpu` where GPUs are attached."""

import sys
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from fake_gpus import attach

from autogemm.catalogue.gpus import find_device
from autogemm.support.errors import DeviceError, NotFoundError
from autogemm.targets import (
    GpuTarget,
    attached_gpus,
    choose,
    choose_target,
    cuda,
    open_gpu,
    why_no_gpu,
)

H100 = find_device("h100")
GPUS = [replace(H100, name="NVIDIA H100 80GB HBM3"), replace(H100, name="NVIDIA L4")]


class GpuStub:
    """Only remembers which GPU it stands for."""

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    attach(monkeypatch, *GPUS)
    monkeypatch.setattr(cuda, "CudaTarget", GpuStub)


@pytest.mark.parametrize(
    ("gpu", "index"),
    [("auto", 0), ("0", 0), ("1", 1), ("h100", 0), ("L4", 1), ("nvidia", 0), (" l4 ", 1)],
)
def test_a_gpu_by_number_or_name(gpu: str, index: int) -> None:
    chosen = choose_target(gpu, ["sgemm_simt"], require_gpu=True)
    assert isinstance(chosen.target, GpuStub)
    assert chosen.target.device_index == index
    assert chosen.notice == ""


@pytest.mark.parametrize("gpu", ["2", "-1", "h200", "", " "])
def test_a_gpu_that_is_not_there(gpu: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        choose_target(gpu, ["sgemm_simt"])
    assert "attached: 0 NVIDIA H100 80GB HBM3, 1 NVIDIA L4" in str(caught.value)


ROWS = tuple(choose.GPU_TARGETS.values())
# The protocols give no answer to these: a target that inherits one would return None.
WITHOUT_DEFAULT = ("prepare", "measure", "finals", "close", "compiler", "bench", "ceilings")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_a_face_and_a_whole_target(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    face, _, name = row.partition(":")
    module = import_module(face)
    target = getattr(module, name)
    assert callable(module.attached_devices)
    assert callable(module.why_no_device)
    assert GpuTarget in target.__mro__
    assert [one for one in WITHOUT_DEFAULT if getattr(target, one) is getattr(GpuTarget, one)] == []


class OtherGpuStub:
    """A target of a second kind of GPU."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize(("gpu", "number"), [("2", 0), ("3", 1), ("mi300", 0), ("w7900", 1)])
def test_another_kind_of_gpu_is_a_module_and_a_row(
    monkeypatch: pytest.MonkeyPatch, gpu: str, number: int
) -> None:
    other: Any = ModuleType("other_gpus")
    other.attached_devices = lambda: [replace(H100, name="MI300X"), replace(H100, name="W7900")]
    other.why_no_device = lambda: "no other driver"
    other.OtherTarget = OtherGpuStub
    monkeypatch.setitem(sys.modules, "other_gpus", other)
    monkeypatch.setitem(choose.GPU_TARGETS, "other", "other_gpus:OtherTarget")
    assert [(one.target, one.number) for one in attached_gpus()] == [
        ("cuda", 0),
        ("cuda", 1),
        ("other", 0),
        ("other", 1),
    ]
    target = choose_target(gpu, ["sgemm_simt"]).target
    assert isinstance(target, OtherGpuStub)
    assert target.number == number


def test_every_kind_of_gpu_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    other: Any = ModuleType("other_gpus")
    other.attached_devices = list
    other.why_no_device = lambda: "no other driver"
    monkeypatch.setitem(sys.modules, "other_gpus", other)
    monkeypatch.setitem(choose.GPU_TARGETS, "other", "other_gpus:OtherTarget")
    assert why_no_gpu() == ""
    monkeypatch.setattr(cuda, "attached_devices", list)
    monkeypatch.setattr(cuda, "why_no_device", lambda: "no NVIDIA driver")
    assert why_no_gpu() == "no NVIDIA driver; no other driver"
    with pytest.raises(DeviceError, match="no NVIDIA driver; no other driver"):
        open_gpu()

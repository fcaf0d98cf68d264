"""The command lines of NVIDIA's programs, and the memory of the GPU that they watch."""

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import loaded, stored
from autogemm.model.kernel import Extra, Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.signature import Argument, ArgumentKind, ProblemType
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.tools import profiler
from autogemm.targets.cuda.tools.profiler import METRICS, SECTIONS, profile_csv
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.worker.gpu.bare import BareGpu, others_placed, placed

BIAS = Argument("bias", ArgumentKind.EXTRA, "", ProblemType.C, is_array=True, is_const=True)
LAUNCH = Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0)

# Keeps its arguments, one a line, and writes the page where it is told.
NCU = """#!/bin/sh
[ "$1" = --version ] && echo "Version 2025.3.1.0" && exit 0
for one in "$@"; do echo "$one"; done > FOLDER/arguments
while [ "$1" != --log-file ]; do shift; done
ACTION
"""


class Ncu:
    """An ncu in a folder; ``asked`` are the values behind each of its options."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def does(self, action: str) -> None:
        path = self.folder / "ncu"
        path.write_text(NCU.replace("FOLDER", str(self.folder)).replace("ACTION", action))
        path.chmod(0o755)

    @property
    def asked(self) -> dict[str, list[str]]:
        words = (self.folder / "arguments").read_text().splitlines()
        words = words[: words.index("-P")]
        found: dict[str, list[str]] = {}
        for word, value in zip(words, [*words[1:], ""], strict=True):
            if word.startswith("--"):
                found.setdefault(word, []).append(value)
        return found


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ncu:
    one = Ncu(tmp_path)
    one.does('echo \'"ID","Metric"\' > $2')
    monkeypatch.setattr(profiler, "find_program", lambda name: str(tmp_path / name))
    return one


def job(num_launches: int) -> Job:
    candidate: Any = SimpleNamespace(plan=LaunchPlan((LAUNCH,) * num_launches))
    return Job(candidate, Problem(8, 8, 8), 0)


@pytest.mark.parametrize("num_launches", [1, 3])
def test_the_last_gemm_is_profiled_all_its_launches_and_no_other(
    ncu: Ncu, num_launches: int
) -> None:
    """Two run before it, so that code is loaded and L2 as in a warm run."""
    assert profile_csv(job(num_launches), 60.0).startswith('"ID"')
    asked = ncu.asked
    assert asked["--launch-skip"] == [str(2 * num_launches)]
    assert asked["--launch-count"] == [str(num_launches)]
    assert asked["--section"] == list(SECTIONS)
    assert asked["--metrics"] == [",".join(METRICS)]
    assert (asked["--page"], asked["--print-units"]) == (["raw"], ["base"])
    assert asked["--cache-control"] == ["none"], "L2 is not emptied before"
    assert "--csv" in asked


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM: no permission' > $2", "run as root, or let the"),
        ("echo '==ERROR== no kernels'; echo later", "gave no counters: ERROR== no kernels"),
        ("exit 3", "gave no counters: exit code 3"),
        ("sleep 20", "did not end within 0.3 s"),
    ],
)
def test_without_a_page_the_reason_is_one_line(ncu: Ncu, action: str, says: str) -> None:
    ncu.does(action)
    with pytest.raises(DeviceError, match=says) as error:
        profile_csv(job(1), 0.3 if "sleep" in action else 60.0)
    assert "\n" not in str(error.value)


class Memory:
    """CUDA's runtime with memory of the host: what was allocated, and what was written where."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}
        self.freed: list[int] = []

    def malloc(self, num_bytes: int) -> int:
        room = ctypes.create_string_buffer(b"\xab" * num_bytes, num_bytes)
        self.kept[ctypes.addressof(room)] = room
        return ctypes.addressof(room)

    def free(self, address: int) -> None:
        self.freed.append(address)

    def memcpy(self, target: int, source: int, count: int, kind: int) -> None:
        there, direction = (target, 1) if target in self.kept else (source, 2)
        assert kind == direction
        assert any(at <= there <= at + len(room) - count for at, room in self.kept.items())
        ctypes.memmove(target, source, count)


@pytest.fixture
def gpu() -> BareGpu:
    one = BareGpu.__new__(BareGpu)
    one.runtime = Memory()
    one._guards = []
    return one


def content(gpu: BareGpu, address: int, kind: Any = np.float32) -> Any:
    return np.frombuffer(gpu.runtime.kept[address].raw, kind)


def test_a_workspace_is_zero_and_a_familys_own_array_neutral(gpu: BareGpu) -> None:
    plan = LaunchPlan((LAUNCH,), 64, extras=(Extra(BIAS, 6, 0.5),))
    places = others_placed(gpu, plan, Problem(1, 1, 1))
    assert places.keys() == {"workspace", "bias"}
    assert content(gpu, places["workspace"], np.uint8).tolist() == [0] * 64
    assert content(gpu, places["bias"]).tolist() == [0.5] * 6
    # C's own type.
    places = others_placed(gpu, plan, Problem(1, 1, 1, dtype=DType.F16))
    assert loaded(content(gpu, places["bias"], np.uint16), Element.F16).tolist() == [0.5] * 6


def test_without_a_workspace_its_address_is_null(gpu: BareGpu) -> None:
    assert others_placed(gpu, LaunchPlan((LAUNCH,)), Problem(1, 1, 1)) == {"workspace": 0}


def test_a_matrix_ends_with_its_last_element_and_has_nan_between_rows(gpu: BareGpu) -> None:
    rows = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    address = placed(gpu, stored(rows, Element.F32), 5, Element.F32)
    found = content(gpu, address)
    assert found.size == 5 + 3
    assert np.array_equal(found, [1, 2, 3, np.nan, np.nan, 4, 5, 6], equal_nan=True)
    back = np.zeros(8, np.float32)
    gpu.read(address, back)
    assert np.array_equal(back, found, equal_nan=True)


def test_guards_stand_behind_each_allocation_until_they_are_freed(gpu: BareGpu) -> None:
    for num_bytes in (8, 16):
        assert len(gpu.runtime.kept[gpu.allocate(num_bytes)]) == num_bytes
    sizes = [len(room) for room in gpu.runtime.kept.values()]
    assert sizes == [8, 2**16, 16, 2**16]
    gpu.free_guards()
    assert [len(gpu.runtime.kept[at]) for at in gpu.runtime.freed] == [2**16, 2**16]

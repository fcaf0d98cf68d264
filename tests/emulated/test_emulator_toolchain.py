"""Errors where g++ is missing, too old, another compiler, or the kernel does not compile."""

import copy
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from handwritten import RIGHT, Tiny

from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.kernel import Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.space import launch_plan, load_family
from autogemm.support.errors import CompilerMissingError, KernelCompileError, UsageError

pytestmark = pytest.mark.emulated


def script(folder: Path, text: str) -> str:
    path = folder / "g++"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('echo "g++ (GCC) 9.4.0"', "needs g++ 11 or newer"),
        ('echo "Apple clang version 15.0.0"', "needs GNU g++"),
        ("exit 1", "needs GNU g++"),
    ],
)
def test_a_compiler_that_will_not_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setenv("AUTOGEMM_GXX", script(tmp_path, text))
    with pytest.raises(CompilerMissingError, match=words.replace("+", r"\+")):
        Emulator(tmp_path)


def test_a_compiler_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g++"
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    monkeypatch.setenv("AUTOGEMM_GXX", str(path))
    with pytest.raises(CompilerMissingError, match="cannot start"):
        Emulator(tmp_path)


def test_no_compiler_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissingError, match="install g"):
        Emulator(tmp_path)


def test_a_compiler_that_splits_vectors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accesses must be seen as wide as they are: without -fno-tree-sra a float4 is four floats."""
    real = shutil.which("g++")
    dropping = f'for a; do shift; [ "$a" = -fno-tree-sra ] || set -- "$@" "$a"; done; {real} "$@"'
    monkeypatch.setenv("AUTOGEMM_GXX", script(tmp_path, dropping))
    with pytest.raises(CompilerMissingError, match="reports accesses"):
        Emulator(tmp_path / "cache")


def test_a_kernel_that_does_not_compile_keeps_its_source(
    emulator: Emulator, tmp_path: Path
) -> None:
    # In a folder that no other test leaves anything in.
    own = copy.copy(emulator)
    own.folder = tmp_path
    for runtime in emulator.folder.glob("runtime-*"):
        shutil.copy(runtime, tmp_path)
    tiny = Tiny("C[0] = undeclared;")
    with pytest.raises(KernelCompileError, match="undeclared") as caught:
        own.run(tiny.source, tiny.plan, tiny.problem)
    assert caught.value.source_path is not None
    assert caught.value.source_path.read_text() == tiny.source.text
    assert "error" in caught.value.log
    assert not list(caught.value.source_path.parent.glob("tmp*"))


def test_a_second_run_does_not_compile_again(emulator: Emulator) -> None:
    tiny = Tiny(f"float unique = 17;\n(void)unique;\n{RIGHT}")
    first = emulator.run(tiny.source, tiny.plan, tiny.problem)
    second = emulator.run(tiny.source, tiny.plan, tiny.problem)
    assert second.compile_seconds < first.compile_seconds / 5


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (Launch("gemm_kernel", (1, 1, 1), (1025, 1, 1), 0), "1 to 1024 threads"),
        (Launch("gemm_kernel", (1, 1, 1), (1, 1, 1), 1 << 20), "dynamic shared memory"),
    ],
)
def test_what_cannot_be_launched_is_refused(emulator: Emulator, launch: Launch, words: str) -> None:
    tiny = Tiny(RIGHT)
    with pytest.raises(UsageError, match=words):
        emulator.run(tiny.source, LaunchPlan((launch,)), tiny.problem)


def test_a_kernel_that_is_not_there_is_said(emulator: Emulator) -> None:
    tiny = Tiny(RIGHT)
    plan = LaunchPlan((Launch("other_kernel", (1, 1, 1), (1, 1, 1), 0),))
    assert "no such kernel" in emulator.run(tiny.source, plan, tiny.problem).message


def test_a_cache_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "emulator").write_text("in the way")
    with pytest.raises(UsageError, match="AUTOGEMM_CACHE"):
        Emulator(tmp_path)


def test_kernels_that_are_not_to_be_kept_lie_elsewhere(emulator: Emulator, tmp_path: Path) -> None:
    family, problem = load_family("naive"), Problem(3, 5, 7)
    config = family.completed(family.seeds[0])
    plan = launch_plan(family, config, problem)
    source = render(family, config, problem)
    # A text that no other test has.
    own = replace(source, text=source.text + "// for this test\n")
    assert Emulator(kernels_in=tmp_path).verify(own, plan, problem).ok
    built = {path.name for path in tmp_path.iterdir()}
    assert {Path(name).suffix for name in built} >= {".cu", ".check"}
    assert not built & {path.name for path in emulator.folder.iterdir()}


def test_one_file_from_the_command_line(emulator: Emulator, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    command = [sys.executable, "-m", "autogemm.emulator", str(path)]
    environment = {"AUTOGEMM_CACHE": str(emulator.folder.parent), "PATH": os.environ["PATH"]}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        sizes = ["--m", "1", "--n", "1", "--k", "1", *arguments]
        return subprocess.run(
            [*command, *sizes], capture_output=True, text=True, check=False, env=environment
        )

    assert call("--grid", "1", "--threads", "1").returncode == 2
    path.write_text(Tiny(f"C[1] = 0;\n{RIGHT}").source.text)
    found = call("--grid", "1,1", "--threads", "32")
    assert found.returncode == 1
    assert "line 2: out of bounds: C[1,0] write of 4 bytes by thread 0" in found.stdout
    assert call("--grid", "x", "--threads", "32").returncode == 2
    path.write_text(Tiny(RIGHT).source.text)
    assert call("--grid", "1", "--threads", "32").returncode == 0

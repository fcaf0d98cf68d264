"""`autogemm profile` with a simulated GPU, and a script in the place of Nsight Compute."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from test_bench_on_cpu import PlainCompiler

from autogemm.cli import main
from autogemm.model.kernel import CompiledKernel, KernelSource
from autogemm.store import open_store
from autogemm.targets.cuda import CudaTarget, devices
from autogemm.targets.cuda.tools import toolkit

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

PAGE = Path(__file__).parents[1] / "pages" / "vectorized_1024.csv"

# Everything up to the program's own command line is ncu's; the page goes where it is told.
SCRIPT = """\
#!/bin/sh
if [ "$1" = --version ]; then
    echo "Version 2025.3.1.0 (build 36398880)"
    exit 0
fi
while [ "$1" != -P ]; do
    [ "$1" = --log-file ] && page=$2
    program=$1
    shift
done
"$program" "$@" || exit 1
ACTION
"""


class ProfiledCompiler(PlainCompiler):
    def compile(self, source: KernelSource, arch: str) -> CompiledKernel:
        return self.submit(source, arch).result()


@pytest.fixture
def install(
    simulated_cuda: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator["Install"]:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    monkeypatch.setattr(CudaTarget, "compiler", lambda _: ProfiledCompiler())
    toolkit.program_version.cache_clear()
    devices.probed.cache_clear()
    yield Install(tmp_path / "bin" / "ncu")
    devices.probed.cache_clear()


class Install:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, action: str) -> None:
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(SCRIPT.replace("ACTION", action))
        self._path.chmod(0o755)


def profile(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["profile", "vectorized", "--size", "32", *arguments])


def test_the_kernel_runs_and_its_counters_are_said_kept_and_stored(
    install: Install, tmp_path: Path
) -> None:
    install(f'cp "{PAGE}" "$page"')
    result = profile("--save", str(tmp_path / "page.csv"))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("vectorized, 32 nn f32, a CPU, ncu 2025.3.1.0\n")
    assert "coalescing: global loads: 16.0 sectors per request" in result.stdout
    assert (tmp_path / "page.csv").read_text() == PAGE.read_text()
    with open_store(str(tmp_path / "a.db")) as store:
        (stored,) = store.profiles()
    assert (stored.kernel, stored.profiler) == ("vectorized", "ncu 2025.3.1.0")
    assert stored.environment.compiler == "g++"
    assert stored.config["VEC"] == 4


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ('echo "==ERROR== ERR_NVGPUCTRPERM - no permission" > "$page"', "RestrictProfiling"),
        ('echo "==ERROR== The application crashed" > "$page"', "The application crashed"),
        ("exit 3", "no counters"),
    ],
)
def test_a_profiler_that_cannot_count_is_one_line(
    install: Install, action: str, message: str
) -> None:
    install(action)
    result = profile()
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_without_a_profiler_it_says_where_to_get_one(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autogemm.targets.cuda.tools.profiler.find_profiler", lambda: None)
    result = profile()
    assert result.exit_code == 1
    assert "Nsight Compute (ncu) is not found" in result.stderr

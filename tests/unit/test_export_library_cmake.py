"""The exported library in other projects: add_subdirectory, find_package, pkg-config, C and C++."""

import os
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from library_on_cpu import of_these
from store_samples import H100

from autogemm.codegen.export import STACKED, Library, export_library
from autogemm.codegen.export.library import API_VERSION, FALLBACKS

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(
        not all(map(shutil.which, ("cmake", "ninja", "nvcc", "gcc"))),
        reason="cmake, ninja, nvcc or gcc is not installed",
    ),
]

# The fallbacks for batches and groups that are built: of each kind, and each kind of element.
FALLBACKS_BUILT = {
    f"{dtype}{kind.suffix}"
    for kind in STACKED
    for dtype in (("f32", "f16") if kind.suffix.endswith("_tn") else ("f32", "f16", "e4m3", "i8"))
}

# Calls that launch nothing: they need no GPU.
PROGRAM = """
#include <autogemm.h>
#include <stdio.h>

int main(void) {
    const cudaError_t refused =
        autogemm_gemm_bf16(AUTOGEMM_NN, 0, 1, 1, 1, NULL, 1, NULL, 1, 0, NULL, 1, NULL, 0, NULL);
    /* Products that share C; groups without offsets; a capacity that is no whole number. */
    const int rows[3] = {0, 4, 8};
    const float some[64] = {0};
    float c[64];
    const cudaError_t wrong[] = {
        autogemm_sgemm_batched(AUTOGEMM_NN, 4, 4, 4, 1, some, 4, some, 4, 0, c, 4, 2, 4, 4, 0, NULL,
                               0, NULL),
        autogemm_sgemm_grouped(AUTOGEMM_NN, 8, 4, 4, 1, some, 4, some, 4, 0, c, 4, 2, NULL, NULL, 0,
                               NULL),
        autogemm_sgemm_masked(AUTOGEMM_NN, 7, 4, 4, 1, some, 4, some, 4, 0, c, 4, 2, rows, NULL, 0,
                              NULL),
        autogemm_gemm_f16_batched_by_columns('N', 'X', 4, 4, 4, 1, NULL, 4, NULL, 4, 0, NULL, 4, 1,
                                             4, 4, 4, NULL, 0, NULL),
    };
    /* Bytes: another layout than nt, a factor of integers. */
    const autogemm_e4m3 bytes[64] = {0};
    const signed char whole[64] = {0};
    int sums[64];
    const cudaError_t wrong_bytes[] = {
        autogemm_gemm_e4m3_f32(AUTOGEMM_NN, 4, 4, 4, 1, bytes, 4, bytes, 4, 0, c, 4, NULL, 0, NULL),
        autogemm_gemm_i8(AUTOGEMM_NT, 4, 4, 4, 2, whole, 4, whole, 4, 0, sums, 4, NULL, 0, NULL),
    };
    if (wrong_bytes[0] != cudaErrorInvalidValue || wrong_bytes[1] != cudaErrorInvalidValue ||
        autogemm_gemm_e5m2_choice(AUTOGEMM_NT, 4, 4, 4, NULL, 4, NULL, 4, NULL, 4, 0) != 0) {
        return 2;
    }
    for (int i = 0; i < 4; ++i) {
        if (wrong[i] != cudaErrorInvalidValue) {
            return 2;
        }
    }
    const int right = refused == cudaErrorInvalidValue && autogemm_sgemm_num_kernels() == 1 &&
                      autogemm_gemm_f16_f32_workspace_bytes(AUTOGEMM_TN, 8, 8, 8, 8, 8, 8) == 0;
    puts(right ? "right " AUTOGEMM_API_VERSION : "wrong");
    return !right;
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.18)
project(mine LANGUAGES C CXX)
{find}
add_executable(mine mine.c)
target_link_libraries(mine PRIVATE autogemm::autogemm)
set_target_properties(mine PROPERTIES LINKER_LANGUAGE CXX)
"""


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_project(folder: Path, find: str) -> Path:
    folder.mkdir()
    (folder / "mine.c").write_text(PROGRAM)
    (folder / "CMakeLists.txt").write_text(PROJECT.format(find=find))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library without tuned kernels in ``lib``, built shared by a project of another in
    ``outer``, and installed in ``installed``.
    """
    folder = tmp_path_factory.mktemp("cmake")
    (folder / "lib").mkdir()
    for name, text in export_library(Library(H100, ()), date(2026, 11, 21)).items():
        # All of them took nvcc a third of the time.
        own = of_these(text, FALLBACKS_BUILT) if name == FALLBACKS else text
        (folder / "lib" / name).write_text(own)
    outer = write_project(folder / "outer", "add_subdirectory(../lib lib)")
    options = ("-G", "Ninja", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_CUDA_FLAGS=-Xptxas -O0")
    run("cmake", "-S", ".", "-B", "build", *options, folder=outer)
    run("cmake", "--build", "build", folder=outer)
    place = str(folder / "installed")
    run("cmake", "--install", "build", "--prefix", place, folder=outer)
    return folder


def test_as_a_subdirectory(folder: Path) -> None:
    """The program of the outer project runs, and the library's own programs are left out."""
    build = folder / "outer" / "build"
    assert run(build / "mine", folder=folder) == f"right {API_VERSION}\n"
    assert not list(build.glob("**/selftest*"))


def test_installed_and_found(folder: Path) -> None:
    """In place of a static library a versioned shared one, which carries its own name."""
    installed = folder / "installed"
    names = {str(path.relative_to(installed)) for path in installed.glob("lib/lib*")}
    major = API_VERSION.partition(".")[0]
    ending = ("", f".{major}", f".{API_VERSION}")
    assert names == {f"lib/libautogemm.so{one}" for one in ending}
    found = write_project(folder / "found", f"find_package(autogemm {major} REQUIRED)")
    path = f"-DCMAKE_PREFIX_PATH={installed}"
    run("cmake", "-S", ".", "-B", "build", "-G", "Ninja", path, folder=found)
    run("cmake", "--build", "build", folder=found)
    assert run(found / "build" / "mine", folder=folder) == f"right {API_VERSION}\n"


def test_a_library_of_another_first_number_is_not_found(folder: Path) -> None:
    """A program for the version before may not take a newer one."""
    wanted = int(API_VERSION.partition(".")[0]) - 1
    other = write_project(folder / "other", f"find_package(autogemm {wanted} REQUIRED)")
    path = f"-DCMAKE_PREFIX_PATH={folder / 'installed'}"
    configured = subprocess.run(
        ("cmake", "-S", ".", "-B", "build", "-G", "Ninja", path),
        cwd=other,
        capture_output=True,
        text=True,
        check=False,
    )
    assert configured.returncode != 0
    assert f'compatible with requested version "{wanted}"' in " ".join(configured.stderr.split())


def test_by_pkg_config(folder: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    place = {"PKG_CONFIG_PATH": str(folder / "installed" / "lib" / "pkgconfig")}
    assert (
        run("pkg-config", "--modversion", "autogemm", folder=folder, **place) == f"{API_VERSION}\n"
    )
    flags = run("pkg-config", "--cflags", "--libs", "autogemm", folder=folder, **place).split()
    program = folder / "by_pkg_config"
    run("gcc", "-std=c99", "-Wall", "-Werror", "outer/mine.c", "-o", program, *flags, folder=folder)
    libraries = {"LD_LIBRARY_PATH": ":".join(one[2:] for one in flags if one.startswith("-L"))}
    assert run(program, folder=folder, **libraries) == f"right {API_VERSION}\n"


def test_on_its_own_it_has_its_programs(folder: Path) -> None:
    options = ("-G", "Ninja", "-DCMAKE_CUDA_ARCHITECTURES=80")
    run("cmake", "-S", "lib", "-B", "alone", *options, folder=folder)
    targets = run("ninja", "-C", "alone", "-t", "targets", "all", folder=folder)
    assert "selftest: " in targets
    assert "compute_80" in (folder / "alone" / "build.ninja").read_text()

"""autogemm export --prefix: two exported kernels in one program, without macros; the header."""

import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from export_samples import SPLIT_TEMPLATE, split_family, stored_kernel

from autogemm.codegen.export import Names, export_cuda, export_header, extract_kernel
from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.space import Family, load_family
from autogemm.support.errors import UsageError

WRITTEN = date(2026, 11, 21)
NVCC = shutil.which("nvcc")
PROBLEM = Problem(512, 512, 512)
PREFIXES = ("first", "second", "third", "fourth")

# Calls that launch nothing: they need no GPU.
PROGRAM = """
#include "first.h"
#include "second.h"
#include "third.cu"
#include "fourth.cu"
#include "third.h"
#include <cstdio>

int main() {
    const bool is_right =
        first_sgemm_workspace_bytes(8, 4, 2) == 4 * 4 * 8 * 4 &&
        second_sgemm_workspace_bytes(8, 4, 2) == 0 &&
        first_sgemm(0, 1, 1, 1, nullptr, 1, nullptr, 1, 0, nullptr, 1, nullptr, 0, nullptr) ==
            cudaErrorInvalidValue &&
        third_sgemm(0, 1, 1, 1, nullptr, 1, nullptr, 1, 0, nullptr, 1, nullptr, 0, nullptr) ==
            cudaErrorInvalidValue;
    std::puts(is_right ? "right" : "wrong");
    return is_right ? 0 : 1;
}
"""


def write(folder: Path, prefix: str, family: Family) -> str:
    """The text of PREFIX.cu, written beside PREFIX.h."""
    kernel, names = stored_kernel(family, PROBLEM), Names(prefix)
    text = export_cuda(kernel, family, f"{prefix}.cu", WRITTEN, names=names)
    (folder / f"{prefix}.cu").write_text(text)
    header = export_header(kernel, family, f"{prefix}.cu", WRITTEN, names)
    (folder / f"{prefix}.h").write_text(header)
    return text


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
def test_exports_of_other_prefixes_meet_in_one_program(tmp_path: Path) -> None:
    """Linked, and included side by side into one file."""
    families = [split_family(tmp_path / "family"), load_family("naive")]
    # Shared memory of two types, which is outside of any namespace.
    for kind in ("float", "__align__(16) unsigned char"):
        text = SPLIT_TEMPLATE.replace(
            " {}", f" {{ extern __shared__ {kind} shared[]; *shared = 1; }}"
        )
        families.append(split_family(tmp_path / kind[-5:], text))
    for prefix, family in zip(PREFIXES, families, strict=True):
        text = write(tmp_path, prefix, family)
        assert extract_kernel(text) == stored_kernel(family, PROBLEM).source.text
    (tmp_path / "program.cu").write_text(PROGRAM)
    command = [NVCC, "-arch=sm_90", "--threads", "0", "-o", "program"]
    subprocess.run([*command, "first.cu", "second.cu", "program.cu"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("right\n", 0)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_the_header_is_c_and_may_be_there_twice(tmp_path: Path) -> None:
    naive = load_family("naive")
    for prefix in ("autogemm", "mine"):
        write(tmp_path, prefix, naive)
    (tmp_path / "cuda_runtime_api.h").write_text(
        "typedef int cudaError_t; typedef void* cudaStream_t;"
    )
    (tmp_path / "a.c").write_text(
        '#include "mine.h"\n#include "autogemm.h"\n#include "mine.h"\n'
        "cudaError_t (*const one)(int, int, int, float, const float*, int, const float*, int,\n"
        "    float, float*, int, void*, size_t, cudaStream_t) = mine_sgemm;\n"
        "size_t (*const other)(int, int, int) = autogemm_sgemm_workspace_bytes;\n"
    )
    flags = ["-std=c99", "-Wall", "-Werror", "-Wno-unused", "-fsyntax-only"]
    subprocess.run(["gcc", *flags, f"-I{tmp_path}", "a.c"], cwd=tmp_path, check=True)


def test_without_a_prefix_the_names_are_as_ever() -> None:
    names = Names()
    assert (names.function(DType.F32), names.function(DType.BF16)) == (
        "autogemm_sgemm",
        "autogemm_gemm_bf16",
    )
    naive = load_family("naive")
    text = export_cuda(stored_kernel(naive, PROBLEM), naive, "a.cu", WRITTEN)
    assert "#define gemm_kernel" not in text
    assert "\n#ifndef AUTOGEMM_LIBRARY\n" in text


@pytest.mark.parametrize("prefix", ["", "a b", "_a", "a__b", "1a", "a_", "ä", "a" * 41, "a;b"])
def test_a_prefix_that_is_no_name(prefix: str) -> None:
    with pytest.raises(UsageError, match="a prefix is a name for C"):
        Names(prefix)

"""The exported library, built and run: its self-test, and its benchmark without rounds."""

import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen.export import Library, Part, export_library
from autogemm.dispatch import NearestLegal
from autogemm.dispatch.assembling import variants_of
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.problem import Layout
from autogemm.model.rule import Leaf, Tree
from autogemm.space import load_family

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not all(map(shutil.which, ("cmake", "nvcc"))), reason="cmake or nvcc is not installed"
    ),
]

A100 = find_device("a100")


def part_of(dtype: DType, family_name: str, epilogue: Epilogue = PLAIN) -> Part:
    """The family's first seed, in both forms of B."""
    family = load_family(family_name)
    config = family.seeds[0]
    layouts = (Layout.NN, Layout.NT)
    variants = variants_of(config, 0, layouts, NearestLegal((family,), A100), dtype, epilogue)
    rule, tuned = Tree(Leaf(0)), ((256, 256, 256),)
    return Part(dtype, rule, (config,), variants, (0,), tuned, (0,), (), epilogue=epilogue)


def test_the_library_is_right_in_every_element_type(tmp_path: Path) -> None:
    parts = (part_of(DType.F32, "tiled"), part_of(DType.BF16, "gemm_mma"))
    gated = Epilogue("silu(acc[n] + bias[n]) * acc[n + N]")
    fused = (part_of(DType.F32, "sgemm_simt", gated), part_of(DType.BF16, "gemm_mma", gated))
    for name, text in export_library(Library(A100, parts, (fused,)), date(2026, 11, 21)).items():
        (tmp_path / name).write_text(text)
    native = "-DCMAKE_CUDA_ARCHITECTURES=native"
    for command in (
        ("cmake", "-S", ".", "-B", "build", native),
        ("cmake", "--build", "build", "-j"),
        ("build/selftest",),
        ("build/selftest_fused",),
        ("build/benchmark_bf16", "512", "512", "512", "1001", "77", "300", "--rounds", "0"),
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

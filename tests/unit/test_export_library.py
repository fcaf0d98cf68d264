"""autogemm export --library: what is in the files, and that the rule in C is the rule in Python."""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sized_target import SizedTarget, requests_for, swept
from store_samples import H100, SPEC, T4, entry, finals, new_store

from autogemm.catalogue.gpus import find_device
from autogemm.cli import main
from autogemm.codegen import render
from autogemm.codegen.export import LIBRARY_DTYPES, Library, Part, export_library, extract_kernel
from autogemm.codegen.export.rules import rule_text
from autogemm.dispatch import NearestLegal, assembled
from autogemm.dispatch.assembling import variants_of
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import DEFAULT_SMEM_BYTES
from autogemm.model.problem import Layout
from autogemm.model.results.outcome import Provenance
from autogemm.model.rule import Leaf, Modelled, Nearest, Rule, Split, TimeModel, Tree
from autogemm.space import default_families, load_family
from autogemm.store import Store, open_store
from autogemm.support.errors import NotFoundError, UsageError

WRITTEN = date(2026, 11, 21)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with open_store(str(tmp_path / "sweep.db")) as opened:
        yield opened


def shipped_library(layouts: tuple[Layout, ...] = (Layout.NN,)) -> Library:
    """Two seeds of each family, one of which moves its tiles inwards, by a rule made up."""
    simt, skinny = load_family("sgemm_simt"), load_family("sgemm_skinny")
    nearest_legal = NearestLegal((simt, skinny), H100)
    inward = next(seed for seed in simt.seeds if seed["EDGES"] == "inward")
    configs = (simt.seeds[0], inward, *skinny.seeds[:2])
    rule = Tree(Split("M", 64, Leaf(2), Split("M * N", 10**6, Leaf(1), Leaf(0))))
    variants = [
        variant
        for number, config in enumerate(configs)
        for variant in variants_of(config, number, layouts, nearest_legal)
    ]
    part = Part(
        DType.F32,
        rule,
        configs,
        tuple(variants),
        (0, 1, 2, 3),
        ((512, 512, 512),),
        (1,),
        ("Found: this.",),
    )
    return Library(H100, (part,))


def test_the_files_fit_together() -> None:
    library = shipped_library((Layout.NN, Layout.NT))
    files = export_library(library, WRITTEN)
    assert set(files) == {
        *("autogemm.h", "check.h", "bytes.h", "exact.h", "benchmark_f32.cu", "CMakeLists.txt"),
        *("selftest.cu", "selftest_batched.cu", "selftest_grouped.cu", "selftest_masked.cu"),
        *("selftest_grouped_tn.cu", "selftest_masked_tn.cu"),
        *("autogemm-config.cmake.in", "autogemm.pc.in"),
        *("gemm_f32.cu", "gemm_tf32.cu", "gemm_f16.cu", "gemm_bf16.cu"),
        *("gemm_f16_f32.cu", "gemm_bf16_f32.cu", "fallbacks.cu"),
        *("gemm_e4m3.cu", "gemm_e4m3_f16.cu", "gemm_e4m3_f32.cu"),
        *("gemm_e5m2.cu", "gemm_e5m2_f16.cu", "gemm_e5m2_f32.cu"),
        *("gemm_i8.cu", "gemm_i8_bf16.cu", "gemm_i8_f16.cu", "gemm_i8_f32.cu"),
    }
    for name, text in files.items():
        is_c = Path(name).suffix in (".h", ".cu")
        assert text.startswith("// Written by" if is_c else "# Written by")
        assert "{{" not in text.replace("{{{", "")
    # The same functions for each dtype, whatever was tuned.
    functions = r"(autogemm_\w+)\("
    declared = set(re.findall(rf"^(?:\w+\*? )+\*?{functions}", files["autogemm.h"], re.M))
    sources = [text for name, text in files.items() if name.startswith("gemm_")]
    defined = [re.findall(rf'extern "C" [\w ]+\*? ?\b{functions}', text) for text in sources]
    assert [len(names) for names in defined] == [8] * len(LIBRARY_DTYPES)
    # Batches have as many; groups have none by columns, and those of K none of 8 bits.
    untuned = re.findall(rf'extern "C" [\w ]+\*? ?\b{functions}', files["fallbacks.cu"])
    wide = sum(dtype.size_bytes > 1 for dtype in LIBRARY_DTYPES)
    assert len(untuned) == len(set(untuned)) == (8 + 2 * 6) * len(LIBRARY_DTYPES) + 2 * 6 * wide
    defined.append(untuned)
    assert {name for names in defined for name in names} == declared
    empty = export_library(Library(H100, ()), WRITTEN)["autogemm.h"]
    assert empty.partition("#ifndef")[2] == files["autogemm.h"].partition("#ifndef")[2]
    # As on the GPU: with exactly 48 KB and a flag of its own a kernel must ask.
    asks = f"if (smem_bytes > {DEFAULT_SMEM_BYTES // 1024} * 1024)"
    assert asks in files["gemm_f32.cu"]
    assert "Found: this." in files["autogemm.h"]
    assert "512, 512, 512," in files["benchmark_f32.cu"]
    assert "{ 384, 384, 512 }" in files["selftest.cu"]


def test_each_kernel_is_there_byte_for_byte_under_a_name_of_its_own() -> None:
    library = shipped_library()
    text = export_library(library, WRITTEN)["gemm_f32.cu"]
    parts = re.split(r"(?m)^(?=// autogemm:kernel:begin)", text)[1:]
    assert len(parts) == len(library.parts[0].variants)
    for variant, part in zip(library.parts[0].variants, parts, strict=True):
        assert extract_kernel(part) == render(variant.family, variant.config, variant.problem).text
    renamed = re.findall(r"^#define gemm_kernel (\w+)$", text, re.M)
    assert len(renamed) == len(set(renamed)) == len(library.parts[0].variants)
    assert text.count("#undef gemm_kernel") == len(renamed)
    shared = re.findall(r"^#define shared (\w+)$", text, re.M)
    assert len(set(shared)) == len(renamed)


def test_variants_are_for_problems_that_need_different_code() -> None:
    library = shipped_library()
    of_first = [one for one in library.parts[0].variants if one.config_number == 0]
    assert [one.edges for one in of_first][:2] == ["no edges", "edges of C at multiples of 4"]
    cu = export_library(library, WRITTEN)["gemm_f32.cu"]
    bodies = re.findall(
        r"struct Kernel\w+ : Call \{.*?bool fits\(\) const \{(.*?)\n    \}\n", cu, re.S
    )
    assert len(bodies) == len(library.parts[0].variants)
    assert "M % 128 != 0" in bodies[0]
    # At least one variant of each config takes any size, any rows, any address.
    for number in range(len(library.parts[0].configs)):
        own = [i for i, one in enumerate(library.parts[0].variants) if one.config_number == number]
        assert any("return false" not in bodies[i] for i in own)


def test_a_config_is_only_chosen_where_its_family_means_it() -> None:
    """The family for few rows is right at 4096 of them, and slow: its constraint goes along."""
    library = shipped_library()
    cu = export_library(library, WRITTEN)["gemm_f32.cu"]
    found = re.search(r"bool is_meant\(.*?\n}\n", cu, re.S)
    assert found is not None
    skinny = [i for i, one in enumerate(library.parts[0].configs) if one.family == "sgemm_skinny"]
    cases = re.findall(r"case (\d+):\n +return (.*?);", found[0], re.S)
    assert [int(number) for number, _ in cases] == skinny
    assert all("N) <= 128" in text for _, text in cases)


RULES: list[Rule] = [
    Tree(Leaf(3)),
    Tree(
        Split(
            "M * N",
            70_000,
            Split("K", 300, Leaf(0), Leaf(1)),
            Split("M", 1000, Leaf(2), Split("M * N * K", 10**10, Leaf(3), Leaf(0))),
        )
    ),
    Modelled(
        (
            TimeModel(16, 32, 8, 1, 132, False, 2.5, 0.01, 0.02, 0.1),
            TimeModel(128, 128, 8, 1, 132, False, 4.0, 0.0, 0.08, 0.1),
            TimeModel(64, 64, 16, 16, 264, False, 6.0, 0.001, 0.03, 0.1),
            TimeModel(128, 256, 8, 1, 264, True, 9.0, 0.0, 0.13, 0.1),
        ),
        (2, 0, 3, 1),
    ),
    Nearest(((64, 64, 64), (4096, 4096, 4096), (16, 4096, 1000)), (2, 0, 1)),
]


def compiled(source: str, folder: Path) -> Any:
    """The function ``choose`` of a rule in C."""
    (folder / "rule.cpp").write_text(source)
    library = folder / "rule.so"
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(folder / "rule.cpp")], check=True)
    return ctypes.CDLL(str(library)).choose


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_in_c_chooses_as_the_rule_in_python(rule: Rule, tmp_path: Path) -> None:
    configs = [tile_of_rows(bm) for bm in (16, 32, 64, 128)]
    body = rule_text(rule, configs)
    head = '#include <cmath>\nextern "C" int choose(long long M, long long N, long long K) {'
    anything = "static bool is_meant(int, long long, long long, long long) { return true; }"
    function = compiled(f"{anything}\n{head}\n{body}\n}}\n", tmp_path)
    function.argtypes = (ctypes.c_longlong,) * 3
    extents = (1, 16, 64, 70, 265, 300, 301, 999, 1000, 1001, 4096, 30_000)
    chosen = {}
    for m in extents:
        for n in extents:
            for k in extents:
                chosen[m, n, k] = function(m, n, k)
                assert chosen[m, n, k] == rule.ranked((m, n, k))[0], (m, n, k)
    assert set(chosen.values()) == set(rule.kernels)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_rule_in_c_reads_the_number_of_products(tmp_path: Path) -> None:
    rule = Nearest(((64, 64, 64, 4), (64, 64, 64, 900), (512, 512, 512, 32)), (0, 1, 2))
    body = rule_text(rule, [tile_of_rows(bm) for bm in (16, 32, 64)], "batch")
    sizes = "long long M, long long N, long long K, long long batch"
    anything = f"static bool is_meant(int, {sizes}) {{ return true; }}"
    head = f'#include <cmath>\nextern "C" int choose({sizes}) {{'
    function = compiled(f"{anything}\n{head}\n{body}\n}}\n", tmp_path)
    function.argtypes = (ctypes.c_longlong,) * 4
    extents = (1, 16, 64, 70, 200, 4096)
    every = [(m, n, 64, batch) for m in extents for n in extents for batch in (1, 59, 61, 10_000)]
    chosen = {size: function(*size) for size in every}
    assert chosen == {size: rule.ranked(size)[0] for size in every}
    assert set(chosen.values()) == set(rule.kernels)


def tile_of_rows(bm: int) -> Config:
    return Config("sgemm_simt", (("BM", bm), ("BN", 64), ("BK", 8)))


def test_a_library_from_a_crossed_database(tmp_path: Path, store: Store) -> None:
    requests = requests_for(tmp_path, (64, 100, 500, 800, 3000, 4000))
    swept(requests, SizedTarget(), store, cross=True)
    # The tiny family has no BK, without which nobody knows what an edge of K is.
    with pytest.raises(UsageError, match="tiny has no BK"):
        assembled(store.decided(), requests[0].families, find_device("h100"))
    with pytest.raises(NotFoundError, match="have no result on"):
        assembled(store.decided(), default_families(), find_device("h100"))


def test_the_gpu_of_a_library_is_that_of_the_newest_measured_result(tmp_path: Path) -> None:
    """As of a single kernel: one that was looked at in a recording comes behind."""
    with new_store(tmp_path) as store:
        for device, provenance in ((T4, Provenance.MEASURED), (H100, Provenance.RECORDED)):
            run = store.begin_run(replace(SPEC, device=device, provenance=provenance))
            store.record_finals(run, finals(entry(64, 100.0, ratio=1.0), provenance=provenance), {})
    arguments = ["export", "--library", str(tmp_path / "out"), "--db", str(tmp_path / "a.db")]
    result = CliRunner().invoke(main, arguments)
    # That family's parameters are made up.
    assert "no result on Tesla T4" in result.stderr


def test_the_command_writes_the_folder_and_says_what_is_expected(tmp_path: Path) -> None:
    runner = CliRunner()
    place = str(tmp_path / "mine.db")
    sizes = ["--size", "1024", "--size", "4096x256x1024"]
    tuned = runner.invoke(
        main, ["tune", "--gpu", "recorded", *sizes, "--trials", "5", "--db", place, "-q"]
    )
    assert tuned.exit_code == 0, tuned.output
    folder = tmp_path / "out"
    made = runner.invoke(main, ["export", "--library", str(folder), "--db", place])
    assert made.exit_code == 0, made.output
    assert "RECORDED, NOT MEASURED ON THIS MACHINE" in made.output
    assert "Expected loss on sizes that were not tuned: not known" in made.output
    assert "RECORDED, NOT MEASURED" in (folder / "autogemm.h").read_text()
    again = runner.invoke(main, ["export", "--library", str(folder), "--db", place])
    assert again.exit_code == 0, again.output
    (folder / "gemm_f32.cu").write_text("mine")
    (folder / "autogemm.h").write_text("// Written by autogemm before")
    kept = runner.invoke(main, ["export", "--library", str(folder), "--db", place])
    assert kept.exit_code == 2
    assert (folder / "gemm_f32.cu").read_text() == "mine"
    # All or none: its neighbours are as they were.
    assert (folder / "autogemm.h").read_text() == "// Written by autogemm before"
    both = runner.invoke(main, ["export", "x.cu", "--library", str(folder), "--db", place])
    assert both.exit_code == 2
    assert "leave out FILE" in both.output
    neither = runner.invoke(main, ["export", "--db", place])
    assert neither.exit_code == 2

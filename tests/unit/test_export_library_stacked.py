"""Functions of the exported library for batches and for groups of rows: compiled, run, chosen."""

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner
from exported_program import FAMILY, SHIM, run_on_cpu
from library_on_cpu import (
    BUG_BY_NUMBER,
    GRIDS,
    as_cpp,
    ended_by_a_bug,
    of_these,
    part_on_cpu,
    write_library,
)
from store_samples import H100, SPEC
from test_export_cli import add_run
from test_export_library_runs import build

from autogemm.cli import main
from autogemm.codegen import render
from autogemm.codegen.export import STACKED, Kind, Library, Part, Variant, export_library
from autogemm.codegen.export.library import FALLBACKS, stacked_name
from autogemm.dispatch import NearestLegal, assembled
from autogemm.dispatch.assembling import variants_of
from autogemm.dispatch.learning import Learned
from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Leaf, Nearest, Split, Tree
from autogemm.space import default_families, load_family, nearest_legal
from autogemm.store import open_store

needs_gpp = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
WRITTEN = date(2026, 11, 24)
PROBLEM = Problem(64, 64, 64)
# Few and small ones: loops on the CPU are slow.
SIZES = "sizes = {{1, 1, 1}, {7, 5, 19}, {66, 3, 17}};"
# Which arguments a launch passes on; what makes a bug, one at a time.
SHIM_LINES = """\
#define KERNEL_IS_{kernel}
#include <cuda_runtime.h>
"""
OFFSETS_OF_64_BITS = r"(bug({}) ? (long)reinterpret_cast<const long long*>(offsets)[{}] : \g<0>)"
# By kind: in the fallback or the kernel (regular expressions), and what is there with a bug.
BUGS: dict[Kind, tuple[tuple[str, str], ...]] = {
    Kind.BATCH: (
        # The stride of the other operand: in the fallback, the kernel and the call by columns.
        (r"B \+ product \* step_b", "B + product * (bug(0) ? step_a : step_b)"),
        (r"B \+ i \* batch_rows_b", "B + i * (bug(1) ? batch_rows_a : batch_rows_b)"),
        (
            r"batch_rows_b,\s+batch_rows_a,",
            "bug(2) ? batch_rows_a : batch_rows_b, bug(2) ? batch_rows_b : batch_rows_a,",
        ),
        # The first product alone.
        (r"tiles_of_product \* batch", "tiles_of_product * (bug(3) ? 1 : batch)"),
        # Products that share C are accepted.
        (r"call\.batch_rows_c < call\.M", "(!bug(4) && call.batch_rows_c < call.M)"),
    ),
    Kind.GROUPED: (
        # Offsets of 32 bits read as of 64: in the fallback and in the kernel.
        (r"(?<=first = )offsets\[group\]", OFFSETS_OF_64_BITS.format(0, "group")),
        (r"(?<=first = )offsets\[g\]", OFFSETS_OF_64_BITS.format(1, "g")),
        (r"B \+ group \* step_b", "B + (bug(2) ? 0 : group) * step_b"),
        # A tail that writes into the next group.
        (r"m < end && n < N", "m < (bug(3) ? M : end) && n < N"),
        # Offsets that are not there.
        (r"offsets == nullptr", "(!bug(4) && offsets == nullptr)"),
        # The layout in which groups would divide K.
        (r"\|\| is_transposed_a\(call\.layout\)", "|| (!bug(5) && is_transposed_a(call.layout))"),
    ),
    Kind.MASKED: (
        (r"first \+ counts\[group\]", "first + (bug(0) ? M / groups : counts[group])"),
        (r"rows = counts\[g\]", "rows = bug(1) ? M / groups : counts[g]"),
        (r"group \* \(M / groups\)", "(bug(2) ? 0 : group) * (M / groups)"),
        (r"call\.M % call\.groups != 0", "(!bug(3) && call.M % call.groups != 0)"),
    ),
    Kind.GROUPED_TN: (
        (r"(?<=first = )offsets\[group\]", OFFSETS_OF_64_BITS.format(0, "group")),
        # The rows of A, and not those of B; one C for all groups.
        (r"B \+ first \* b_k", "B + (bug(1) ? 0 : first) * b_k"),
        (r"C \+ group \* M", "C + (bug(2) ? 0 : group) * M"),
        (r"C \+ g \* M", "C + (bug(3) ? 0 : g) * M"),
        (r"call\.layout != AUTOGEMM_TN", "(!bug(4) && call.layout != AUTOGEMM_TN)"),
        # Groups without rows leave C as it is.
        (r"m < end && n < N", "(!bug(5) || length > 0) && m < end && n < N"),
    ),
    Kind.MASKED_TN: (
        (r"length = counts\[group\]", "length = bug(0) ? K / groups : counts[group]"),
        (r"group \* \(K / groups\)", "(bug(1) ? 0 : group) * (K / groups)"),
        (r"call\.K % call\.groups != 0", "(!bug(2) && call.K % call.groups != 0)"),
    ),
}


@needs_gpp
@pytest.mark.parametrize("kind", STACKED, ids=lambda kind: kind.word)
def test_the_self_test_passes_and_finds_each_bug(tmp_path: Path, kind: Kind) -> None:
    """Of F32 with a kernel, and of BF16 with the fallback alone."""
    every = (one for one in Layout if kind.example(replace(PROBLEM, layout=one)) is not None)
    layouts = tuple(every)
    write_library(tmp_path, (), (part_on_cpu(tmp_path, DType.F32, layouts, kind),))
    name = f"selftest{kind.suffix}"
    small = re.sub(
        r"sizes = \{.*?\n    \};", SIZES, (tmp_path / f"{name}.cu").read_text(), flags=re.S
    )
    others = rf"    failures \+= .*<Gemm_(?!(?:f32|bf16)_{kind.word}>).*\n"
    text = re.sub(others, "", small).replace("64u << 20", "1024u")
    # Every seventh of all pairs of a form with layout and rows is enough to find each bug.
    text = text.replace("++variant)", "variant += 7)")
    (tmp_path / f"{name}.cu").write_text(ended_by_a_bug(text))
    kernel = "GROUPED" if kind.is_grouped else "BATCHED"
    (tmp_path / "shim.h").write_text(SHIM_LINES.format(kernel=kernel) + BUG_BY_NUMBER)
    sources = [stacked_name(DType.F32, kind), FALLBACKS]
    planted = {source: (tmp_path / source).read_text() for source in sources}
    planted[FALLBACKS] = of_these(planted[FALLBACKS], {f"bf16{kind.suffix}"})
    for good, bad in BUGS[kind]:
        found = {source: re.subn(good, bad, one) for source, one in planted.items()}
        assert sum(count for _, count in found.values()), good
        planted = {source: one for source, (one, _) in found.items()}
    for source, one in planted.items():
        (tmp_path / source).write_text(one)
    program = build(tmp_path / name, ["shim.h", *sources, f"{name}.cu"], "-O1")

    done = run_on_cpu(program)
    assert (done.code, done.output.splitlines()[-1]) == (0, "0 failed"), done.output
    kernels = re.findall(r"^ +(\d+)  (.*)$", done.output, re.M)
    assert [one for _, one in kernels] == [
        *(f"config 0 {layout}, any size" for layout in layouts),
        *("fallback", "fallback"),
    ]
    assert all(int(runs) > 0 for runs, _ in kernels)
    for number, (good, _) in enumerate(BUGS[kind]):
        assert run_on_cpu(program, BUG=str(number)).code != 0, good


@needs_gpp
def test_all_fallbacks_are_cpp(tmp_path: Path) -> None:
    write_library(tmp_path, ())
    flags = ("-std=c++17", "-w", "-fsyntax-only", f"-I{SHIM}", "-include", "cuda_runtime.h")
    subprocess.run(["g++", *flags, "-xc++", FALLBACKS], cwd=tmp_path, check=True)


def chosen_by_count(folder: Path, kind: Kind) -> tuple[Part, str]:
    """Two configs, of which one is for many products and needs a workspace; the source as C++."""
    own = folder / "two_configs"
    own.mkdir()
    counted = kind.counted
    text = FAMILY.format(ab="f32").replace("grid: 1", f"grid: {GRIDS[counted]}")
    text = text.replace("values: [1]", "values: [1, 2]").replace(
        "{BM: 1}\n", "{BM: 1}\n  - {BM: 2}\n"
    )
    text += f"workspace_bytes: 256 * {counted} if BM == 2 else 0\n"
    (own / "on_cpu.yaml").write_text(text)
    kernel = 'extern "C" __global__ void gemm_kernel({{ signature.in_kernel("float") }}) {}\n'
    (own / "on_cpu.cu.jinja").write_text(kernel)
    family = load_family(own)
    configs = family.seeds
    problem = kind.example(PROBLEM)
    assert problem is not None
    variants = tuple(
        Variant(number, family, config, problem, "any size")
        for number, config in enumerate(configs)
    )
    tuned = ((64, 64, 64, 4), (64, 64, 64, 4096), (512, 64, 64, 64))
    rule = Nearest(tuned, (0, 1, 0))
    part = Part(*(DType.F32, rule, configs, variants, (0, 1), tuned, (0, 1, 0), ()), kind=kind)
    files = write_library(folder, (), (part,))
    return part, as_cpp(files[stacked_name(DType.F32, kind)])


def faults(folder: Path, part: Part, text: str, name: str) -> list[str]:
    """Where the choice in C is not that in Python, or the workspace not that of the choice."""
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    flags = ("-std=c++17", "-w", "-shared", "-fPIC", f"-I{SHIM}", f"-I{folder}")
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    functions = ctypes.CDLL(str(library))
    function = f"autogemm_sgemm{part.kind.suffix}"
    choice, needed = (
        getattr(functions, f"{function}_{one}") for one in ("choice", "workspace_bytes")
    )
    choice.argtypes = [
        *[ctypes.c_int] * 4,
        *[ctypes.c_void_p, ctypes.c_int] * 3,
        *(ctypes.c_int, ctypes.c_size_t),
    ]
    needed.restype = ctypes.c_size_t
    found = []
    for m in (64, 256, 1000):
        for count in (1, 4, 8, 100, 128, 129, 4096, 60_000):
            best = part.rule.ranked((m, 64, 64, count))[0]
            workspace = 256 * count if best else 0
            of_c = needed(0, m, 64, 64, 64, 64, 64, count)
            arguments = (0, m, 64, 64, None, 64, None, 64, None, 64, count)
            by_room = [choice(*arguments, room) for room in (workspace, 0)]
            if of_c != workspace or by_room != [best, 0]:
                found.append(f"M={m} count={count}: {by_room} with {of_c} bytes, not {best}")
    return found


@needs_gpp
@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.GROUPED], ids=lambda kind: kind.word)
def test_the_kernel_and_its_workspace_are_chosen_by_the_number_of_products(
    tmp_path: Path, kind: Kind
) -> None:
    part, text = chosen_by_count(tmp_path, kind)
    assert faults(tmp_path, part, text, "right") == []
    for number, (good, bad) in enumerate(
        (
            # The number is left out of the choice; the workspace is that of another kernel.
            (f"call.K, call.{kind.counted}), workspace", "call.K, 1), workspace"),
            ("0 : VARIANTS[kernel].workspace_bytes(call)", "0 : VARIANTS[0].workspace_bytes(call)"),
        )
    ):
        assert text.count(good) == 1, good
        assert faults(tmp_path, part, text.replace(good, bad), f"planted_{number}") != []


def test_a_kernel_is_not_chosen_for_more_products_than_a_grid_has() -> None:
    family = load_family("gemm_mma")
    legal = NearestLegal((family,), H100)
    config, dtype, kind = family.seeds[0], DType.BF16, Kind.BATCH
    variants = variants_of(config, 0, (Layout.NN,), legal, dtype, kind=kind)
    tuned = ((256, 256, 256, 8),)
    part = Part(dtype, Tree(Leaf(0)), (config,), variants, (0,), tuned, (0,), (), kind=kind)
    text = export_library(Library(H100, (), stacked=(part,)), WRITTEN)["batched_bf16.cu"]
    meant = re.search(r"bool is_meant\(.*?\n}\n", text, re.S)
    assert meant is not None
    assert "long long K, long long batch)" in meant[0]
    assert "batch <= 65535" in meant[0]


def test_the_command_writes_what_was_tuned_for_batches_and_groups(tmp_path: Path) -> None:
    """Each tuned problem has its own winner, whatever other results there are."""
    simt, mma = load_family("sgemm_simt"), load_family("gemm_mma")
    square = Problem(512, 512, 512)
    groups = Problem(4096, 1024, 512, Layout.NT, DType.BF16, groups=Groups(8))
    problems = {
        replace(square, batch=Batch(512)): simt.seeds[0],
        replace(square, batch=Batch(16, 0)): simt.seeds[1],
        replace(groups, dtype=DType.F16): mma.seeds[1],
        groups: mma.seeds[0],
        replace(groups, groups=Groups(8, masked=True)): mma.seeds[1],
        Problem(1024, 512, 4096, Layout.TN, DType.BF16, groups=Groups(8)): mma.seeds[0],
    }
    winners = {}
    with open_store(str(tmp_path / "a.db")) as store:
        for problem, seed in problems.items():
            family = simt if problem.dtype is DType.F32 else mma
            config = nearest_legal(family, seed, problem, H100)
            assert config is not None
            winners[problem] = config
            add_run(store, replace(SPEC, problem=problem), render(family, config, problem))
        rows = store.decided()
    library = assembled(rows, default_families(), H100)
    assert library.parts == ()
    assert {part.label: part.tuned for part in library.stacked} == {
        "f32, batches": ((512, 512, 512, 16), (512, 512, 512, 512)),
        "f16, groups": ((4096, 1024, 512, 8),),
        "bf16, groups": ((4096, 1024, 512, 8),),
        "bf16, masked groups": ((4096, 1024, 512, 8),),
        "bf16, groups of K": ((1024, 512, 4096, 8),),
    }
    for problem, winner in winners.items():
        kind = Kind.of(problem)
        part = next(
            one for one in library.stacked if (one.dtype, one.kind) == (problem.dtype, kind)
        )
        extents = (problem.m, problem.n, problem.k, *kind.count(problem))
        number = part.best_at[part.tuned.index(extents)]
        assert number is not None
        assert part.configs[number] == winner
        texts = [render(one.family, one.config, one.problem).text for one in part.variants]
        assert render(part.variants[0].family, winner, problem).text in texts
    out = tmp_path / "out"
    place = ["--library", str(out), "--db", str(tmp_path / "a.db")]
    result = CliRunner().invoke(main, ["export", *place])
    assert result.exit_code == 0, result.output
    assert re.search(r"f32, batches: \d+ kernels of 2 configs; rule: nearest of 2", result.output)
    assert "rules for batches and groups are not judged" in " ".join(result.output.split())
    cmake = (out / "CMakeLists.txt").read_text()
    names = ("batched_f32", "grouped_f16", "grouped_bf16", "masked_bf16", "grouped_tn_bf16")
    assert "    fallbacks.cu\n" + "".join(f"    {name}.cu\n" for name in names) in cmake
    fallbacks = (out / FALLBACKS).read_text()
    assert "autogemm_sgemm_batched(" not in fallbacks
    assert "autogemm_gemm_bf16_batched(" in fallbacks
    # A kind without kernels in that layout has the fallback.
    one = CliRunner().invoke(main, ["export", *place, "--layout", "nn"])
    assert one.exit_code == 0, one.output
    assert "f32, batches" in one.output
    assert "groups of K" not in one.output
    assert "autogemm_gemm_bf16_grouped_tn(" in (out / FALLBACKS).read_text()
    few = CliRunner().invoke(main, ["export", *place, "--batch", "8"])
    assert (few.exit_code, few.stderr.count("\n")) == (2, 1)
    assert "leave out --batch" in few.stderr


def test_kinds_of_problems() -> None:
    batch, groups = Batch(3), Groups(4)
    assert Kind.of(PROBLEM) is Kind.ONE
    assert Kind.of(replace(PROBLEM, batch=batch)) is Kind.BATCH
    assert Kind.of(replace(PROBLEM, groups=groups)) is Kind.GROUPED
    assert Kind.of(replace(PROBLEM, groups=replace(groups, masked=True))) is Kind.MASKED
    divided = replace(PROBLEM, layout=Layout.TN, groups=groups)
    assert Kind.of(divided) is Kind.GROUPED_TN
    assert Kind.of(replace(divided, groups=replace(groups, masked=True))) is Kind.MASKED_TN
    for kind in Kind:
        examples = [kind.example(Problem(61, 64, 61, layout)) for layout in Layout]
        found = [one for one in examples if one is not None]
        assert {Kind.of(one) for one in found} == {kind}
        assert len(found) == (1 if kind.divides_k else 2 if kind.is_grouped else 4)


CALLS = """
#include <autogemm.h>
#include <stdio.h>

int main(void) {
    const autogemm_bf16* const some = (const autogemm_bf16*)256;
    autogemm_bf16* const c = (autogemm_bf16*)256;
    const cudaError_t refused[] = {
        autogemm_gemm_bf16_batched(AUTOGEMM_NN, 8, 8, 8, 1, some, 8, some, 8, 0, c, 8, 2, 8, 0, 0,
                                   NULL, 0, NULL),
        autogemm_gemm_bf16_grouped(AUTOGEMM_NT, 8, 8, 8, 1, some, 8, some, 8, 0, c, 8, 2, NULL,
                                   NULL, 0, NULL),
        autogemm_gemm_bf16_masked(AUTOGEMM_TN, 8, 8, 8, 1, some, 8, some, 8, 0, c, 8, 2,
                                  (const int*)256, NULL, 0, NULL),
    };
    for (int i = 0; i < 3; ++i) {
        if (refused[i] != cudaErrorInvalidValue) return 1;
    }
    const size_t room = (size_t)1 << 40;
    printf("%s\\n", autogemm_gemm_bf16_batched_kernel_name(autogemm_gemm_bf16_batched_choice(
                       AUTOGEMM_NN, 4096, 4096, 4096, some, 4096, some, 4096, c, 4096, 8, room)));
    printf("%s\\n", autogemm_gemm_bf16_grouped_kernel_name(autogemm_gemm_bf16_grouped_choice(
                       AUTOGEMM_NT, 4000, 4096, 4096, some, 4096, some, 4096, c, 4096, 8, room)));
    printf("%s\\n", autogemm_gemm_bf16_masked_kernel_name(autogemm_gemm_bf16_masked_choice(
                       AUTOGEMM_NT, 4096, 4096, 4096, some, 4096, some, 4096, c, 4096, 8, room)));
    printf("%s\\n", autogemm_gemm_bf16_masked_tn_kernel_name(autogemm_gemm_bf16_masked_tn_choice(
                       AUTOGEMM_TN, 4096, 4096, 4096, some, 4096, some, 4096, c, 4096, 8, room)));
    return 0;
}
"""


@pytest.mark.compile
@pytest.mark.skipif(
    not all(map(shutil.which, ("nvcc", "gcc"))), reason="nvcc or gcc is not installed"
)
@pytest.mark.thorough  # nvcc takes 40 s
def test_a_program_in_c_calls_compiled_kernels_of_batches_and_groups(tmp_path: Path) -> None:
    """The calls launch nothing: they need no GPU. The self-tests compile as well."""
    stacked = []
    for kind, family_name, layout in (
        (Kind.BATCH, "gemm_mma", Layout.NN),
        (Kind.GROUPED, "gemm_wgmma", Layout.NT),
        (Kind.MASKED, "gemm_mma", Layout.NT),
        (Kind.GROUPED_TN, "gemm_mma", Layout.TN),
        (Kind.MASKED_TN, "gemm_mma", Layout.TN),
    ):
        family = load_family(family_name)
        legal = NearestLegal((family,), H100)
        config = family.seeds[0]
        # More of them only take longer.
        variants = variants_of(config, 0, (layout,), legal, DType.BF16, kind=kind)[:1]
        tuned = ((256, 256, 256, 8),)
        stacked.append(
            Part(
                *(DType.BF16, Tree(Leaf(0)), (config,), variants, (0,), tuned, (0,), (), layout),
                kind=kind,
            )
        )
    files = export_library(Library(H100, (), stacked=tuple(stacked)), WRITTEN)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "calls.c").write_text(CALLS)
    nvcc = [
        "nvcc",
        "-O0",
        "-Xptxas",
        "-O0",
        "-std=c++17",
        "-gencode",
        "arch=compute_90a,code=sm_90a",
    ]
    objects = []
    for kind in STACKED:
        for name in (stacked_name(DType.BF16, kind), f"selftest{kind.suffix}.cu"):
            objects.append(f"{Path(name).stem}.o")
            command = [*nvcc, "-c", name, "-o", objects[-1]]
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
    kernels = [one for one in objects if "selftest" not in one]
    for command in (
        ["nvcc", "-x", "c", "-I.", "-c", "calls.c", "-o", "calls.o"],
        ["nvcc", "calls.o", *kernels, "-o", "calls"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "calls"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        f"config 0 {layout}, no edges" for layout in ("nn", "nt", "nt", "tn")
    ]


def test_a_rule_of_a_library_counts_the_kernels_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three winners the second is in no leaf: the third becomes the second of the library."""
    simt = load_family("sgemm_simt")
    problems = [Problem(512, 512, 512), Problem(1024, 1024, 1024), Problem(2048, 2048, 2048)]
    with open_store(str(tmp_path / "a.db")) as store:
        for problem, seed in zip(problems, simt.seeds[:3], strict=True):
            config = nearest_legal(simt, seed, problem, H100)
            assert config is not None
            add_run(store, replace(SPEC, problem=problem), render(simt, config, problem))
        rows = store.decided()
    tree = Tree(Split("M", 600, Leaf(2), Split("K", 64, Leaf(0), Leaf(2))))
    monkeypatch.setattr(
        "autogemm.dispatch.assembling.learn", lambda table, num_sms: Learned(tree, {})
    )
    (part,) = assembled(rows, default_families(), H100).parts
    assert len(part.configs) == 2
    assert part.rule == Tree(Split("M", 600, Leaf(1), Split("K", 64, Leaf(0), Leaf(1))))

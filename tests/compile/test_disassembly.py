"""The main loop of really compiled kernels, by nvdisasm."""

from dataclasses import replace

import pytest
from golden_cases import GOLDEN_CASES, GoldenCase
from hopper import PROBLEMS, tiny_wgmma

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.compile.disassembly import code_sizes, disassemble, find_nvdisasm, main_loop
from autogemm.space import load_family
from autogemm.support.errors import AutogemmError, CompilerMissingError

pytestmark = pytest.mark.compile

needs_nvdisasm = pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed")


def case(name: str, family: str = "sgemm_simt") -> GoldenCase:
    return next(one for one in GOLDEN_CASES if (one.name, one.family) == (name, family))


def cubin_of(golden: GoldenCase, compiler: Compiler) -> bytes:
    source = render(load_family(golden.family), golden.config, golden.problem)
    return compiler.compile(source, "sm_90").cubin


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(cache_dir=tmp_path_factory.mktemp("cache"))


@needs_nvdisasm
@pytest.mark.parametrize("name", ["pipeline", "double_buffer", "pipeline_sliced"])
def test_the_main_loop_has_the_multiply_adds_of_one_k_tile(compiler: Compiler, name: str) -> None:
    golden = case(name)
    config = golden.config.as_dict()
    mix = main_loop(disassemble(cubin_of(golden, compiler)), "gemm_kernel")
    assert mix is not None
    depth = config["BK"] // config["SLICE_K"]
    assert mix.ffma == depth * config["TM"] * config["TN"]
    # One 128-bit load brings four floats of a fragment. ptxas may load some again rather than keep
    # them: 17 for 16 on one machine of many, with the same release and source.
    least = depth * (config["TM"] + config["TN"]) // 4
    assert least <= mix.shared_loads <= least + least // 8
    assert mix.local == 0
    kinds = ("ffma", "tensor", "shared_loads", "global_loads", "shared_stores", "local", "integer")
    counted = sum(getattr(mix, kind) for kind in (*kinds, "control", "other"))
    assert counted == mix.instructions
    assert mix.instructions_per_ffma == pytest.approx(mix.instructions / mix.ffma)


@needs_nvdisasm
@pytest.mark.parametrize(
    ("name", "family"),
    [("double_buffer_chains", "sgemm_simt"), ("half_warps_chains", "sgemm_skinny")],
)
def test_the_end_of_a_chain_is_no_part_of_the_main_loop(
    compiler: Compiler, name: str, family: str
) -> None:
    golden = case(name, family)
    without = replace(golden, changes=golden.changes | {"CHAIN_K": 0})
    chained, plain = (
        main_loop(disassemble(cubin_of(one, compiler)), "gemm_kernel") for one in (golden, without)
    )
    assert chained is not None
    assert plain is not None
    assert (chained.ffma, chained.shared_stores) == (plain.ffma, plain.shared_stores)
    assert chained.local == plain.local == 0
    assert chained.instructions <= 1.05 * plain.instructions


@needs_nvdisasm
def test_the_main_loop_of_tensor_cores_has_their_products(compiler: Compiler) -> None:
    family = tiny_wgmma()
    warpgroup = compiler.compile(render(family, family.seeds[0], PROBLEMS[0]), "sm_90")
    mix = main_loop(disassemble(warpgroup.cubin), "gemm_kernel")
    assert mix is not None
    # Four products of a k_tile, of which one box of each operand is copied.
    assert (mix.tensor, mix.ffma, mix.global_loads) == (4, 0, 2)
    # Its loop over tiles has the same products, and 128 FFMA where it stores.
    walking = main_loop(disassemble(cubin_of(case("bf16", "gemm_wgmma"), compiler)), "gemm_kernel")
    assert walking is not None
    assert (walking.tensor, walking.ffma) == (4, 0)
    golden = case("bf16", "gemm_mma")
    values = golden.config.as_dict()
    mix = main_loop(disassemble(cubin_of(golden, compiler)), "gemm_kernel")
    assert mix is not None
    assert mix.tensor == values["WM"] // 16 * values["WN"] // 8 * values["BK"] // 16


@needs_nvdisasm
@pytest.mark.parametrize(
    ("name", "products", "scaled"),
    [
        ("e4m3", 4, 0),
        ("i8", 4, 0),
        # Two row tiles, and two k tiles.
        ("e4m3_block_scales", 8, 128),
        ("e4m3_block_scales_alternating", 8, 128),
    ],
)
def test_the_main_loop_of_8_bits_has_their_products(
    compiler: Compiler, name: str, products: int, scaled: int
) -> None:
    mix = main_loop(disassemble(cubin_of(case(name, "gemm_wgmma"), compiler)), "gemm_kernel")
    assert mix is not None
    assert (mix.tensor, mix.ffma) == (products, scaled)


@needs_nvdisasm
def test_boxes_are_written_within_the_loop_over_k_tiles(compiler: Compiler) -> None:
    overlapped = case("bf16_overlapped", "gemm_wgmma")
    after = replace(overlapped, changes=overlapped.changes | {"EPILOGUE": "after"})
    loops = [
        main_loop(disassemble(cubin_of(each, compiler)), "gemm_kernel")
        for each in (overlapped, after)
    ]
    assert loops[0] is not None
    assert loops[1] is not None
    assert loops[0].tensor == loops[1].tensor == 4
    # stmatrix, four to a box.
    assert (loops[0].shared_stores, loops[1].shared_stores) == (4, 0)
    assert loops[0].local == 0


@needs_nvdisasm
def test_a_pipeline_copies_inside_the_loop_and_a_double_buffer_stores(compiler: Compiler) -> None:
    pipeline = main_loop(disassemble(cubin_of(case("pipeline"), compiler)), "gemm_kernel")
    buffered = main_loop(disassemble(cubin_of(case("double_buffer"), compiler)), "gemm_kernel")
    assert pipeline is not None
    assert buffered is not None
    assert pipeline.global_loads > 0
    assert pipeline.shared_stores == 0
    assert buffered.shared_stores > 0


@needs_nvdisasm
def test_what_is_no_cubin_is_one_clear_error() -> None:
    with pytest.raises(AutogemmError, match="does not understand"):
        disassemble(b"no cubin")


def test_a_missing_nvdisasm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogemm.compile.disassembly.find_nvdisasm", lambda: None)
    with pytest.raises(CompilerMissingError, match="pip install"):
        disassemble(b"")


def test_code_size_is_that_of_the_text_section(compiler: Compiler) -> None:
    golden = case("pipeline")
    size_bytes = code_sizes(cubin_of(golden, compiler))["gemm_kernel"]
    # 16 bytes an instruction: at least the loop's multiply-adds, and a whole number of them.
    assert size_bytes > 16 * 16 * 64
    assert size_bytes % 16 == 0

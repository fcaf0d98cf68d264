"""Every rung is there, and is a legal config of its family."""

import pytest

from autogemm.bench.kernels import NotForThisError, kernels_of, named_kernels, render_named
from autogemm.catalogue.gpus import find_device
from autogemm.catalogue.ladder import Rung, find_rung, libraries, rungs
from autogemm.catalogue.presets import preset
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, load_family
from autogemm.space.family import Searched
from autogemm.support.errors import NotFoundError

ALL = rungs(variants=True)

# Libraries beside the ladder.
BESIDE = (
    *("cublas_bf16_f32", "cublas_f16_f32", "triton_tf32x3"),
    # No kernel of the ladder takes 8 bits.
    *("cublas_e4m3", "cublas_e4m3_f16", "cublas_e4m3_f32"),
    *("cublas_e5m2", "cublas_e5m2_f16", "cublas_e5m2_f32"),
    *("cublas_e4m3xe5m2", "cublas_e4m3xe5m2_f16", "cublas_e4m3xe5m2_f32"),
    *("cublas_e5m2xe4m3", "cublas_e5m2xe4m3_f16", "cublas_e5m2xe4m3_f32"),
    *("cublas_e4m3_e4m3", "cublas_e5m2_e5m2", "cublas_bf16_e4m3"),
    *("cublas_i8", "cublas_i8_bf16", "cublas_i8_f16", "cublas_i8_f32", "torch_e4m3"),
)


def config_of(rung: Rung) -> Config:
    family = load_family(rung.family)
    return Config.of(family.name, family.seeds[0].as_dict() | dict(rung.values))


def by_name(rung: Rung) -> str:
    return rung.name


def test_the_ladder_has_every_kernel_that_people_write_by_hand() -> None:
    assert [rung.name for rung in rungs()] == [
        *("naive_uncoalesced", "naive", "unrolled", "coarsened"),
        *("tiled", "tiled_double_buffered", "padded_prefetch", "privatized"),
        *("register_blocked_uncoalesced", "register_blocked", "register_blocked_double_buffered"),
        *("block_tiled_1d", "block_tiled_2d", "vectorized", "warp_tiled", "pipelined"),
    ]
    of_libraries = {one.name for one in libraries()}
    for origin in ("cublas", "torch", "triton", "cutlass"):
        assert {f"{origin}_{dtype}" for dtype in ("f32", "bf16", "f16")} < of_libraries


def test_the_ladder_is_shown_from_small_to_large_and_for_a_rectangle() -> None:
    squares = [(edge, edge, edge) for edge in (128, 256, 512, 1024, 2048, 4096, 8192)]
    assert preset("ladder") == [*squares, (4096, 256, 1024)]


@pytest.mark.parametrize("rung", ALL, ids=by_name)
@pytest.mark.parametrize("size", ["1024", "4096", "1000", "4096x256x1024"])
def test_every_rung_is_legal_on_any_gpu(rung: Rung, size: str) -> None:
    config, problem = config_of(rung), Problem.of_size(size)
    # cp.async begins with Ampere, and no earlier GPU has room for the last rung's k_tiles. Where
    # rows are not aligned it has no vectors to load.
    gpus = ("a100", "h100") if rung.name == "pipelined" else ("t4", "rtx3060ti", "h100")
    for gpu in gpus:
        assert broken_constraints(load_family(rung.family), config, problem, find_device(gpu)) == []


@pytest.mark.parametrize("rung", rungs(), ids=by_name)
def test_configs_name_parameters_of_their_family(rung: Rung) -> None:
    family = load_family(rung.family)
    parameters = [one.name for one in family.parameters]
    named = [name for name, _ in rung.values]
    assert set(named) <= set(parameters)
    if family.searched is Searched.BY_NAME:
        # Values that a seed of the family fills in would change with the seed.
        assert named == parameters


def test_no_two_rungs_are_the_same_kernel() -> None:
    problem = Problem.of_size("4096")
    texts = {render(load_family(one.family), config_of(one), problem).sha256 for one in ALL}
    assert len(texts) == len(ALL)


def test_a_variant_says_what_it_changes() -> None:
    variant = find_rung("coarsened_8")
    assert (variant.variant_of, dict(variant.values)["TN"]) == ("coarsened", 8)
    assert variant.summary == "coarsened with BN=128 TN=8"
    assert variant not in rungs()


def test_teaching_families_are_searched_by_name_only() -> None:
    families = {rung.family for rung in rungs()} - {"sgemm_simt"}
    assert families == {"naive", "tiled", "register_blocked", "block_tiled"}
    assert all(load_family(name).searched is Searched.BY_NAME for name in families)


def test_published_figures_are_shares_of_cublas() -> None:
    shares = {rung.name: rung.published_percent for rung in rungs() if rung.published_percent}
    assert shares["naive"] == pytest.approx(100 * 377 / 1614, abs=0.1)
    assert shares["register_blocked"] == pytest.approx(100 * 1108 / 1614, abs=0.1)
    assert shares["block_tiled_2d"] == pytest.approx(100 * 1989.6 / 1798.9, abs=0.1)


def test_names_of_kernels_and_groups() -> None:
    names = [
        one.name for one in named_kernels(("tiled", "rungs", "kernel:12", "winner", "cublas_f32"))
    ]
    assert names[0] == "tiled"
    assert len(names) == len(set(names)) == len(rungs()) + 3
    assert [one.name for one in named_kernels(kernels_of("ladder"))] == [
        *(rung.name for rung in ALL),
        "winner",
        *(one.name for one in libraries() if one.name not in BESIDE),
    ]
    assert set(BESIDE) < {one.name for one in libraries()}
    assert kernels_of(None) == ("naive", "pipelined", "winner", "cublas_f32")
    for name in (None, "ladder"):
        assert kernels_of(name, DType.BF16_F32) == ("winner", "cublas_bf16_f32")
    with pytest.raises(NotFoundError, match=r"no kernel 'tild'.*--list"):
        named_kernels(("tild",))


def test_a_rung_that_is_not_made_for_a_problem_says_why() -> None:
    (pipelined,) = named_kernels(("pipelined",))
    with pytest.raises(NotForThisError, match=r"cp\.async"):
        render_named(pipelined, Problem.of_size("4096"), find_device("t4"), None)
    (tiled,) = named_kernels(("tiled",))
    ready = render_named(tiled, Problem(100, 60, 70, layout=Layout.TT), find_device("t4"), None)
    assert ready.plan.launches[0].grid == (8, 1, 1)

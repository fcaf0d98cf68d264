"""Seeds in a file of their own, beside the family's YAML."""

from dataclasses import replace
from pathlib import Path

import pytest
from space_families import SEEDS, SMALL, write_family
from store_samples import H100

from autogemm.model.batch import Batch
from autogemm.model.problem import Problem
from autogemm.space import Family, build_space, list_families, load_family, seeds_path
from autogemm.support.errors import FamilyError
from autogemm.support.resources import data_folder

WITHOUT = SMALL[: SMALL.index("seeds:")]


def write_seeds(folder: Path, seeds: str = SEEDS, yaml: str = WITHOUT) -> Family:
    write_family(folder, yaml)
    (folder / "seeds").mkdir(exist_ok=True)
    (folder / "seeds" / "mine.yaml").write_text(seeds)
    return load_family(folder)


def test_they_are_those_of_the_yaml_in_the_same_order(tmp_path: Path) -> None:
    inline = load_family(write_family(tmp_path / "inline"))
    family = write_seeds(tmp_path / "mine")
    assert family.seeds[:2] == inline.seeds
    assert len(family.seeds) == 3
    assert family.seed_origins == (*["H100; 512, 1024; few of them"] * 2, "")
    assert inline.seed_origins == ("", "")


SIZED = """
family: mine
seeds:
  - configs: [{BM: 64, WM: 64, STAGES: 1, ORDER: rows}]
  - problems: 8192, 16x4096x4096
    configs: [{BM: 16, WM: 16, STAGES: 1, ORDER: rows}]
  - problems: 1024
    configs: [{BM: 32, WM: 32, STAGES: 1, ORDER: rows}]
  - problems: "1023"
    configs: [{BM: 128, WM: 64, STAGES: 1, ORDER: rows}]
"""


@pytest.mark.parametrize(
    ("size", "heights"),
    [
        ("1024", [32, 128, 16, 64]),
        # Rows that vectors cannot load are like others of which they cannot.
        ("1027", [128, 32, 16, 64]),
        ("16x4096x2048", [16, 32, 128, 64]),
        ("8192", [16, 32, 128, 64]),
    ],
)
def test_those_of_near_sizes_are_first(tmp_path: Path, size: str, heights: list[int]) -> None:
    space = build_space(write_seeds(tmp_path / "mine", SIZED), Problem.of_size(size), H100)
    assert [space.config(index)["BM"] for index in space.seeds] == heights


BATCHED = """
family: mine
seeds:
  - problems: 64
    configs: [{BM: 64, WM: 64, STAGES: 1, ORDER: rows}]
  - problems: 4096
    configs: [{BM: 32, WM: 32, STAGES: 1, ORDER: rows}]
  - problems: 512 batch=4, 64 batch=500
    configs: [{BM: 16, WM: 16, STAGES: 1, ORDER: rows}]
"""


@pytest.mark.parametrize(("batch", "first"), [("", 64), ("512", 16)])
def test_those_of_batches_are_first_for_batches(tmp_path: Path, batch: str, first: int) -> None:
    problem = replace(Problem.of_size("64"), batch=Batch.parse(batch or "1"))
    family = write_seeds(tmp_path / "mine", BATCHED, WITHOUT.replace("grid: ", "grid: batch * "))
    space = build_space(family, problem, H100)
    assert space.config(space.seeds[0])["BM"] == first


EXPECTING = WITHOUT.replace(
    "launch:",
    "expected: {expected_time: slower * TIME, TIME: (128 - BM) * 10 + 320, slower: 2}\nlaunch:",
)


def test_the_others_come_by_the_times_that_are_expected(tmp_path: Path) -> None:
    family = write_seeds(tmp_path / "mine", SIZED, EXPECTING)
    space = build_space(family, Problem.of_size("1024"), H100)
    heights = [space.config(index)["BM"] for index in space.seeds]
    assert heights == [32, 128], "16 takes 4.5 times as long as 128, 64 three times"
    nearer = EXPECTING.replace("* 10", "")
    family = write_seeds(tmp_path / "mine", SIZED, nearer)
    space = build_space(family, Problem.of_size("1024"), H100)
    assert [space.config(index)["BM"] for index in space.seeds] == [32, 128, 64, 16]


def test_a_family_needs_none(tmp_path: Path) -> None:
    assert load_family(write_family(tmp_path / "mine", WITHOUT)).seeds == ()
    assert write_seeds(tmp_path / "mine", "{family: mine, seeds: []}").seeds == ()


def test_other_seeds_are_another_search_space(tmp_path: Path) -> None:
    one = write_seeds(tmp_path / "mine")
    other = write_seeds(tmp_path / "mine", SEEDS.replace("BM: 64", "BM: 128"))
    assert one.yaml_sha256 != other.yaml_sha256
    assert one.template_sha256 == other.template_sha256


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("BM: 64", "BM: 65", "seeds.2.configs.1.BM: 65 is not one of its values: 16 32 64 128"),
        ("BM: 64,", "", "seeds.2.configs.1.BM: a seed names every parameter"),
        ("BM: 64", "BN: 64", "seeds.2.configs.1: no parameter is named 'BN'; did you mean 'BM'"),
        ("BM: 64", "BM: 1.5", "seeds.2.configs.1.BM: write an integer or a string"),
        ("family: mine", "family: other", "family: these are seeds of mine, got 'other'"),
        ("512, 1024", "512 and more", "seeds.1.problems: a size is one positive integer"),
        ("512, 1024", "512 batch=0", "seeds.1.problems: a batch has 1 to 2147483647 products"),
        ("512, 1024", "512 batch=many", "seeds.1.problems: batch='many' is no number; words go"),
        ("gpu: H100", "gpus: H100", "seeds.1.gpus: there is no such field; did you mean 'gpu'"),
        ("seeds:", "seed:", "seed: there is no such field; did you mean 'seeds'"),
        (SEEDS, "[]", "this file is a mapping with the fields family seeds"),
        (SEEDS, "", "this file is a mapping with the fields family seeds"),
        (SEEDS, "a: *b", "the alias *b is not allowed"),
        (SEEDS, "#" * 300_000, "may have 262144 bytes"),
    ],
)
def test_mistakes_are_named_with_the_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SEEDS
    with pytest.raises(FamilyError) as caught:
        write_seeds(tmp_path / "mine", SEEDS.replace(old, new))
    assert str(tmp_path / "mine" / "seeds" / "mine.yaml") in str(caught.value)
    assert message in str(caught.value)


def test_they_stand_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(FamilyError, match=r"seeds: there are some in .*seeds/mine\.yaml too"):
        write_seeds(tmp_path / "mine", yaml=SMALL)


def test_there_is_an_end_to_them(tmp_path: Path) -> None:
    seed = "      - {BM: 64, WM: 64, STAGES: 1, ORDER: rows}\n"
    assert len(write_seeds(tmp_path / "mine", SEEDS + 997 * seed).seeds) == 1000
    with pytest.raises(FamilyError, match="at most 1000 are allowed, there are 1001"):
        write_seeds(tmp_path / "mine", SEEDS + 998 * seed)


@pytest.mark.parametrize("name", list_families())
def test_search_spaces_that_ship_hold_no_results(name: str) -> None:
    path = data_folder("search_spaces") / f"{name}.yaml"
    assert "\nseeds:" not in path.read_text()
    assert seeds_path(path).is_file()
    assert load_family(name).seeds

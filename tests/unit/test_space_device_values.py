"""Values that follow from the GPU: written once, as expressions, and right on every one."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_target import PROBLEM, YAML, tiny_family, tiny_recording
from space_families import SMALL, write_family
from store_samples import SPEC

from autogemm.catalogue.gpus import find_device, known_devices
from autogemm.cli import main
from autogemm.formats import write_recording
from autogemm.insight.explain.neighbours import Place, legal_neighbours
from autogemm.model.config import Config, Value
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry, Provenance
from autogemm.space import Family, broken_constraints, build_space, fitted, load_family, parse_fix
from autogemm.store import DecidedRow
from autogemm.support.errors import FamilyError, RecordingError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning.loop.warm import warm_starts

SPEC_TIME = datetime(2026, 11, 1, tzinfo=UTC)
H100 = find_device("h100")
A100 = find_device("a100")
FIXED = ("TM", "TN", "WM", "WN", "GROUP_M", "FMA_ORDER", "LANE_MAP", "HANDOVER")
SQUARE = Problem(512, 512, 512)
WAVES = "  BLOCKS: {values: [0, device.num_sms, 2 * device.num_sms], doc: blocks}\nderive:"
MINE = SMALL.replace("derive:", WAVES).replace("ORDER: snake}", "ORDER: snake, BLOCKS: 132}")
MINE = MINE.replace("ORDER: rows}", "ORDER: rows, BLOCKS: 0}")


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return load_family(write_family(tmp_path / "mine", MINE))


def values_of(family: Family, name: str) -> tuple[Value, ...]:
    return {parameter.name: parameter.values for parameter in family.parameters}[name]


def config(family: Family, **changes: Value) -> Config:
    return Config.of(family.name, family.seeds[0].as_dict() | changes)


def test_a_space_has_the_values_of_its_gpu(family: Family) -> None:
    assert values_of(build_space(family, SQUARE, H100).family, "BLOCKS") == (0, 132, 264)
    assert values_of(build_space(family, SQUARE, A100).family, "BLOCKS") == (0, 108, 216)
    space = build_space(family, SQUARE, A100)
    assert {space.config(i)["BLOCKS"] for i in range(len(space))} == {0, 108, 216}
    without = build_space(load_family(write_family(family.yaml_path.parent)), SQUARE, A100)
    assert space.raw_count == 3 * without.raw_count


def test_equal_values_are_one(family: Family) -> None:
    yaml = MINE.replace("2 * device.num_sms", "device.num_sms // 1")
    same = load_family(write_family(family.yaml_path.parent, yaml))
    assert values_of(same.on(H100), "BLOCKS") == (0, 132)


def test_a_config_from_another_gpu_goes_to_the_closest_value(family: Family) -> None:
    space = build_space(family, SQUARE, A100)
    for blocks, closest in ((132, 108), (114, 108), (228, 216), (264, 216), (78, 108), (40, 0)):
        near = space.config(space.nearest(config(family, BLOCKS=blocks)))
        assert near == config(family, BLOCKS=closest)
    assert space.index(config(family, BLOCKS=132)) is None


def test_absolute_numbers_that_were_stored_stay_legal(family: Family) -> None:
    stored = config(family, BLOCKS=114)
    assert family.completed(stored) == stored
    assert broken_constraints(family, stored, SQUARE, H100) == []
    assert fitted(family, stored, SQUARE, H100) == stored
    entry = FinalsEntry("", stored, "", (1.0,), 1.0, 1.0, 1.0, tied=False, verification=None)
    finals = Finals((entry,), entry, 1, Provenance.MEASURED)
    row = DecidedRow(1, replace(SPEC, problem=SQUARE), finals, SPEC_TIME)
    (start,) = warm_starts([row], replace(SPEC, problem=PROBLEM), (family,), run_id=2)
    assert start.configs == (stored,)


def test_json_of_a_config_may_have_any_gpus_number(family: Family) -> None:
    def render(blocks: object) -> int:
        values = json.dumps(family.seeds[0].as_dict() | {"BLOCKS": blocks})
        place = ["--family", str(family.yaml_path), "--size", "512", "--gpu", "h100"]
        return CliRunner().invoke(main, ["render", *place, "--config", values]).exit_code

    assert [render(blocks) for blocks in (0, 114, 132)] == [0, 0, 0]
    assert [render(blocks) for blocks in (-1, 2**31, "132", True, 1.0)] == [2] * 5


def test_fix_takes_the_gpus_values_alone(family: Family) -> None:
    fix = parse_fix(family, ["BLOCKS=132,0,264"])
    assert fix == {"BLOCKS": (0, 132, 264)}
    assert values_of(build_space(family, SQUARE, H100, fix).family, "BLOCKS") == (0, 132, 264)
    space = build_space(family, SQUARE, H100, {"BLOCKS": (132,)})
    assert {space.config(i)["BLOCKS"] for i in range(len(space))} == {132}
    with pytest.raises(UsageError, match="BLOCKS has no value 114; its values: 0 132 264"):
        build_space(family, SQUARE, H100, {"BLOCKS": (114,)})
    with pytest.raises(UsageError, match=r"its values: 0 device\.num_sms 2 \* device\.num_sms"):
        parse_fix(family, ["BLOCKS=-1"])


def test_neighbours_of_a_config_have_the_gpus_values(family: Family) -> None:
    place = Place(family, SQUARE, H100)
    found = legal_neighbours(place, config(family))
    assert {other["BLOCKS"] for name, _, other in found if name == "BLOCKS"} == {0, 264}


def test_a_recording_holds_the_numbers_of_its_gpu(tmp_path: Path) -> None:
    yaml = YAML.replace("ECHO: {values: [0, 1]", "ECHO: {values: [0, device.num_sms // 132]")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.yaml").write_text(yaml)
    family = tiny_family(tmp_path / "tiny")
    path = tmp_path / "tiny-1024.json.gz"
    write_recording(tiny_recording(family), path)
    target = RecordedTarget(path)
    target.prepare(PROBLEM, MeasureOptions())
    assert target.restriction(family)["ECHO"] == (0, 1)
    target.device = replace(target.device, num_sms=2 * 132)
    assert target.restriction(family)["ECHO"] == (0,)
    other = yaml.replace("[0, device.num_sms // 132]", "[2 * device.num_sms]")
    (tmp_path / "tiny" / "tiny.yaml").write_text(other.replace("ECHO: 0", "ECHO: 5"))
    with pytest.raises(RecordingError, match="holds ECHO=0, which the family"):
        target.restriction(load_family(tmp_path / "tiny"))


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ("[0, device.num_sm]", "unknown name 'device.num_sm'"),
        ("[0, BM * device.num_sms]", "unknown name 'BM'"),
        ("[0, M * device.num_sms]", "unknown name 'M'"),
        ("[none, device.num_sms]", "unknown name 'none'"),
        ("[device.num_sms, device.num_sms]", "is there twice"),
        ("[device.num_sms], default: device.num_sms", "a text value is one word"),
        ("[device.num_sms], default: -1", "-1 is not one of its values: device.num_sms"),
    ],
)
def test_what_a_value_may_read(tmp_path: Path, values: str, rule: str) -> None:
    yaml = MINE.replace("[0, device.num_sms, 2 * device.num_sms]", values)
    with pytest.raises(FamilyError) as caught:
        load_family(write_family(tmp_path / "mine", yaml))
    assert "parameters.BLOCKS" in str(caught.value)
    assert rule in str(caught.value)


def test_a_value_that_is_too_large_on_a_gpu(tmp_path: Path) -> None:
    yaml = MINE.replace("2 * device.num_sms", "99999999 * device.num_sms")
    family = load_family(write_family(tmp_path / "mine", yaml))
    with pytest.raises(FamilyError, match="a value must fit 32 bits, is 13199999868"):
        build_space(family, SQUARE, H100)


@pytest.mark.parametrize("gpu", known_devices())
def test_families_that_ship_have_multiples_of_every_gpus_multiprocessors(gpu: str) -> None:
    device = find_device(gpu)
    multiples = tuple(count * device.num_sms for count in range(5))
    assert values_of(load_family("sgemm_simt").on(device), "STREAM_BLOCKS") == multiples
    assert values_of(load_family("sgemm_emulated_wgmma").on(device), "BLOCKS") == multiples[:2]
    # And as many as find a place in clusters of four and eight.
    blocks = (*multiples[:2], device.num_sms // 11 * 10)
    assert values_of(load_family("gemm_wgmma").on(device), "BLOCKS") == blocks


@pytest.mark.parametrize("gpu", ["h100", "a100", "t4"])
@pytest.mark.parametrize("size", [1024, 2048])
def test_the_same_configs_are_legal_as_when_all_gpus_numbers_are_listed(
    tmp_path: Path, gpu: str, size: int
) -> None:
    family = load_family("sgemm_simt")
    listed = listed_for_all_gpus(family, tmp_path)
    device = find_device(gpu)
    fix = {name: (family.seeds[20][name],) for name in FIXED}
    wanted, found = (
        build_space(one, Problem(size, size, size), device, fix) for one in (listed, family)
    )
    assert len(found) == len(wanted) > 400
    for i in range(len(found.parameters)):
        same = found.radix.values(found.keys, i) == wanted.radix.values(wanted.keys, i)
        assert same.all()
    assert found.raw_count < wanted.raw_count / 5


def listed_for_all_gpus(family: Family, folder: Path) -> Family:
    """The family with every GPU's numbers in one list, and a rule that picks those of one."""
    text = family.yaml_path.read_text()
    multiples = {count * find_device(gpu).num_sms for gpu in known_devices() for count in range(5)}
    values = re.compile(r"(STREAM_BLOCKS: \{values: )\[[^]]*\]")
    text, count = values.subn(rf"\g<1>{sorted(multiples)}", text)
    assert count == 1
    rule = "STREAM_BLOCKS % device.num_sms == 0 and STREAM_BLOCKS <= 4 * device.num_sms, because: x"
    text = text.replace("worth_trying:", f"worth_trying:\n  - {{require: {rule}}}")
    assert family.template_path is not None
    (folder / "sgemm_simt.yaml").write_text(text)
    (folder / "sgemm_simt.cu.jinja").write_text(family.template_path.read_text())
    return load_family(folder)

"""Parameters and values that have other names today keep what was stored under the old ones."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from export_samples import SPLIT_TEMPLATE, SPLIT_YAML, split_family, stored_kernel
from fake_target import BEST, PROBLEM, YAML, tiny_family, tiny_recording
from store_samples import H100, SPEC, VERIFIED, measurement, new_store

from autogemm.cli import main
from autogemm.codegen import render
from autogemm.codegen.export import export_cuda, extract_kernel
from autogemm.formats import write_recording
from autogemm.model.config import Config, Value
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry, Outcome, Provenance, Status
from autogemm.space import (
    Family,
    broken_constraints,
    launch_plan,
    load_family,
    nearest_legal,
    parse_fix,
    stages_of,
    tile_of,
)
from autogemm.store import DecidedRow, Store
from autogemm.support.errors import FamilyError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning.loop.warm import warm_starts

SMALL = Problem(64, 64, 64)
BEFORE_YAML = SPLIT_YAML.replace(
    "derive:",
    "  WALK: {values: [straight, back], doc: order of K}\n"
    "  OPERANDS: {values: [plain, swapped], doc: which operand has the rows}\n"
    "derive:",
).replace("VEC: 4}", "VEC: 4, WALK: back, OPERANDS: swapped}")
RENAMED = """
renamed:
  VEC: {to: VEC_A}
  WALK: {values: {back: serpentine}}
  OPERANDS: {to: SWAP_AB, values: {plain: 0, swapped: 1}}
"""
TODAY_YAML = (
    BEFORE_YAML.replace("VEC:", "VEC_A:")
    .replace("VEC if lda % VEC", "VEC_A if lda % VEC_A")
    .replace("[straight, back]", "[straight, serpentine]")
    .replace("WALK: back", "WALK: serpentine")
    .replace("OPERANDS: {values: [plain, swapped]", "SWAP_AB: {values: [0, 1]")
    .replace("OPERANDS: swapped", "SWAP_AB: 1")
)
OLD = Config.of(
    "split",
    {"BM": 16, "SPLIT": 4, "VEC": 4, "SCRATCH": 1, "WALK": "back", "OPERANDS": "swapped"},
)
TODAY = Config.of(
    "split",
    {"BM": 16, "SPLIT": 4, "VEC_A": 4, "SCRATCH": 1, "WALK": "serpentine", "SWAP_AB": 1},
)


def family_in(folder: Path, yaml: str) -> Family:
    split_family(folder, SPLIT_TEMPLATE)
    (folder / "split.yaml").write_text(yaml)
    return load_family(folder)


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return family_in(tmp_path / "split", TODAY_YAML + RENAMED)


@pytest.fixture
def before(tmp_path: Path) -> Family:
    return family_in(tmp_path / "before", BEFORE_YAML)


def test_a_config_of_before_has_todays_names_in_todays_order(family: Family) -> None:
    assert family.completed(OLD) == TODAY
    assert family.completed(TODAY) == TODAY
    turned_round = Config.of("split", dict(reversed(OLD.values)))
    assert family.completed(turned_round) == TODAY
    same = OLD.as_dict() | {"WALK": "straight", "OPERANDS": "plain"}
    assert family.completed(Config.of("split", same))["WALK"] == "straight"
    assert family.completed(Config.of("split", same))["SWAP_AB"] == 0


def test_a_parameter_by_two_names_is_no_config(family: Family) -> None:
    both = Config.of("split", OLD.as_dict() | {"VEC_A": 4})
    with pytest.raises(UsageError, match="VEC and VEC_A are one parameter of 'split'"):
        family.completed(both)


def test_without_the_entry_it_is_none_of_the_familys(tmp_path: Path) -> None:
    family = family_in(tmp_path / "split", TODAY_YAML)
    with pytest.raises(UsageError, match="is not a config of 'split'"):
        family.completed(OLD)


def test_it_is_rendered_launched_and_exported_like_todays(family: Family, before: Family) -> None:
    template = SPLIT_TEMPLATE + "// {{ config.WALK }} {{ config.SWAP_AB }}\n"
    (family.yaml_path.parent / "split.cu.jinja").write_text(template)
    family = load_family(family.yaml_path)
    assert render(family, OLD, SMALL).text == render(family, TODAY, SMALL).text
    assert "// serpentine 1" in render(family, OLD, SMALL).text
    assert launch_plan(family, OLD, SMALL) == launch_plan(family, TODAY, SMALL)
    assert broken_constraints(family, OLD, SMALL, H100) == []
    assert nearest_legal(family, OLD, SMALL, H100) == TODAY
    old, today = (
        export_cuda(stored_kernel(family, SMALL, config), family, "a.cu", date(2026, 1, 1))
        for config in (OLD, TODAY)
    )
    behind = "// autogemm:kernel:begin"
    assert old.partition(behind)[2] == today.partition(behind)[2]


def test_tile_and_stages_are_known_by_their_new_names(tmp_path: Path) -> None:
    yaml = TODAY_YAML.replace("SPLIT", "STAGES").replace("BM", "BK")
    yaml += "\nrenamed: {DEPTH: {to: BK}, SLOTS: {to: STAGES}}\n"
    family = family_in(tmp_path / "split", yaml)
    values: dict[str, Value] = {
        "DEPTH": 16,
        "SLOTS": 4,
        "VEC_A": 4,
        "SCRATCH": 1,
        "WALK": "serpentine",
        "SWAP_AB": 1,
    }
    old = Config.of("split", values)
    assert stages_of(family, old) == 4
    assert tile_of(family, old, H100, SMALL.dtype)[2] == 16


def test_a_search_starts_from_it(family: Family) -> None:
    entry = FinalsEntry("", OLD, "", (1.0,), 1.0, 1.0, 1.0, tied=False, verification=None)
    finals = Finals((entry,), entry, 1, Provenance.MEASURED)
    spec = replace(SPEC, problem=Problem(32, 64, 64))
    row = DecidedRow(1, spec, finals, datetime(2026, 11, 1, tzinfo=UTC))
    (start,) = warm_starts([row], replace(SPEC, problem=SMALL), (family,), run_id=2)
    assert start.configs == (TODAY,)


def stored(folder: Path, family: Family) -> Store:
    """A database with one run, whose winner is OLD."""
    store = new_store(folder)
    spec = replace(SPEC, problem=SMALL, families=("split",))
    source = render(family, OLD, SMALL)
    run_id = store.begin_run(spec)
    taken = measurement(100.0)
    outcome = Outcome(OLD, Status.OK, "", source.sha256, verification=VERIFIED, measurement=taken)
    store.record_trial(run_id, 0, outcome, source)
    entry = FinalsEntry("winner", OLD, source.sha256, (99.0,), 1.02, 1.01, 1.03, False)
    baseline = FinalsEntry("cuBLAS", None, "", (101.0,), 1.0, 1.0, 1.0, False)
    store.record_finals(run_id, Finals((entry,), baseline, 1, spec.provenance), {})
    return store


def autogemm(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_a_stored_winner_is_listed_as_stored_and_exported_by_todays_family(
    family: Family, before: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stored(tmp_path, before) as store:
        (kernel,) = store.best()
        text = store.stored_kernel(kernel.kernel_id or 0).source.text
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    best = autogemm("db", "best", "--json")
    assert best.exit_code == 0, best.output
    (row,) = json.loads(best.stdout)
    assert row["config"] == OLD.as_dict()
    out = tmp_path / "kernel.cu"
    arguments = (out, "--family", family.yaml_path, "--no-verify")
    exported = autogemm("export", "--size", "64", *arguments)
    assert exported.exit_code == 0, exported.output
    assert extract_kernel(out.read_text()) == text


def test_a_recording_answers_for_todays_configs(tmp_path: Path) -> None:
    recording = tiny_recording(tiny_family(tmp_path / "tiny"))
    path = tmp_path / "tiny-1024.json.gz"
    write_recording(recording, path)
    yaml = YAML.replace("U: {values: [1, 4]", "UNROLL: {values: [one, four]").replace(
        "U: 1,", "UNROLL: one,"
    )
    template = (tmp_path / "tiny" / "tiny.cu.jinja").read_text()
    today = template.replace("{{ config.U }}", "{{ 4 if config.UNROLL == 'four' else 1 }}")
    (tmp_path / "tiny" / "tiny.cu.jinja").write_text(today)
    renamed = "\nrenamed: {U: {to: UNROLL, values: {1: one, 4: four}}}\n"
    (tmp_path / "tiny" / "tiny.yaml").write_text(yaml + renamed)
    family = load_family(tmp_path / "tiny")
    target = RecordedTarget(path)
    target.prepare(PROBLEM, MeasureOptions())
    assert target.restriction(family)["UNROLL"] == ("one", "four")
    values: dict[str, Value] = {"BM": BEST["BM"], "BN": BEST["BN"], "UNROLL": "four", "ECHO": 0}
    config = Config.of("tiny", values)
    source, plan = render(family, config, PROBLEM), launch_plan(family, config, PROBLEM)
    outcome = target.measure(Candidate(source, plan, None), None)
    assert (outcome.status, outcome.time_us) == (Status.OK, 90.0)
    assert outcome.config == config
    finals = target.finals([Candidate(source, plan, None)], 1, 0)
    assert finals.winner.config == config


def test_json_of_before_is_read(family: Family) -> None:
    def render_json(values: object) -> Result:
        place = ("--family", family.yaml_path, "--size", "64")
        return autogemm("render", *place, "--config", json.dumps(values))

    old, today = render_json(OLD.as_dict()), render_json(TODAY.as_dict())
    assert (old.exit_code, old.stdout) == (0, today.stdout), old.output
    odd = render_json(OLD.as_dict() | {"OPERANDS": True, "VEC": [4]})
    assert odd.exit_code == 2
    assert "SWAP_AB cannot be True" in odd.stderr
    assert "VEC_A cannot be [4]" in odd.stderr


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("VEC=1,4", "VEC=1,4 was renamed; write VEC_A=1,4"),
        ("OPERANDS=swapped", "OPERANDS=swapped was renamed; write SWAP_AB=1"),
        ("WALK=straight,back", "WALK=straight,back was renamed; write WALK=straight,serpentine"),
    ],
)
def test_fix_says_the_new_name(family: Family, text: str, instead: str) -> None:
    with pytest.raises(UsageError, match=f"^split: {instead}$"):
        parse_fix(family, [text])


def test_seeds_of_before_are_read(tmp_path: Path, before: Family) -> None:
    yaml = TODAY_YAML.replace("VEC_A: 4, WALK: serpentine, SWAP_AB: 1}", "VEC: 4, WALK: back}")
    yaml = yaml.replace("SWAP_AB: {values: [0, 1]", "SWAP_AB: {values: [0, 1], default: 1")
    family = family_in(tmp_path / "split", yaml + RENAMED)
    assert family.seeds == (TODAY,)
    assert before.seeds == (OLD,)


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ("VEC: {}", "say the new name"),
        ("VEC: {to: VEC_B}", "no parameter is named 'VEC_B'; did you mean 'VEC_A'"),
        ("VEC: {values: {1: 4}}", "no parameter is named 'VEC'; did you mean 'VEC_A'"),
        ("BM: {to: VEC_A}", "the name 'BM' is taken by a parameter"),
        ("VEC_A: {to: VEC_A}", "the name 'VEC_A' is taken by a parameter"),
        ("A: {to: VEC_A}", "the name 'A' is reserved"),
        ("STREAM: {to: VEC_A}", "STREAM is retired already"),
        ("VEC: {to: OLDER}, OLDER: {to: VEC_A}", "no parameter is named 'OLDER'"),
        ("WALK: {values: {straight: serpentine}}", "'straight' is a value of WALK today"),
        ("WALK: {values: {back: forth, forth: serpentine}}", "'forth' is not one of its values"),
        ("OPERANDS: {to: SWAP_AB, values: {plain: 2}}", "2 is not one of its values: 0 1"),
        ("OPERANDS: {into: SWAP_AB}", "there is no such field"),
    ],
)
def test_what_an_entry_may_say(tmp_path: Path, entry: str, rule: str) -> None:
    yaml = f"{TODAY_YAML}\nretired: {{STREAM: none}}\nrenamed: {{{entry}}}\n"
    with pytest.raises(FamilyError) as caught:
        family_in(tmp_path / "split", yaml)
    assert "renamed." in str(caught.value)
    assert rule in str(caught.value)


def test_two_old_names_may_be_one_parameter_today(tmp_path: Path) -> None:
    entries = "\nrenamed: {VEC: {to: VEC_A}, WIDTH: {to: VEC_A}}\n"
    family = family_in(tmp_path / "split", TODAY_YAML + entries)
    values = {name: value for name, value in TODAY if name != "VEC_A"}
    for name in ("VEC", "WIDTH"):
        assert family.completed(Config.of("split", values | {name: 4})) == TODAY

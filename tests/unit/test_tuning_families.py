"""Several families in one run: shared finals, what is stored, what is resumed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_target import (
    NUM_LEGAL,
    PROBLEM,
    TWIN_SLOWER_US,
    FakeCompiler,
    FakeTarget,
    tiny_family,
    tiny_recording,
    twin_family,
)
from test_tuning_resume import kill_at, measured, start, stored
from waiting import PATIENCE_S

import autogemm.space.loading
import autogemm.tuning.opening
import autogemm.tuning.task.options
import autogemm.tuning.tuner
from autogemm.cli import main
from autogemm.formats import write_recording
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Check, Verdict
from autogemm.model.results.outcome import Status
from autogemm.space import Family, Searched, default_families, list_families, load_family
from autogemm.store import BestQuery, Store, open_store
from autogemm.support.errors import EmptySpaceError, FamilyError, UsageError
from autogemm.targets import Chosen
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning import Certifier, Event, SearchStarted, TuneRequest, tune


@pytest.fixture
def families(tmp_path: Path) -> tuple[Family, Family]:
    return tiny_family(tmp_path / "tiny"), twin_family(tmp_path / "twin")


@pytest.fixture
def both(families: tuple[Family, Family], monkeypatch: pytest.MonkeyPatch) -> TuneRequest:
    return TuneRequest(PROBLEM, families, sampler="random", rounds=3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


def family_at(folder: Path, source: Family, name: str, **changes: str) -> Family:
    """A copy of a family under another name, with texts of its YAML replaced."""
    folder.mkdir()
    text = source.yaml_path.read_text().replace(f"family: {source.name}", f"family: {name}")
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (folder / f"{name}.yaml").write_text(text)
    (folder / f"{name}.cu.jinja").write_text(f"// {name}\n{source.template_path.read_text()}")
    return load_family(folder)


def test_all_configs_of_all_families_are_searched_and_share_the_finals(
    both: TuneRequest, store: Store
) -> None:
    target = FakeTarget()
    result = tune(both, target, FakeCompiler(), store)
    assert result.num_legal == result.num_trials == 2 * NUM_LEGAL
    assert [(one.name, one.num_legal) for one in result.families] == [
        ("tiny", NUM_LEGAL),
        ("twin", NUM_LEGAL),
    ]
    assert len(result.of_family("tiny")) == len(result.of_family("twin")) == NUM_LEGAL
    assert result.finals is not None
    times = [entry.time_us for entry in result.finals.entries]
    assert times == sorted(times)
    names = [entry.config.family for entry in result.finals.entries if entry.config]
    assert names[0] == "tiny"
    assert set(names) == {"tiny", "twin"}


def test_the_store_knows_which_family_each_trial_and_finalist_is_of(
    both: TuneRequest, store: Store
) -> None:
    result = tune(both, FakeTarget(), FakeCompiler(), store)
    assert sorted(map(repr, store.trials(result.run_id))) == sorted(map(repr, result.outcomes))
    row = store.run(result.run_id)
    assert row.spec.families == ("tiny", "twin")
    assert row.finals == result.finals
    (best,) = store.best()
    assert (best.family, best.time_us) == ("tiny", 90.0)
    (best_twin,) = store.best(BestQuery(family="twin"))
    assert (best_twin.family, best_twin.time_us) == ("twin", 90.0 + TWIN_SLOWER_US)
    assert best_twin.config.family == "twin"
    assert store.stored_kernel(BestQuery(family="twin")).source.family == "twin"
    assert store.stored_kernel(BestQuery(run_id=result.run_id)).source.family == "tiny"
    assert {row.outcome.config.family for row in store.trial_rows(BestQuery(family="twin"))} == {
        "twin"
    }
    assert len(store.runs(BestQuery(family="twin"))) == 1
    assert store.runs(BestQuery(family="tin")) == []


def test_the_better_family_gets_most_trials(both: TuneRequest, store: Store) -> None:
    result = tune(
        replace(both, sampler="surrogate", trials=36), FakeTarget(), FakeCompiler(), store
    )
    assert len(result.of_family("tiny")) > len(result.of_family("twin")) >= 9


def test_a_family_without_a_legal_config_is_left_out(
    both: TuneRequest, store: Store, tmp_path: Path
) -> None:
    none = family_at(
        tmp_path / "none", both.families[0], "none", **{"BM * BN <= 2048": "BM * BN <= M - 1024"}
    )
    events: list[Event] = []
    request = replace(both, families=(none, *both.families))
    result = tune(request, FakeTarget(), FakeCompiler(), store, events.append)
    (started,) = [event for event in events if isinstance(event, SearchStarted)]
    assert started.left_out == ("none",)
    assert [family.name for family in started.families] == ["tiny", "twin"]
    assert store.run(result.run_id).spec.families == ("tiny", "twin")
    with pytest.raises(EmptySpaceError, match="no config of none is legal"):
        tune(replace(both, families=(none,)), FakeTarget(), FakeCompiler(), store)
    # It fits a larger problem.
    larger = replace(request, problem=Problem(4096, 1024, 1024), trials=3)
    assert len(tune(larger, FakeTarget(), FakeCompiler(), store).families) == 3


def test_families_make_another_run_and_their_order_does_not(
    both: TuneRequest, store: Store
) -> None:
    def interrupted(request: TuneRequest) -> int:
        seen: list[Config] = []

        def fault(config: Config) -> Exception | None:
            seen.append(config)
            return RuntimeError("gone") if len(seen) == 5 else None

        with pytest.raises(RuntimeError):
            tune(request, FakeTarget(fault), FakeCompiler(), store)
        return store.runs()[0].run_id

    run_id = interrupted(both)
    one = tune(replace(both, families=both.families[:1]), FakeTarget(), FakeCompiler(), store)
    assert one.run_id != run_id
    again = tune(replace(both, families=both.families[::-1]), FakeTarget(), FakeCompiler(), store)
    assert (again.run_id, again.num_resumed > 0) == (run_id, True)
    assert again.num_trials == 2 * NUM_LEGAL


@pytest.mark.parametrize("count", [0, 2])
def test_families_are_some_and_different(both: TuneRequest, count: int) -> None:
    with pytest.raises(UsageError, match="each once"):
        replace(both, families=both.families[:1] * count)


def test_a_recording_chooses_its_family(both: TuneRequest, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "one.json.gz"
    write_recording(tiny_recording(both.families[1]), path)
    result = tune(both, RecordedTarget(path), None, store)
    assert [family.name for family in result.families] == ["twin"]
    assert result.counts[Status.OK] == NUM_LEGAL - 2


def test_kill_9_in_a_run_of_two_families_loses_only_what_was_on_the_gpu(tmp_path: Path) -> None:
    arguments = ("--sampler", "random", "--budget", "none", "--rounds", "2")
    arguments += ("--family", str(tmp_path / "twin"), "--fix", "ECHO=0")
    before = kill_at(tmp_path, 8, start(tmp_path, 8, *arguments))
    assert {str(outcome.config) for outcome in before} == set(measured(tmp_path)[:-1])
    assert {outcome.config.family for outcome in before} == {"tiny", "twin"}

    process = start(tmp_path, 0, *arguments)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert f"resumed with {len(before)} trials" in err
    after = stored(tmp_path)
    assert after[: len(before)] == before
    assert len({outcome.config for outcome in after}) == len(after) == NUM_LEGAL
    assert "winner: seed 0 of tiny with BN=64 (was 32), U=4 (was 1)" in out
    with open_store(str(tmp_path / "tune.db"), create=False) as store:
        numbers = [row.number for row in store.trial_rows()]
    assert len(set(numbers)) == len(numbers)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTarget:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "tune.db"))
    # The tiny family computes nothing.
    passed = Check("gpu", Verdict.PASSED, "as the test wanted", "a fake")
    monkeypatch.setattr(Certifier, "_steps", lambda *_: iter([(passed,)]))
    target = FakeTarget()
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target))
    return target


def test_the_command_line_searches_the_default_families(
    both: TuneRequest, gpu: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        autogemm.tuning.task.options, "default_families", lambda **_: list(both.families)
    )
    result = CliRunner().invoke(main, ["tune", "--size", "1024", "--trials", "40", "--json"])
    assert result.exit_code == 0, result.output
    opening = result.stderr.splitlines()[0]
    assert f"{NUM_LEGAL} legal of 36 configs (tiny), {NUM_LEGAL} legal of 36 configs (twin)" in (
        opening
    )
    facts = json.loads(result.stdout)
    assert [one["family"] for one in facts["families"]] == ["tiny", "twin"]
    assert sum(one["num_trials"] for one in facts["families"]) == facts["num_trials"] == 40
    assert facts["finals"]["entries"][0]["family"] == "tiny"
    shown = CliRunner().invoke(main, ["db", "show", "run:1", "--json"])
    assert json.loads(shown.stdout)[0]["families"] == "tiny twin"
    listed = CliRunner().invoke(main, ["db", "best", "--family", "twin", "--json"])
    assert [row["family"] for row in json.loads(listed.stdout)] == ["twin"]


def test_the_table_names_the_families(both: TuneRequest, gpu: FakeTarget, tmp_path: Path) -> None:
    folders = [str(family.yaml_path.parent) for family in both.families]
    named = [word for folder in folders for word in ("--family", folder)]
    result = CliRunner().invoke(main, ["tune", "--size", "1024", "--trials", "40", *named])
    assert result.exit_code == 0, result.output
    assert any(line.split()[:2] == ["1", "tiny"] for line in result.stdout.splitlines())
    assert " of tiny with " in result.stdout
    assert "tiny " in result.stdout.partition("search: ")[2]


def test_what_cannot_keep_a_fixed_value_is_left_out_unless_named(
    both: TuneRequest, gpu: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = family_at(
        tmp_path / "bare",
        both.families[0],
        "bare",
        **{"  U: {values: [1, 4], doc: unrolling}\n": "", "U: 1, ": ""},
    )
    monkeypatch.setattr(
        autogemm.tuning.task.options, "default_families", lambda **_: [bare, both.families[0]]
    )
    arguments = ["tune", "--size", "1024", "--trials", "5", "--json"]
    result = CliRunner().invoke(main, [*arguments, "--fix", "U=1"])
    assert result.exit_code == 0, result.output
    assert [one["family"] for one in json.loads(result.stdout)["families"]] == ["tiny"]
    for fix, named in (("NOPE=1", []), ("U=1", ["--family", str(bare.yaml_path.parent)])):
        result = CliRunner().invoke(main, [*arguments, "--fix", fix, *named])
        assert result.exit_code == 2
        assert "bare has no parameter" in result.stderr


def test_a_family_may_want_to_be_named(
    both: TuneRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    changes = {"always": "", "named": "searched: by_name\n"}
    for name, field in changes.items():
        before = 'architectures: ">=70"\n'
        copy = family_at(tmp_path / name, both.families[0], name, **{before: before + field})
        for path in (copy.yaml_path, copy.template_path):
            (data / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(autogemm.space.loading, "data_folder", lambda folder: data)
    assert list_families() == ["always", "named"]
    assert [family.name for family in default_families()] == ["always"]
    assert load_family("named").searched is Searched.BY_NAME


def test_when_a_family_is_searched_is_one_of_three_words(both: TuneRequest, tmp_path: Path) -> None:
    before = 'architectures: ">=70"\n'
    words = r"searched: .*'always', 'with_emulation' or 'by_name'.*got 'never'"
    with pytest.raises(FamilyError, match=words):
        family_at(
            tmp_path / "odd", both.families[0], "odd", **{before: f"{before}searched: never\n"}
        )

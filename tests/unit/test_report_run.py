"""Tests of the text of a run's report, before any browser shows it."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from report_samples import many_trials
from store_samples import H100, SPEC, fill, new_store

from autogemm.cli import main
from autogemm.insight.analysis import RunTrials
from autogemm.insight.explain import Missing, Request, Tools, conclusion, explain
from autogemm.insight.explain.neighbours import Place, legal_neighbours
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance, StopRule
from autogemm.space import load_family
from autogemm.store import BestQuery
from autogemm.support.installing import how_to_install

pytest.importorskip("pygments", reason="Pygments is not installed")

from autogemm.insight.report import render_page
from autogemm.insight.report.run import run_page, run_report
from autogemm.insight.report.words import advice, outcome_words

HOSTILE = "<script>document.title='taken'</script></script><!--"


class Texts(HTMLParser):
    """Text of the page by element, tags, and attributes that would load something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.loads: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        found = dict(attrs)
        for name in ("src", "href", "srcset", "action"):
            value = found.get(name)
            if value is not None and not value.startswith(("#", "data:")):
                self.loads.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def of(self, tag: str) -> list[str]:
        return [text for where, text in self.texts if where == tag]


def page_of(trials: RunTrials) -> str:
    return render_page(run_page(trials, None, Missing("not asked for"))).decode()


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(many_trials(300))


def test_the_page_is_one_file_that_loads_nothing(page: str) -> None:
    assert Texts(page).loads == []
    assert "default-src 'none'" in page
    assert len(page.encode()) < 1e6


def test_landmarks_and_tables_for_those_who_do_not_see_plots(page: str) -> None:
    assert '<a class="skip" href="#main">' in page
    for tag in ('<html lang="en">', "<header>", '<nav aria-label="Sections">', '<main id="main"'):
        assert tag in page
    assert page.count('<div class="drawing"></div>') == 5
    tables = page.count("<table>")
    assert tables == page.count("<caption>") > 3
    assert page.count('<th scope="col"') >= 2 * tables


def test_words_say_who_won_and_by_how_much() -> None:
    trials = many_trials(300)
    words = outcome_words(trials)
    assert words[0] == (
        "A config of sgemm_simt won: 2605 us, 52.76 TFLOP/s, measured on NVIDIA H100 80GB HBM3."
    )
    assert "the winner is 2.0% faster (75 % interval of paired rounds 1.010 to 1.030)" in words[1]
    finals = trials.run.finals
    assert finals is not None
    many = replace(trials.run, finals=replace(finals, rounds=30))
    assert "(95 % interval" in outcome_words(RunTrials(many, trials.trials))[1]
    assert "300 configs were tried, 297 ran" in words[-1]
    run = replace(trials.run, finals=None)
    assert "no finals" in outcome_words(RunTrials(run, trials.trials))[0]


def test_a_loss_is_called_one() -> None:
    trials = many_trials(100)
    finals = trials.run.finals
    assert finals is not None
    slow = replace(finals.winner, ratio=0.9, ratio_low=0.89, ratio_high=0.91)
    run = replace(trials.run, finals=replace(finals, entries=(slow,)))
    assert "the winner is 10.0% slower" in outcome_words(RunTrials(run, trials.trials))[1]
    tied = replace(finals, baseline=replace(finals.baseline, tied=True))
    run = replace(run, finals=tied)
    assert "the difference is not significant" in outcome_words(RunTrials(run, ()))[1]


def test_advice_depends_on_when_the_best_came() -> None:
    trials = many_trials(300)
    missing = Missing("not asked for")
    last = replace(trials.trials[-2], outcome=replace(trials.trials[0].outcome))
    fast = replace(last.outcome, measurement=replace(last.outcome.measurement, samples_us=(1.0,)))
    late = RunTrials(trials.run, (*trials.trials[:-2], replace(last, outcome=fast)))
    assert any("search longer" in line for line in advice(late, missing, {}))
    free = replace(trials.run, spec=replace(trials.run.spec, fix=()))
    early = RunTrials(free, (replace(last, number=0, outcome=fast), *trials.trials[1:]))
    assert any("promises little" in line for line in advice(early, missing, {}))
    shares = dict.fromkeys("ABCD", 0.2)
    assert any("A, B, C distinguish" in line for line in advice(early, missing, shares))
    used_up = RunTrials(replace(early.run, stopped_by=StopRule.USED_UP), early.trials)
    assert not any("A, B, C distinguish" in line for line in advice(used_up, missing, shares))
    assert "autogemm export" in advice(early, missing, {})[-1]
    assert not any("export" in line for line in advice(early, missing, {}, is_stored=False))


def test_a_change_is_advised_if_it_is_legal_worth_a_trial_and_not_tried() -> None:
    family = load_family("sgemm_simt")
    winner, problem = family.seeds[1], SPEC.problem
    none = Missing("not here")
    request = Request(family, winner, problem, H100, none)
    plain = explain(request, Tools(none, none))
    conflicts: Any = SimpleNamespace(shared_times_ideal=1.5, global_times_ideal=1.0)
    explained = replace(plain, accesses=conflicts)
    trials = many_trials(3)

    def advised(*tried: Config, **spec: Any) -> list[str]:
        rows = [
            replace(trials.trials[0], number=number, outcome=replace(outcome, config=config))
            for number, config in enumerate((winner, *tried))
            for outcome in [trials.trials[0].outcome]
        ]
        run = replace(trials.run, spec=replace(trials.run.spec, **({"fix": ()} | spec)))
        return [
            line
            for line in advice(RunTrials(run, tuple(rows)), explained, {})
            if "over its banks" in line
        ]

    (line,) = advised()
    changes = re.findall(r"(\w+) (\S+) -> (\w+)", line)
    legal = {
        (name, str(before), str(other[name]))
        for name, before, other in legal_neighbours(Place(family, problem, H100), winner)
    }
    assert changes
    assert set(changes) <= legal
    # One change less with each that was tried, and with each value that --fix leaves out.
    name, _, after = changes[0]
    value = int(after) if after.isdigit() else after
    tried = Config.of(family.name, winner.as_dict() | {name: value})
    assert f"{name} {winner[name]} -> {after}" not in "".join(advised(tried))
    assert f"{name} " not in "".join(advised(fix=((name, (winner[name],)),)))
    # All tried: nothing is left to advise.
    every = [other for _, _, other in legal_neighbours(Place(family, problem, H100), winner)]
    assert advised(*every) == []


def test_a_verdict_comes_first() -> None:
    family = load_family("sgemm_simt")
    none = Missing("not here")
    plain = explain(Request(family, family.seeds[1], SPEC.problem, H100, none), Tools(none, none))
    assert conclusion(plain)[0] == (
        "In short: arithmetic limits the kernel, and no single loss stands out; some facts are "
        "missing, see below."
    )
    waves: Any = (SimpleNamespace(kernel="k", blocks=9, waves=0.1, lost_share=0.9),)
    assert "90% of it is idle" in conclusion(replace(plain, waves=waves))[0]
    for tensor, said in ((0, True), (16, False)):
        # Multiply-adds beside tensor cores scale sums: they say nothing of the peak.
        mix = SimpleNamespace(ffma=64, tensor=tensor, instructions=128)
        loops: Any = (SimpleNamespace(kernel="k", mix=mix),)
        text = " ".join(conclusion(replace(plain, main_loops=loops)))
        assert ("128 instructions for 64 multiply-adds, so at most 50% of the" in text) == said
    thin = Problem.of_size("16x4096x4096")
    skinny = load_family("sgemm_skinny")
    bound = explain(Request(skinny, skinny.seeds[0], thin, H100, none), Tools(none, none))
    assert conclusion(bound)[0].startswith("In short: device memory limits this problem")


def test_recorded_times_are_never_called_measured() -> None:
    trials = many_trials(100)
    spec = replace(SPEC, provenance=Provenance.RECORDED)
    page = page_of(RunTrials(replace(trials.run, spec=spec), trials.trials))
    texts = Texts(page)
    assert "Recorded times." in texts.of("strong")
    assert any("recorded on NVIDIA H100" in text for text in texts.of("p"))
    assert not any("measured on" in text for _, text in texts.texts)
    assert data_of(page)["run"]["isRecorded"] is True
    assert "Recorded times." not in Texts(page_of(trials)).of("strong")


def test_hostile_names_are_text() -> None:
    page = page_of(many_trials(60, replace(H100, name=HOSTILE), HOSTILE))
    texts = Texts(page)
    assert f"4096 nn f32 on {HOSTILE}" in texts.of("h1")
    assert f"4096 nn f32 on {HOSTILE}" in texts.of("title")
    assert page.count("<script") == page_of(many_trials(60)).count("<script")
    assert "document.title='taken'</script>" not in page


def test_the_data_of_plots_are_those_of_the_trials(page: str) -> None:
    trials, run = many_trials(300), data_of(page)["run"]
    measured = list(trials.measured())
    assert run["numbers"] == [trial.number for trial, _ in measured]
    assert run["merits"] == [pytest.approx(merit, rel=1e-4) for _, merit in measured]
    assert run["seconds"][-1] == pytest.approx(0.07 * 298, abs=0.01)
    for parameter in run["parameters"]:
        shown = [parameter["values"][code] for code in parameter["codes"]]
        assert shown == [trial.outcome.config[parameter["name"]] for trial, _ in measured]
    assert run["importance"][0][0] == "P00"


def test_ten_thousand_trials_stay_small() -> None:
    assert len(page_of(many_trials(10_000)).encode()) < 1.5e6


def report(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["report", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    with new_store(tmp_path) as store:
        fill(store)
        assert run_report(store, BestQuery(run_id=1), None).title.startswith("4096 nn f32")
    path = tmp_path / "a.html"
    result = report(path, "--run", 1, "--no-explain")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{path}: 4096 nn f32 on NVIDIA H100 80GB HBM3, autogemm run 1")
    page = path.read_text()
    texts = Texts(page)
    assert "BM" in "".join(text for where, text in texts.texts if where == "span")
    assert "illegal address" in texts.of("td")
    assert "41 of 41 edge cases" in texts.of("td")
    assert report(path, "--run", 1, "--no-explain").exit_code == 0, "a report replaces a report"
    (tmp_path / "mine.html").write_text("<!DOCTYPE html>")
    assert report(tmp_path / "mine.html", "--run", 1).exit_code == 2
    assert (tmp_path / "mine.html").read_text() == "<!DOCTYPE html>"
    assert report(tmp_path / "cut.html", "--run", 3, "--no-explain").exit_code == 0
    assert "The run had no finals." in Texts((tmp_path / "cut.html").read_text()).of("p")
    assert report(tmp_path / "none.html", "--run", 9).exit_code == 2
    assert not (tmp_path / "none.html").exists()


def test_a_family_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    with new_store(tmp_path) as store:
        fill(store)
    # Its config is none of today's family: the report says so and goes on.
    result = report(tmp_path / "a.html", "--run", 1)
    assert result.exit_code == 0, result.output
    assert "The limits of the kernel are not known" in (tmp_path / "a.html").read_text()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogemm.insight.report.page.find_spec", lambda name: None)
    result = report(tmp_path / "a.html")
    assert result.exit_code == 2
    assert f"reports need pygments: {how_to_install('report')}" in result.stderr


def test_libraries_are_those_that_the_page_beside_them_names(page: str) -> None:
    folder = files("autogemm.insight.report").joinpath("vendor")
    listed = folder.joinpath("README.md").read_text()
    found = [one for one in folder.iterdir() if one.name.endswith(".js")]
    assert len(found) == 2
    for one in found:
        line = next(line for line in listed.splitlines() if line.startswith(f"| `{one.name}`"))
        assert sha256(one.read_bytes()).hexdigest() in line
        assert one.read_text() in page
    assert page.count("Permission to use, copy, modify") == 2


def test_names_of_parameters_have_meanings_and_numbers_come_first(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        fill(store)
        page = render_page(run_report(store, BestQuery(run_id=1), None)).decode()
    assert 'class="term" title="rows of C per thread block">BM</button>=128' in page
    names = re.findall(r'<th scope="col" class="\w+">(.*?)</th>', page)
    assert names.index("x cuBLAS") < names.index("family") < names.index("config")
    assert "Their meaning" in page

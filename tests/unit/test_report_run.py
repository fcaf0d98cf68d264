"""What the report of a run says, before any browser shows it."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from report_samples import many_trials
from store_samples import H100, SPEC, fill, new_store

from autogemm.cli import main
from autogemm.insight.analysis import RunTrials
from autogemm.insight.explain import Missing
from autogemm.model.results.outcome import Provenance
from autogemm.store import BestQuery

pytest.importorskip("plotly", reason="Plotly is not installed")
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
    assert len(page.encode()) < 6e6


def test_landmarks_and_tables_for_those_who_do_not_see_plots(page: str) -> None:
    assert '<a class="skip" href="#main">' in page
    for tag in ('<html lang="en">', "<header>", '<nav aria-label="Sections">', '<main id="main"'):
        assert tag in page
    assert page.count('class="drawing" role="group" aria-label="') == 5
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
    assert "no difference between the two was shown" in outcome_words(RunTrials(run, ()))[1]


def test_advice_depends_on_when_the_best_came() -> None:
    trials = many_trials(300)
    missing = Missing("not asked for")
    last = replace(trials.trials[-2], outcome=replace(trials.trials[0].outcome))
    fast = replace(last.outcome, measurement=replace(last.outcome.measurement, samples_us=(1.0,)))
    late = RunTrials(trials.run, (*trials.trials[:-2], replace(last, outcome=fast)))
    assert any("search longer" in line for line in advice(late, missing, {}))
    early = RunTrials(trials.run, (replace(last, number=0, outcome=fast), *trials.trials[1:]))
    assert any("promises little" in line for line in advice(early, missing, {}))
    assert any(
        "mostly by A, B, C" in line for line in advice(early, missing, dict.fromkeys("ABCD", 0.2))
    )


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
    assert len(page_of(many_trials(10_000)).encode()) < 10e6


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
    assert "What limits it cannot be said here" in (tmp_path / "a.html").read_text()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogemm.insight.report.page.find_spec", lambda name: None)
    result = report(tmp_path / "a.html")
    assert result.exit_code == 2
    assert "reports need plotly and pygments: pip install 'autogemm[report]'" in result.stderr
